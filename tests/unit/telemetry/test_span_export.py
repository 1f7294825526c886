"""Tracing as it is switched on: what is asked for, and what a collector cannot do to a part."""

import asyncio
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from deadlines import within
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from span_fakes import collector

import pop_stream
from pop_stream.settings import Settings
from pop_stream.telemetry import span_export, tracing
from pop_stream.telemetry.process import SPANS
from pop_stream.telemetry.span_export import BoundedProcessor, exporting, provided

ROOT = Path(pop_stream.__file__).parent
ON = Settings(tracing=True)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in ("OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


def counts():
    return {
        one.labels["result"]: one.value
        for family in SPANS.collect()
        for one in family.samples
        if one.name == "pop_spans_total"
    }


def since(before):
    return {
        name: int(value - before.get(name, 0))
        for name, value in counts().items()
        if value != before.get(name, 0)
    }


class HangingExporter(SpanExporter):
    """Takes no batch until it is let."""

    def __init__(self):
        self.hangs = threading.Event()
        self.may_go = threading.Event()

    def export(self, spans):
        self.hangs.set()
        self.may_go.wait()
        return SpanExportResult.FAILURE


async def until(is_met):
    while not is_met():  # noqa: ASYNC110  # a thread tells
        await asyncio.sleep(0.01)


def submit(spans, count=1):
    for _ in range(count):
        spans.begin_submit(None, dict, over_http=True).end(status=202)


async def test_a_collector_that_hangs_costs_bounded_memory_and_holds_up_nobody():
    exporter, before = HangingExporter(), counts()
    processor = BoundedProcessor(exporter, capacity=600)
    try:
        with provided("test", processor, ParentBased(ALWAYS_ON)) as spans:
            submit(spans, 512)  # a batch, which the thread takes
            assert exporter.hangs.wait(30)
            submit(spans, 5_000)
            assert processor.waiting == 600
        # The process ends while the collector hangs.
        assert not exporter.may_go.is_set()
        assert since(before) == {"queue_full": 4_400}
    finally:
        exporter.may_go.set()
    async with within(30):
        await until(lambda: since(before).get("export_failed") == 1_112)
        await until(lambda: "tracing-end" not in {one.name for one in threading.enumerate()})


async def test_what_is_made_is_exported_under_the_parts_name(monkeypatch):
    before = counts()
    async with collector() as receiver, within(30):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "1")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        with tracing.traced(ON, "scheduler"):
            submit(tracing.active(), 3)
            await until(lambda: len(receiver.spans) == 3)
            await until(lambda: since(before) == {"exported": 3})
        assert tracing.active() is None
    assert {one.service for one in receiver.spans} == {"pop-stream-scheduler"}


def test_the_services_name_may_be_another(monkeypatch):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    assert _resource().attributes["service.name"] == "pop-stream-api"
    assert _resource().attributes["deployment.environment"] == "test"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    assert _resource().attributes["service.name"] == "mine"
    assert _resource().attributes["service.version"] == pop_stream.__version__


def _resource():
    return span_export._resource("api")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin", "OTEL_TRACES_EXPORTER=zipkin.*POP_TRACING=false"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc.*4318"),
        ("OTEL_TRACES_SAMPLER_ARG", "2", "OTEL_TRACES_SAMPLER_ARG=2: .*from 0 to 1"),
        ("OTEL_TRACES_SAMPLER_ARG", "often", "OTEL_TRACES_SAMPLER_ARG=often"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "10", "OTEL_BSP_MAX_QUEUE_SIZE=10: must hold a batch"),
    ],
)
def test_a_variable_that_cannot_be_is_named_with_a_remedy(monkeypatch, name, value, says):
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=says), exporting("api"):
        pass
    assert tracing.active() is None


@pytest.mark.parametrize("sampler", [None, "traceidratio", "parentbased_traceidratio"])
@pytest.mark.parametrize(
    ("argument", "least", "most"), [("0.01", 5, 200), ("0", 0, 0), ("1", 4_000, 4_000)]
)
def test_traces_are_drawn_by_the_ratio_and_as_the_sampler_decides(
    monkeypatch, sampler, argument, least, most
):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
    if sampler is not None:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    draw, drawn = span_export._draw(), []

    def counted():
        drawn.append(draw())
        return drawn[-1]

    exporter = HangingExporter()
    exporter.may_go.set()
    processor = BoundedProcessor(exporter)
    with provided("api", processor, span_export._sampler(), counted) as spans:
        found = [spans.begin_submit(None, dict, over_http=True) for _ in range(4_000)]
    taken = [f"{one:032x}" for one in drawn if one is not None]
    assert [one.trace.trace_id for one in found if one is not None] == taken
    assert least <= len(taken) <= most


def test_one_trace_in_a_hundred_is_drawn_unless_a_variable_says_another(monkeypatch):
    assert span_export._ratio() == 0.01
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    with provided(
        "api", BoundedProcessor(HangingExporter()), None, span_export._draw()
    ) as spans:
        assert spans.begin_submit(None, dict, over_http=True) is None
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    with provided(
        "api", BoundedProcessor(HangingExporter()), None, span_export._draw()
    ) as spans:
        assert spans.begin_submit(None, dict, over_http=True) is not None


def test_tracing_is_off_by_default_and_if_opentelemetry_is_disabled(monkeypatch):
    with tracing.traced(Settings(), "api"):
        assert tracing.active() is None
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with tracing.traced(ON, "api"):
        assert tracing.active() is None


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "pop_stream.telemetry.span_export", raising=False)
    monkeypatch.delattr("pop_stream.telemetry.span_export", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with (
        pytest.raises(ValueError, match=r"pip install 'pop-stream\[otel\]'"),
        tracing.traced(ON, "api"),
    ):
        pass


def test_nothing_of_opentelemetry_is_imported_while_it_is_off():
    text = "import pop_stream.puller.execution.executor, pop_stream.telemetry.tracing\n"
    text += "import sys; print([one for one in sys.modules if one.startswith('opentelemetry')])"
    done = subprocess.run(  # noqa: S603  # our own text
        [sys.executable, "-c", text], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_one_module_knows_the_sdk():
    known = re.compile(r"^\s*(from|import) opentelemetry\.(sdk|exporter)", re.MULTILINE)
    found = [path.name for path in ROOT.rglob("*.py") if known.search(path.read_text())]
    assert found == ["span_export.py"]
