"""Calls the handler of an operation, in the event loop or in a thread."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from inspect import isawaitable
from typing import Any, Final, Protocol

import structlog
from pydantic import JsonValue

from pop_stream.model import references
from pop_stream.model.agenda import Operation
from pop_stream.model.events.base import Diagnostic, PriorProgress
from pop_stream.model.references import UnresolvedReferenceError
from pop_stream.model.trace import Trace
from pop_stream.ports.clock import Clock
from pop_stream.puller.execution.operation_run import OperationRun
from pop_stream.puller.handlers.errors import FinalError, RetryableError
from pop_stream.puller.handlers.registry import Handler, Handlers
from pop_stream.puller.metrics import PullerMetrics
from pop_stream.puller.reporting.messages import brief, clean
from pop_stream.telemetry import tracing

ReportTo = Callable[[float, str], None]
NoteTo = Callable[[str, str, Any], None]
AppendTo = Callable[[Sequence[Mapping[str, Any]]], tuple[str, ...]]
TokenFrom = Callable[[float], Awaitable[str]]


def _ignore(*_: object) -> None:
    """Notes of a call that no puller made, as in a test of a handler."""


def _unstopped() -> str:
    """Nobody stops a call that no puller made."""
    return ""


def _never(_: str) -> None:
    """No operation has waited."""


def _append_nothing(_: object) -> tuple[str, ...]:
    """Nothing is appended by a call that no puller made."""
    return ()


async def _no_token(within_s: float) -> str:
    """No API is there to make one."""
    return _no_token_in_thread(within_s)


def _no_token_in_thread(_: float) -> str:
    msg = "there is no API here that makes completion tokens"
    raise FinalError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OperationCallBase:
    """An operation to do now.

    Attributes:
        payload: Input with all references replaced. Operations that refer to one and the
            same result share it, so read it, do not change it.
        params: Settings for the handler, as submitted.
        link_id: Of the agenda, if it has one.
        parent_id: Of the agenda that submitted it, if one did.
        attempt: From 1; above it, an earlier attempt of the agenda failed or went silent.
        run_from: The first attempt of this run of the agenda; a rerun begins another.
        tries: From 1; above it, an earlier try in this attempt failed.
        trace: Trace context and correlation id to hand on with calls of the handler's own:
            `trace.headers`. Their parent is the operation's span, which is also the current one
            for OpenTelemetry, if it is sampled; else the request the agenda came from.
        prior: How far the operation was when an earlier attempt ended, if it had begun.
        waiting_since: When it first had to wait (`NotYet`), if it had.
        deadline: When this try must have ended: the agenda expires then, or the try's
            `timeout_s` is over. None if neither is set.
    """

    name: str
    type: str
    payload: JsonValue
    params: Mapping[str, JsonValue]
    agenda_id: str
    customer_id: str
    insight_id: str
    link_id: str | None = None
    parent_id: str | None = None
    attempt: int
    run_from: int = 1
    tries: int = 1
    trace: Trace | None = None
    prior: PriorProgress | None = None
    waiting_since: datetime | None = None
    deadline: datetime | None = None
    report_to: ReportTo = field(repr=False, compare=False)
    note_to: NoteTo = field(default=_ignore, repr=False, compare=False)
    append_to: AppendTo = field(default=_append_nothing, repr=False, compare=False)
    charge_to: Callable[[float], None] = field(default=_ignore, repr=False, compare=False)
    stop_reason_of: Callable[[], str] = field(default=_unstopped, repr=False, compare=False)

    @property
    def stop_reason(self) -> str:
        """Why this call is cancelled: empty until it is, and if only this try took too long.

        `cancelled` and `expired` are the agenda's own ends. After `outdated` and
        `puller_stopping` another attempt may go on with what this one leaves elsewhere.
        """
        return self.stop_reason_of()

    def charge(self, worker_s: float) -> None:
        """Say what this try took elsewhere; it counts in place of the time of this call.

        Args:
            worker_s: Worker-seconds, at least 0; the last call counts.
        """
        self.charge_to(worker_s)

    def note(self, message: str, *, code: str = "", detail: JsonValue = None) -> None:
        """Leave a diagnostic on the operation, from any thread; the newest ten are kept.

        Args:
            message: For a person; the first 500 characters are kept.
            code: For a program.
            detail: Anything JSON can say, up to 2,000 bytes.

        Raises:
            ValueError: If `detail` is no JSON or too large.
        """
        self.note_to(message, code, detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCall(_OperationCallBase):
    """What an `async def` handler is given. It is cancelled if the agenda is to stop."""

    token_from: TokenFrom = field(default=_no_token, repr=False, compare=False)

    async def report(self, percent: float, message: str = "") -> None:
        """Report how far the operation is; call it as often as you like, most are not sent.

        Args:
            percent: Of this operation; held within 0 and 100.
            message: Replaces the previous one.
        """
        self.report_to(percent, message)
        # Lets others run, and a cancellation arrive, in a handler that never waits otherwise.
        await asyncio.sleep(0)

    async def append(self, operations: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        """Add operations to the running agenda, as a submission would have them.

        They run in this attempt, and in any later one: the agenda remembers them, and which
        operation they come from. Appending the same once more changes nothing.

        Args:
            operations: Each as in an agenda; they may depend on any operation there is.

        Returns:
            Names of those that were new.

        Raises:
            SubmissionError: If one of them is not sound, or bears the name of another
                operation; then none is added.
        """
        appended = self.append_to(operations)
        await asyncio.sleep(0)
        return appended

    async def completion_token(self, within_s: float = 3_600.0) -> str:
        """A token by which this operation can be completed from outside.

        Give it to whoever completes the operation, then raise `CompletedElsewhere` with it. It
        completes nothing if the handler ends otherwise, nor in a later attempt.

        Args:
            within_s: Seconds until its time is over, 1 to 31,622,400; then the operation has
                failed, and another attempt may follow.

        Raises:
            RetryableError: If the API, which makes it, does not answer.
        """
        return await self.token_from(within_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOperationCall(_OperationCallBase):
    """What a plain `def` handler is given; it runs in a thread.

    Attributes:
        stopping: Set if the agenda is to stop or the try takes too long. Nothing can end a
            thread from outside: look at it, or wait on it, in whatever takes long.
    """

    stopping: threading.Event = field(
        default_factory=threading.Event, repr=False, compare=False
    )
    token_in_thread: Callable[[float], str] = field(
        default=_no_token_in_thread, repr=False, compare=False
    )

    def report(self, percent: float, message: str = "") -> None:
        """Report how far the operation is, from any thread; most reports are not sent.

        Args:
            percent: Of this operation; held within 0 and 100.
            message: Replaces the previous one.
        """
        self.report_to(percent, message)

    def append(self, operations: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        """Add operations to the running agenda; see `OperationCall.append`."""
        return self.append_to(operations)

    def completion_token(self, within_s: float = 3_600.0) -> str:
        """A token to complete this operation with; see `OperationCall.completion_token`."""
        return self.token_in_thread(within_s)


CLEAN_UP_S: Final = 5.0
"""How long a handler that is to stop has until the puller goes on without it."""

DETAIL_BYTES: Final = 2_000
"""Largest detail of a diagnostic, as JSON."""

_log = structlog.get_logger()


class CompletionTokenSource(Protocol):
    """Makes tokens by which operations are completed from outside."""

    async def issue(self, attempt: "AttemptContext", operation: str, within_s: float) -> str:
        """A token for an operation of a running attempt, another one each time.

        Raises:
            OperationError: If there is none.
        """
        ...


@dataclass(frozen=True, slots=True)
class RunContext:
    """What all runs of a puller share.

    Attributes:
        threads: Where handlers run that are not async.
        metrics: Of operations and attempts.
        completion_tokens: Makes tokens to complete operations with; None where nothing does.
    """

    handlers: Handlers
    threads: Executor
    clock: Clock
    metrics: PullerMetrics = field(default_factory=PullerMetrics)
    completion_tokens: CompletionTokenSource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptContext:
    """What handlers are given of the attempt they work for.

    Attributes:
        names: What payloads may refer to.
        prior: How far operations were when an earlier attempt ended.
        waiting_since: Since when operations wait.
        run_from: The first attempt of this run of the agenda.
        stop_reason_of: Why handlers are cancelled.
        append_for: Makes what the handler of the operation of a name appends others with.
    """

    agenda_id: str
    customer_id: str
    insight_id: str
    link_id: str | None
    parent_id: str | None
    attempt: int
    accepted_at: datetime
    trace: Trace | None
    expires_at: datetime | None
    names: dict[str, object]
    append_for: Callable[[str], AppendTo]
    run_from: int = 1
    stop_reason_of: Callable[[], str] = _unstopped
    prior: Mapping[str, PriorProgress] = field(default_factory=dict)
    waiting_since: Callable[[str], datetime | None] = _never


async def invoke(
    run_context: RunContext, attempt_context: AttemptContext, one: OperationRun
) -> object:
    """The value that the operation's handler returns.

    Args:
        run_context: Has the handler.
        attempt_context: Of the attempt.
        one: The operation.

    Raises:
        FinalError: If its type has no handler or a reference leads nowhere.
        BaseException: Whatever the handler raises.
    """
    operation = one.operation
    handler = run_context.handlers.find(operation.type)
    if handler is None:
        raise unknown_type(operation, run_context.handlers)
    call = _call(run_context, attempt_context, one)
    if handler.is_async:
        return await handler.function(OperationCall(**call))
    call["append_to"] = _from_thread(call["append_to"])
    call["token_in_thread"] = _token_from_thread(call.pop("token_from"))
    returned = await _in_thread(handler, SyncOperationCall(**call), one, run_context.threads)
    # A function that is not async may still return a coroutine, as a lambda does.
    return await returned if isawaitable(returned) else returned


def unknown_type(operation: Operation, handlers: Handlers) -> FinalError:
    """The error for an operation that no handler of this puller can do."""
    known = ", ".join(handlers.types) or "none"
    return FinalError(
        f"operation type {operation.type!r} has no handler here (registered: {known}); "
        "register one, or correct the type or the insight's mappers"
    )


def _call(
    run_context: RunContext, attempt_context: AttemptContext, one: OperationRun
) -> dict[str, Any]:
    operation, clock = one.operation, run_context.clock

    def note(text: str, code: str, detail: object) -> None:
        noted = Diagnostic(
            message=brief(text),
            at=clock.now(),
            code=clean(code)[:100],
            detail=_checked_detail(detail),
        )
        one.note(noted)

    return {
        "name": operation.name,
        "type": operation.type,
        "payload": _resolved(operation, attempt_context.names),
        "params": operation.params,
        "agenda_id": attempt_context.agenda_id,
        "customer_id": attempt_context.customer_id,
        "insight_id": attempt_context.insight_id,
        "link_id": attempt_context.link_id,
        "parent_id": attempt_context.parent_id,
        "attempt": attempt_context.attempt,
        "run_from": attempt_context.run_from,
        "trace": tracing.handed_on(attempt_context.trace),
        "tries": one.tries,
        "prior": attempt_context.prior.get(operation.name),
        "waiting_since": attempt_context.waiting_since(operation.name),
        "deadline": _deadline(attempt_context.expires_at, operation.timeout_s, clock),
        "report_to": one.report,
        "note_to": note,
        "append_to": attempt_context.append_for(operation.name),
        "token_from": _token_source(run_context, attempt_context, operation.name),
        "charge_to": one.charge,
        "stop_reason_of": attempt_context.stop_reason_of,
    }


def _token_source(
    run_context: RunContext, attempt_context: AttemptContext, operation: str
) -> TokenFrom:
    source = run_context.completion_tokens
    if source is None:
        return _no_token
    return partial(source.issue, attempt_context, operation)


def _token_from_thread(make: TokenFrom) -> Callable[[float], str]:
    """The function, which belongs to the event loop, for use in any other thread."""
    loop = asyncio.get_running_loop()

    async def in_loop(within_s: float) -> str:
        return await make(within_s)

    def from_thread(within_s: float) -> str:
        return asyncio.run_coroutine_threadsafe(in_loop(within_s), loop).result()

    return from_thread


def _from_thread(append: AppendTo) -> AppendTo:
    """The function, which belongs to the event loop, for use in any other thread."""
    loop = asyncio.get_running_loop()

    async def in_loop(operations: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        return append(operations)

    def from_thread(operations: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        return asyncio.run_coroutine_threadsafe(in_loop(operations), loop).result()

    return from_thread


def _deadline(
    expires_at: datetime | None, timeout_s: float | None, clock: Clock
) -> datetime | None:
    if timeout_s is None:
        return expires_at
    over_at = clock.now() + timedelta(seconds=timeout_s)
    return over_at if expires_at is None else min(expires_at, over_at)


def _checked_detail(detail: object) -> object:
    try:
        text = clean(json.dumps(detail, allow_nan=False, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"detail: is not JSON: {error}"
        raise ValueError(msg) from None
    if (size := len(text.encode())) > DETAIL_BYTES:
        msg = f"detail: has {size} bytes, at most {DETAIL_BYTES} are kept; shorten it"
        raise ValueError(msg)
    return json.loads(text)


async def _in_thread(
    handler: Handler, call: SyncOperationCall, one: OperationRun, threads: Executor
) -> object:
    def work() -> object:
        one.begin()  # the wait for a free thread is no work
        try:
            return handler.function(call)
        except StopIteration as error:
            # A future refuses it, and whoever awaits would wait for ever.
            msg = "the handler raised StopIteration"
            raise RetryableError(msg) from error

    job: Future[object] = threads.submit(copy_context().run, work)
    ended = asyncio.wrap_future(job)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        call.stopping.set()
        if not job.cancel():
            await _until_ended(ended, call, one)
        raise


async def _until_ended(
    ended: "asyncio.Future[object]", call: SyncOperationCall, one: OperationRun
) -> None:
    """Wait for a thread that was asked to end; one that does not in time is left behind."""
    await asyncio.wait([ended], timeout=CLEAN_UP_S)
    if not ended.done():
        one.is_abandoned = True
        _log.warning("operation.abandoned", operation=call.name, agenda_id=call.agenda_id)


def _resolved(operation: Operation, names: dict[str, object]) -> Any:  # noqa: ANN401  # JSON
    # Resolved before anything is awaited, so that no other operation's name stands there.
    names["pop.operationName"] = operation.name
    try:
        return references.resolve(operation.payload, names)
    except UnresolvedReferenceError as error:
        msg = f"payload of operation {operation.name!r}: {error}"
        raise FinalError(msg) from None
