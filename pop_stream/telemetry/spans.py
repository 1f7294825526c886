"""The spans of an agenda's way: `submit`, `wait`, `run` of an attempt, and its operations.

A trace begins where an agenda comes in, and only there: `submit` decides by the sampler whether
it is recorded, and puts itself into the traceparent that the agenda keeps. Whoever has the
agenda later continues what is sampled, and does nothing for the rest. Nothing else has to
travel: the id of an attempt's span is computed from the agenda and the number of the attempt,
so a later attempt links to earlier ones, also to one whose puller died.

Attributes are names, ids and counts; payloads, results and messages of errors stay out, as they
may hold anything. Names are those of OpenTelemetry's conventions for HTTP and messaging where
they fit, and begin with `pop_stream.` where they do not.

Source: https://opentelemetry.io/docs/specs/semconv/messaging/kafka/, spans.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import Token
from datetime import datetime
from hashlib import blake2b
from typing import Final, Protocol

import msgspec
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.model.trace import TRACEPARENT, TRACESTATE, Trace
from pop_stream.telemetry.tracing import current_run

MAX_OPERATIONS: Final = 200
"""Most operations of an attempt with a span of their own: an agenda may have thousands."""

MAX_LINKS: Final = 10
"""Earlier attempts that an attempt links to, the newest."""

_MARK: Final = b'"traceparent"'
_BAD_REQUEST: Final = 500
_W3C: Final = TraceContextTextMapPropagator()

Attributes = Mapping[str, AttributeValue]


class _TraceFields(msgspec.Struct):
    traceparent: str | None = None
    tracestate: str | None = None


class _Outline(msgspec.Struct):
    trace: _TraceFields | None = None


_OUTLINE: Final = msgspec.json.Decoder(_Outline)


def trace_in(agenda: bytes | msgspec.Raw) -> Trace | None:
    """The sampled trace of an agenda as it was accepted; None if it has none.

    Of most agendas it costs a search for one word.
    """
    text = bytes(agenda)
    if _MARK not in text:
        return None
    found = _OUTLINE.decode(text).trace
    if found is None or found.traceparent is None:
        return None
    # It was validated when the agenda was accepted.
    trace = Trace.model_construct(
        traceparent=found.traceparent, tracestate=found.tracestate, correlation_id=None
    )
    return trace if trace.is_sampled else None


def span_id_of(name: str, emitted: EmittedAgenda, attempt: int) -> int:
    """The id of the span of an attempt, the same whoever computes it; never 0."""
    of = f"{name}/{emitted.agenda_id}/{emitted.accepted_at.timestamp()}/{attempt}"
    return int.from_bytes(blake2b(of.encode(), digest_size=8).digest()) or 1


class SpanIds(Protocol):
    """Says which ids the next span gets."""

    def choosing(self, *, span_id: int = 0, trace_id: int = 0) -> AbstractContextManager[None]:
        """Give the span that is started in the block these ids; random ones for 0."""
        ...


class Spans:
    """Makes the spans of one process.

    Args:
        tracer: Of OpenTelemetry; its sampler decides.
        ids: Of the spans that it starts.
        new_trace: Decides for a trace that begins here, without the cost of a span.
    """

    def __init__(
        self, tracer: Tracer, ids: SpanIds, new_trace: Callable[[], int | None] = lambda: 0
    ) -> None:
        self._tracer = tracer
        self._ids = ids
        self._new_trace = new_trace

    def begin_submit(
        self, trace: Trace | None, attributes: Callable[[], Attributes], *, over_http: bool
    ) -> "SubmitSpan | None":
        """Begin the span of a submission; None if it is not sampled.

        Args:
            trace: What the submission came with.
            attributes: Asked for those of HTTP, or of the record, if it may be sampled.
            over_http: Otherwise as a record of Kafka.
        """
        is_first = trace is None or trace.traceparent is None
        trace_id = self._new_trace() if is_first else 0
        if trace_id is None:
            return None
        kind = SpanKind.SERVER if over_http else SpanKind.CONSUMER
        with self._ids.choosing(trace_id=trace_id):
            span = self._tracer.start_span("submit", _context_of(trace), kind, attributes())
        return SubmitSpan(span, trace) if span.is_recording() else None

    def record_wait(
        self, emitted: EmittedAgenda, *, since: datetime, attributes: Attributes
    ) -> str:
        """Record the wait of an agenda that is emitted, if it is sampled.

        Args:
            emitted: What is emitted.
            since: When the wait began.
            attributes: Of the round.

        Returns:
            The id of its trace; empty if it is not sampled.
        """
        trace = trace_in(emitted.agenda)
        if trace is None:
            return ""
        with self._ids.choosing(span_id=span_id_of("wait", emitted, emitted.attempt)):
            span = self._tracer.start_span(
                "wait",
                _context_of(trace),
                attributes={**_named(emitted), **attributes},
                start_time=_ns(since),
            )
        span.end(_ns(emitted.emitted_at))
        return trace.trace_id or ""

    def begin_run(
        self, emitted: EmittedAgenda, trace: Trace | None, claimed_at: datetime
    ) -> "RunSpan | None":
        """Begin the span of an attempt in the task that runs it; None if it is not sampled.

        From here to the end of the task the span is the current one.

        Args:
            emitted: The attempt.
            trace: Of the agenda.
            claimed_at: When its lease began.
        """
        if trace is None or not trace.is_sampled:
            return None
        context = _context_of(trace)
        trace_id = get_current_span(context).get_span_context().trace_id
        first = max(1, emitted.attempt - MAX_LINKS)
        links = [
            Link(
                _span_context(trace_id, span_id_of("run", emitted, attempt)),
                {"pop_stream.attempt": attempt},
            )
            for attempt in range(first, emitted.attempt)
        ]
        with self._ids.choosing(span_id=span_id_of("run", emitted, emitted.attempt)):
            span = self._tracer.start_span(
                "run",
                context,
                SpanKind.CONSUMER,
                {
                    **_named(emitted),
                    "messaging.system": "kafka",
                    "messaging.operation.type": "process",
                    "messaging.operation.name": "run",
                    "messaging.message.id": emitted.agenda_id,
                    "messaging.message.body.size": len(emitted.agenda),
                },
                links,
                _ns(claimed_at),
            )
        span.add_event("started")
        return RunSpan(self._tracer, span, set_span_in_context(span))


class SubmitSpan:
    """Of one request, or of one record of Kafka.

    Attributes:
        trace: What its agendas keep.
    """

    def __init__(self, span: Span, came_with: Trace | None) -> None:
        self._span = span
        self.trace = _trace_of(span, came_with)

    def add(self, attributes: Attributes) -> None:
        """Add what is known of it by now."""
        self._span.set_attributes(attributes)

    def end(self, *, status: int | None = None, error_type: str = "") -> None:
        """End it.

        Args:
            status: Of the answer, over HTTP.
            error_type: Why it was refused or failed; empty if it was not.
        """
        if status is not None:
            self._span.set_attribute("http.response.status_code", status)
        if error_type:
            self._span.set_attribute("error.type", error_type)
        # A refusal over HTTP is no error of the server.
        if error_type and (status is None or status >= _BAD_REQUEST):
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


class RunSpan:
    """Of one attempt.

    Args:
        tracer: Makes the spans of its operations.
        span: Its own.
        context: With that as the current one.
    """

    def __init__(self, tracer: Tracer, span: Span, context: Context) -> None:
        self._tracer = tracer
        self._span = span
        self._context = context
        self._operations = 0
        current_run.set(self)
        attach(context)  # for as long as the task runs, which has a context of its own

    def begin_operation(self, name: str, operation_type: str) -> "OperationSpan | None":
        """Begin the span of an operation; None if the attempt has had many.

        It is the current one until its end, to be called in the same task.
        """
        self._operations += 1
        if self._operations > MAX_OPERATIONS:
            return None
        attributes = {
            "pop_stream.operation.name": name,
            "pop_stream.operation.type": operation_type,
        }
        span = self._tracer.start_span("operation", self._context, attributes=attributes)
        return OperationSpan(span, attach(set_span_in_context(span)))

    def handed_on(self, trace: Trace | None) -> Trace:
        """The trace with the task's current span as the parent of what follows."""
        return _trace_of(get_current_span(), trace)

    def end(self, outcome: str, error_type: str = "") -> None:
        """End it; a second call changes nothing.

        Args:
            outcome: As in metrics.
            error_type: Why it failed; empty if it did not.
        """
        if not self._span.is_recording():
            return
        self._span.set_attribute("pop_stream.operations", self._operations)
        _end(self._span, outcome, error_type)


