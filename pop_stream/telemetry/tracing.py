"""Whether this process makes spans, and the switch that starts and ends it.

Parts ask `active()` where they would begin a span, and do nothing else while it is None.
Nothing of OpenTelemetry is imported until tracing is on.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from pop_stream.model.trace import Trace
from pop_stream.settings import Settings

if TYPE_CHECKING:
    from pop_stream.telemetry.spans import OperationSpan, RunSpan, Spans

_DISABLED: Final = "OTEL_SDK_DISABLED"

current_run: Final[ContextVar["RunSpan | None"]] = ContextVar("run_span", default=None)
"""Of the attempt that this task works for; None if it is not sampled."""

_active: "list[Spans]" = []
"""Of this process: one at most."""


def active() -> "Spans | None":
    """What makes the spans of this process; None while tracing is off."""
    return _active[-1] if _active else None


def begin_operation(name: str, operation_type: str) -> "OperationSpan | None":
    """Begin the span of an operation of the attempt that this task runs, if it is sampled."""
    run = current_run.get()
    return None if run is None else run.begin_operation(name, operation_type)


def handed_on(trace: Trace | None) -> Trace | None:
    """The trace with the current span as the parent of what follows; as it is without one."""
    run = current_run.get()
    return trace if run is None else run.handed_on(trace)


@contextmanager
def tracing_by(spans: "Spans") -> Iterator[None]:
    """Let these make the spans of this process while the block runs."""
    _active.append(spans)
    try:
        yield
    finally:
        _active.remove(spans)


@contextmanager
def traced(settings: Settings, part: str) -> Iterator[None]:
    """Make spans of what the block does, and export them, if the settings ask for it.

    In a process that makes spans already it changes nothing. Leaving it waits for a second at
    most for spans that are not exported yet; called outside of an event loop, therefore.

    Args:
        settings: `tracing` switches it on. All else is said by OpenTelemetry's own variables.
        part: The service's name after `pop-stream-`, unless OTEL_SERVICE_NAME says another.

    Raises:
        ValueError: If the extra `otel` is not installed, or a variable has a value that cannot
            be, with a remedy.
    """
    is_disabled = os.environ.get(_DISABLED, "").strip().lower() == "true"
    if not settings.tracing or is_disabled or active() is not None:
        yield
        return
    try:
        # Half a second of imports, which only those who want spans pay for.
        from pop_stream.telemetry.span_export import exporting  # noqa: PLC0415
    except ImportError as error:
        msg = (
            f"POP_TRACING=true: {error.name or error} is not installed; install the extra with "
            "pip install 'pop-stream[otel]', or set POP_TRACING=false"
        )
        raise ValueError(msg) from None
    with exporting(part) as spans, tracing_by(spans):
        yield
