"""The clock of what was heard: until when everything told has been relayed."""

from collections import deque
from collections.abc import Mapping
from typing import Final

_MAX_KEPT: Final = 1_000
"""Instants that wait for the relay to catch up; when full, later ones are not noted."""


class RelayWatermark:
    """Moves on as the relay commits, and stands still while it does not.

    Instants are seconds since the epoch, on the clock of who asks.
    """

    def __init__(self) -> None:
        self.until: float | None = None
        self._ends: deque[tuple[float, Mapping[int, int]]] = deque()

    def observe(
        self, asked_at: float, ends: Mapping[int, int], relayed: Mapping[int, int]
    ) -> None:
        """Take note of a look at the lifecycle's topic.

        Args:
            asked_at: Before the ends were asked for.
            ends: By partition, the offset after its last record.
            relayed: By partition, the offset up to which the relay has committed; one it
                never read may be left out.
        """
        if len(self._ends) < _MAX_KEPT:
            self._ends.append((asked_at, ends))
        while self._ends and _covers(relayed, self._ends[0][1]):
            self.until = self._ends.popleft()[0]


def _covers(relayed: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    return all(relayed.get(partition, 0) >= end for partition, end in ends.items())
