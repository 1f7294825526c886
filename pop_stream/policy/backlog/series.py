"""Series: how far each was placed, so that what is submitted again is not placed again.

An agenda known by its id alone can be distinguished from its repeat only while it is here. A
series has a memory of its own: one number, which outlives every agenda of it. So a part that
submits on its own, as the timekeeper does, may submit at least once; the scheduler of the
insight, which alone places agendas there, places each position at most once.

Positions must grow in the order in which the agendas reach the scheduler. That is their order
in `pop.submissions` if they are all in one partition, see `series_partition`.

Agendas that were run again are remembered likewise, by their last attempt (`EndedReruns`).

The memory is bounded. Beyond `MAX_SERIES` the series that moved longest ago is forgotten; what
is submitted again of that one is then placed again, unless it is still here.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from pop_stream.model.events.scheduling import RoutedAgenda
from pop_stream.model.series import series_key
from pop_stream.policy.backlog.agenda_index import BacklogPage

MAX_SERIES: Final = 200_000
"""Most series of an insight that are remembered: about 200 bytes each."""

FORGOTTEN: Final = -1
"""In place of a position: the series is not remembered any more."""


class PlacedSeries:
    """The last position placed of every series of one insight.

    Changes are drained into deltas; a delta's positions replace those that are lower.
    """

    def __init__(self, most: int = MAX_SERIES) -> None:
        self._most = most
        self._last: OrderedDict[str, int] = OrderedDict()
        self._changed: dict[str, int] = {}

    def record_if_new(self, agenda: RoutedAgenda) -> bool:
        """Whether the agenda is after all of its series, or of none; records its position.

        A second call with the same agenda returns False, unless it is of no series.
        """
        if agenda.series is None:
            return True
        key = _key(agenda)
        if agenda.series.position <= self._last.get(key, FORGOTTEN):
            return False
        self._note(key, agenda.series.position)
        if len(self._last) > self._most:
            self._note(next(iter(self._last)), FORGOTTEN)
        return True

    def reason_against(self, agenda: RoutedAgenda) -> str:
        """Why the agenda, which `record_if_new` turned down, is not placed; for people."""
        if agenda.series is None:
            return ""
        last = self._last.get(_key(agenda), FORGOTTEN)
        return (
            f"series {agenda.series.id!r} is at position {last}, so {agenda.series.position} "
            "is not placed; submit a greater position, or leave series out"
        )

    def drain_changed(self) -> dict[str, int]:
        """What changed since the last call, in the order in which it did."""
        changed, self._changed = self._changed, {}
        return changed

    def all(self) -> dict[str, int]:
        """All that is remembered, the one that moved longest ago first."""
        return dict(self._last)

    def apply(self, known: Mapping[str, int]) -> None:
        """Apply one delta's values, or those that pages tell; a position never goes back."""
        for key, position in known.items():
            before = self._last.pop(key, FORGOTTEN)
            if position != FORGOTTEN:
                self._last[key] = max(before, position)

    def _note(self, key: str, position: int) -> None:
        self._changed.pop(key, None)
        self._changed[key] = position
        self.apply({key: position})


MAX_RERUNS: Final = 10_000
"""Most ended reruns remembered; the one that ended longest ago is forgotten first."""

_NO_ATTEMPT: Final = 0
"""In place of an attempt: the agenda is not remembered any more."""


class EndedReruns:
    """The last attempts of agendas that ended after they were run again.

    A person who wanted a rerun may not see yet that it ended, and ask for the same one again;
    that request must not start another run. Changes are drained into deltas.
    """

    def __init__(self) -> None:
        self._last: OrderedDict[str, int] = OrderedDict()
        self._changed: dict[str, int] = {}

    def remember(self, agenda_id: str, attempt: int) -> None:
        """The agenda has ended with this attempt."""
        self._note(agenda_id, attempt)
        if len(self._last) > MAX_RERUNS:
            self._note(next(iter(self._last)), _NO_ATTEMPT)

    def add_page(self, page: BacklogPage) -> None:
        """Forget agendas that come with their first attempt: their ids are used again."""
        for slot, agenda_id in enumerate(page.ids):
            if agenda_id in self._last and page.options_of(slot).attempt == 1:
                self._note(agenda_id, _NO_ATTEMPT)

    def is_over(self, agenda_id: str, attempt: int) -> bool:
        """Whether this is a rerun, and known to have ended with this attempt or a later one."""
        return 1 < attempt <= self._last.get(agenda_id, _NO_ATTEMPT)

    def drain_changed(self) -> dict[str, int]:
        """What changed since the last call, in the order in which it did."""
        changed, self._changed = self._changed, {}
        return changed

    def all(self) -> dict[str, int]:
        """All that is remembered, the one that ended longest ago first."""
        return dict(self._last)

    def apply(self, known: Mapping[str, int]) -> None:
        """Apply one delta's values, oldest delta first."""
        for agenda_id, attempt in known.items():
            self._last.pop(agenda_id, None)
            if attempt != _NO_ATTEMPT:
                self._last[agenda_id] = attempt

    def _note(self, agenda_id: str, attempt: int) -> None:
        self._changed.pop(agenda_id, None)
        self._changed[agenda_id] = attempt
        self.apply({agenda_id: attempt})


def _key(agenda: RoutedAgenda) -> str:
    """A series is its customer's: nobody moves another's."""
    return series_key(agenda.customer_id, agenda.series.id if agenda.series is not None else "")
