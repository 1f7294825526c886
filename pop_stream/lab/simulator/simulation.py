"""One insight, or the insights of a pool, in virtual time: events, delays and runners.

`Simulation` runs an `InsightScheduler` from event to event. `SimulatedRunners` are its topic
and pullers. `simulate` runs one insight, and `simulate_pool` several that share a pool.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from heapq import heappop, heappush
from itertools import count
from math import floor, inf
from typing import Final, NamedTuple

from msgspec import Raw

from pop_stream.lab.fairness_metrics.service_log import ServiceLog
from pop_stream.lab.simulator.workload import (
    Arrival,
    Change,
    DefinitionChange,
    SchedulerRestart,
    SimulationConfig,
    SimulationRun,
    checked_in_order,
)
from pop_stream.model.definitions import Customer, Definitions, Insight
from pop_stream.model.events.scheduling import (
    Claim,
    IdleRunners,
    InsightAttemptsReported,
    RoutedAgenda,
    Settlement,
)
from pop_stream.model.ids import CustomerId
from pop_stream.model.partitioning import partition_of
from pop_stream.policy.backlog.agenda_index import PAGE_SLOTS, ChosenAgenda
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.policy.delta import Delta
from pop_stream.policy.fairness.cost_model import clamp_cost
from pop_stream.policy.fairness.flow import Share, share_of_definition
from pop_stream.policy.flow_control.emission_gate import spread
from pop_stream.policy.flow_control.pool_sharing import SharedPool
from pop_stream.policy.insight_scheduler import InsightScheduler


class TakenAgenda(NamedTuple):
    """An agenda that an idle runner took; `sync_matched` if one was idle when it came."""

    agenda_id: str
    partition: int
    sync_matched: bool


class SimulatedRunners:
    """Runners, and the partitions they take agendas from in order.

    Args:
        runners: At least one for each partition.
        partitions: Of the topic.
    """

    def __init__(self, runners: int, partitions: int) -> None:
        if runners < partitions:
            msg = f"{partitions} partitions need as many runners, got {runners}"
            raise ValueError(msg)
        self._partitions: list[deque[tuple[str, bool]]] = [deque() for _ in range(partitions)]
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
        """When waiting agendas are taken again; infinite if none waits for that."""
        is_awaited = self._closed_until > -inf and any(self._partitions)
        return self._closed_until if is_awaited else inf

    def close(self, until: float) -> None:
        """Take nothing before this instant."""
        self._closed_until = until

    def deliver(self, agenda_id: str) -> None:
        """An agenda is on the topic."""
        chosen, partitions = 0, len(self._partitions)
        if partitions > 1:
            home = partition_of(agenda_id.encode(), partitions)
            [chosen] = spread([home], [*map(len, self._partitions)])
        queue = self._partitions[chosen]
        queue.append((agenda_id, self._idle[chosen] > len(queue)))

    def take(self, now: float) -> list[TakenAgenda]:
        """Agendas that idle runners take now; `run` them."""
        if now < self._closed_until:
            return []
        self._closed_until = -inf
        taken: list[TakenAgenda] = []
        for partition, queue in enumerate(self._partitions):
            while queue and self._idle[partition]:
                self._idle[partition] -= 1
                agenda_id, sync_matched = queue.popleft()
                taken.append(TakenAgenda(agenda_id, partition, sync_matched))
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


MAX_DURATION_S: Final = 1e11
"""Virtual time ends here, after 3,000 years: later instants are no dates."""

_BODY: Final = Raw(b"{}")
_MAX_DELTAS: Final = 200
_HEARTBEATS_PER_LEASE: Final = 3
_SECOND_MS: Final = 1000
_SPARSER: Final = 4
"""Heartbeats of a long agenda are sent after this part of the time it has run so far."""


def simulate(arrivals: Iterable[Arrival], config: SimulationConfig) -> SimulationRun:
    """Run a workload to its end, or until nothing could ever happen again.

    Args:
        arrivals: By instant; read as time advances, so that a long trace takes no memory.
        config: The insight, its customers and runners, and what changes on the way.

    Raises:
        ValueError: If an arrival is earlier than the one before, or it takes `MAX_DURATION_S`.
    """
    return Simulation(arrivals, config).run()


class _AgendaInFlight(NamedTuple):
    """An agenda that has arrived and not ended."""

    arrival: Arrival
    customer: int
    weight: float = 1.0


@dataclass(slots=True)
class InMemoryStore:
    """What the service would have in its table: pages, and deltas since the last snapshot."""

    pages: dict[int, Sequence[RoutedAgenda]] = field(default_factory=dict)
    deltas: list[Delta] = field(default_factory=list)

    def load(self, backlog: Backlog) -> None:
        """Bring a new backlog into the state that was saved last."""
        backlog.restore(self.pages.items(), self.deltas)

    def save(self, backlog: Backlog) -> None:
        """Write what changed since the last call."""
        delta = backlog.drain_delta()
        if delta is not None:
            self.deltas.append(delta)
        for number in backlog.drain_emptied():
            self.pages.pop(number, None)
        if len(self.deltas) > _MAX_DELTAS:
            self.deltas = [backlog.snapshot()]


class Simulation:
    """One insight in virtual time, step by step, so that several can run side by side.

    Args:
        arrivals: By instant.
        config: As for `simulate`.
        room: How many agendas its pool lets it emit at an instant; None without a pool.
    """

    def __init__(
        self,
        arrivals: Iterable[Arrival],
        config: SimulationConfig,
        room: Callable[[float], int] | None = None,
    ) -> None:
        self._room = room
        self._config = config
        self._environment = config.environment
        self._insight = config.insight
        self._definitions = Definitions(customers=dict(config.customers))
        self.scheduler = InsightScheduler(config.insight, self._share)
        restarts = any(isinstance(one, SchedulerRestart) for one in config.changes)
        self._store = InMemoryStore() if restarts else None
        self._runners = SimulatedRunners(
            self._environment.runners, self._environment.partitions
        )
        self._arrivals = checked_in_order(arrivals)
        self._next = next(self._arrivals, None)
        self._changes = deque(sorted(config.changes, key=lambda one: one.at))
        self._emissions: deque[tuple[float, str]] = deque()
        self._reports: deque[tuple[float, InsightAttemptsReported]] = deque()
        self._heartbeats: list[tuple[float, str, float]] = []
        self._in_flight: dict[str, _AgendaInFlight] = {}
        self._log = ServiceLog()
        self._weights: list[float] = []
        self._limited: dict[CustomerId, bool] = {}
        self._is_stale = False
        self._now = 0.0
        self._away_until = 0.0
        self._tick_at = inf
        self._number = 0
        self._rounds = 0
        self._depth = 0

    def run(self) -> SimulationRun:
        """Run to the end."""
        while (at := self.next_instant()) < inf:
            if self.advance_to(at):
                self.refill(at)
        return self.result

    @property
    def result(self) -> SimulationRun:
        """The outcome so far."""
        return SimulationRun(self._log, self._depth, self._rounds, left=len(self._in_flight))

    def next_instant(self) -> float:
        """When something happens next; infinite if nothing ever will."""
        next_event = min(
            self._next.at + self._environment.ingest_s if self._next else inf,
            self._reports[0][0] if self._reports else inf,
            self._tick_at,
        )
        return min(
            max(next_event, self._away_until),
            self._changes[0].at if self._changes else inf,
            self._emissions[0][0] if self._emissions else inf,
            self._heartbeats[0][0] if self._heartbeats else inf,
            self._runners.next_end,
            self._runners.opens_at,
        )

    def advance_to(self, now: float) -> bool:
        """Let happen all of this instant, causes before effects; returns whether to refill.

        Raises:
            ValueError: If that is past `MAX_DURATION_S`.
        """
        if now > MAX_DURATION_S:
            msg = f"at {now:g} s it is not over; are instants or runtimes in milliseconds?"
            raise ValueError(msg)
        self._now = now
        while self._changes and self._changes[0].at <= now:
            self._apply_change(self._changes.popleft())
        for agenda_id in self._runners.end(now):
            self._end(agenda_id)
        while self._heartbeats and self._heartbeats[0][0] <= now:
            self._heartbeat(*heappop(self._heartbeats)[1:])
        while self._emissions and self._emissions[0][0] <= now:
            self._runners.deliver(self._emissions.popleft()[1])
        for taken in self._runners.take(now):
            self._start(taken)
        return now >= self._away_until and self._apply_events()

    # ---- the pullers ----

    def _start(self, taken: TakenAgenda) -> None:
        course = self._in_flight[taken.agenda_id]
        arrival = course.arrival
        until = self._now + arrival.runtime_s + self._environment.overhead_s
        self._runners.run(taken.agenda_id, taken.partition, until=until)
        self._log.started(self._now, course.customer, waited=self._now - arrival.at)
        claim = Claim(taken.agenda_id, 1, sync_matched=taken.sync_matched)
        idle = IdleRunners("", self._runners.idle, insights=1)
        self._report(InsightAttemptsReported(self._insight.id, claims=(claim,), idle=(idle,)))

        self._expect_heartbeat(taken.agenda_id, self._now)

    def _expect_heartbeat(self, agenda_id: str, started_at: float) -> None:
        interval_s = self._insight.lease_ms / _SECOND_MS / _HEARTBEATS_PER_LEASE
        at = self._now + max(interval_s, (self._now - started_at) / _SPARSER)
        if at < started_at + self._in_flight[agenda_id].arrival.runtime_s:
            heappush(self._heartbeats, (at, agenda_id, started_at))

    def _heartbeat(self, agenda_id: str, started_at: float) -> None:
        if agenda_id in self._in_flight:
            alive = Claim(agenda_id, 1)
            self._report(InsightAttemptsReported(self._insight.id, heartbeats=(alive,)))
            self._expect_heartbeat(agenda_id, started_at)

    def _end(self, agenda_id: str) -> None:
        arrival, customer, weight = self._in_flight.pop(agenda_id)
        self._log.settled(
            self._now, customer, spent=clamp_cost(arrival.runtime_s), weight=weight
        )
        spent = {arrival.operation_type: arrival.runtime_s}
        settlement = Settlement(
            agenda_id=agenda_id, attempt=1, outcome="succeeded", spent_s=spent
        )
        self._report(InsightAttemptsReported(self._insight.id, settlements=(settlement,)))

    def _report(self, event: InsightAttemptsReported) -> None:
        self._reports.append((self._now + self._environment.relay_s, event))

    # ---- the scheduler ----

    def _apply_events(self) -> bool:
        """Apply what has reached the scheduler; returns whether there was anything."""
        now, has_changed = self._now, False
        while self._reports and self._reports[0][0] <= now:
            self.scheduler.apply(self._reports.popleft()[1], now)
            has_changed = True
        routed: list[RoutedAgenda] = []
        while self._next is not None and self._next.at + self._environment.ingest_s <= now:
            routed.append(self._routed(self._next))
            self._next = next(self._arrivals, None)
        for begin in range(0, len(routed), PAGE_SLOTS):
            page = routed[begin : begin + PAGE_SLOTS]
            number = self.scheduler.place(page, now)
            if self._store is not None:
                self._store.pages[number] = page
        if self._tick_at <= now:
            self._tick_at = inf
            has_changed = True
        has_changed = has_changed or bool(routed)
        if has_changed and self._is_stale:
            self._apply_definitions()
        return has_changed

    def _routed(self, arrival: Arrival) -> RoutedAgenda:
        agenda_id = str(self._number)
        self._number += 1
        customer = self._log.index(arrival.customer_id)
        if customer == len(self._weights):
            self._weights.append(1.0)
            self._register_customer(arrival.customer_id)
        self._in_flight[agenda_id] = _AgendaInFlight(arrival, customer)
        self._log.arrived(self._now, customer)
        return RoutedAgenda(
            agenda_id=agenda_id,
            customer_id=arrival.customer_id,
            accepted_at=datetime.fromtimestamp(arrival.at, UTC),
            agenda=_BODY,
            priority=arrival.priority,
            fairness_key=arrival.fairness_key,
            operation_types=(arrival.operation_type,),
            cost_s=arrival.cost_s,
        )

    def refill(self, now: float) -> None:
        """Run a round, unless the scheduler is away; a second call at once is harmless."""
        if now < self._away_until:
            return
        self._now = now
        self.scheduler.advance_to(now)
        limit = self.scheduler.budget()
        if self._room is not None and limit > 0:
            limit = self._room(now)
        chosen = self.scheduler.plan_round(now, limit).chosen
        self.scheduler.assign_partitions(chosen, 1, now)
        for one in chosen:
            self._emit(one)
        if self._store is not None:
            self._store.save(self.scheduler.backlog)
        self._rounds += bool(chosen)
        self._depth = max(self._depth, self.scheduler.backlog.in_flight)
        due_at = self.scheduler.backlog.queue.due_at
        if due_at is not None and due_at > self._now:
            self._tick_at = min(self._tick_at, due_at)
        self._log_held_changes()

    def _emit(self, chosen: ChosenAgenda) -> None:
        arrival, customer, _ = self._in_flight[chosen.agenda_id]
        self._in_flight[chosen.agenda_id] = _AgendaInFlight(
            arrival, customer, self._weights[customer]
        )
        costs, types = self.scheduler.backlog.costs, (arrival.operation_type,)
        charged = costs.estimate(types, arrival.cost_s, arrival.customer_id).cost_s
        self._log.emitted(
            self._now, customer, charged=charged, spent=clamp_cost(arrival.runtime_s)
        )
        self._emissions.append((self._now + self._environment.emission_s, chosen.agenda_id))

    # ---- changes ----

    def _apply_change(self, change: Change) -> None:
        if isinstance(change, DefinitionChange):
            self._redefine(change.definition)
        elif isinstance(change, SchedulerRestart):
            self._restart_scheduler()
            self._away_until = self._tick_at = self._now + change.away_s
        else:
            self._runners.close(self._now + change.away_s)

    def _restart_scheduler(self) -> None:
        """Replace the scheduler by one that is restored from what this one has saved."""
        if self._store is None:  # never: it is made where any change is a restart
            return
        self._store.save(self.scheduler.backlog)
        self.scheduler = InsightScheduler(self._insight, self._share)
        self._store.load(self.scheduler.backlog)

    def _redefine(self, definition: Customer | Insight) -> None:
        if isinstance(definition, Insight):
            self._insight = definition
        else:
            key = f"customer/{definition.id}"
            self._definitions = self._definitions.updated(key, definition)
        self._is_stale = True
        tick_s = self._environment.tick_s
        self._tick_at = min(self._tick_at, (floor(self._now / tick_s) + 1) * tick_s)

    def _apply_definitions(self) -> None:
        """Have the scheduler follow the changed definitions."""
        self._is_stale = False
        self.scheduler.reconfigure(self._insight)
        for customer_id in self._log.customers:
            self._register_customer(customer_id)

    def _register_customer(self, customer_id: CustomerId) -> None:
        """Log a customer's weight if it changed, and remember whether it has limits."""
        share, customer = self._share(customer_id), self._log.index(customer_id)
        if share.weight != self._weights[customer]:
            self._weights[customer] = share.weight
            self._log.weighed(self._now, customer, share.weight)
        if _has_limits(share):
            self._limited.setdefault(customer_id, False)
        elif self._limited.pop(customer_id, False):
            self._log.released(self._now, customer)

    def _log_held_changes(self) -> None:
        """Log which customers their own limits begin or cease to hold."""
        for customer_id, was_held in self._limited.items():
            is_held = bool(self.scheduler.backlog.queue.flow(customer_id).held_by)
            if is_held != was_held:
                self._limited[customer_id] = is_held
                note = self._log.held if is_held else self._log.released
                note(self._now, self._log.index(customer_id))

    def _share(self, customer_id: CustomerId) -> Share:
        return share_of_definition(self._definitions, customer_id)


