"""Which agendas ended after they were run again, as far as is remembered."""

from collections import OrderedDict
from typing import Final

MOST_RERUN: Final = 10_000
"""Agendas that are remembered; the one that ended longest ago is forgotten first."""


class Reruns:
    """The last attempts of such agendas.

    Whoever wanted one run again may not know yet that it was, and want it once more.
    """

    def __init__(self) -> None:
        self._last: OrderedDict[str, int] = OrderedDict()

    def remember(self, agenda_id: str, attempt: int) -> None:
        """The agenda has ended with this attempt."""
        self._last[agenda_id] = attempt
        self._last.move_to_end(agenda_id)
        if len(self._last) > MOST_RERUN:
            self._last.popitem(last=False)

    def is_over(self, agenda_id: str, attempt: int) -> bool:
        """Whether the agenda is known to have ended with this attempt or a later one."""
        return attempt <= self._last.get(agenda_id, 0)
