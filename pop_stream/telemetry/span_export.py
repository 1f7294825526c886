"""The only place that knows OpenTelemetry's SDK: samples spans, queues them, and exports them.

Whoever ends a span never waits. A span goes into a queue of bounded length; a thread takes
batches out of it and sends them. While a collector hangs or is away the queue fills, and what
does not fit is dropped and counted. At the end of a process the thread has a second.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from random import getrandbits
from typing import Final

import structlog
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, TraceIdRatioBased

import pop_stream
from pop_stream.telemetry.process import SPANS
from pop_stream.telemetry.spans import Spans

DEFAULT_RATIO: Final = 0.01
"""Of traces that begin here, unless OTEL_TRACES_SAMPLER or its argument says another."""

TIMEOUT_S: Final = 3.0
"""For one batch with all its tries, unless OTEL_EXPORTER_OTLP_TIMEOUT says another."""

FLUSH_S: Final = 1.0
"""How long the end of a process waits for spans that are not exported yet."""

QUEUE: Final = 2_048
"""Spans that wait to be sent, unless OTEL_BSP_MAX_QUEUE_SIZE says another."""

_ATTRIBUTE_LENGTH: Final = 512
_PROTOCOL: Final = "http/protobuf"
_BY_RATIO: Final = ("parentbased_traceidratio", "traceidratio")
_SAMPLED_BITS: Final = TraceIdRatioBased.TRACE_ID_LIMIT

_log = structlog.get_logger()


class ChosenIds(RandomIdGenerator):
    """Random ids, but for spans whose id was chosen."""

    def __init__(self) -> None:
        # Handlers in threads may start spans of their own at the same time.
        self._chosen: ContextVar[tuple[int, int]] = ContextVar("chosen_ids", default=(0, 0))

    @contextmanager
    def choosing(self, *, span_id: int = 0, trace_id: int = 0) -> Iterator[None]:
        """Give the span that is started in the block these ids; random ones for 0."""
        token = self._chosen.set((span_id, trace_id))
        try:
            yield
        finally:
            self._chosen.reset(token)

    def generate_span_id(self) -> int:
        """Called by the SDK."""
        return self._chosen.get()[0] or super().generate_span_id()

    def generate_trace_id(self) -> int:
        """Called by the SDK."""
        return self._chosen.get()[1] or super().generate_trace_id()


class RatioDraw:
    """Draws ids of new traces, and says at once which of them a sampler by ratio takes.

    Args:
        ratio: Of the sampler.
    """

    def __init__(self, ratio: float) -> None:
        self._bound = TraceIdRatioBased.get_bound_for_rate(ratio)

    def __call__(self) -> int | None:
        """The id of a trace that is sampled; None if this one is not."""
        trace_id = getrandbits(128)
        return trace_id if trace_id & _SAMPLED_BITS < self._bound else None


def _undecided() -> int:
    """The sampler is asked with the span."""
    return 0


class CountingExporter(SpanExporter):
    """Counts what another exporter does, and what waits for it.

    Args:
        exporter: Sends the spans.
        capacity: Most spans that may wait.
    """

    def __init__(self, exporter: SpanExporter, capacity: int) -> None:
        self._exporter = exporter
        self._capacity = capacity
        self._lock = threading.Lock()
        self.waiting = 0

    def admit(self) -> bool:
        """Whether one more may wait; it counts then. Called by any thread."""
        with self._lock:
            if self.waiting >= self._capacity:
                SPANS.labels("queue_full").inc()
                return False
            self.waiting += 1
        return True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Called by the SDK's thread."""
        with self._lock:
            self.waiting -= len(spans)
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            is_sent = result is SpanExportResult.SUCCESS
            SPANS.labels("exported" if is_sent else "export_failed").inc(len(spans))
        return result

    def shutdown(self) -> None:
        """Called by the SDK."""
        self._exporter.shutdown()


