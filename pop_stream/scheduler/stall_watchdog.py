"""Watches the scheduler's own progress, so that one that hangs ends and is started again.

Faust can stop committing or reading for good without any error. A supervisor restarts a process
that ends, but not one that only looks alive.
"""

import asyncio
from collections.abc import Callable, Iterable, Set
from datetime import timedelta
from typing import Final

import structlog
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pop_stream.kafka.topics import Topics
from pop_stream.policy.stall import StallDetector
from pop_stream.ports.clock import Clock
from pop_stream.ports.lag import GroupOffsets, LagProbe
from pop_stream.scheduler.round_writer import PART

_CHECKS_PER_TIMEOUT: Final = 10
"""Checks within the stall timeout, but at most one a second."""

_log = structlog.get_logger()


class StallWatchdog(Collector):
    """Compares what waits on `pop.ready` with what this scheduler has committed.

    As a collector it shows that lag, as of its last check, under the scheduler's group.

    Args:
        probe: Reads both offsets from the brokers.
        topics: Names of topics.
        clock: For the instants.
        stall_timeout: How long input may wait without a commit.
        partitions: Those assigned to this process now.
        is_suspended: Whether a lack of commits is excused, as while brokers are away.
    """

    def __init__(  # what it compares, and with what it excuses
        self,
        probe: LagProbe,
        topics: Topics,
        clock: Clock,
        *,
        stall_timeout: timedelta,
        partitions: Callable[[], Set[int]],
        is_suspended: Callable[[], bool],
    ) -> None:
        self._probe = probe
        self._topics = topics
        self._clock = clock
        self._partitions = partitions
        self._is_suspended = is_suspended
        self._timeout_s = stall_timeout.total_seconds()
        self._pause_s = max(1.0, self._timeout_s / _CHECKS_PER_TIMEOUT)
        self._lag = 0
        self._behind_since: float | None = None
        self._stall = StallDetector(
            stalled_after_s=self._timeout_s, max_gap_s=5 * self._pause_s
        )

    async def run(self) -> None:
        """Check from time to time; returns when the scheduler has stalled, which is logged."""
        while True:
            if await self.has_stalled():
                return
            await asyncio.sleep(self._pause_s)

    async def has_stalled(self) -> bool:
        """Check once; True after input has waited for the stall timeout without a commit.

        Brokers that do not answer and a suspension start the timeout anew.
        """
        read = await self._probe.fetch_group_offsets(
            self._topics.group(PART), self._topics.ready
        )
        if read is None or self._is_suspended():
            self._stall.reset()
            return False
        owned, now = self._partitions(), self._clock.now().timestamp()
        self._note_lag(read, owned, now)
        stalled = self._stall.observe(
            now,
            ends={one: end for one, end in read.ends.items() if one in owned},
            committed=read.committed,
        )
        if stalled:
            _log.error(
                "scheduler.stalled",
                partitions=stalled,
                waiting={one: read.ends[one] - read.committed.get(one, 0) for one in stalled},
                for_s=self._timeout_s,
            )
        return bool(stalled)

    def _note_lag(self, read: GroupOffsets, owned: Set[int], now: float) -> None:
        ends = {one: end for one, end in read.ends.items() if one in owned}
        self._lag = sum(max(0, end - read.committed.get(one, 0)) for one, end in ends.items())
        if not self._lag:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Lag and age of this process's partitions of `pop.ready`."""
        now, since = self._clock.now().timestamp(), self._behind_since
        lag = GaugeMetricFamily(
            "pop_scheduler_lag", "Records of pop.ready that are not committed yet."
        )
        lag.add_metric([], self._lag)
        age = GaugeMetricFamily(
            "pop_scheduler_behind_seconds",
            "Since checks find records of pop.ready that are not committed.",
        )
        age.add_metric([], 0.0 if since is None else max(0.0, now - since))
        yield lag
        yield age
