"""Agendas that were let in and are not yet counted by whoever has them next."""

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Final

from pop_stream.core.values.counted import add

RecordPosition = tuple[int, int]
"""Where an agenda was written: offset, and index within the record."""

LONG_LANE: Final = 1_000
"""Entries of a lane, above which neighbours of one customer share one."""

_MAX_MERGED: Final = 64


class InFlightSubmissions:
    """Counts by customer; an agenda leaves when its lane is known to have come past it.

    Within a lane positions grow, but for neighbours: one that comes late leaves with those
    before it. In a long lane neighbours of one customer share an entry, and leave together.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._unwritten: dict[str, int] = {}
        self._lanes: dict[Hashable, deque[tuple[RecordPosition, str, int]]] = {}
        self._changed: set[str] = set()

    @property
    def counts(self) -> Mapping[str, int]:
        """By customer; those with none are not in it."""
        return self._counts

    def drain_changed(self) -> set[str]:
        """Customers whose counts may have changed since the last call."""
        touched, self._changed = self._changed, set()
        return touched

    def begin(self, customer_id: str) -> None:
        """One was let in; where it will be written is not known yet."""
        self._unwritten[customer_id] = self._unwritten.get(customer_id, 0) + 1
        self._add(customer_id, 1)

    def discard(self, customer_id: str) -> None:
        """One of those begun came to nothing."""
        if self._end(customer_id):
            self._add(customer_id, -1)

    def place(self, customer_id: str, lane: Hashable, position: RecordPosition) -> None:
        """One of those begun was written."""
        if not self._end(customer_id):
            return
        entries = self._lanes.setdefault(lane, deque())
        if (
            len(entries) > LONG_LANE
            and entries[-1][1] == customer_id
            and entries[-1][2] < _MAX_MERGED
        ):
            last, _, count = entries.pop()
            entries.append((max(last, position), customer_id, count + 1))
        else:
            entries.append((position, customer_id, 1))

    def advance(self, lane: Hashable, position: RecordPosition) -> None:
        """Whoever comes next has taken the lane's agendas up to and with this position."""
        entries = self._lanes.get(lane)
        if entries is None:
            return
        while entries and entries[0][0] <= position:
            _, customer_id, count = entries.popleft()
            self._add(customer_id, -count)
        if not entries:
            del self._lanes[lane]

    def _end(self, customer_id: str) -> bool:
        left = self._unwritten.get(customer_id, 0) - 1
        if left > 0:
            self._unwritten[customer_id] = left
        else:
            self._unwritten.pop(customer_id, None)
        return left >= 0

    def _add(self, customer_id: str, count: int) -> None:
        self._changed.add(customer_id)
        add(self._counts, customer_id, count)