class BoundedProcessor(SpanProcessor):
    """Queues ended spans for an exporter in a thread, and drops what does not fit.

    Args:
        exporter: Sends them, and counts.
        capacity: Most spans that may wait.
    """

    def __init__(self, exporter: SpanExporter, capacity: int = QUEUE) -> None:
        self._exporter = CountingExporter(exporter, capacity)
        self._batches = BatchSpanProcessor(self._exporter, max_queue_size=capacity)

    @property
    def waiting(self) -> int:
        """Spans that wait to be sent."""
        return self._exporter.waiting

    def on_end(self, span: ReadableSpan) -> None:
        """Called by the SDK, by whatever thread ends a span."""
        if span.context.trace_flags.sampled and self._exporter.admit():
            self._batches.on_end(span)

    def shutdown(self) -> None:
        """Called by the SDK; it may take as long as an export does."""
        self._batches.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what waits; it may take as long as an export does."""
        return self._batches.force_flush(timeout_millis)


@contextmanager
def exporting(part: str) -> Iterator[Spans]:
    """Export spans as OpenTelemetry's variables say while the block runs.

    Spans that handlers make by OpenTelemetry's own API are exported too, unless the program has
    set a tracer provider of its own.

    Raises:
        ValueError: If a variable has a value that cannot be.
    """
    # First, as a processor starts a thread.
    sampler, draw, capacity, exporter = _sampler(), _draw(), _capacity(), _exporter()
    with provided(part, BoundedProcessor(exporter, capacity), sampler, draw) as spans:
        _log.info("tracing.started", part=part)
        yield spans


@contextmanager
def provided(
    part: str,
    processor: SpanProcessor,
    sampler: Sampler | None = None,
    draw: Callable[[], int | None] = _undecided,
) -> Iterator[Spans]:
    """Give ended spans to a processor while the block runs.

    Args:
        part: For the service's name.
        processor: Is shut down at the end, and left alone if that takes long.
        sampler: Decides for traces that begin here; None for what OTEL_TRACES_SAMPLER names.
        draw: Decides for these traces before the sampler does, and alike.
    """
    ids = ChosenIds()
    provider = TracerProvider(
        sampler=sampler,
        resource=_resource(part),
        id_generator=ids,
        span_limits=SpanLimits(max_attribute_length=_attribute_length()),
        shutdown_on_exit=False,  # it waits for half a minute
    )
    provider.add_span_processor(processor)
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(provider)
    try:
        yield Spans(provider.get_tracer("pop_stream", pop_stream.__version__), ids, draw)
    finally:
        _shut_down(provider, processor)


def _shut_down(provider: TracerProvider, processor: SpanProcessor) -> None:
    ending = threading.Thread(target=provider.shutdown, name="tracing-end", daemon=True)
    ending.start()
    ending.join(FLUSH_S)
    if ending.is_alive():
        waiting = processor.waiting if isinstance(processor, BoundedProcessor) else None
        _log.warning("tracing.unsent", after_s=FLUSH_S, waiting=waiting)


def _exporter() -> SpanExporter:
    wanted = os.environ.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    if wanted != "otlp":
        msg = (
            f"OTEL_TRACES_EXPORTER={wanted}: spans are exported by OTLP only; set it to otlp, "
            "or POP_TRACING=false"
        )
        raise ValueError(msg)
    protocol = _variable("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    if protocol not in {None, _PROTOCOL}:
        msg = (
            f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}: spans are exported by {_PROTOCOL} only; "
            "set it so, and the endpoint to the collector's port for HTTP, often 4318"
        )
        raise ValueError(msg)
    timeout = _variable("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
    return OTLPSpanExporter(timeout=TIMEOUT_S if timeout is None else None)


def _sampler() -> Sampler | None:
    """The default; None where a variable names another, which the SDK reads by itself."""
    ratio = _ratio()
    if _variable("OTEL_TRACES_SAMPLER") is not None:
        return None
    return ParentBased(TraceIdRatioBased(ratio))


def _draw() -> Callable[[], int | None]:
    is_by_ratio = (_variable("OTEL_TRACES_SAMPLER") or _BY_RATIO[0]) in _BY_RATIO
    return RatioDraw(_ratio()) if is_by_ratio else _undecided


def _ratio() -> float:
    # What the SDK's samplers take an unset argument for.
    is_named = _variable("OTEL_TRACES_SAMPLER") is not None
    return _number("OTEL_TRACES_SAMPLER_ARG", 1.0 if is_named else DEFAULT_RATIO, most=1.0)


def _capacity() -> int:
    batch = _number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)
    capacity = int(_number("OTEL_BSP_MAX_QUEUE_SIZE", QUEUE))
    if capacity < max(batch, 1):
        msg = f"OTEL_BSP_MAX_QUEUE_SIZE={capacity}: must hold a batch, {batch:g} spans or more"
        raise ValueError(msg)
    return capacity


def _attribute_length() -> int | None:
    """None where a variable says it, which the SDK reads by itself."""
    is_set = _variable("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT") is not None
    return None if is_set else _ATTRIBUTE_LENGTH


def _resource(part: str) -> Resource:
    """Who makes the spans; what OpenTelemetry's variables say of it goes first."""
    ours: Mapping[str, str] = {
        "service.name": f"pop-stream-{part}",
        "service.version": pop_stream.__version__,
        "service.instance.id": f"{socket.gethostname()}.{os.getpid()}",
    }
    said = Resource.create().attributes
    is_named = _variable("OTEL_SERVICE_NAME") is not None or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    kept = {
        name: value
        for name, value in ours.items()
        if (not is_named if name == "service.name" else name not in said)
    }
    return Resource.create(kept)


def _variable(*names: str) -> str | None:
    """The first of these that is set to something."""
    return next((text for one in names if (text := os.environ.get(one, "").strip())), None)


def _number(name: str, default: float, *, most: float = 1e9) -> float:
    text = _variable(name)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most:
        msg = f"{name}={text}: must be a number from 0 to {most:g}"
        raise ValueError(msg)
    return number
