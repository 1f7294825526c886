"""Ticks: what makes the scheduler look again when no event would.

Only the agent may write the table, so everything here just publishes to `pop.ready`.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import structlog

from pop_stream.bus.topics import Topics
from pop_stream.core.errors import UnavailableError
from pop_stream.core.events import InsightTick, encode
from pop_stream.ports import Clock, LagProbe, Publisher, Record
from pop_stream.scheduler.desk import Desk
from pop_stream.scheduler.rounds import Rounds

LEAST_PAUSE_S: Final = 0.01
"""So that many small dues do not become a busy loop."""

_log = structlog.get_logger()


class Ticker:
    """Wakes partitions that were gained, and insights that may emit again."""

    def __init__(
        self,
        rounds: Rounds,
        probe: LagProbe,
        publisher: Publisher,
        topics: Topics,
        interval: timedelta,
        clock: Clock,
    ) -> None:
        self._rounds = rounds
        self._probe = probe
        self._publisher = publisher
        self._topics = topics
        self._clock = clock
        self._interval_s = interval.total_seconds()
        self._gained: set[int] = set()

    def gain(self, partitions: set[int]) -> None:
        """These partitions have just been assigned to this worker."""
        self._gained |= partitions

    def lose(self, partitions: set[int]) -> None:
        """These partitions have just been revoked."""
        self._gained -= partitions

    async def run(self) -> None:
        """Tick until cancelled; a broker that is away is waited for."""
        while True:
            try:
                await self._tick()
            except UnavailableError as error:
                _log.info("tick.failed", error=str(error))
            await asyncio.sleep(self._pause_s())

    def _pause_s(self) -> float:
        """Up to the interval, but not past the moment when someone's token or step is due."""
        now = self._clock.now().timestamp()
        # One without slots is woken by what frees them, not by its dues.
        able = (desk for desk in self._rounds.desks() if desk.slots() > 0)
        dues = (desk.backlog.queue.due_at for desk in able)
        soonest = min((due for due in dues if due is not None), default=now + self._interval_s)
        return min(self._interval_s, max(LEAST_PAUSE_S, soonest - now))

    async def _tick(self) -> None:
        ticks = [self._wake(partition) for partition in self._gained - self._rounds.loaded()]
        waiting = [desk for desk in self._rounds.desks() if desk.backlog.ready]
        ticks += await self._look(waiting)
        if ticks:
            await self._publisher.publish(ticks)
        self._gained -= self._rounds.loaded()

    async def _look(self, waiting: Sequence[Desk]) -> list[Record]:
        """Ask for the lag of insights that wait, and tick those that may go on."""
        emitted = {desk.insight_id: desk.backlog.emitted for desk in waiting}
        blocked = [desk for desk in waiting if desk.depth.unclaimed]
        lags = await self._probe.lags([desk.insight_id for desk in blocked]) if blocked else {}
        ticks: list[Record] = []
        for desk in waiting:
            lag, asked_at = lags.get(desk.insight_id), emitted[desk.insight_id]
            fell = lag is not None and lag < desk.depth.unclaimed
            if fell or self._rounds.may_emit(desk):
                event = InsightTick(insight_id=desk.insight_id, lag=lag, emitted=asked_at)
                key = desk.insight_id.encode()
                ticks.append(Record(self._topics.ready, key, encode(event), desk.partition))
        return ticks

    def _wake(self, partition: int) -> Record:
        return Record(self._topics.ready, None, encode(InsightTick(insight_id="")), partition)
