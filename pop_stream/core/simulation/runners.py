"""Simulated pullers: an insight's topic, the runners that take from it, and what they run."""

from collections import deque
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import NamedTuple

from pop_stream.core.gate.spread import spread
from pop_stream.core.values.partitioning import partition_of


class TakenAgenda(NamedTuple):
    """An agenda that an idle runner took; `awaited` if one was idle when it came."""

    agenda_id: str
    partition: int
    awaited: bool


class SimulatedRunners:
    """Runners with the lines they serve; every line is first in, first out.

    Args:
        runners: At least one for each partition.
        partitions: Of the topic.
    """

    def __init__(self, runners: int, partitions: int) -> None:
        if runners < partitions:
            msg = f"{partitions} partitions need as many runners, got {runners}"
            raise ValueError(msg)
        self._lines: list[deque[tuple[str, bool]]] = [deque() for _ in range(partitions)]
        self._idle = [len(range(one, runners, partitions)) for one in range(partitions)]
        self._busy: list[tuple[float, int, str, int]] = []
        self._closed_until = -inf
        self._numbers = count()

    @property
    def idle(self) -> int:
        """Runners that have nothing to run."""
        return sum(self._idle)

    @property
    def next_end(self) -> float:
        """When the next agenda ends; infinite if none runs."""
        return self._busy[0][0] if self._busy else inf

    @property
    def opens_at(self) -> float:
        """When agendas are taken again that wait for it; infinite if none does."""
        is_awaited = self._closed_until > -inf and any(self._lines)
        return self._closed_until if is_awaited else inf

    def close(self, until: float) -> None:
        """Take nothing before this instant."""
        self._closed_until = until

    def deliver(self, agenda_id: str) -> None:
        """An agenda is on the topic."""
        chosen, partitions = 0, len(self._lines)
        if partitions > 1:
            home = partition_of(agenda_id.encode(), partitions)
            [chosen] = spread([home], [*map(len, self._lines)])
        line = self._lines[chosen]
        line.append((agenda_id, self._idle[chosen] > len(line)))

    def take(self, now: float) -> list[TakenAgenda]:
        """Agendas that idle runners take now; `run` them."""
        if now < self._closed_until:
            return []
        self._closed_until = -inf
        taken: list[TakenAgenda] = []
        for partition, line in enumerate(self._lines):
            while line and self._idle[partition]:
                self._idle[partition] -= 1
                agenda_id, awaited = line.popleft()
                taken.append(TakenAgenda(agenda_id, partition, awaited))
        return taken

    def run(self, agenda_id: str, partition: int, *, until: float) -> None:
        """Keep one of the partition's runners busy."""
        heappush(self._busy, (until, next(self._numbers), agenda_id, partition))

    def end(self, now: float) -> list[str]:
        """Agendas that have ended; their runners are idle again."""
        ended: list[str] = []
        while self._busy and self._busy[0][0] <= now:
            _, _, agenda_id, partition = heappop(self._busy)
            self._idle[partition] += 1
            ended.append(agenda_id)
        return ended
