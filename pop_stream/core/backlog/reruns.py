"""Which agendas ended after they were run again, as far as is remembered."""

from collections.abc import Mapping
from typing import Final

from pop_stream.core.backlog.page import BacklogPage

MAX_RERUNS: Final = 10_000
"""Agendas that are remembered; the one that ended longest ago is forgotten first."""

FORGOTTEN: Final = 0
"""In place of an attempt: the agenda is remembered no more."""


class EndedReruns:
    """The last attempts of such agendas; what changed of them can be kept and laid again.

    Whoever wanted one run again may not know yet that it was, and want it once more.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._changed: dict[str, int] = {}

    def remember(self, agenda_id: str, attempt: int) -> None:
        """The agenda has ended with this attempt."""
        self._note(agenda_id, attempt)
        if len(self._last) > MAX_RERUNS:
            self._note(next(iter(self._last)), FORGOTTEN)

    def add_page(self, page: BacklogPage) -> None:
        """Forget whoever begins with its first attempt: it uses an id of before anew."""
        for slot, agenda_id in enumerate(page.ids):
            if agenda_id in self._last and page.options_of(slot).attempt == 1:
                self._note(agenda_id, FORGOTTEN)

    def is_over(self, agenda_id: str, attempt: int) -> bool:
        """Whether this is a rerun, and known to have ended with this attempt or a later one."""
        return 1 < attempt <= self._last.get(agenda_id, FORGOTTEN)

    def drain_changed(self) -> dict[str, int]:
        """What changed since the last call, in the order in which it did."""
        changed, self._changed = self._changed, {}
        return changed

    def all(self) -> dict[str, int]:
        """All that is remembered, the one that ended longest ago first."""
        return dict(self._last)

    def apply(self, known: Mapping[str, int]) -> None:
        """Take in what was kept, after what was kept before it."""
        for agenda_id, attempt in known.items():
            self._last.pop(agenda_id, None)
            if attempt != FORGOTTEN:
                self._last[agenda_id] = attempt

    def _note(self, agenda_id: str, attempt: int) -> None:
        self._changed.pop(agenda_id, None)
        self._changed[agenda_id] = attempt
        self.apply({agenda_id: attempt})
