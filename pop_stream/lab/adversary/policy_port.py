"""All that the adversary knows of the policy: what goes in, and what comes out.

`Policy` is the port. `ProductPolicy` is the product's own: an `InsightScheduler` for each
insight, and the sharing of their pool, called as the scheduler service calls them.
`stated_bound` is the promise that is held against what the ledger counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Final, Literal, NamedTuple, Protocol

from msgspec import Raw

from pop_stream.lab.adversary.play import Control
from pop_stream.model.definitions import Customer, Definitions, Insight
from pop_stream.model.events.lifecycle import (
    AgendaCancelled,
    AgendaExhausted,
    AgendaExpired,
    AgendaHeld,
    AgendaReady,
    AgendaWaiting,
    AttemptEvent,
)
from pop_stream.model.events.scheduling import (
    Claim,
    Command,
    IdleRunners,
    InsightAttemptsReported,
    InsightTick,
    RoutedAgenda,
    Settlement,
)
from pop_stream.model.ids import CustomerId
from pop_stream.model.retry import Backoff
from pop_stream.policy.fairness.flow import Share, share_of_definition
from pop_stream.policy.flow_control.pool_sharing import (
    DIVIDE_EVERY_S,
    SharedPool,
)
from pop_stream.policy.insight_scheduler import InsightScheduler

Outcome = Literal["succeeded", "failed", "retryable", "stopped", "deferred"]

NoticeKind = Literal["ready", "waiting", "ended", "stop"]


class Submission(NamedTuple):
    """An agenda as its customer sends it; what it truly takes is not part of it.

    Attributes:
        declared_s: Worker-seconds that are claimed; None to have them learned.
    """

    agenda_id: str
    customer_id: str
    insight_id: str
    at: float
    operation_type: str
    declared_s: float | None
    key: str
    priority: int
    max_attempts: int


class Emission(NamedTuple):
    """An attempt that goes to the topic of its insight."""

    agenda_id: str
    attempt: int
    insight_id: str


class Notice(NamedTuple):
    """What the policy publishes of an agenda: it may go, waits, has ended, or must stop."""

    kind: NoticeKind
    agenda_id: str
    attempt: int


class Policy(Protocol):
    """Decides what goes to the topics. Instants are seconds, and never fall."""

    def submit(self, agendas: Sequence[Submission], now: float) -> None:
        """Agendas arrive."""
        ...

    def claimed(self, emission: Emission, now: float, *, matched: bool, idle: int) -> None:
        """A runner began an attempt; `matched` if it stood idle, as `idle` others still do."""
        ...

    def heartbeat(self, emission: Emission, now: float, *, elapsed_s: float) -> None:
        """An attempt runs, for so long by now."""
        ...

    def ended(
        self, emission: Emission, now: float, *, outcome: Outcome, spent_s: Mapping[str, float]
    ) -> None:
        """An attempt ended; `spent_s` is by operation type."""
        ...

    def command(self, agenda: Submission, command: Control, now: float) -> None:
        """A customer commands something about an agenda."""
        ...

    def define(self, customer: Customer, now: float) -> None:
        """An operator defines a customer anew."""
        ...

    def round(self, now: float) -> tuple[Sequence[Emission], Sequence[Notice]]:
        """Let happen what is due, and choose what goes out."""
        ...

    def due_at(self) -> float | None:
        """When it must be asked for a round though nothing was reported; None for never."""
        ...


def stated_bound(depth: int, mine: float, theirs: float) -> float:
    """How far two customers that want service may be apart in it, by the policy's promise.

    Args:
        depth: Most agendas that were out at once.
        mine: Worker-seconds per weight of the largest agenda of one of them.
        theirs: Of the other.

    Returns:
        Worker-seconds per weight that the other is given more than the one, over any time in
        which the one wants service without a break.
    """
    return (depth + 1) * (mine + theirs)


@dataclass(frozen=True, slots=True)
class PolicySetup:
    """What the policy is made of.

    Attributes:
        pool: Agendas that all insights may have in flight together; None for no pool.
        by_customers: Whether the pool is divided among customers, not among insights.
    """

    insights: Sequence[Insight]
    customers: Mapping[str, Customer]
    pool: int | None = None
    by_customers: bool = False


_BODY: Final = Raw(b"{}")
_ROUNDS_A_SNAPSHOT: Final = 200
_RELAY_SLACK_S: Final = 0.02
"""Everything that was written so long ago has been relayed."""

_NOTICES: Final[Mapping[type[AttemptEvent], NoticeKind]] = {
    AgendaReady: "ready",
    AgendaWaiting: "waiting",
    AgendaHeld: "waiting",
    AgendaCancelled: "ended",
    AgendaExpired: "ended",
    AgendaExhausted: "ended",
}


class ProductPolicy:
    """The product's policy, for the insights of one pool or for one insight."""

    def __init__(self, setup: PolicySetup) -> None:
        self._pool = setup.pool
        self._definitions = Definitions(
            customers={CustomerId(one): known for one, known in setup.customers.items()}
        )
        self._insights = {one.id: one for one in setup.insights}
        self._schedulers = {
            one.id: InsightScheduler(one, self._share) for one in setup.insights
        }
        self._rounds = 0
        self._by_customers = setup.by_customers
        self._shared = SharedPool()
        self._divided_at = -inf

    def submit(self, agendas: Sequence[Submission], now: float) -> None:
        """Agendas arrive, a page an insight."""
        pages: dict[str, list[RoutedAgenda]] = {}
        for one in agendas:
            pages.setdefault(one.insight_id, []).append(_routed(one))
        for insight_id, page in pages.items():
            self._schedulers[insight_id].place(page, now)

    def claimed(self, emission: Emission, now: float, *, matched: bool, idle: int) -> None:
        """As a puller's claim."""
        claim = Claim(emission.agenda_id, emission.attempt, sync_matched=matched)
        event = InsightAttemptsReported(
            emission.insight_id, claims=(claim,), idle=(IdleRunners("", idle, insights=1),)
        )
        self._schedulers[emission.insight_id].apply(event, now)

    def heartbeat(self, emission: Emission, now: float, *, elapsed_s: float) -> None:
        """As a puller's heartbeat, which carries no time so far."""
        del elapsed_s
        claim = Claim(emission.agenda_id, emission.attempt)
        event = InsightAttemptsReported(emission.insight_id, heartbeats=(claim,))
        self._schedulers[emission.insight_id].apply(event, now)

    def ended(
        self, emission: Emission, now: float, *, outcome: Outcome, spent_s: Mapping[str, float]
    ) -> None:
        """As a puller's report of an end."""
        settlement = Settlement(
            agenda_id=emission.agenda_id,
            attempt=emission.attempt,
            outcome="failed" if outcome == "retryable" else outcome,
            spent_s=dict(spent_s),
            retryable=outcome == "retryable",
        )
        event = InsightAttemptsReported(emission.insight_id, settlements=(settlement,))
        self._schedulers[emission.insight_id].apply(event, now)

    def command(self, agenda: Submission, command: Control, now: float) -> None:
        """As the relay passes a command on."""
        priority = command.priority if command.action == "reprioritise" else None
        passed_on = Command(agenda.agenda_id, command.action, priority=priority)
        event = InsightAttemptsReported(agenda.insight_id, commands=(passed_on,))
        self._schedulers[agenda.insight_id].apply(event, now)

    def define(self, customer: Customer, now: float) -> None:
        """As definitions are applied, before the next round."""
        del now
        self._definitions = self._definitions.updated(f"customer/{customer.id}", customer)
        for insight_id, scheduler in self._schedulers.items():
            scheduler.reconfigure(self._insights[insight_id])

    def round(self, now: float) -> tuple[Sequence[Emission], Sequence[Notice]]:
        """A round of every insight, and what each publishes."""
        emitted: list[Emission] = []
        notices: list[Notice] = []
        for scheduler in self._schedulers.values():
            self._expire_leases(scheduler, now)
            scheduler.advance_to(now)
        self._divide_weights(now)
        for insight_id, scheduler in self._schedulers.items():
            chosen = scheduler.plan_round(now, self._room(insight_id, now)).chosen
            scheduler.assign_partitions(chosen, 1, now)
            emitted += [Emission(one.agenda_id, one.attempt, insight_id) for one in chosen]
            notices += _notices(scheduler)
            scheduler.backlog.drain_delta()
            scheduler.backlog.drain_emptied()
        self._forget_idle()
        return emitted, notices

    def due_at(self) -> float | None:
        """The soonest instant of all insights."""
        dues = [at for one in self._schedulers.values() for at in _dues(one)]
        return min(dues, default=None)

    def _room(self, insight_id: str, now: float) -> int:
        """How many agendas the pool lets the insight emit."""
        mine = self._schedulers[insight_id]
        if self._pool is None or mine.budget() <= 0:
            return mine.budget()
        demands = [
            one.pool_demand(now, by_customers=self._by_customers)
            for one in self._schedulers.values()
        ]
        limits = self._shared.limits(self._pool, demands, now)
        return limits[insight_id] - mine.backlog.in_flight

    def _divide_weights(self, now: float) -> None:
        """As the ticker has it, once a second."""
        if not self._by_customers or now < self._divided_at + DIVIDE_EVERY_S:
            return
        self._divided_at = now
        active = {one: known.active_customers() for one, known in self._schedulers.items()}
        for insight_id, changed in self._shared.changed_divisions(active, now).items():
            tick = InsightTick(insight_id, divisions=dict(changed))
            self._schedulers[insight_id].apply(tick, now)

    def _forget_idle(self) -> None:
        """Take a snapshot now and then, as the service does: it forgets idle customers."""
        self._rounds += 1
        if self._rounds % _ROUNDS_A_SNAPSHOT == 0:
            for scheduler in self._schedulers.values():
                scheduler.backlog.snapshot()

    def _expire_leases(self, scheduler: InsightScheduler, now: float) -> None:
        """As the ticker has it, once a lease is over."""
        ends_at = scheduler.backlog.attempts.lease_ends_at
        if ends_at is not None and ends_at + _RELAY_SLACK_S < now:
            until = datetime.fromtimestamp(now - _RELAY_SLACK_S, UTC)
            scheduler.apply(InsightTick(scheduler.insight.id, relayed_until=until), now)

    def _share(self, customer_id: CustomerId) -> Share:
        return share_of_definition(self._definitions, customer_id)


