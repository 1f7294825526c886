"""When agendas are due: a heap with lazy deletion, in memory only."""

from heapq import heapify, heappop, heappush
from typing import Final

_SLACK: Final = 64
"""Outdated entries that are borne before they are looked for."""


class DueHeap:
    """One instant per place in the backlog, in seconds since the epoch."""

    __slots__ = ("_at", "_heap")

    def __init__(self) -> None:
        self._at: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []

    def set(self, ref: int, at: float) -> None:
        """The place is due then, and no more when it was due before."""
        self._at[ref] = at
        heappush(self._heap, (at, ref))
        if len(self._heap) > 2 * len(self._at) + _SLACK:
            self._heap = [(at, ref) for ref, at in self._at.items()]
            heapify(self._heap)

    def clear(self, ref: int) -> None:
        """The place is not due any more; nothing happens if it never was."""
        self._at.pop(ref, None)

    @property
    def next_at(self) -> float | None:
        """The soonest instant; None for none."""
        while self._heap:
            at, ref = self._heap[0]
            if self._at.get(ref) == at:
                return at
            heappop(self._heap)
        return None

    def pop_due(self, now: float, most: int) -> list[int]:
        """Places that are due by `now`, soonest first and each once, at most so many."""
        due: list[int] = []
        while len(due) < most and (at := self.next_at) is not None and at <= now:
            due.append(heappop(self._heap)[1])
            del self._at[due[-1]]
        return due
