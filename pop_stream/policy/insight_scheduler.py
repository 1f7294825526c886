"""Everything that decides for one insight, as one pure object.

An `InsightScheduler` has the insight's backlog, what it has learned of the pullers' pace, and
the lag that was last measured. It reads no clock and does no IO: instants are arguments, in
seconds since the epoch, and what has to reach a topic or a table is returned. The same calls
with the same arguments lead to the same rounds; that is why the scheduler service, the
simulator and `pop-stream replay` all run this class, and why a recorded round can be checked.

A round takes three calls, each after the other:

    scheduler.apply(event, now)        any number of events of `pop.ready`
    scheduler.advance_to(now)          what is due happens, the pace is measured
    scheduler.plan_round(now, limit)   the agendas to emit, in order

`budget` says how many agendas the insight's own definition lets it emit. A resource pool is
shared with other insights, so whoever has them all asks each for its `pool_demand` and passes
the share as `limit`. After a round the caller says where its agendas go (`assign_partitions`),
publishes what `drain_outbox` returns, and writes what `backlog.drain_delta` returns.

The pages and deltas of the backlog are its whole lasting state: `backlog.restore` brings a new
scheduler to it after a crash. Pace, lag, idle runners and leases are in memory only and begin
again: a target depth is found within seconds, and leases start at the restart.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from pop_stream.model.definitions import Insight
from pop_stream.model.events.codec import decode_routed
from pop_stream.model.events.forecast import QueueForecast
from pop_stream.model.events.scheduling import (
    CustomerShare,
    EmissionLimit,
    InsightAgendasRouted,
    InsightAttemptsReported,
    InsightHealth,
    InsightTick,
    QueuedAgendaStatus,
    QueueDescribed,
    QueueQueried,
    ReadyEvent,
    RoundDecided,
    RoutedAgenda,
)
from pop_stream.model.ids import CustomerId
from pop_stream.model.partitioning import partition_of
from pop_stream.policy.backlog.agenda_index import EMITTED, ChosenAgenda
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.policy.backlog.flow_counts import FlowCounts
from pop_stream.policy.backlog.health import HEALTHY, HealthCoefficient
from pop_stream.policy.backlog.outbox import OutboxBatch
from pop_stream.policy.backlog.reports import apply_relayed, apply_tick
from pop_stream.policy.fairness.flow import Flow, Share
from pop_stream.policy.flow_control import emission_gate, forecast, what_if
from pop_stream.policy.flow_control.emission_gate import CurrentDepth, spread
from pop_stream.policy.flow_control.pool_sharing import HeldSlots, PoolDemand
from pop_stream.policy.flow_control.target_depth import DrainRate, TargetDepth
from pop_stream.policy.flow_control.worker_demand import worker_demand
from pop_stream.policy.rounds import Effects, FairnessFigures, PlacedPage, PlannedRound

_LEAST_WEIGHT: Final = 1e-6
_FIGURES_TTL_S: Final = 1.0
_MAX_FIGURES_TTL_S: Final = 10.0
_CUSTOMERS_PER_TTL_SECOND: Final = 100


class InsightScheduler:
    """Decides for one insight; see the module. Not for use by several threads.

    Args:
        insight: Its definition, or the defaults while there is none.
        share_of: A customer's present share; asked when a customer is first seen and at each
            `reconfigure`.
        has_definition: Whether `insight` is its definition; without one nothing is emitted.

    Attributes:
        backlog: Its agendas; read it, and write through the scheduler.
        target_depth: How many unclaimed agendas keep the pullers busy, as learned so far.
        drain_rate: How fast the backlog is worked off.
    """

    def __init__(
        self,
        insight: Insight,
        share_of: Callable[[CustomerId], Share],
        *,
        has_definition: bool = True,
    ) -> None:
        self.backlog = Backlog(insight, share_of)
        self.target_depth = TargetDepth()
        self.drain_rate = DrainRate()
        self.has_definition = has_definition
        self._lag: tuple[int, int] | None = None
        self._slots = HeldSlots()
        self._figures: FairnessFigures | None = None
        self._health = HEALTHY
        self._usual = 0

    @property
    def insight(self) -> Insight:
        """The definition it follows."""
        return self.backlog.insight

    def reconfigure(self, insight: Insight) -> None:
        """Follow a definition from now on, and ask every customer's share again."""
        self.has_definition = True
        self.backlog.reconfigure(insight)

    # ---- events ----

    def apply(
        self, event: ReadyEvent, now: float, *, limited_by: EmissionLimit = ""
    ) -> Effects:
        """Apply an event of `pop.ready` about this insight.

        An event that comes twice places no agenda, ends no attempt and does no command a second
        time: agendas and commands are known by their origins, attempts by their numbers.

        Args:
            event: In the order of the topic.
            now: The present instant.
            limited_by: For a query, what keeps the insight from emitting beside its depth and
                its customers' limits.

        Raises:
            UnreadableRecordError: If an agenda in it cannot be read; nothing was changed.
        """
        self._slots.count(self.backlog.in_flight, self.backlog.unclaimed, now)
        match event:
            case InsightAgendasRouted():
                return Effects(page=self._place_new(event, now))
            case InsightAttemptsReported():
                apply_relayed(self.backlog, event, now)
            case InsightTick():
                if event.lag is not None and event.emitted is not None:
                    self._lag = (event.lag, event.emitted)
                if event.has_joined:
                    self.target_depth.free.doubt(now)
                apply_tick(self.backlog, event, now)
            case InsightHealth():
                self.backlog.report_health(event.source, event.value, now)
            case QueueQueried():
                reply = self._describe(event, now, limited_by)
                reply = self._with_admission(reply, event, now)
                return Effects(reply=replace(reply, forecast=self._forecast(event, now)))
        return _NO_EFFECTS

    def place(self, agendas: Sequence[RoutedAgenda], now: float) -> int:
        """Add agendas that are known to be new, at most a page of them; returns its number."""
        return self.backlog.place(agendas, now)

    def _place_new(self, event: InsightAgendasRouted, now: float) -> PlacedPage | None:
        agendas = [decode_routed(one) for one in event.agendas]
        new = self.backlog.filter_new(agendas, event.origins, now)
        if not new:
            return None
        number = self.place([agendas[index] for index in new], now)
        return PlacedPage(number, [bytes(event.agendas[index]) for index in new])

    # ---- rounds ----

    def advance_to(self, now: float) -> None:
        """Let happen what is due, and measure the pace; before every round, and only then."""
        backlog = self.backlog
        self._slots.count(backlog.in_flight, backlog.unclaimed, now)
        self._slots.note_claims(backlog.claimed, backlog.unclaimed, now)
        backlog.apply_due(now)
        self.refresh_health(now)
        counts = FlowCounts(
            emitted=backlog.claimed + backlog.unclaimed,
            claimed=backlog.claimed,
            ready=backlog.ready,
            sync_matched=backlog.sync_matched,
            sync_matched_s=backlog.sync_matched_s,
            idle=backlog.idle.count(now),
            running=backlog.in_flight - backlog.unclaimed,
            run_s=backlog.costs.usual.get(""),
            are_reported=backlog.idle.are_reported(now),
        )
        self.target_depth.observe(counts, now)
        waits = backlog.ready > 0 and backlog.queue.may_pick(now)
        self.drain_rate.observe(backlog.claimed, waits=waits, now=now)

    @property
    def depth(self) -> CurrentDepth:
        """What is out. Claims and measured lag both bound it from above; the lesser counts."""
        unclaimed = self.backlog.unclaimed
        if self._lag is not None:
            lag, emitted = self._lag
            # A tick from before a crash may know of more emissions than the table does.
            unclaimed = min(unclaimed, lag + max(0, self.backlog.emitted - emitted))
        return CurrentDepth(unclaimed=unclaimed, in_flight=self.backlog.in_flight)

    @property
    def target(self) -> int:
        """Unclaimed agendas that a round aims at."""
        return emission_gate.target(self.insight, self.target_depth)

    def budget(self) -> int:
        """How many agendas a round may emit now by the insight's own definition."""
        if not self.has_definition or not self.backlog.ready:
            return 0
        return emission_gate.budget(
            self.insight,
            self.depth,
            self.target_depth,
            idle_returners=self.backlog.queue.idle_returners,
            cap=self.in_flight_cap,
        )

    def refresh_health(self, now: float) -> None:
        """Take up the health coefficient of this instant; `advance_to` does so, too.

        Whoever asks for the budget between two rounds calls it before: values become void, and
        what is counted fades, without any event.
        """
        self._health = self.backlog.health.at(now, self.insight.health)
        if self._health is HEALTHY:
            self._usual = max(self.backlog.in_flight, self._usual - self._usual // 64)

    @property
    def health(self) -> HealthCoefficient:
        """As of the last `advance_to` or `refresh_health`."""
        return self._health

    @property
    def in_flight_cap(self) -> int | None:
        """Most that may be in flight, by definition and health; None for no cap."""
        return emission_gate.in_flight_cap(self.insight, self._health, usual=self._usual)

    @property
    def own_limit(self) -> EmissionLimit:
        """What of its own keeps it from emitting, beside the depth of its topic."""
        if self.insight.paused:
            return "paused"
        cap = self.in_flight_cap
        if cap is None or self.backlog.in_flight < cap:
            return ""
        return "max_in_flight" if cap == self.insight.max_in_flight else "health"

    def pool_demand(self, now: float, *, by_customers: bool = False) -> PoolDemand:
        """What is out, and what could be emitted now; one that lends slots wants no more.

        Agendas that wait because of their customer's own limits are not counted.

        Args:
            now: The present instant, not before that of `advance_to`.
            by_customers: Whether it weighs as much as its customers, of at most a second ago.
        """
        insight, backlog = self.insight, self.backlog
        self._slots.count(backlog.in_flight, backlog.unclaimed, now)
        if self._slots.lends(backlog.unclaimed, now):
            held = wanted = backlog.in_flight - backlog.unclaimed
        else:
            held = backlog.in_flight
            wanted = held + backlog.queue.eligible_count(self.budget(), now)
        weight = self.figures(now).weight if by_customers else insight.pool_weight
        return PoolDemand(
            insight_id=insight.id,
            weight=max(_LEAST_WEIGHT, weight),
            minimum=insight.pool_minimum,
            demand=wanted,
            in_flight=held,
            held_s=self._slots.held_s,
        )

    def active_customers(self) -> Mapping[str, int]:
        """Those with agendas that may go or are out, and by what their weights are divided."""
        flows = self.backlog.queue.flows()
        return {flow.customer_id: flow.division for flow in flows if flow.is_active}

    def plan_round(self, now: float, limit: int) -> PlannedRound:
        """Choose the agendas to emit now, in fair order; they count as out from here on.

        Args:
            now: The present instant, as passed to `advance_to` before.
            limit: Most agendas, as from the insight's pool; below 1 none is chosen.
        """
        return self.repeat_round(now, min(self.budget(), limit))

    def repeat_round(self, now: float, slots: int) -> PlannedRound:
        """Choose a round with as many slots as it is recorded to have had."""
        depth = self.depth
        return PlannedRound(now, slots, depth, self.backlog.choose(slots, now))

    def assign_partitions(
        self, chosen: Sequence[ChosenAgenda], partitions: int, now: float
    ) -> list[int]:
        """Decide on which partition of the insight's topic each agenda of a round goes.

        From then on their offsets are counted, so that a tick can tell which of them pullers
        committed past without a claim.

        Args:
            chosen: In order of emission; those already on the topic are left out.
            partitions: Of the topic.
            now: When they are emitted.
        """
        keyed = (partition_of(one.agenda_id.encode(), partitions) for one in chosen)
        offsets = self.backlog.emitted_offsets
        assigned = spread(keyed, offsets.waiting(partitions))
        for one, partition in zip(chosen, assigned, strict=True):
            offsets.send(one.ref, partition, now)
        return assigned

    def drain_outbox(self) -> OutboxBatch:
        """What has to be published since the last call, in the order in which it happened."""
        return self.backlog.drain_outbox()

    def unclaimed_of(self, refs: Iterable[int]) -> list[ChosenAgenda]:
        """Those of a round's agendas that are emitted and, as far as is known, not claimed."""
        index = self.backlog.index
        found: list[ChosenAgenda] = []
        for ref in refs:
            record = index.in_flight_record(ref)
            if record is not None and record.state == EMITTED:
                page, slot = index.at(ref)
                found.append(
                    ChosenAgenda(ref, page.ids[slot], page.customers[slot], record.attempt)
                )
        return found

    def expedite_reports(self) -> bool:
        """Whether pullers should report at once: agendas wait for room, or soon may."""
        is_half_full = emission_gate.is_half_full(self.insight, self.depth, self.target_depth)
        return self.backlog.ready > 0 or is_half_full

    # ---- figures ----

    def figures(self, now: float) -> FairnessFigures:
        """Of all customers, at most a second old."""
        return self._figures_within(now, _FIGURES_TTL_S)

    def decision(
        self,
        planned: PlannedRound,
        *,
        limited_by: EmissionLimit = "",
        partition: int = 0,
        offset: int = 0,
        definitions: int = 0,
    ) -> RoundDecided:
        """Why a round chose what it chose; call it before anything else is applied.

        Args:
            planned: The last round.
            limited_by: What keeps the insight from emitting more, beside its depth and its
                customers' limits.
            partition: Of `pop.ready`, with `offset` the record that led to the round.
            offset: See there.
            definitions: The version in force.
        """
        backlog, at, depth = self.backlog, planned.at, planned.depth
        figures = self._figures_within(at, self._decision_ttl_s())
        counts = Counter[str](one.customer_id for one in planned.chosen)
        listed = forecast.listed_flows(backlog.queue, counts)
        return RoundDecided(
            insight_id=self.insight.id,
            at=datetime.fromtimestamp(at, UTC),
            round=backlog.rounds,
            algorithm=self.insight.algorithm,
            lag=depth.unclaimed,
            in_flight=depth.in_flight,
            slots=planned.slots,
            chosen=tuple(one.agenda_id for one in planned.chosen),
            ready=backlog.ready,
            virtual_time=backlog.queue.present(1),
            customers=forecast.customer_shares(
                listed, mean=figures.mean_service, now=at, chosen=counts
            ),
            gap=figures.gap,
            bound=figures.bound,
            waiting=self._why_waiting(planned, limited_by),
            delayed=backlog.waiting,
            held=backlog.held,
            partition=partition,
            offset=offset,
            definitions=definitions,
            health=self._health.shown,
            health_by=self._health.by,
        )

    def _why_waiting(self, planned: PlannedRound, limited_by: EmissionLimit) -> str:
        """As `RoundDecided.waiting`."""
        if not self.backlog.ready:
            return ""
        if len(planned.chosen) < planned.slots or not self.backlog.queue.may_pick(planned.at):
            return "customer_caps"
        return limited_by or "depth"

    def _describe(
        self, query: QueueQueried, now: float, limited_by: EmissionLimit
    ) -> QueueDescribed:
        backlog, figures, depth = self.backlog, self.figures(now), self.depth
        demand = worker_demand(backlog, now, limited_by=limited_by)
        backlogged = sorted(
            (flow for flow in backlog.queue.flows() if not flow.is_idle),
            key=lambda flow: (-flow.ready, flow.customer_id),
        )
        holds, tracked_up_to = forecast.asked_agendas(backlog, query)
        return QueueDescribed(
            insight_id=self.insight.id,
            query_id=query.query_id,
            at=datetime.fromtimestamp(now, UTC),
            algorithm=self.insight.algorithm,
            ready=backlog.ready,
            lag=depth.unclaimed,
            in_flight=backlog.in_flight,
            slots=self.budget(),
            limited_by=limited_by,
            target=self.target,
            rate_per_s=round(self.target_depth.rate_per_s, 3),
            customers=self._customers(backlogged[: forecast.MAX_CUSTOMERS_LISTED], now),
            others=max(0, len(backlogged) - forecast.MAX_CUSTOMERS_LISTED),
            delayed=backlog.waiting,
            held=backlog.held,
            gap=figures.gap,
            bound=figures.bound,
            agenda=self._position(query.agenda_id, now) if query.agenda_id else None,
            holds=holds,
            tracked_up_to=tracked_up_to,
            eligible=demand.eligible,
            eligible_s=round(demand.eligible_s, 3),
            oldest_wait_s=round(backlog.oldest_wait_s(now), 3),
            replicas_wanted=demand.replicas(self.insight),
        )

    def _customers(self, flows: Sequence[Flow], now: float) -> tuple[CustomerShare, ...]:
        mean = forecast.mean_service(self.backlog, now)
        return forecast.customer_shares(flows, mean=mean, now=now, with_delivered=True)

    def _forecast(self, query: QueueQueried, now: float) -> QueueForecast | None:
        rate_per_s = self._rate_per_s
        return what_if.forecast(self.backlog, query.weights, now=now, rate_per_s=rate_per_s)

    def _with_admission(
        self, described: QueueDescribed, query: QueueQueried, now: float
    ) -> QueueDescribed:
        """With what is reported of its health, and what would be a duplicate now."""
        said = self.backlog.health.all().get(self._health.by)
        found = (self.backlog.duplicates.of(one, now) for one in query.dedupe)
        return replace(
            described,
            duplicates=tuple(one for one in found if one is not None),
            health=self._health.shown,
            health_by=self._health.by,
            health_reason=said.reason if said else "",
            health_until=datetime.fromtimestamp(said.until, UTC) if said else None,
        )

    def _position(self, agenda_id: str, now: float) -> QueuedAgendaStatus:
        return forecast.agenda_position(
            self.backlog,
            agenda_id,
            now=now,
            rate_per_s=self._rate_per_s,
            unclaimed=self.depth.unclaimed,
        )

    @property
    def _rate_per_s(self) -> float:
        """Agendas claimed per second while some wait; none of an insight that is paused."""
        if self.insight.paused:
            return 0.0
        return self.drain_rate.per_s or self.target_depth.rate_per_s

    def _decision_ttl_s(self) -> float:
        """For decisions, a second for every hundred customers, up to ten seconds.

        So a pick alone costs about as much in one insight as in each of many, where it is the
        only one for seconds.
        """
        seen = self._figures.customers if self._figures else 0
        return min(_MAX_FIGURES_TTL_S, _FIGURES_TTL_S * seen / _CUSTOMERS_PER_TTL_SECOND)

    def _figures_within(self, now: float, ttl_s: float) -> FairnessFigures:
        known = self._figures
        # A clock that was set back makes a known figure one of the future: compute it again.
        if known is None or not 0.0 <= now - known.at < max(_FIGURES_TTL_S, ttl_s):
            queue = self.backlog.queue
            mean = forecast.mean_service(self.backlog, now)
            weight = sum(flow.due_weight for flow in queue.flows() if flow.is_active)
            customers = sum(1 for _ in queue.flows())
            known = FairnessFigures(now, mean, weight, queue.gap(), queue.bound(), customers)
            self._figures = known
        return known


_NO_EFFECTS: Final = Effects()