def _routed(one: Submission) -> RoutedAgenda:
    return RoutedAgenda(
        agenda_id=one.agenda_id,
        customer_id=one.customer_id,
        accepted_at=datetime.fromtimestamp(one.at, UTC),
        agenda=_BODY,
        priority=one.priority,
        fairness_key=one.key,
        operation_types=(one.operation_type,),
        cost_s=one.declared_s,
        max_attempts=one.max_attempts,
        backoff=Backoff(first_s=0.0, most_s=1.0),
    )


def _dues(scheduler: InsightScheduler) -> Sequence[float]:
    backlog = scheduler.backlog
    lease_ends_at = backlog.attempts.lease_ends_at
    lease_due = None if lease_ends_at is None else lease_ends_at + 2 * _RELAY_SLACK_S
    dues = (backlog.queue.due_at, backlog.commands.due_at, lease_due)
    return [at for at in dues if at is not None]


def _notices(scheduler: InsightScheduler) -> Sequence[Notice]:
    batch = scheduler.drain_outbox()
    found = [
        Notice(kind, one.agenda_id, one.attempt)
        for one in batch.lifecycle
        if isinstance(one, AttemptEvent) and (kind := _NOTICES.get(type(one))) is not None
    ]
    found += [Notice("stop", one.agenda_id, one.attempt) for one in batch.stops]
    return found
