"""Publishes ticks to `pop.ready` when time or lag lets an insight go on and no event would.

A tick is due when an insight's consumer lag falls, a lease expires, an instant comes that an
agenda or a customer waits for, a definition adds partitions, a customer's weight is to be
divided among another number of insights of a pool, or a partition was just assigned.
Only the agent may write the table, so the ticker decides nothing and publishes. Leases are in
no table, so it may restart them.

Leases expire by what was relayed, not by the clock alone (`RelayWatermark`), and leases of HTTP
workers not while the API is away (`ApiPresence`): a report that could not arrive is no sign of
a dead worker.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

import structlog
from msgspec.structs import replace

from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import GroupType
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.codec import encode
from pop_stream.model.events.scheduling import InsightTick
from pop_stream.model.ids import InsightId
from pop_stream.policy.flow_control.pool_sharing import DIVIDE_EVERY_S
from pop_stream.ports.clock import Clock
from pop_stream.ports.lag import LagProbe, LagSnapshot
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.scheduler.event_handler import ReadyEventHandler
from pop_stream.scheduler.insight import OwnedInsight

_MAX_ABSENCE_S: Final = 3_600.0
"""After so long an absence of the API the leases of HTTP workers expire all the same."""


class ApiPresence:
    """Whether HTTP workers can report: only through a process of the API.

    Args:
        probe: Counts the members of a group.
        group: The group that every API process is a member of.
    """

    def __init__(self, probe: LagProbe, group: str) -> None:
        self._probe = probe
        self._group = group
        self._away_since: float | None = None
        self._back_at: float | None = None

    async def poll(self, now: float) -> None:
        """Ask once; without an answer nothing changes."""
        members = await self._probe.fetch_member_count(self._group)
        if members == 0 and self._away_since is None:
            self._away_since = now
        elif members and self._away_since is not None:
            self._away_since, self._back_at = None, now

    def excuses_silence(self, now: float, lease_s: float) -> bool:
        """Whether a worker may have sent no heartbeat for no fault of its own.

        True while the API is away, and for the length of a lease once it is back: workers have
        yet to notice, and they send heartbeats as often as their leases ask for.
        """
        if self._away_since is not None:
            return now - self._away_since < _MAX_ABSENCE_S
        return self._back_at is not None and now - self._back_at < lease_s


ARRIVALS_EVERY_S: Final = 2.0
"""Between two looks for pullers that have joined."""

_MAX_GROUPS_ASKED: Final = 50


class PullerArrivals:
    """Finds pullers that have joined an insight that holds agendas back.

    Nothing else tells of them: they claim what is emitted, and nothing is while all runners
    that are known of are busy.

    Args:
        probe: Counts the members of a group.
        topics: Names the groups.
    """

    def __init__(self, probe: LagProbe, topics: Topics) -> None:
        self._probe = probe
        self._topics = topics
        self._members: dict[InsightId, int] = {}
        self._asked_at: dict[InsightId, float] = {}

    async def poll(self, insights: Iterable[OwnedInsight], now: float) -> Set[InsightId]:
        """The insights with more pullers than before, of at most 50 that are asked at once."""
        holding = {
            owned.insight_id: len(owned.backlog.idle)
            for owned in insights
            if owned.backlog.ready and owned.scheduler.target_depth.holds_back
        }
        due = [
            (self._asked_at.get(one, 0.0), one)
            for one in holding
            if not 0 <= now - self._asked_at.get(one, 0.0) < ARRIVALS_EVERY_S
        ]
        asked = [one for _, one in sorted(due)[:_MAX_GROUPS_ASKED]]
        counts = await asyncio.gather(
            *(self._probe.fetch_member_count(self._topics.puller_group(one)) for one in asked)
        )
        joined: set[InsightId] = set()
        for one, count in zip(asked, counts, strict=True):
            self._asked_at[one] = now
            if count is not None:
                if count > self._members.get(one, holding[one]):
                    joined.add(one)
                self._members[one] = count
        return joined


_MAX_PENDING_ENDS: Final = 1_000
"""Instants that wait for the relay to catch up; beyond that none is added."""


class RelayWatermark:
    """Until when everything published to the lifecycle's topic has been relayed.

    It advances as the relay commits and stands still while it does not. Instants are seconds
    since the epoch, on the caller's clock.

    Attributes:
        until: That instant; None until one is known.
    """

    def __init__(self) -> None:
        self.until: float | None = None
        self._ends: deque[tuple[float, Mapping[int, int]]] = deque()

    def observe(
        self, asked_at: float, ends: Mapping[int, int], relayed: Mapping[int, int]
    ) -> None:
        """Note the ends of the lifecycle's topic and advance as far as the relay has committed.

        Args:
            asked_at: An instant before the ends were asked for.
            ends: By partition, the offset after its last record.
            relayed: By partition, the offset that the relay has committed; one without a commit
                may be left out.
        """
        if len(self._ends) < _MAX_PENDING_ENDS:
            self._ends.append((asked_at, ends))
        while self._ends and _covers(relayed, self._ends[0][1]):
            self.until = self._ends.popleft()[0]


def _covers(relayed: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    return all(relayed.get(partition, 0) >= end for partition, end in ends.items())


MIN_PAUSE_S: Final = 0.01
"""Shortest pause, so that many small dues do not make a busy loop."""

RELAY_POLL_EVERY_S: Final = 1.0
"""Between two polls of what the relay has committed, while any lease runs."""

RELAY_OUTAGE_AFTER_S: Final = 3.0
"""After so long without such a poll an outage may have kept reports from arriving."""

MAX_DIVISIONS: Final = 2_000
"""Customers whose divisions one tick changes at most; others follow with the next."""

_MAX_CLOCK_STEP_BACK_S: Final = 5.0
"""A clock set back by less only delays what is due."""

_AGAIN_AFTER_S: Final = 1.0
"""A tick for an instant that is still due is repeated after so long."""

_log = structlog.get_logger()


class Ticker:
    """Wakes assigned partitions, and insights in which something may happen.

    Args:
        handler: All insights of this process; read only.
        probe: Reads lags and offsets.
        publisher: Of ticks.
        topics: Names of topics.
        interval: Between two polls of lags, however often something is due in between.
        clock: Says what is due.
        is_stable: Whether Faust has completed the last rebalance. Records that it read before
            it may have dropped, among them the last one for a long time; so a partition is
            woken once more when the rebalance is complete.
    """

    def __init__(  # noqa: PLR0913  # every port it needs, named once
        self,
        handler: ReadyEventHandler,
        probe: LagProbe,
        publisher: Publisher,
        topics: Topics,
        interval: timedelta,
        clock: Clock,
        *,
        is_stable: Callable[[], bool] = lambda: True,
    ) -> None:
        self._handler = handler
        self._probe = probe
        self._publisher = publisher
        self._topics = topics
        self._clock = clock
        self._interval_s = interval.total_seconds()
        self._is_stable = is_stable
        self._assigned: set[int] = set()
        self._awaiting_rebalance: set[int] = set()
        self._watermark = RelayWatermark()
        self._api_presence = ApiPresence(probe, topics.group("pulls"))
        self._arrivals = PullerArrivals(probe, topics)
        self._watermark_at: float | None = None
        self._relay_polled_at: float | None = None
        self._polled_at: float | None = None
        self._divided_at: float | None = None
        self._last_wakes: dict[str, tuple[float, float]] = {}
        self._latest = 0.0

    def assign(self, partitions: set[int]) -> None:
        """Called when these partitions are assigned, or have to be loaded again."""
        self._assigned |= partitions
        self._awaiting_rebalance |= partitions

    def revoke(self, partitions: set[int]) -> None:
        """Called when these partitions are revoked."""
        self._assigned -= partitions
        self._awaiting_rebalance -= partitions

    async def run(self) -> None:
        """Tick until cancelled; while brokers are away it is tried again.

        Raises:
            RuntimeError: If the clock was set back. Leases, pauses and rate limits would stand
                still until it is where it was; after a restart of the process they begin anew.
        """
        while True:
            self._check_clock()
            try:
                await self._tick()
            except UnavailableError as error:
                _log.info("tick.failed", error=str(error))
            await asyncio.sleep(self._pause_s())

    def _check_clock(self) -> None:
        now = self._now()
        if now < self._latest - _MAX_CLOCK_STEP_BACK_S:
            msg = f"the clock was set back by {self._latest - now:.1f} s; start anew"
            raise RuntimeError(msg)
        self._latest = max(self._latest, now)

    def _pause_s(self) -> float:
        """Seconds until something is due or lags are to be polled; at most the interval."""
        now = self._now()
        soonest = (now if self._polled_at is None else self._polled_at) + self._interval_s
        for owned in self._handler.insights():
            # One without budget is woken by what frees it, not by its customers' instants.
            pick_at = owned.backlog.queue.due_at if owned.scheduler.budget() > 0 else None
            for due in (pick_at, self._due_at(owned, now)):
                if due is not None and due < soonest:
                    soonest = due
        return min(self._interval_s, max(MIN_PAUSE_S, soonest - now))

    async def _tick(self) -> None:
        # Before the poll, which a broker that is away may delay for seconds.
        await self._wake_assigned()
        ticks: list[Record] = []
        insights = self._handler.insights()
        emitted = {owned.insight_id: owned.backlog.emitted for owned in insights}
        snapshot = await self._poll(insights)
        divisions = self._changed_divisions()
        joined = await self._arrivals.poll(insights, self._now())
        for owned in insights:
            changed = divisions.get(owned.insight_id, {})
            event = self._event(owned, snapshot, emitted[owned.insight_id], changed)
            if owned.insight_id in joined:
                event = replace(
                    event or InsightTick(insight_id=owned.insight_id), has_joined=True
                )
            if event is not None:
                key = owned.insight_id.encode()
                ticks.append(Record(self._topics.ready, key, encode(event), owned.partition))
        if ticks:
            await self._publisher.publish(ticks)
        self._assigned -= self._handler.loaded()

    async def _wake_assigned(self) -> None:
        stable = set(self._awaiting_rebalance) if self._is_stable() else set()
        new = self._assigned - self._handler.loaded() | stable
        if new:
            await self._publisher.publish([self._wake(partition) for partition in new])
        self._awaiting_rebalance -= stable

    async def _poll(self, insights: list[OwnedInsight]) -> LagSnapshot:
        """The lag of insights that wait for it to fall, and what the relay has committed."""
        now = self._now()
        if not self._is_poll_due(now):
            return LagSnapshot()
        with_relay = self._is_relay_poll_due(insights, now)
        asked = [
            owned
            for owned in insights
            if (owned.backlog.ready and owned.scheduler.depth.unclaimed)
            or (with_relay and owned.backlog.attempts.has_unclaimed(now))
        ]
        if not asked and not with_relay:
            return LagSnapshot()
        by_type: dict[GroupType, list[InsightId]] = {"consumer": [], "share": []}
        for owned in asked:
            by_type[owned.backlog.insight.group_type].append(owned.insight_id)
        snapshot = await self._probe.fetch_lag(
            by_type["consumer"], shared=by_type["share"], relay=with_relay
        )
        if with_relay and snapshot.end_offsets is not None:
            self._advance_watermark(snapshot, now)
        if with_relay and any(owned.backlog.attempts.any_by_http for owned in insights):
            await self._api_presence.poll(now)
        return snapshot

    def _is_poll_due(self, now: float) -> bool:
        """Whether the last poll is an interval ago; what is due in between polls nothing."""
        before = self._polled_at
        if before is not None and 0 <= now - before < self._interval_s - MIN_PAUSE_S:
            return False
        self._polled_at = now
        return True

    def _is_relay_poll_due(self, insights: list[OwnedInsight], now: float) -> bool:
        attempts = (owned.backlog.attempts for owned in insights)
        if not any(one.lease_ends_at is not None or one.has_unclaimed(now) for one in attempts):
            self._watermark_at = self._relay_polled_at = None
            return False
        if (
            self._relay_polled_at is not None
            and 0 <= now - self._relay_polled_at < RELAY_POLL_EVERY_S
        ):
            return False
        self._relay_polled_at = now
        if self._watermark_at is None:
            self._watermark_at = now
        return True

    def _advance_watermark(self, snapshot: LagSnapshot, asked_at: float) -> None:
        """Advance the watermark; after an outage restart all leases."""
        before, self._watermark_at = self._watermark_at or asked_at, asked_at
        self._watermark.observe(asked_at, snapshot.end_offsets or {}, snapshot.relay_offsets)
        if asked_at - before > max(RELAY_OUTAGE_AFTER_S, 3 * self._interval_s):
            for owned in self._handler.insights():
                owned.backlog.attempts.restart_all(self._now())

    def _changed_divisions(self) -> Mapping[str, Mapping[str, int]]:
        now = self._now()
        before = self._divided_at
        if before is not None and 0 <= now - before < DIVIDE_EVERY_S:
            return {}
        self._divided_at = now
        return self._handler.changed_divisions()

    def _event(
        self,
        owned: OwnedInsight,
        snapshot: LagSnapshot,
        emitted: int,
        divisions: Mapping[str, int],
    ) -> InsightTick | None:
        """The tick for an insight; None if nothing could come of it."""
        now = self._now()
        lags = snapshot.lags.get(owned.insight_id)
        lag = None if lags is None else sum(lags)
        lag_fell = (
            bool(owned.backlog.ready)
            and lag is not None
            and lag < owned.scheduler.depth.unclaimed
        )
        skipped = self._has_skipped(owned, snapshot, emitted, now)
        has_expired = self._has_expired_lease(owned)
        topic_grows = self._handler.needs_partitions(owned)
        is_needed = any((lag_fell, skipped, has_expired, topic_grows, divisions))
        is_needed = is_needed or self._is_due(owned, now)
        if not is_needed and not (owned.backlog.ready and self._handler.may_emit(owned)):
            return None
        until = self._watermark.until if has_expired else None
        return InsightTick(
            insight_id=owned.insight_id,
            lag=lag,
            emitted=emitted,
            lags=tuple(lags or ()) if skipped else (),
            relayed_until=None if until is None else datetime.fromtimestamp(until, UTC),
            is_api_down=self._api_presence.excuses_silence(now, owned.backlog.attempts.lease_s),
            divisions=dict(islice(divisions.items(), MAX_DIVISIONS)),
        )

    def _has_skipped(
        self, owned: OwnedInsight, snapshot: LagSnapshot, emitted: int, now: float
    ) -> bool:
        """Whether pullers have committed past an agenda that they did not claim."""
        lags = snapshot.lags.get(owned.insight_id)
        attempts = owned.backlog.attempts
        if not lags or not attempts.has_unclaimed(now):
            return False
        return bool(attempts.skipped(lags, max(0, owned.backlog.emitted - emitted), now))

    def _has_expired_lease(self, owned: OwnedInsight) -> bool:
        """Whether a lease ended before the relay's watermark."""
        ends_at = owned.backlog.attempts.lease_ends_at
        return ends_at is not None and ends_at < (self._watermark.until or 0.0)

    def _is_due(self, owned: OwnedInsight, now: float) -> bool:
        due_at = self._due_at(owned, now)
        if due_at is None or due_at > now:
            return False
        self._last_wakes[owned.insight_id] = (owned.backlog.commands.due_at or 0.0, now)
        return True

    def _due_at(self, owned: OwnedInsight, now: float) -> float | None:
        """The next instant that the insight was not just woken for; None if there is none."""
        due_at = owned.backlog.commands.due_at
        woken_for, woken_at = self._last_wakes.get(owned.insight_id, (None, 0.0))
        if due_at is not None and due_at == woken_for:
            return max(due_at, woken_at + _AGAIN_AFTER_S) if woken_at <= now else due_at
        return due_at

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _wake(self, partition: int) -> Record:
        return Record(self._topics.ready, None, encode(InsightTick(insight_id="")), partition)
