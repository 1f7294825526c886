"""The id that ties a request, its answer and its lines in the log together."""

import re
import uuid
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

import structlog
from aiohttp import web

from pop_stream.model.trace import CORRELATION_PATTERN, Trace

if TYPE_CHECKING:
    from pop_stream.telemetry.spans import SubmitSpan

HEADER: Final = "X-Correlation-Id"

PATTERN: Final = CORRELATION_PATTERN
"""What a client may send; anything else is replaced, so that no header can forge a log line."""

_TRACE: Final = ContextVar[Trace | None]("trace", default=None)
"""Of the request that this task serves."""

_SPAN: Final = ContextVar["SubmitSpan | None"]("submit_span", default=None)
"""Likewise."""

_VALID: Final = re.compile(PATTERN)
_KEY: Final = web.RequestKey("correlation_id", str)


def correlation_id(request: web.BaseRequest) -> str:
    """The request's id: the client's own if it sent a usable one, else one made here."""
    known = request.get(_KEY)
    if known is None:
        sent = request.headers.get(HEADER, "")
        known = sent if _VALID.fullmatch(sent) else uuid.uuid4().hex
        request[_KEY] = known
    return known


def bind_correlation(request: web.BaseRequest) -> None:
    """Tie what this task does and logs from here on to the request."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    known = correlation_id(request)
    trace = Trace.of({**headers, HEADER.lower(): known})
    # A connection's next request runs in the same context.
    _TRACE.set(trace)
    _SPAN.set(None)
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(correlation_id=known)
    if trace is not None and trace.trace_id is not None:
        structlog.contextvars.bind_contextvars(trace_id=trace.trace_id)


def current_trace() -> Trace | None:
    """Where the present request came from."""
    return _TRACE.get()


def bind_span(span: "SubmitSpan") -> None:
    """Let what this task submits and logs from here on be of the span of its request."""
    _SPAN.set(span)
    _TRACE.set(span.trace)
    structlog.contextvars.bind_contextvars(trace_id=span.trace.trace_id)


def current_span() -> "SubmitSpan | None":
    """The span of the present request; None if it is not sampled."""
    return _SPAN.get()


def trace_headers() -> tuple[tuple[str, bytes], ...]:
    """Headers of records, which trace them to the present request."""
    trace = _TRACE.get()
    if trace is None:
        return ()
    return tuple((name, value.encode()) for name, value in trace.headers.items())
