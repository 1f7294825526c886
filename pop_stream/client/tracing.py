"""Trace context: ties requests to the work that leads to them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from pop_stream.model.trace import Trace

_TRACE: Final = ContextVar[Trace | None]("trace", default=None)


@contextmanager
def tracing(trace: Trace | None) -> Iterator[None]:
    """Let all requests of the body, and of tasks that it starts, carry a trace.

    Args:
        trace: Such as `Trace(correlation_id=…)`, or `Trace.of` the headers of a request that
            is being served; None carries none.
    """
    token = _TRACE.set(trace)
    try:
        yield
    finally:
        _TRACE.reset(token)


def trace_headers() -> Mapping[str, str]:
    """What a request sent now tells of where it comes from."""
    trace = _TRACE.get()
    return {} if trace is None else trace.headers