def _has_limits(share: Share) -> bool:
    return share.paused or not (share.max_in_flight is None and share.rate_per_s is None)


def simulate_pool(
    works: Mapping[str, tuple[Iterable[Arrival], SimulationConfig]], capacity: int
) -> Mapping[str, SimulationRun]:
    """Run the work of all insights of a pool to its end.

    All insights apply the events of an instant before any of them emits, so their order makes
    no difference to the room they get.

    Args:
        works: By insight, arrivals and configuration as for `simulate`; weight and minimum in
            the pool are those of the configuration's insight.
        capacity: Agendas that all of them may have in flight together.

    Raises:
        ValueError: As `simulate`.
    """
    simulations: dict[str, Simulation] = {}
    shared = SharedPool()

    def room_of(name: str) -> Callable[[float], int]:
        def room(now: float) -> int:
            demands = [one.scheduler.pool_demand(now) for one in simulations.values()]
            found = shared.limits(capacity, demands, now)
            mine = simulations[name].scheduler
            return found[mine.insight.id] - mine.backlog.in_flight

        return room

    for name, (arrivals, config) in works.items():
        simulations[name] = Simulation(arrivals, config, room_of(name))
    while (at := min(one.next_instant() for one in simulations.values())) < inf:
        due = [one for one in simulations.values() if one.next_instant() <= at]
        have_changed = [one.advance_to(at) for one in due]
        if any(have_changed):
            for one in simulations.values():
                one.refill(at)
    return {name: one.result for name, one in simulations.items()}
