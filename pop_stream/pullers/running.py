"""The agendas that a puller runs now: each a task that tells how its attempt ends."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Final

import structlog

from pop_stream import faults
from pop_stream.core.agendas.agenda import Agenda, parse_agenda
from pop_stream.core.errors import SubmissionError
from pop_stream.core.events import AttemptStop, Diagnostic, EmittedAgenda, OperationProgress
from pop_stream.core.pulls.stops import Stops, covers
from pop_stream.core.values.trace import Trace
from pop_stream.pullers.attempt_events import NOTHING, Changes, Ending, ending, progress
from pop_stream.pullers.capacity import Capacity
from pop_stream.pullers.failure import Failure, ended_before
from pop_stream.pullers.invocation import Equipment
from pop_stream.pullers.messages import message
from pop_stream.pullers.reporter import Reporter
from pop_stream.pullers.resume import Resumption
from pop_stream.pullers.run import AgendaRun, Earlier

_log = structlog.get_logger()

STOPPED: Final = Failure("puller stopped", retryable=True)

MOST_ASIDE: Final = 100
"""Attempts that wait for what earlier ones left, beside those that hold runners and slots."""

CLEAN_UP_S: Final = 5.0
"""How long cancelled handlers have until the puller goes on without them."""


@dataclass(slots=True, eq=False)
class Held:
    """One attempt that this puller holds the lease of.

    Attributes:
        claimed_s: When its lease began, on the monotonic clock.
        heard_s: When the lease was last renewed; at first, when it began.
        told_s: When progress was last told of; at first, when the lease began.
        begun_s: When it began to run, on the same clock; None while it waits for a runner.
        turn: Of one that waits for a runner again: done once it has one.
        run: None until the agenda is read.
        stop: Heard since, and being heeded: the lease is not renewed any more.
        has_ended: Nothing more may be told of it.
    """

    emitted: EmittedAgenda
    claimed_s: float
    heard_s: float
    told_s: float
    begun_s: float | None = None
    turn: asyncio.Future[None] | None = field(default=None, repr=False)
    run: AgendaRun | None = None
    stop: AttemptStop | None = None
    has_ended: bool = False
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class RunningAgendas:
    """Runs attempts, each as soon as a runner is free, and frees their slots at their end.

    Args:
        group: Where their tasks live.
        equipment: Shared by all runs.
        reporter: Told of every end.
        resumption: Reads what earlier attempts left; None if nothing can.
        capacity: Says whether a runner is free; gets back one slot for each attempt that ends.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        equipment: Equipment,
        reporter: Reporter,
        capacity: Capacity,
        resumption: Resumption | None = None,
    ) -> None:
        self._group = group
        self._equipment = equipment
        self._reporter = reporter
        self._capacity = capacity
        self._resumption = resumption
        self._held: dict[str, Held] = {}
        self._waiting: deque[Held] = deque()
        self._aside = 0
        self._stops = Stops()
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Held]:
        return iter(self._held.values())

    def start(self, emitted: EmittedAgenda, *, claimed_s: float) -> None:
        """Run an attempt for which a slot was taken and the claim is committed.

        It waits, in order, while as many run as may. An older attempt of the same agenda
        has lost its lease: it is cancelled, and nothing more is told of it.
        """
        self._outdate(emitted.agenda_id)
        held = Held(emitted, claimed_s=claimed_s, heard_s=claimed_s, told_s=claimed_s)
        self._held[emitted.agenda_id] = held
        self._idle.clear()
        self._waiting.append(held)
        accepted_at = emitted.accepted_at
        if stop := self._stops.of(emitted.agenda_id, emitted.attempt, accepted_at):
            self._heed(held, stop)
        self._begin_waiting()

    def heed(self, stop: AttemptStop) -> None:
        """Stop the attempt, if it or an older one runs here, or once it is to be started."""
        self._stops.remember(stop)
        held = self._held.get(stop.agenda_id)
        if held is None or held.stop is not None:
            return
        if covers(stop, held.emitted.attempt, held.emitted.accepted_at):
            self._heed(held, stop)

    def _heed(self, held: Held, stop: AttemptStop) -> None:
        held.stop = stop
        _log.info("agenda.stopping", **_facts(held.emitted), reason=stop.reason)
        self._cancel(held)

    def _outdate(self, agenda_id: str) -> None:
        outdated = self._held.get(agenda_id)
        if outdated is not None:
            outdated.has_ended = True
            self._cancel(outdated)
            _log.info("agenda.lease_lost", **_facts(outdated.emitted))

    def _begin_waiting(self) -> None:
        while self._waiting and self._capacity.has_idle_runner:
            held = self._waiting.popleft()
            held.begun_s = monotonic()
            self._capacity.begin(held.begun_s)
            if held.turn is not None:
                if not held.turn.done():
                    held.turn.set_result(None)
                continue
            held.task = self._group.create_task(self._carry_out(held))
            # Not in the task itself, which never begins if it is cancelled right away.
            held.task.add_done_callback(partial(self._release, held))

    async def ended(self) -> None:
        """Wait until nothing runs."""
        await self._idle.wait()

    async def stop(self) -> None:
        """Cancel everything that runs, and tell that it may be tried again.

        Handlers have seconds to clean up; one that ignores its cancellation is left behind.
        """
        stopped = [*self._held.values()]
        for held in stopped:
            self._cancel(held)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLEAN_UP_S):
                await self._idle.wait()
        for held in stopped:
            self._end(held, STOPPED)
        if left := [held.emitted.agenda_id for held in self._held.values()]:
            _log.warning("puller.handlers_left", agenda_ids=left)

    async def _carry_out(self, held: Held) -> None:
        structlog.contextvars.bind_contextvars(**_facts(held.emitted))
        try:
            failure = await self._run(held)
        except asyncio.CancelledError:
            self._end(held, STOPPED)
            raise
        except Exception as error:
            # The outermost place of a record: whatever it is, the other agendas go on.
            _log.exception("agenda.broke")
            failure = Failure(message(f"the puller failed: {error!r}"), retryable=True)
        self._end(held, failure)

    def _cancel(self, held: Held) -> None:
        if held.task is not None:
            held.task.cancel()
        elif held in self._waiting:
            self._waiting.remove(held)
            self._end(held, STOPPED)
            self._release(held)

    def _release(self, held: Held, _: asyncio.Task[None] | None = None) -> None:
        if held.begun_s is not None:
            self._capacity.end(held.begun_s, monotonic())
        if self._held.get(held.emitted.agenda_id) is held:
            del self._held[held.emitted.agenda_id]
        self._capacity.give_back()
        self._begin_waiting()
        if not self._held:
            self._idle.set()

    async def _run(self, held: Held) -> Failure | None:
        try:
            agenda = parse_agenda(bytes(held.emitted.agenda), is_accepted=True)
        except SubmissionError as error:
            at = self._equipment.clock.now()
            reason = message(f"the agenda is not sound: {error}")
            diagnostic = Diagnostic(message=reason, at=at, code=error.code)
            return Failure(reason, retryable=False, diagnostics=(diagnostic,))
        if agenda.trace is not None:
            structlog.contextvars.bind_contextvars(**_origin(agenda.trace))
        earlier = await self._earlier(held, agenda)
        if earlier is not None and earlier.ended_as:
            return ended_before(earlier.ended_as)
        held.run = AgendaRun(held.emitted, agenda, self._equipment, earlier)
        return await held.run.run()

    async def _earlier(self, held: Held, agenda: Agenda) -> Earlier | None:
        emitted = held.emitted
        if emitted.attempt == 1 or self._resumption is None:
            return None
        if not emitted.resumes:
            return await self._resumption.glance(emitted)

        def tell(reason: str) -> None:
            waits = OperationProgress(
                name=agenda.operations[-1].name, state="waiting", message=message(reason)
            )
            at = self._equipment.clock.now()
            self._reporter.add(progress(emitted, Changes([waits]), at=at))

        return await self._wait_aside(held, self._resumption.earlier(emitted, tell))

    async def _wait_aside(self, held: Held, wanted: Awaitable[Earlier]) -> Earlier:
        """Let others run meanwhile: the database may be away for long, and they need it not."""
        if held.begun_s is None or self._aside >= MOST_ASIDE:
            return await wanted
        self._capacity.lend(held.begun_s)
        held.begun_s = None
        self._aside += 1
        self._begin_waiting()
        try:
            earlier = await wanted
            held.turn = asyncio.get_running_loop().create_future()
            self._waiting.appendleft(held)
            self._begin_waiting()
            await held.turn
        finally:
            self._aside -= 1
            self._capacity.take_back()
            if held in self._waiting:
                self._waiting.remove(held)
        return earlier

    def _end(self, held: Held, failure: Failure | None) -> None:
        if held.has_ended:
            return
        faults.reach("puller.ran")
        held.has_ended = True
        run, stop = held.run, held.stop
        end = Ending(
            self._equipment.clock.now(),
            run.spent_s if run else {},
            failure,
            is_stopped=stop is not None and failure is STOPPED,
        )
        if stop is None or stop.reason != "outdated":
            changes = run.take_changes() if run else NOTHING
            self._reporter.add(ending(held.emitted, changes, end))
        _log_end(held, end)


def _log_end(held: Held, end: Ending) -> None:
    facts = {**_facts(held.emitted), "took_s": round(monotonic() - held.claimed_s, 3)}
    if end.failure is None and not end.is_stopped:
        # Its event and its summary say so already; thousands a second would say it again.
        _log.debug("agenda.succeeded", **facts)
    elif held.stop is not None and end.is_stopped:
        _log.info("agenda.stopped", **facts, reason=held.stop.reason)
    elif (failure := end.failure) is not None:
        _log.info("agenda.failed", **facts, reason=failure.message, retryable=failure.retryable)


def _origin(trace: Trace) -> dict[str, object]:
    told = {"trace_id": trace.trace_id, "correlation_id": trace.correlation_id}
    return {name: value for name, value in told.items() if value is not None}


def _facts(emitted: EmittedAgenda) -> dict[str, object]:
    return {
        "agenda_id": emitted.agenda_id,
        "insight_id": emitted.insight_id,
        "customer_id": emitted.customer_id,
        "attempt": emitted.attempt,
    }
