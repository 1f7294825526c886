"""The executor: runs claimed attempts as tasks, stops them, and reports how each ends."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final

import structlog

from pop_stream.model.agenda import Agenda, parse_agenda
from pop_stream.model.errors import SubmissionError
from pop_stream.model.events.base import Diagnostic, OperationProgress
from pop_stream.model.events.scheduling import AttemptStop, EmittedAgenda
from pop_stream.model.trace import Trace
from pop_stream.policy.attempt_stops import StopRegistry, covers
from pop_stream.puller.claiming.capacity import Capacity
from pop_stream.puller.execution.agenda_run import AgendaRun, PriorResults
from pop_stream.puller.execution.failure import Deferral, Failure, failure_of_ended
from pop_stream.puller.execution.prior_results import PriorResultsReader
from pop_stream.puller.handlers.invocation import RunContext
from pop_stream.puller.reporting.messages import message
from pop_stream.puller.reporting.reporter import (
    NO_CHANGES,
    AttemptChanges,
    AttemptOutcome,
    Reporter,
    outcome_events,
    progress_events,
)
from pop_stream.telemetry import tracing

if TYPE_CHECKING:
    from pop_stream.telemetry.spans import RunSpan

_log = structlog.get_logger()

STOPPED: Final = Failure("puller stopped", retryable=True)

MAX_WAITING_WITHOUT_RUNNER: Final = 1_000
"""Most attempts that wait for earlier results without a runner; others wait with theirs."""

LONE_OPERATION_WAITS_S: Final = 5.0
"""How long a retry of an agenda that came with one operation waits for what earlier attempts
left, if nobody can say it; then it begins anew, as its first attempt did."""

CLEAN_UP_S: Final = 5.0
"""How long cancelled handlers have until the puller stops without them."""


@dataclass(slots=True, eq=False)
class ActiveAttempt:
    """One attempt that this puller holds the lease of.

    Attributes:
        claimed_s: When its lease began, on the monotonic clock.
        renewed_s: When the lease was last renewed; at first, when it began.
        reported_s: When progress was last published; at first, when the lease began.
        started_s: When it began to run, on the same clock; None while it waits for a runner.
        runner_ready: Of one that waits for a runner again: done once it has one.
        run: None until the agenda is read.
        stop: The stop that it is obeying, if there is one: its lease is renewed no more.
        has_ended: Nothing more may be reported of it.
        span: Of its trace, if it is sampled.
    """

    emitted: EmittedAgenda
    claimed_s: float
    renewed_s: float
    reported_s: float
    started_s: float | None = None
    runner_ready: asyncio.Future[None] | None = field(default=None, repr=False)
    run: AgendaRun | None = None
    stop: AttemptStop | None = None
    has_ended: bool = False
    span: "RunSpan | None" = field(default=None, repr=False)
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class AttemptExecutor:
    """Runs attempts, each as soon as a runner is free, and releases its slot at its end.

    One per puller, in one event loop. Iterating gives the attempts whose leases it holds.

    Args:
        group: Where their tasks live.
        run_context: Shared by all runs.
        reporter: Publishes every end.
        prior_results_reader: Reads what earlier attempts left; None if nothing can.
        capacity: Says whether a runner is free; gets back one slot for each attempt that ends.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        run_context: RunContext,
        reporter: Reporter,
        capacity: Capacity,
        prior_results_reader: PriorResultsReader | None = None,
    ) -> None:
        self._group = group
        self._run_context = run_context
        self._reporter = reporter
        self._capacity = capacity
        self._prior_results_reader = prior_results_reader
        self._active: dict[str, ActiveAttempt] = {}
        self._waiting: deque[ActiveAttempt] = deque()
        self._waiting_without_runner = 0
        self._stops = StopRegistry()
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._active)

    def __iter__(self) -> Iterator[ActiveAttempt]:
        return iter(self._active.values())

    def start(self, emitted: EmittedAgenda, *, claimed_s: float) -> None:
        """Run an attempt whose claim is committed, with the slot that was acquired for it.

        It waits for a runner, in the order of these calls. An older attempt of the same agenda
        has lost its lease: it is cancelled, and nothing more is reported of it.

        Args:
            emitted: The attempt.
            claimed_s: When its lease began, on the monotonic clock.
        """
        self._supersede(emitted.agenda_id)
        active = ActiveAttempt(
            emitted, claimed_s=claimed_s, renewed_s=claimed_s, reported_s=claimed_s
        )
        self._active[emitted.agenda_id] = active
        self._idle.clear()
        self._waiting.append(active)
        accepted_at = emitted.accepted_at
        if stop := self._stops.of(emitted.agenda_id, emitted.attempt, accepted_at):
            self._apply_stop(active, stop)
        self._start_waiting()

    def stop_attempt(self, stop: AttemptStop) -> None:
        """Stop the attempt, or an older one of its agenda, now or when it is started.

        A second stop of the same attempt changes nothing.
        """
        self._stops.remember(stop)
        active = self._active.get(stop.agenda_id)
        if active is None or active.stop is not None:
            return
        if covers(stop, active.emitted.attempt, active.emitted.accepted_at):
            self._apply_stop(active, stop)

    def _apply_stop(self, active: ActiveAttempt, stop: AttemptStop) -> None:
        active.stop = stop
        _say_why(active, stop.reason)
        _log.info("agenda.stopping", **_facts(active.emitted), reason=stop.reason)
        self._cancel(active)

    def _supersede(self, agenda_id: str) -> None:
        superseded = self._active.get(agenda_id)
        if superseded is not None:
            superseded.has_ended = True
            if superseded.span is not None:
                superseded.span.end("lease_lost")
            _say_why(superseded, "outdated")
            self._cancel(superseded)
            _log.info("agenda.lease_lost", **_facts(superseded.emitted))

    def _start_waiting(self) -> None:
        while self._waiting and self._capacity.has_idle_runner:
            active = self._waiting.popleft()
            active.started_s = monotonic()
            self._capacity.begin(active.started_s)
            if active.runner_ready is not None:
                if not active.runner_ready.done():
                    active.runner_ready.set_result(None)
                continue
            active.task = self._group.create_task(self._run_to_end(active))
            # Not in the task itself, which never begins if it is cancelled right away.
            active.task.add_done_callback(partial(self._release, active))

    async def ended(self) -> None:
        """Wait until nothing runs."""
        await self._idle.wait()

    async def stop(self) -> None:
        """Cancel everything that runs, and report that it may be tried again.

        Handlers have five seconds to clean up; one that ignores its cancellation is left.
        """
        stopped = [*self._active.values()]
        for active in stopped:
            _say_why(active, "puller_stopping")
            self._cancel(active)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLEAN_UP_S):
                await self._idle.wait()
        for active in stopped:
            self._end(active, STOPPED)
        if left := [active.emitted.agenda_id for active in self._active.values()]:
            _log.warning("puller.handlers_abandoned", agenda_ids=left)

    async def _run_to_end(self, active: ActiveAttempt) -> None:
        structlog.contextvars.bind_contextvars(**_facts(active.emitted))
        try:
            outcome = await self._run(active)
        except asyncio.CancelledError:
            self._end(active, STOPPED)
            raise
        except Exception as error:
            # The outermost handler of an attempt: whatever it is, the other agendas go on.
            _log.exception("agenda.crashed")
            outcome = Failure(message(f"the puller failed: {error!r}"), retryable=True)
        self._end(active, outcome)

    def _cancel(self, active: ActiveAttempt) -> None:
        if active.task is not None:
            active.task.cancel()
        elif active in self._waiting:
            self._waiting.remove(active)
            self._end(active, STOPPED)
            self._release(active)

    def _release(self, active: ActiveAttempt, _: asyncio.Task[None] | None = None) -> None:
        if active.started_s is not None:
            self._capacity.end(active.started_s, monotonic())
        if self._active.get(active.emitted.agenda_id) is active:
            del self._active[active.emitted.agenda_id]
        self._capacity.release_slots()
        self._start_waiting()
        if not self._active:
            self._idle.set()

    async def _run(self, active: ActiveAttempt) -> Failure | Deferral | None:
        try:
            agenda = parse_agenda(bytes(active.emitted.agenda), is_accepted=True)
            if agenda.trace is not None:
                structlog.contextvars.bind_contextvars(**_origin(agenda.trace))
                active.span = self._begin_span(active, agenda.trace)
            prior_results = await self._prior_results(active, agenda)
            if prior_results is not None and prior_results.final_state:
                return failure_of_ended(prior_results.final_state)
            active.run = AgendaRun(active.emitted, agenda, self._run_context, prior_results)
        except SubmissionError as error:
            at = self._run_context.clock.now()
            reason = message(f"the agenda is not sound: {error}")
            diagnostic = Diagnostic(message=reason, at=at, code=error.code)
            return Failure(reason, retryable=False, diagnostics=(diagnostic,))
        return await active.run.run()

    def _begin_span(self, active: ActiveAttempt, trace: Trace) -> "RunSpan | None":
        if (spans := tracing.active()) is None:
            return None
        since_claim = timedelta(seconds=monotonic() - active.claimed_s)
        claimed_at = self._run_context.clock.now() - since_claim
        return spans.begin_run(active.emitted, trace, claimed_at)

    async def _prior_results(
        self, active: ActiveAttempt, agenda: Agenda
    ) -> PriorResults | None:
        emitted = active.emitted
        if emitted.attempt == 1 or self._prior_results_reader is None:
            return None

        def report_wait(reason: str) -> None:
            waits = OperationProgress(
                name=agenda.operations[-1].name, state="waiting", message=message(reason)
            )
            at = self._run_context.clock.now()
            self._reporter.add(progress_events(emitted, AttemptChanges([waits]), at=at))

        read = self._prior_results_reader.read(emitted, report_wait)
        # After a wait nothing may run twice because nobody could say what it left.
        is_lone = len(agenda.operations) == 1 and emitted.waiting_since is None
        return await self._wait_without_runner(active, _soon(read) if is_lone else read)

    async def _wait_without_runner(
        self, active: ActiveAttempt, wanted: Awaitable[PriorResults]
    ) -> PriorResults:
        """Let others use the runner meanwhile: the database may be away for long."""
        if (
            active.started_s is None
            or self._waiting_without_runner >= MAX_WAITING_WITHOUT_RUNNER
        ):
            return await wanted
        self._capacity.release_runner(active.started_s)
        active.started_s = None
        self._waiting_without_runner += 1
        self._start_waiting()
        try:
            prior_results = await wanted
            active.runner_ready = asyncio.get_running_loop().create_future()
            self._waiting.appendleft(active)
            self._start_waiting()
            await active.runner_ready
        finally:
            self._waiting_without_runner -= 1
            self._capacity.reacquire_slot()
            if active in self._waiting:
                self._waiting.remove(active)
        return prior_results

    def _end(self, active: ActiveAttempt, outcome: Failure | Deferral | None) -> None:
        if active.has_ended:
            return
        active.has_ended = True
        run, stop = active.run, active.stop
        end = AttemptOutcome(
            self._run_context.clock.now(),
            run.spent_s if run else {},
            outcome if isinstance(outcome, Failure) else None,
            is_stopped=stop is not None and outcome is STOPPED,
            deferral=outcome if isinstance(outcome, Deferral) else None,
        )
        if stop is None or stop.reason != "outdated":
            changes = run.take_changes() if run else NO_CHANGES
            self._reporter.add(outcome_events(active.emitted, changes, end))
        self._run_context.metrics.record_attempt(active.emitted.insight_id, _name_of(end))
        if active.span is not None:
            active.span.end(_name_of(end), _error_of(end))
        _log_end(active, end)