class OperationSpan:
    """Of one operation in an attempt, all its tries together.

    Attributes:
        trace_id: Of its trace, in hexadecimal.
    """

    def __init__(self, span: Span, token: "Token[Context]") -> None:
        self._span = span
        self.trace_id = f"{span.get_span_context().trace_id:032x}"
        self._token = token

    def end(self, outcome: str, *, tries: int, error_type: str = "") -> None:
        """End it.

        Args:
            outcome: As in metrics.
            tries: How often it was tried.
            error_type: Why it failed; empty if it did not.
        """
        self._span.set_attribute("pop_stream.operation.tries", tries)
        _end(self._span, outcome, error_type)
        detach(self._token)


def _end(span: Span, outcome: str, error_type: str) -> None:
    span.set_attribute("pop_stream.outcome", outcome)
    if error_type:
        span.set_attribute("error.type", error_type)
        span.set_status(Status(StatusCode.ERROR))
    span.end()


def _context_of(trace: Trace | None) -> Context:
    """What a span begins in: a child of where the agenda came from, or the first of a trace."""
    return Context() if trace is None else _W3C.extract(trace.headers, Context())


def _trace_of(span: Span, came_with: Trace | None) -> Trace:
    headers: dict[str, str] = {}
    _W3C.inject(headers, set_span_in_context(span, Context()))
    return Trace.model_construct(
        traceparent=headers[TRACEPARENT],
        tracestate=headers.get(TRACESTATE),
        correlation_id=came_with.correlation_id if came_with else None,
    )


def _span_context(trace_id: int, span_id: int) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)


def _named(emitted: EmittedAgenda) -> dict[str, AttributeValue]:
    return {
        "pop_stream.agenda.id": emitted.agenda_id,
        "pop_stream.customer.id": emitted.customer_id,
        "pop_stream.insight.id": emitted.insight_id,
        "pop_stream.attempt": emitted.attempt,
    }


def _ns(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1_000
