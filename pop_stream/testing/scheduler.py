"""The scheduler in memory: validation, policy, runners and summaries, driven step by step."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple, Self

from msgspec import UNSET, Raw
from msgspec.json import encode
from pydantic import JsonValue

from pop_stream.model.agenda import routed_agenda
from pop_stream.model.definitions import (
    KINDS,
    Definition,
    Definitions,
    Insight,
    Mappers,
)
from pop_stream.model.events.lifecycle import (
    AgendaAccepted,
    AgendaCommanded,
    AgendaEmitted,
    AgendaResolved,
    LifecycleEvent,
)
from pop_stream.model.events.scheduling import EmittedAgenda, Origin, RoutedAgenda
from pop_stream.model.identity import ANYONE
from pop_stream.model.ids import CustomerId
from pop_stream.model.signal import OPERATION_RETRYABLE
from pop_stream.policy.backlog.agenda_index import ChosenAgenda
from pop_stream.policy.completion_token import refusal_of
from pop_stream.policy.fairness.flow import Share, share_of_definition
from pop_stream.policy.flow_control.pool_sharing import SharedPool
from pop_stream.policy.ingress.admission import Admission, Submission
from pop_stream.policy.insight_scheduler import InsightScheduler
from pop_stream.policy.lifecycle.fold import fold_all
from pop_stream.policy.lifecycle.states import OUTCOMES
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.puller.handlers.registry import Handlers
from pop_stream.relay.relay import translate
from pop_stream.settings import Settings
from pop_stream.testing.runners import COMPLETION_TOKENS, InMemoryRunners, VirtualClock
from pop_stream.testing.transport import InMemoryClient

_COMMANDS_PARTITION = -1_000_000


class PickedAgenda(NamedTuple):
    """An agenda that the policy chose, at an instant of virtual time in seconds."""

    agenda_id: str
    customer_id: str
    insight_id: str
    attempt: int
    at_s: float


class InMemoryScheduler:
    """A whole scheduler for one test, in one event loop.

    Args:
        handlers: What runs operations, such as `puller.handlers`.
        definitions: Customers, pools, insights and templates, in any order. Without any
            insight there is one called `work` that takes every type with a handler.
        runners: Agendas that run at a time, of all insights together.
        takes: Seconds of virtual time that an operation of a type takes; 1 if not named.

    Attributes:
        client: Calls it as `pop_stream.client.Client` calls the API.
        clock: Virtual time.
        picks: What the policy chose so far, in order.

    Raises:
        ValueError: If `runners` is below 1, or a duration is negative.
    """

    def __init__(
        self,
        handlers: Handlers,
        *,
        definitions: Iterable[Definition] = (),
        runners: int = 1,
        takes: Mapping[str, float] | None = None,
    ) -> None:
        for kind, seconds in (takes or {}).items():
            if not seconds >= 0:
                msg = f"takes[{kind!r}] = {seconds}: give seconds, 0 or more"
                raise ValueError(msg)
        self.clock = VirtualClock()
        self.picks: list[PickedAgenda] = []
        self._definitions = _in_force(definitions, handlers)
        self._admission = Admission(
            self._definitions,
            max_agenda_bytes=Settings.model_fields["max_agenda_bytes"].default,
        )
        self._schedulers = {
            one.id: InsightScheduler(one, self._share)
            for one in self._definitions.insights.values()
        }
        self._pools = {pool_id: SharedPool() for pool_id in self._definitions.pools}
        self._routed: dict[str, RoutedAgenda] = {}
        self._summaries: dict[str, Summary] = {}
        self._ids = count(1)
        self._commands = count()
        self._runners = InMemoryRunners(
            handlers,
            runners=runners,
            takes=takes or {},
            clock=self.clock,
            summary_of=self._summaries.__getitem__,
        )
        self.client = InMemoryClient(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads of handlers that are not async; `async with` does it, too."""
        self._runners.close()

    # ---- what a client asks for ----

    def admit(self, raw: bytes) -> Submission:
        """What the API would make of a submission; nothing is accepted yet.

        Raises:
            SubmissionError: If it is not sound or fits no insight.
        """
        return self._admission.admit(raw, ANYONE, new_id=lambda: f"agenda-{next(self._ids)}")

    def accept(self, submissions: Sequence[Submission]) -> None:
        """Take agendas in, in order; one whose id is known already changes nothing."""
        now = self.clock.now()
        pages: dict[str, list[RoutedAgenda]] = {}
        for one in submissions:
            if one.agenda_id in self._routed:
                continue
            agenda, body = one.agenda, Raw(one.value)
            routed = routed_agenda(agenda, body, agenda_id=one.agenda_id, accepted_at=now)
            self._routed[one.agenda_id] = routed
            self._fold(
                AgendaAccepted(
                    agenda_id=one.agenda_id,
                    at=now,
                    insight_id=one.insight_id,
                    customer_id=agenda.customer_id,
                    title=agenda.title,
                    link_id=agenda.link_id,
                    priority=agenda.priority,
                    operations=tuple(operation.name for operation in agenda.operations),
                    agenda=body,
                )
            )
            pages.setdefault(one.insight_id, []).append(routed)
        for insight_id, page in pages.items():
            self._schedulers[insight_id].place(page, self.clock.now_s)

    def command(self, event: AgendaCommanded) -> None:
        """Carry out a command, as far as the agenda's state allows it."""
        self._carry_out(event)

    def _carry_out(self, event: AgendaCommanded | AgendaResolved) -> None:
        self._fold(event)
        origin = Origin(_COMMANDS_PARTITION, next(self._commands), 0)
        for report in translate((), [(event, origin)], self.clock.now()):
            self._schedulers[report.insight_id].apply(report, self.clock.now_s)
        self._drain()

    def complete(self, token: str, result: JsonValue = None, *, error: str = "") -> None:
        """Complete an operation from outside, by the token that its handler got.

        Args:
            token: Of a hand-over that waits.
            result: Of the operation, in success.
            error: Why it failed, if it did; another attempt may help.

        Raises:
            ValueError: If the token completes nothing now.
        """
        claims = COMPLETION_TOKENS.read(token)
        summary = self._summaries.get(claims.agenda_id) if claims is not None else None
        if claims is None or summary is None:
            msg = "token: is none of this scheduler"
            raise ValueError(msg)
        if (refusal := refusal_of(claims, token, summary, self.clock.now())) is not None:
            msg = f"token: completes nothing: {refusal[1]}"
            raise ValueError(msg)
        self._carry_out(
            AgendaResolved(
                agenda_id=claims.agenda_id,
                at=self.clock.now(),
                insight_id=claims.insight_id,
                attempt=summary.attempt,
                operation=claims.operation,
                outcome="failed" if error else "succeeded",
                result=UNSET if error or result is None else Raw(encode(result)),
                reason=error,
                code=OPERATION_RETRYABLE if error else "",
            )
        )

    def summary(self, agenda_id: str) -> Summary | None:
        """All that is known of an agenda."""
        return self._summaries.get(agenda_id)

    @property
    def summaries(self) -> Sequence[Summary]:
        """Of all agendas, in the order in which they were accepted."""
        return [*self._summaries.values()]

    # ---- time ----

    async def run_until_idle(self) -> None:
        """Run until nothing is left to do, moving the clock over every wait.

        What is held, paused or handled by nobody stays. An operation that always raises
        `NotYet` is asked again until its wait times out; use `run_for` to look before.
        """
        while (at_s := await self._run_now()) is not None:
            self.clock.move_to(at_s)

    async def run_for(self, seconds: float) -> None:
        """Run what happens within so many seconds of virtual time; the clock moves by them."""
        until_s = self.clock.now_s + seconds
        while (at_s := await self._run_now()) is not None and at_s <= until_s:
            self.clock.move_to(at_s)
        self.clock.move_to(until_s)
        await self._run_now()

    async def _run_now(self) -> float | None:
        """Let happen all of this instant; when something happens next, None for never."""
        while True:
            self._report(self._runners.end_due())
            self._emit()
            self._report(self._runners.claim())
            await self._runners.wait()
            next_s = self._next_s
            if next_s is None or next_s > self.clock.now_s:
                return next_s

    @property
    def _next_s(self) -> float | None:
        dues = [self._runners.next_end_s]
        for one in self._schedulers.values():
            dues += [
                at if at is None or at > self.clock.now_s else None
                for at in (one.backlog.queue.due_at, one.backlog.commands.due_at)
            ]
        return min((at for at in dues if at is not None), default=None)

    # ---- the parts ----

    def _report(self, events: Sequence[LifecycleEvent]) -> None:
        for event in events:
            self._fold(event)
        for report in translate(events, (), self.clock.now()):
            self._schedulers[report.insight_id].apply(report, self.clock.now_s)
        self._drain()

    def _emit(self) -> None:
        now_s = self.clock.now_s
        for scheduler in self._schedulers.values():
            scheduler.advance_to(now_s)
        for scheduler in self._schedulers.values():
            chosen = scheduler.plan_round(now_s, self._room(scheduler)).chosen
            scheduler.assign_partitions(chosen, 1, now_s)
            for one in chosen:
                self._deliver(scheduler, one)
        self._drain()

    def _deliver(self, scheduler: InsightScheduler, chosen: ChosenAgenda) -> None:
        now, insight = self.clock.now(), scheduler.insight
        routed = self._routed[chosen.agenda_id]
        waits = scheduler.backlog.index.overrides(chosen.ref)
        self.picks.append(
            PickedAgenda(
                chosen.agenda_id,
                chosen.customer_id,
                insight.id,
                chosen.attempt,
                self.clock.now_s,
            )
        )
        self._fold(
            AgendaEmitted(
                agenda_id=chosen.agenda_id,
                at=now,
                insight_id=insight.id,
                attempt=chosen.attempt,
            )
        )
        self._runners.deliver(
            EmittedAgenda(
                agenda_id=chosen.agenda_id,
                insight_id=insight.id,
                customer_id=chosen.customer_id,
                attempt=chosen.attempt,
                accepted_at=routed.accepted_at,
                emitted_at=now,
                lease_ms=insight.lease_ms,
                agenda=routed.agenda,
                run_from=1 if chosen.attempt > 1 else 0,
                deferrals=waits.deferrals,
            )
        )

    def _drain(self) -> None:
        """Fold what the policy published, and stop what is to stop, until there is no more."""
        for scheduler in self._schedulers.values():
            while batch := scheduler.drain_outbox():
                for event in batch.lifecycle:
                    self._fold(event)
                for stop in batch.stops:
                    self._report(self._runners.stop(stop.agenda_id, stop.attempt))
            scheduler.backlog.drain_delta()
            scheduler.backlog.drain_emptied()

    def _room(self, scheduler: InsightScheduler) -> int:
        budget, pool_id = scheduler.budget(), scheduler.insight.pool
        pool = self._definitions.pools.get(pool_id or "")
        if pool is None or budget <= 0:
            return budget
        demands = [
            one.pool_demand(self.clock.now_s, by_customers=pool.divided_among == "customers")
            for one in self._schedulers.values()
            if one.insight.pool == pool.id
        ]
        limits = self._pools[pool.id].limits(pool.max_in_flight, demands, self.clock.now_s)
        return limits[scheduler.insight.id] - scheduler.backlog.in_flight

    def _fold(self, event: LifecycleEvent) -> None:
        summary, _ = fold_all(self._summaries.get(event.agenda_id), [event])
        if summary is not None:
            self._summaries[event.agenda_id] = summary

    def _share(self, customer_id: CustomerId) -> Share:
        return share_of_definition(self._definitions, customer_id)

    @property
    def unfinished(self) -> Sequence[str]:
        """Ids of agendas that have not ended."""
        return [one.agenda_id for one in self.summaries if one.state not in OUTCOMES]


def _in_force(given: Iterable[Definition], handlers: Handlers) -> Definitions:
    named = {kind: name for name, kind in KINDS.items()}
    changes = [(f"{named[type(one)]}/{one.id}", one, 1) for one in given]
    found = Definitions().with_changes(changes)
    if found.insights:
        return found
    work = Insight(id="work", mappers=Mappers(operation_types=handlers.types))
    return found.updated("insight/work", work, version=1)
