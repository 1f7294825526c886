"""Runs one attempt of an agenda: its operations in the order of their DAG, in parallel.

Knows no Kafka. What changed is collected with `AgendaRun.take_changes`; how the attempt
ended is the returned `Failure` or `Deferral`, or None.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final
from weakref import ReferenceType, ref

import msgspec

from pop_stream.model import references
from pop_stream.model.agenda import Agenda, Operation, dependencies
from pop_stream.model.appended_operations import (
    all_operations,
    encode_operation,
    new_operations,
)
from pop_stream.model.events.base import AppendedOperation, OperationWait, PriorProgress
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.model.references import OUTPUT_SUFFIX
from pop_stream.policy.completion_token import completion_claims, hand_over, renewed
from pop_stream.policy.operation_waits import timed_out, wait_on
from pop_stream.puller.execution.failure import (
    Deferral,
    Failure,
    code_of,
    failure_of,
    reason_of,
)
from pop_stream.puller.execution.operation_retrier import (
    OperationRetrier,
    RetriesExhaustedError,
)
from pop_stream.puller.execution.operation_run import OperationRun
from pop_stream.puller.handlers.errors import (
    CompletedElsewhere,
    FinalError,
    NotYet,
    OperationError,
    WaitTimedOutError,
)
from pop_stream.puller.handlers.invocation import (
    AppendTo,
    AttemptContext,
    RunContext,
    unknown_type,
)
from pop_stream.puller.reporting.messages import message
from pop_stream.puller.reporting.reporter import AttemptChanges
from pop_stream.telemetry import tracing


class Dag:
    """Which operations may start: those whose dependencies succeeded, in that order.

    Every dependency must be known once the operation is added, or come in the same call;
    without cycles, which validation has proved.
    """

    def __init__(self, operations: Iterable[Operation] = ()) -> None:
        self._operations: dict[str, Operation] = {}
        self._waits: dict[str, int] = {}
        self._dependents: dict[str, list[str]] = {}
        self._done: set[str] = set()
        self.ready: deque[Operation] = deque()
        self.add(operations)

    def add(self, operations: Iterable[Operation]) -> None:
        """Add operations; those that depend on nothing unfinished are ready at once."""
        for operation in operations:
            self._operations[operation.name] = operation
            waits = dependencies(operation) - self._done
            self._waits[operation.name] = len(waits)
            for name in waits:
                self._dependents.setdefault(name, []).append(operation.name)
            if not waits:
                self.ready.append(operation)

    def done(self, name: str) -> None:
        """An operation succeeded: those that waited for nothing else are ready."""
        self._done.add(name)
        for dependent in self._dependents.pop(name, ()):
            self._waits[dependent] -= 1
            if not self._waits[dependent]:
                self.ready.append(self._operations[dependent])

    @property
    def waiting(self) -> Mapping[str, Operation]:
        """Those that wait for others; once nothing runs, what they wait for cannot come."""
        return {name: self._operations[name] for name, waits in self._waits.items() if waits}

    def skip(self, known: Iterable[str]) -> None:
        """Count operations as done that need not run, as far as their dependencies are."""
        names = set(known)
        waiting: list[Operation] = []
        while self.ready:
            operation = self.ready.popleft()
            if operation.name in names:
                self.done(operation.name)
            else:
                waiting.append(operation)
        self.ready.extend(waiting)


HANDED_OVER: Final = "its completion from outside"
"""What an operation waits for that was handed over, where its handler does not say."""

PARALLEL_OPERATIONS: Final = 64
"""Most operations of one agenda that run at a time; the rest of a wide DAG waits."""


@dataclass(frozen=True, slots=True)
class PriorResults:
    """What earlier attempts of an agenda left.

    Attributes:
        succeeded: Results of operations that ended well, JSON or empty for none; these are
            not run again, and not reported again.
        unfinished: How far others had come.
        waits: What others waited for.
        failed: Why others failed before this attempt has begun: that was decided outside.
        appended: What the agenda has besides the operations it came with.
        final_state: How the agenda has ended, if it has: the scheduler counted the
            attempt as lost before its end was reported.
    """

    succeeded: Mapping[str, bytes] = field(default_factory=dict)
    unfinished: Mapping[str, PriorProgress] = field(default_factory=dict)
    appended: tuple[AppendedOperation, ...] = ()
    final_state: str = ""
    waits: Mapping[str, OperationWait] = field(default_factory=dict)
    failed: Mapping[str, OperationError] = field(default_factory=dict)


class AgendaRun:
    """One attempt of an agenda.

    Args:
        emitted: What was taken from the insight's topic.
        agenda: Its agenda, parsed.
        run_context: Shared by all runs of a puller.
        earlier: From attempts before this one.

    Attributes:
        stop_reason: Why its handlers are cancelled, set by who cancels the run; else empty.

    Raises:
        SubmissionError: If something that was appended is no operation.
    """

    def __init__(
        self,
        emitted: EmittedAgenda,
        agenda: Agenda,
        run_context: RunContext,
        earlier: PriorResults | None = None,
    ) -> None:
        self.stop_reason = ""
        self._prior = earlier or PriorResults()
        self._operations = [*all_operations(agenda.operations, self._prior.appended)]
        self._run_context = run_context
        self._changed: deque[OperationRun] = deque()
        self._appended: list[AppendedOperation] = []
        self._failure: Failure | None = None
        self._waits = Waits(emitted, agenda, self._prior.waits)
        self._failed_event = asyncio.Event()
        self._names: dict[str, object] = {
            "pop.agendaId": emitted.agenda_id,
            "pop.customerId": emitted.customer_id,
        }
        self._spent_s: dict[str, float] = {}
        self._dag = Dag(self._operations)
        self._running: set[str] = set()
        self._workers = 0
        self._group: asyncio.TaskGroup | None = None
        # What a lone operation refers to is no result; those it appends are looked at then.
        several = len(self._operations) > 1
        self._referenced = set(_referenced(self._operations)) if several else set[str]()
        self._results: dict[str, bytes] = {}
        self._retrier = OperationRetrier(
            run_context, self._attempt_context(emitted, agenda), self._failed_event
        )

    @property
    def has_changes(self) -> bool:
        """Whether there is progress that was not taken yet."""
        return bool(self._changed or self._appended)

    @property
    def spent_s(self) -> dict[str, float]:
        """Worker-seconds so far, by operation type, of tries that ended."""
        return self._spent_s

    def take_changes(self) -> AttemptChanges:
        """What changed since this was last called."""
        appended, self._appended = self._appended, []
        # Threads may add more meanwhile: those are left for the next call.
        operations = [
            self._changed.popleft().take_progress() for _ in range(len(self._changed))
        ]
        return AttemptChanges(operations, appended)

    async def run(self) -> Failure | Deferral | None:
        """Run all operations; once one failed start no more, but let those running end.

        If one waits for something, all that do not depend on it run to their end.

        To be called once. Cancelled, it cancels what runs and counts that as failed.
        """
        if not self._all_have_handlers(self._operations):
            return self._failure
        if self._prior.succeeded:
            self._restore_prior_results()
        if len(self._operations) == 1 and self._dag.ready:
            await self._run_operation(self._dag.ready.popleft())
        if self._dag.ready and not self._failure:
            async with asyncio.TaskGroup() as self._group:
                self._workers = 1
                await self._work()
        if not self._failure and self._waits.deferral is None:
            self._fail_stuck()
        return self._failure or self._waits.deferral

    def _fail_stuck(self) -> None:
        """What still waits will never run: what it waits for was appended, and is no more."""
        for operation in self._dag.waiting.values():
            known = {one.name for one in self._operations}
            missing = ", ".join(sorted(dependencies(operation) - known)) or "one another"
            msg = f"it waits for {missing}, which nothing has appended; rerun all operations"
            one = OperationRun(operation, self._changed)
            one.fail(msg, self._run_context.clock.now())
            self._fail(one, FinalError(msg))

    def _attempt_context(self, emitted: EmittedAgenda, agenda: Agenda) -> AttemptContext:
        return AttemptContext(
            agenda_id=emitted.agenda_id,
            customer_id=emitted.customer_id,
            insight_id=emitted.insight_id,
            link_id=agenda.link_id,
            parent_id=agenda.parent_id,
            attempt=emitted.attempt,
            accepted_at=emitted.accepted_at,
            # Unknown of a later attempt, it is taken to be the first of its run.
            run_from=emitted.run_from or emitted.attempt,
            trace=agenda.trace,
            expires_at=agenda.expires_at,
            names=self._names,
            append_for=partial(_appender, ref(self)),
            stop_reason_of=partial(_stop_reason, ref(self)),
            prior=self._prior.unfinished,
            waiting_since=self._waits.known_since,
        )

    def _restore_prior_results(self) -> None:
        for name, encoded in self._prior.succeeded.items():
            self._store_result(name, encoded)
        self._dag.skip(self._prior.succeeded)

    def _store_result(self, name: str, encoded: bytes) -> None:
        """Keep a result until the end: operations appended later may refer to any."""
        self._results[name] = encoded
        if name in self._referenced:
            self._bind_result(name, encoded)

    def _bind_result(self, name: str, encoded: bytes) -> None:
        value = msgspec.json.decode(encoded) if encoded else None
        self._names[f"{name}{OUTPUT_SUFFIX}"] = value

    def _all_have_handlers(self, operations: Sequence[Operation]) -> bool:
        """Whether all have; asked before anything starts, so that no work is in vain."""
        find = self._run_context.handlers.find
        for operation in operations:
            if find(operation.type) is None:
                one = OperationRun(operation, self._changed)
                error = unknown_type(operation, self._run_context.handlers)
                one.fail(reason_of(error), self._run_context.clock.now())
                self._fail(one, error)
                return False
        return True

    async def _work(self) -> None:
        """Take one ready operation after the other, so that a chain needs one task only."""
        while self._dag.ready and not self._failure:
            operation = self._dag.ready.popleft()
            self._spawn_workers()
            await self._run_operation(operation)
        self._workers -= 1

    def _spawn_workers(self) -> None:
        """Start a worker for each ready operation; each is counted before it begins."""
        if self._group is None:
            return
        for _ in range(min(len(self._dag.ready), PARALLEL_OPERATIONS - self._workers)):
            self._workers += 1
            self._group.create_task(self._work())

    async def _run_operation(self, operation: Operation) -> None:
        one, now = OperationRun(operation, self._changed), self._run_context.clock.now()
        if (wait := self._waits.handed_over(operation.name, now)) is not None:
            one.defer(wait, HANDED_OVER, now)
            return
        one.start(now)
        if (why := self._prior.failed.get(operation.name)) is not None:
            one.fail(str(why), now)
            self._fail(one, why)
            return
        self._running.add(operation.name)
        outcome, error_type = "failed", ""
        span = tracing.begin_operation(operation.name, operation.type)
        try:
            encoded = await self._retrier.execute(one)
        except RetriesExhaustedError as failed:
            error = failed.__cause__ or failed
            error_type = code_of(error)
            self._fail(one, error)
        except NotYet as not_yet:
            outcome = "deferred"
            self._defer(one, not_yet)
        else:
            outcome = "succeeded"
            self._store_result(operation.name, encoded)
            self._dag.done(operation.name)
        finally:
            self._running.discard(operation.name)
            example = None
            if span is not None:
                span.end(outcome, tries=one.tries, error_type=error_type)
                at = self._run_context.clock.now().timestamp()
                example = (f"{self._names['pop.agendaId']}", span.trace_id, at)
            self._run_context.metrics.record_operation(
                operation.type, outcome, one.worked_s, example
            )
            spent = self._spent_s
            spent[operation.type] = spent.get(operation.type, 0.0) + one.worked_s

    def _fail(self, one: OperationRun, error: BaseException) -> None:
        failure = failure_of(one.operation.name, error, at=self._run_context.clock.now())
        self._failure = self._failure.merged(failure) if self._failure else failure
        self._failed_event.set()

    def _defer(self, one: OperationRun, not_yet: NotYet) -> None:
        now = self._run_context.clock.now()
        try:
            wait = self._waits.begin(one.operation, not_yet, now)
        except FinalError as error:
            one.fail(reason_of(error), now)
            self._fail(one, error)
        else:
            handed_over = HANDED_OVER if wait.token else ""
            one.defer(wait, not_yet.reason or handed_over, now)

    def append(self, by: str, given: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        """Add operations, for the one of that name; see `OperationCall.append`."""
        if by not in self._running:
            raise _ended(by)
        new = new_operations(given, to=self._operations)
        at = self._run_context.clock.now()
        # Kept even if the attempt has failed: the next one may not run this operation again.
        self._appended += [
            AppendedOperation(by=by, at=at, operation=msgspec.Raw(encode_operation(one)))
            for one in new
        ]
        self._operations += new
        self._bind_references(new)
        if self._all_have_handlers(new):
            self._dag.add(new)
            self._spawn_workers()
        return tuple(one.name for one in new)

    def _bind_references(self, new: Sequence[Operation]) -> None:
        names = set(_referenced(new)) - self._referenced
        self._referenced |= names
        for name in names & self._results.keys():
            self._bind_result(name, self._results[name])


class Waits:
    """What operations of an attempt wait for.

    Args:
        emitted: When the first of these waits began, as the scheduler knows, stands in for an
            operation's own if there is only one.
        agenda: Has the time-outs.
        prior: What they waited for in earlier attempts.
    """

    def __init__(
        self, emitted: EmittedAgenda, agenda: Agenda, prior: Mapping[str, OperationWait]
    ) -> None:
        self._agenda_id, self._attempt = emitted.agenda_id, emitted.attempt
        self._within_s = agenda.wait_within_s
        self._prior = prior
        is_lone = len(agenda.operations) == 1
        self._lone_since = emitted.waiting_since if is_lone else None
        self.deferral: Deferral | None = None

    def known_since(self, name: str) -> datetime | None:
        """When the operation first waited; None if it has not."""
        prior = self._prior.get(name)
        return prior.since if prior else self._lone_since

    def begin(self, operation: Operation, not_yet: NotYet, now: datetime) -> OperationWait:
        """The operation waits from now on, without a runner.

        Raises:
            WaitTimedOutError: If it has waited for as long as it may.
            FinalError: If it was handed over with the token of another call.
        """
        if isinstance(not_yet, CompletedElsewhere):
            handed_over = self._hand_over(operation.name, not_yet.token, now)
            return self._noted(operation.name, handed_over, not_yet.reason or HANDED_OVER)
        since = self.known_since(operation.name) or now
        wait = wait_on(
            since=since,
            now=now,
            recheck_s=not_yet.recheck_s,
            within_s=operation.wait_within_s or self._within_s,
            kind=not_yet.kind,
            signal=not_yet.signal,
        )
        if wait is None:
            raise WaitTimedOutError(timed_out(since, now, not_yet.reason))
        return self._noted(operation.name, wait, not_yet.reason)

    def handed_over(self, name: str, now: datetime) -> OperationWait | None:
        """The wait of an operation that is completed elsewhere; None for any other.

        Its handler is not called again: it would be done twice.
        """
        prior = self._prior.get(name)
        if prior is None or not prior.token:
            return None
        return self._noted(name, renewed(prior, now), HANDED_OVER)

    def _hand_over(self, name: str, token: str, now: datetime) -> OperationWait:
        claims = completion_claims(token)
        ours = (self._agenda_id, self._attempt, name)
        if claims is None or (claims.agenda_id, claims.attempt, claims.operation) != ours:
            msg = "hand an operation over with the completion token that this call of it made"
            raise FinalError(msg)
        return hand_over(token, claims, now)

    def _noted(self, name: str, wait: OperationWait, reason: str) -> OperationWait:
        if self.deferral is None or wait.until < self.deferral.until:
            said = f" waits: {reason}" if reason else " waits"
            self.deferral = Deferral(wait.until, message(f"operation {name!r}{said}"))
        return wait


def _appender(run: "ReferenceType[AgendaRun]", by: str) -> AppendTo:
    """Refers weakly to the run, which refers to it: else only the collector would free them."""
    return partial(_append_to, run, by)


def _stop_reason(run: "ReferenceType[AgendaRun]") -> str:
    running = run()
    return running.stop_reason if running else ""


def _append_to(
    run: "ReferenceType[AgendaRun]", by: str, given: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    if (running := run()) is None:
        raise _ended(by)
    return running.append(by, given)


def _ended(operation: str) -> RuntimeError:
    msg = f"operation {operation!r} has ended; append to its agenda while it runs"
    return RuntimeError(msg)


def _referenced(operations: Sequence[Operation]) -> list[str]:
    return [
        reference.operation
        for operation in operations
        for reference in references.find(operation.payload)
        if reference.operation is not None
    ]
