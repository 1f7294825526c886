"""One insight on this worker: what it holds, where it is kept, and how fast it goes.

Checkpoints on `pop.decisions`: how often, so that they cost little beside the rounds.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Insight
from pop_stream.model.events.codec import encode
from pop_stream.model.events.scheduling import (
    MAX_QUERIED_AGENDAS,
    EmissionLimit,
    InsightTick,
    QueueDescribed,
    QueueQueried,
)
from pop_stream.model.ids import InsightId
from pop_stream.policy.backlog import backlog as backlog_module
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.policy.backlog.checkpoint import take_checkpoint
from pop_stream.policy.backlog.page import EMITTED, ChosenAgenda
from pop_stream.policy.flow_control import emission_gate, forecast
from pop_stream.policy.flow_control.emission_gate import (
    CurrentDepth,
    DrainRate,
    FlowCounts,
    TargetDepth,
)
from pop_stream.policy.flow_control.pool_sharing import PoolDemand
from pop_stream.ports.publisher import Record
from pop_stream.scheduler.state.backlog_store import BacklogStore

CHECKPOINT_EVERY_S: Final = 600.0
"""Between two of an insight, at least."""

_AGAIN_S: Final = 10.0
"""After one that no round followed, or that would have been too large."""


@dataclass(slots=True)
class Checkpoints:
    """When an insight's next one is due; one is also a checkpoint's worth of decisions apart.

    Attributes:
        decided: Bytes of decisions since the last one.
    """

    decided: int = 0
    _size: int = 0
    _not_before: float = 0.0
    _is_first: bool = True

    def records(self, backlog: Backlog, topics: Topics, now: float) -> Sequence[Record]:
        """What tells the state that a round is about to be chosen from; empty if not due.

        An insight's first round needs none. The first one after it was read from the table
        has one: the scheduler begins anew with leases and tokens.
        """
        if not backlog.rounds:
            self._is_first, self._not_before = False, now + CHECKPOINT_EVERY_S
        if now < self._not_before or self.decided < self._size:
            return ()
        self._not_before = now + _AGAIN_S
        key = backlog.insight.id.encode()
        parts = take_checkpoint(backlog, now, begins=self._is_first)
        return [Record(topics.decisions, key, encode(part)) for part in parts]

    def record_sent(self, records: Sequence[Record], now: float) -> None:
        """These go out with their round."""
        if records:
            self._is_first, self.decided, self._not_before = False, 0, now + CHECKPOINT_EVERY_S
            self._size = sum(len(one.value or b"") for one in records)


_MAX_CUSTOMERS_LISTED: Final = 50
_FIGURES_TTL: Final = timedelta(seconds=1)
_MAX_FIGURES_TTL: Final = timedelta(seconds=10)
_CUSTOMERS_PER_TTL_SECOND: Final = 100


@dataclass(frozen=True, slots=True)
class FairnessFigures:
    """Figures that cost a look at every customer, so they are kept for a while.

    Attributes:
        at: As of when.
        mean_service: Recent service per weight of customers that may go.
        gap: Widest difference of customers' places on the virtual clock.
        bound: What that could not exceed.
        customers: That were looked at.
    """

    at: datetime
    mean_service: float
    gap: float
    bound: float
    customers: int


@dataclass(slots=True)
class InsightScheduler:
    """One insight.

    Attributes:
        partition: Of `pop.ready`.
        lag: Consumer lag and the number emitted when it was asked for; None if unknown.
        topic_partitions: The insight's topic is known to have as many; 0 if it is not known.
        has_definition: Whether its definition is known; without it nothing is emitted.
        known: Agendas and attempts that are ready, and on the topic since before the first
            round; None until they were looked for.
    """

    insight_id: InsightId
    partition: int
    backlog: Backlog
    store: BacklogStore
    pace: TargetDepth = field(default_factory=TargetDepth)
    drain: DrainRate = field(default_factory=DrainRate)
    lag: tuple[int, int] | None = None
    topic_partitions: int = 0
    has_definition: bool = False
    known: set[tuple[str, int]] | None = None
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    _cached_figures: FairnessFigures | None = None

    @property
    def depth(self) -> CurrentDepth:
        """What is out. Claims and measured lag both bound it from above; the lesser counts."""
        unclaimed = self.backlog.unclaimed
        if self.lag is not None:
            lag, emitted = self.lag
            # A tick from before a crash may know of more emissions than the table does.
            unclaimed = min(unclaimed, lag + max(0, self.backlog.emitted - emitted))
        return CurrentDepth(unclaimed=unclaimed, in_flight=self.backlog.in_flight)

    @property
    def partitions_to_grow_from(self) -> int:
        """Of the topic: a definition that wants more adds to them; 0 if there may be none."""
        if self.topic_partitions or not self.backlog.emitted:
            return self.topic_partitions
        return self.backlog.insight.partitions

    def follow(self, insight: Insight) -> None:
        """Take up a definition; a topic that it adds to will be fitted."""
        if insight.partitions > self.backlog.insight.partitions:
            self.topic_partitions = self.partitions_to_grow_from
        self.backlog.reconfigure(insight)

    def observe(self, now: datetime) -> None:
        """Let pace and drain take note of the present."""
        backlog, seconds = self.backlog, now.timestamp()
        counts = FlowCounts(
            emitted=backlog.claimed + backlog.unclaimed,
            claimed=backlog.claimed,
            ready=backlog.ready,
            sync_matched=backlog.sync_matched,
            sync_matched_s=backlog.sync_matched_s,
            idle=backlog.idle.count(seconds),
        )
        self.pace.observe(counts, now)
        waits = backlog.ready > 0 and backlog.queue.may_pick(seconds)
        self.drain.observe(backlog.claimed, waits=waits, now=now)

    def apply_tick(self, tick: InsightTick, now: datetime) -> None:
        """Take note of what the ticker saw; what is due is looked for at every event."""
        if tick.lag is not None and tick.emitted is not None:
            self.lag = (tick.lag, tick.emitted)
        backlog_module.apply_tick(self.backlog, tick, now.timestamp())

    def slots(self) -> int:
        """How many agendas a round may emit now, its pool left aside."""
        if not self.has_definition or not self.backlog.ready:
            return 0
        backlog = self.backlog
        return emission_gate.slots(
            backlog.insight, self.depth, self.pace, idle_returners=backlog.queue.idle_returners
        )

    def expedite_reports(self) -> bool:
        """Whether agendas wait for room, or soon may."""
        backlog = self.backlog
        is_half_full = emission_gate.is_half_full(backlog.insight, self.depth, self.pace)
        return backlog.ready > 0 or is_half_full

    def checkpoint(self, topics: Topics, now: datetime) -> Sequence[Record]:
        """What `pop-stream replay` could begin with at this round, if it is time for it."""
        seconds = now.timestamp()
        if not self.backlog.queue.may_pick(seconds):
            return ()
        return self.checkpoints.records(self.backlog, topics, seconds)

    def take_already_emitted(
        self, chosen: Iterable[ChosenAgenda], now: datetime
    ) -> Set[tuple[str, int]]:
        """Those of a round that are known to be on the topic, once, and noted as such."""
        if not self.known:
            return frozenset()
        refs = {(one.agenda_id, one.attempt): one.ref for one in chosen}
        taken = refs.keys() & self.known
        for one in taken:
            self.backlog.emitted_offsets.recover(refs[one], now.timestamp())
        self.known -= taken
        return taken

    def unclaimed(self, refs: Iterable[int]) -> list[ChosenAgenda]:
        """Those of these places whose agendas are emitted and, as far as heard, not claimed."""
        slots = self.backlog.slots
        found: list[ChosenAgenda] = []
        for ref in refs:
            note = slots.in_flight_record(ref)
            if note is not None and note.state == EMITTED:
                page, slot = slots.at(ref)
                chosen = ChosenAgenda(ref, page.ids[slot], page.customers[slot], note.attempt)
                found.append(chosen)
        return found

    def pool_demand(self, now: datetime) -> PoolDemand:
        """What the insight wants of its pool: what is out, and what it could emit now.

        What waits because of its customer's own limits, it does not want: others may have it.
        """
        insight = self.backlog.insight
        in_flight = self.backlog.in_flight
        return PoolDemand(
            insight_id=self.insight_id,
            weight=insight.pool_weight,
            minimum=insight.pool_minimum,
            demand=in_flight + self.backlog.queue.eligible_count(self.slots(), now.timestamp()),
            in_flight=in_flight,
        )

    def mean_service(self, now: datetime) -> float:
        """Recent service per weight of customers that may go, at most a second old."""
        return self._figures(now).mean_service

    def gap(self, now: datetime) -> float:
        """Widest difference of customers' places on the virtual clock, a second old at most."""
        return self._figures(now).gap

    def bound(self, now: datetime) -> float:
        """What that could not exceed, of the same moment: it starts anew when all is done."""
        return self._figures(now).bound

    def answer(
        self, question: QueueQueried, now: datetime, *, limited_by: EmissionLimit = ""
    ) -> QueueDescribed:
        """What can be said of the insight, and of an agenda in it.

        Args:
            question: Of whom.
            now: The present instant.
            limited_by: What keeps it from emitting, its depth and its customers left aside.
        """
        backlog, seconds = self.backlog, now.timestamp()
        waiting = [flow for flow in backlog.queue.flows() if not flow.is_idle]
        waiting.sort(key=lambda flow: (-flow.ready, flow.customer_id))
        mean = forecast.mean_service(backlog, seconds)
        place = None
        if question.agenda_id:
            place = forecast.place(
                backlog,
                question.agenda_id,
                now=seconds,
                rate_per_s=self.drain.per_s or self.pace.rate_per_s,
                unclaimed=self.depth.unclaimed,
            )
        holds, tracked_up_to = (
            forecast.held(backlog, question.agenda_ids[:MAX_QUERIED_AGENDAS]),
            None,
        )
        if question.tracked_after is not None:
            more, tracked_up_to = forecast.tracked_after(
                backlog, question.tracked_after, MAX_QUERIED_AGENDAS
            )
            holds += more
        return QueueDescribed(
            insight_id=self.insight_id,
            query_id=question.query_id,
            at=now,
            algorithm=backlog.insight.algorithm,
            ready=backlog.ready,
            lag=self.depth.unclaimed,
            in_flight=backlog.in_flight,
            slots=self.slots(),
            limited_by=limited_by,
            target=emission_gate.target(backlog.insight, self.pace),
            rate_per_s=round(self.pace.rate_per_s, 3),
            customers=forecast.shares(waiting[:_MAX_CUSTOMERS_LISTED], mean=mean, now=seconds),
            others=max(0, len(waiting) - _MAX_CUSTOMERS_LISTED),
            delayed=backlog.waiting,
            held=backlog.held,
            gap=self.gap(now),
            bound=self.bound(now),
            agenda=place,
            holds=holds,
            tracked_up_to=tracked_up_to,
        )

    def figures_for_decision(self, now: datetime) -> FairnessFigures:
        """The same for decisions: a second old for every hundred customers, up to ten seconds.

        So a pick alone costs about as much in one insight as in each of many, where it is the
        only one for seconds.
        """
        seen = self._cached_figures.customers if self._cached_figures else 0
        return self._figures(
            now, min(_MAX_FIGURES_TTL, _FIGURES_TTL * (seen / _CUSTOMERS_PER_TTL_SECOND))
        )

    def _figures(self, now: datetime, most_age: timedelta = _FIGURES_TTL) -> FairnessFigures:
        view = self._cached_figures
        if view is None or not timedelta() <= now - view.at < max(_FIGURES_TTL, most_age):
            queue = self.backlog.queue
            mean = forecast.mean_service(self.backlog, now.timestamp())
            customers = sum(1 for _ in queue.flows())
            view = FairnessFigures(now, mean, queue.tag_gap(), queue.bound(), customers)
            self._cached_figures = view
        return view


def save_backlogs(schedulers: Sequence[InsightScheduler], offset: int) -> None:
    """Write what a record changed: the last row alone tells that the record is wholly kept.

    Rows arrive in order, so one that a crash kept tells of all before it.

    Args:
        schedulers: Those that the record changed.
        offset: Of the record.
    """
    for scheduler in schedulers[:-1]:
        scheduler.store.save(scheduler.backlog, offset - 1)
    for scheduler in schedulers[-1:]:
        scheduler.store.save(scheduler.backlog, offset)
