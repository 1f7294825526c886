"""Ticks: what makes the scheduler look again when no event would.

Only the agent may write the table, so everything here just publishes to `pop.ready`; lease
clocks are in no table, so they may be set here.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from pop_stream.bus.topics import Topics
from pop_stream.core.backlog.heard import HeardClock
from pop_stream.core.definitions.definitions import GroupType
from pop_stream.core.errors import UnavailableError
from pop_stream.core.events import InsightTick, encode
from pop_stream.core.values.ids import InsightId
from pop_stream.ports.clock import Clock
from pop_stream.ports.lag import LagProbe, Look
from pop_stream.ports.wire import Publisher, Record
from pop_stream.scheduler.desk import Desk
from pop_stream.scheduler.doorway import Doorway
from pop_stream.scheduler.rounds import Rounds

LEAST_PAUSE_S: Final = 0.01
"""So that many small dues do not become a busy loop."""

LISTEN_EVERY_S: Final = 1.0
"""Between two looks at what the relay has read, while any lease runs."""

DEAF_AFTER_S: Final = 3.0
"""Without such a look for longer, an outage may have kept pullers from being heard."""

_SET_BACK_S: Final = 5.0
"""Less is borne: whatever the clock is to bring comes so much later."""

_AGAIN_AFTER_S: Final = 1.0
"""A tick for a due that was not acted on is repeated after this."""

_log = structlog.get_logger()


class Ticker:
    """Wakes partitions that were gained, and insights in which something may happen.

    Args:
        rounds: All desks of this worker.
        probe: Reads lags from the broker.
        publisher: Of ticks.
        topics: Names of topics.
        interval: Between two looks at lags, however often something is due in between.
        clock: Says what is due.
        is_settled: Whether Faust has come through the last rebalance. What it read before, it
            may have dropped without a note, and with it the last record for a long time.
    """

    def __init__(  # noqa: PLR0913  # everything a look asks, named once
        self,
        rounds: Rounds,
        probe: LagProbe,
        publisher: Publisher,
        topics: Topics,
        interval: timedelta,
        clock: Clock,
        *,
        is_settled: Callable[[], bool] = lambda: True,
    ) -> None:
        self._rounds = rounds
        self._probe = probe
        self._publisher = publisher
        self._topics = topics
        self._clock = clock
        self._interval_s = interval.total_seconds()
        self._is_settled = is_settled
        self._gained: set[int] = set()
        self._unsettled: set[int] = set()
        self._heard = HeardClock()
        self._doorway = Doorway(probe, topics.group("pulls"))
        self._listened_at: float | None = None
        self._asked_at: float | None = None
        self._looked_at: float | None = None
        self._woken: dict[str, tuple[float, float]] = {}
        self._latest = 0.0

    def gain(self, partitions: set[int]) -> None:
        """These partitions have just been assigned to this worker."""
        self._gained |= partitions
        self._unsettled |= partitions

    def lose(self, partitions: set[int]) -> None:
        """These partitions have just been revoked."""
        self._gained -= partitions
        self._unsettled -= partitions

    async def run(self) -> None:
        """Tick until cancelled; a broker that is away is waited for.

        Raises:
            RuntimeError: If the clock was set back: leases, pauses and rate limits would stand
                still until it is where it was. Started again, all of them begin anew.
        """
        while True:
            self._expect_no_step_back()
            try:
                await self._tick()
            except UnavailableError as error:
                _log.info("tick.failed", error=str(error))
            await asyncio.sleep(self._pause_s())

    def _expect_no_step_back(self) -> None:
        now = self._now()
        if now < self._latest - _SET_BACK_S:
            msg = f"the clock was set back by {self._latest - now:.1f} s; start anew"
            raise RuntimeError(msg)
        self._latest = max(self._latest, now)

    def _pause_s(self) -> float:
        """Up to the interval, but not past the moment when something, or a look, is due."""
        now = self._now()
        soonest = (now if self._looked_at is None else self._looked_at) + self._interval_s
        for desk in self._rounds.desks():
            # One without slots is woken by what frees them, not by its customers' dues.
            turn_at = desk.backlog.queue.due_at if desk.slots() > 0 else None
            for due in (turn_at, self._due_at(desk, now)):
                if due is not None and due < soonest:
                    soonest = due
        return min(self._interval_s, max(LEAST_PAUSE_S, soonest - now))

    async def _tick(self) -> None:
        # Before the look, which a broker that is away may hold up for seconds.
        await self._wake_gained()
        ticks: list[Record] = []
        desks = self._rounds.desks()
        emitted = {desk.insight_id: desk.backlog.emitted for desk in desks}
        look = await self._look(desks)
        for desk in desks:
            event = self._event(desk, look, emitted[desk.insight_id])
            if event is not None:
                key = desk.insight_id.encode()
                ticks.append(Record(self._topics.ready, key, encode(event), desk.partition))
        if ticks:
            await self._publisher.publish(ticks)
        self._gained -= self._rounds.loaded()

    async def _wake_gained(self) -> None:
        settled = set(self._unsettled) if self._is_settled() else set()
        new = self._gained - self._rounds.loaded() | settled
        if new:
            await self._publisher.publish([self._wake(partition) for partition in new])
        self._unsettled -= settled

    async def _look(self, desks: list[Desk]) -> Look:
        """Ask for the lag of insights that wait for it to fall, and for what was heard."""
        now = self._now()
        if not self._is_time_to_look(now):
            return Look()
        listen = self._is_time_to_listen(desks, now)
        asked = [
            desk
            for desk in desks
            if (desk.backlog.ready and desk.depth.unclaimed)
            or (listen and desk.backlog.attempts.has_unclaimed(now))
        ]
        if not asked and not listen:
            return Look()
        by_type: dict[GroupType, list[InsightId]] = {"consumer": [], "share": []}
        for desk in asked:
            by_type[desk.backlog.insight.group_type].append(desk.insight_id)
        look = await self._probe.look(
            by_type["consumer"], shared=by_type["share"], relay=listen
        )
        if listen and look.told is not None:
            self._listen(look, now)
        if listen and any(desk.backlog.attempts.any_by_http for desk in desks):
            await self._doorway.look(now)
        return look

    def _is_time_to_look(self, now: float) -> bool:
        """Whether the last look is an interval ago: dues grow in number with customers."""
        before = self._looked_at
        if before is not None and 0 <= now - before < self._interval_s - LEAST_PAUSE_S:
            return False
        self._looked_at = now
        return True

    def _is_time_to_listen(self, desks: list[Desk], now: float) -> bool:
        attempts = (desk.backlog.attempts for desk in desks)
        if not any(one.lease_ends_at is not None or one.has_unclaimed(now) for one in attempts):
            self._listened_at = self._asked_at = None
            return False
        if self._asked_at is not None and 0 <= now - self._asked_at < LISTEN_EVERY_S:
            return False
        self._asked_at = now
        if self._listened_at is None:
            self._listened_at = now
        return True

    def _listen(self, look: Look, asked_at: float) -> None:
        """Move the clock of what was heard on, or begin all leases anew after an outage."""
        before, self._listened_at = self._listened_at or asked_at, asked_at
        self._heard.observe(asked_at, look.told or {}, look.relayed)
        if asked_at - before > max(DEAF_AFTER_S, 3 * self._interval_s):
            for desk in self._rounds.desks():
                desk.backlog.attempts.begin_anew(self._now())

    def _event(self, desk: Desk, look: Look, emitted: int) -> InsightTick | None:
        """What to tell the desk; None if nothing could come of it."""
        now = self._now()
        lags = look.lags.get(desk.insight_id)
        lag = None if lags is None else sum(lags)
        fell = bool(desk.backlog.ready) and lag is not None and lag < desk.depth.unclaimed
        passed = self._passed(desk, look, emitted, now)
        silent = self._has_silent(desk)
        grows = self._rounds.has_grown(desk)
        stirs = fell or passed or silent or grows or self._is_due(desk, now)
        if not stirs and not (desk.backlog.ready and self._rounds.may_emit(desk)):
            return None
        heard = self._heard.until if silent else None
        return InsightTick(
            insight_id=desk.insight_id,
            lag=lag,
            emitted=emitted,
            lags=tuple(lags or ()) if passed else (),
            heard_until=None if heard is None else datetime.fromtimestamp(heard, UTC),
            is_api_away=self._doorway.is_deaf(now, desk.backlog.attempts.lease_s),
        )

    def _passed(self, desk: Desk, look: Look, emitted: int, now: float) -> bool:
        """Whether pullers went past an agenda without claiming it."""
        lags = look.lags.get(desk.insight_id)
        attempts = desk.backlog.attempts
        if not lags or not attempts.has_unclaimed(now):
            return False
        return bool(attempts.passed(lags, max(0, desk.backlog.emitted - emitted), now))

    def _has_silent(self, desk: Desk) -> bool:
        """Whether a lease has ended on the clock of what was heard."""
        ends_at = desk.backlog.attempts.lease_ends_at
        return ends_at is not None and ends_at < (self._heard.until or 0.0)

    def _is_due(self, desk: Desk, now: float) -> bool:
        due_at = self._due_at(desk, now)
        if due_at is None or due_at > now:
            return False
        self._woken[desk.insight_id] = (desk.backlog.steering.due_at or 0.0, now)
        return True

    def _due_at(self, desk: Desk, now: float) -> float | None:
        """When the clock wants something of the desk that it was not woken for just now."""
        due_at = desk.backlog.steering.due_at
        woken_for, woken_at = self._woken.get(desk.insight_id, (None, 0.0))
        if due_at is not None and due_at == woken_for:
            return max(due_at, woken_at + _AGAIN_AFTER_S) if woken_at <= now else due_at
        return due_at

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _wake(self, partition: int) -> Record:
        return Record(self._topics.ready, None, encode(InsightTick(insight_id="")), partition)