def _say_why(active: ActiveAttempt, reason: str) -> None:
    """Have handlers know why they are about to be cancelled; the first reason stays."""
    if active.run is not None and not active.run.stop_reason:
        active.run.stop_reason = reason


def _name_of(end: AttemptOutcome) -> str:
    """How metrics call it."""
    if end.is_stopped:
        return "stopped"
    if end.deferral is not None:
        return "deferred"
    return "succeeded" if end.failure is None else "failed"


def _error_of(end: AttemptOutcome) -> str:
    """How a span calls why it failed; empty if it did not."""
    if end.failure is None or end.is_stopped:
        return ""
    return next((one.code for one in end.failure.diagnostics), "") or "failed"


def _log_end(active: ActiveAttempt, end: AttemptOutcome) -> None:
    facts = {**_facts(active.emitted), "took_s": round(monotonic() - active.claimed_s, 3)}
    if end.failure is None and end.deferral is None and not end.is_stopped:
        # Its event and its summary say so already; thousands of lines a second would repeat it.
        _log.debug("agenda.succeeded", **facts)
    elif end.deferral is not None:
        until = end.deferral.until.isoformat()
        _log.info("agenda.deferred", **facts, reason=end.deferral.message, until=until)
    elif active.stop is not None and end.is_stopped:
        _log.info("agenda.stopped", **facts, reason=active.stop.reason)
    elif (failure := end.failure) is not None:
        _log.info("agenda.failed", **facts, reason=failure.message, retryable=failure.retryable)


def _origin(trace: Trace) -> dict[str, object]:
    ids = {"trace_id": trace.trace_id, "correlation_id": trace.correlation_id}
    return {name: value for name, value in ids.items() if value is not None}


def _facts(emitted: EmittedAgenda) -> dict[str, object]:
    return {
        "agenda_id": emitted.agenda_id,
        "insight_id": emitted.insight_id,
        "customer_id": emitted.customer_id,
        "attempt": emitted.attempt,
    }


async def _soon(read: Awaitable[PriorResults]) -> PriorResults:
    """None, if nobody can say them: most likely there are none, and work is to go on."""
    try:
        async with asyncio.timeout(LONE_OPERATION_WAITS_S):
            return await read
    except TimeoutError:
        return PriorResults()
