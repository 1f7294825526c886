"""What each part makes of a trace: one span where it does its work, and the rest handed on."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from time import monotonic

import msgspec
import pytest
from api_fakes import agenda as submitted
from api_fakes import open_api
from backlogs import START, placed
from consumer_records import record
from deadlines import within
from opentelemetry import trace as otel
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from puller_fakes import AT, emitted, node, run_context
from scheduler_world import MEDIA, SchedulerWorld
from span_fakes import kept_spans, traceparent

from pop_stream.ingest.submission_processor import SubmissionProcessor
from pop_stream.kafka.topics import Topics
from pop_stream.model.agenda import parse_agenda
from pop_stream.model.definitions import Definitions, Insight, Mappers
from pop_stream.model.errors import SubmissionError
from pop_stream.model.events.codec import encode
from pop_stream.model.events.scheduling import (
    Claim,
    InsightAgendasRouted,
    InsightAttemptsReported,
    Origin,
)
from pop_stream.puller import FinalError, Handlers
from pop_stream.puller.claiming.capacity import Capacity
from pop_stream.puller.execution.executor import AttemptExecutor

ID, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{ID}-{SPAN}-01"
QUIET = f"00-{ID}-{SPAN}-00"
WEB = Insight(id="web", mappers=Mappers(operation_types=("http",)))


@pytest.fixture
def kept():
    with kept_spans() as spans:
        yield spans


@pytest.fixture(autouse=True)
async def bounded():
    async with within(20):
        yield


# ---- the API ----


async def test_a_submission_over_http_is_a_span_and_what_is_published_its_child(kept):
    async with open_api() as api:
        await api.submit(submitted(id="a-1"), traceparent=PARENT, **{"X-Correlation-Id": "c"})
    submit = kept.only("submit")
    assert f"{submit.parent.span_id:016x}" == SPAN
    [sent] = api.publisher.records
    assert dict(sent.headers)["traceparent"] == traceparent(submit).encode()
    assert dict(sent.headers)["x-correlation-id"] == b"c"
    assert submit.attributes["http.response.status_code"] == 202
    assert submit.attributes["http.route"] == "/v1/agendas"
    assert submit.attributes["pop_stream.agenda.id"] == "a-1"


async def test_a_refusal_says_so_and_reads_have_no_span(kept):
    async with open_api() as api:
        response = await api.client.post("/v1/agendas", json={"customer_id": "acme"})
        await api.client.get("/v1/agendas?limit=1")
        await api.client.get("/healthz")
    assert response.status == 422
    submit = kept.only("submit")
    assert submit.attributes["error.type"] == "422"
    assert submit.status.status_code is otel.StatusCode.UNSET


async def test_a_connections_next_request_has_no_trace_of_the_last(kept):
    async with open_api() as api:
        await api.submit(submitted(id="a-1"))
        await api.submit(submitted(id="a-2"), traceparent=QUIET)
    assert len(kept.named("submit")) == 1
    assert dict(api.publisher.records[1].headers)["traceparent"] == QUIET.encode()


async def test_what_is_not_sampled_over_http_is_published_as_it_came():
    with kept_spans(ALWAYS_OFF):
        async with open_api() as api:
            await api.submit(submitted())
    assert "traceparent" not in dict(api.publisher.records[0].headers)


# ---- ingest ----


def process(*headers, **changes):
    processor = SubmissionProcessor(
        Topics("t."), Definitions(insights={WEB.id: WEB}), max_agenda_bytes=10_000
    )
    sent = record(json.dumps(submitted(**changes)).encode(), headers=headers, offset=7)
    result = processor.process([sent], now=datetime(2026, 1, 1, tzinfo=UTC))
    for span, refused in result.spans:
        span.end(error_type=refused)
    return result


def trace_of(result):
    return parse_agenda(bytes(result.lifecycle[0].agenda)).trace


def test_a_submission_by_kafka_is_a_span_and_the_agenda_its_child(kept):
    result = process(("traceparent", PARENT.encode()), ("x-correlation-id", b"c-1"))
    submit = kept.only("submit")
    assert f"{submit.parent.span_id:016x}" == SPAN
    assert submit.attributes["messaging.kafka.offset"] == 7
    assert submit.attributes["messaging.destination.name"] == "t.submissions"
    assert trace_of(result).traceparent == traceparent(submit)
    assert trace_of(result).correlation_id == "c-1"


def test_what_the_api_published_has_its_span_already(kept):
    result = process(("traceparent", PARENT.encode()), ("pop-definitions", b"0"))
    assert kept.ended == ()
    assert trace_of(result).traceparent == PARENT


def test_a_refusal_by_kafka_is_an_error_with_its_code(kept):
    assert process(operations=[]).dead_letters
    submit = kept.only("submit")
    assert submit.status.status_code is otel.StatusCode.ERROR
    assert submit.attributes["error.type"] == SubmissionError.code


# ---- the scheduler ----


async def test_each_first_emission_of_a_sampled_agenda_is_a_wait(kept):
    world = SchedulerWorld(MEDIA)
    body = {"customer_id": "acme", "operations": [], "trace": {"traceparent": PARENT}}
    text = msgspec.Raw(json.dumps(body).encode())
    traced = msgspec.structs.replace(placed("a-1"), agenda=text)
    world.clock.move(timedelta(seconds=5))
    await world.handle(
        InsightAgendasRouted(
            insight_id="media",
            agendas=tuple(msgspec.Raw(encode(one)) for one in (placed("a-0"), traced)),
            origins=tuple(Origin(partition=0, offset=1, index=n) for n in range(2)),
        )
    )
    assert len(world.emitted()) == 2
    wait = kept.only("wait")
    assert wait.start_time == int(START.timestamp()) * 10**9
    assert wait.end_time - wait.start_time == 5 * 10**9
    assert wait.attributes["pop_stream.agenda.id"] == "a-1"
    assert wait.attributes["pop_stream.round.position"] == 2
    assert wait.attributes["pop_stream.round.size"] == 2
    assert wait.attributes["pop_stream.was_held"] is False
    await world.handle(
        InsightAttemptsReported(insight_id="media", claims=(Claim(agenda_id="a-1", attempt=1),))
    )
    shown = generate_latest(world.registry).decode().splitlines()
    for name in ("pop_submission_to_emission_seconds", "pop_submission_to_start_seconds"):
        example = f'# {{agenda_id="a-1",trace_id="{ID}"}} 5.0'
        assert any(line.startswith(f"{name}_bucket") and example in line for line in shown)


# ---- the puller ----


@asynccontextmanager
async def running(handlers):
    reported = type("Reported", (list,), {"add": list.extend})()
    with ThreadPoolExecutor(2) as threads:
        context, capacity = run_context(handlers, threads), Capacity(4)
        async with asyncio.TaskGroup() as group:
            yield AttemptExecutor(group, context, reported, capacity), capacity


async def run(handlers, *operations, trace=PARENT, **changes):
    one = emitted(*operations, **changes)
    body = json.loads(bytes(one.agenda)) | {"trace": {"traceparent": trace}}
    one = msgspec.structs.replace(one, agenda=msgspec.Raw(json.dumps(body).encode()))
    async with running(handlers) as (executor, capacity):
        capacity.acquire(1)
        executor.start(one, claimed_s=monotonic())
        await executor.ended()
    registry = CollectorRegistry()
    executor._run_context.metrics.register(registry)
    return generate_latest(registry).decode()


async def test_a_run_has_operations_and_handlers_hand_on_theirs(kept):
    handlers, seen = Handlers(), {}

    @handlers.handler("work")
    async def work(operation):
        seen[operation.name] = (operation.trace.traceparent, otel.get_current_span().context)

    @handlers.handler("thread")
    def thread(operation):
        seen[operation.name] = (operation.trace.traceparent, otel.get_current_span().context)

    shown = await run(handlers, node("a"), node("b", "a"), node("c", "a", kind="thread"))
    assert f'# {{agenda_id="a1",trace_id="{ID}"}}' in shown
    attempt = kept.only("run")
    assert f"{attempt.parent.span_id:016x}" == SPAN
    assert attempt.attributes["pop_stream.outcome"] == "succeeded"
    assert attempt.attributes["pop_stream.operations"] == 3
    named = {
        one.attributes["pop_stream.operation.name"]: one for one in kept.named("operation")
    }
    assert {*named} == {"a", "b", "c"}
    for name, operation in named.items():
        assert operation.parent.span_id == attempt.context.span_id
        assert seen[name] == (traceparent(operation), operation.context)


async def test_a_failure_is_an_error_by_its_code_and_without_its_words(kept):
    handlers = Handlers()

    @handlers.handler("work")
    async def work(operation):
        message = "no such card: 4111-1111"
        raise FinalError(message)

    await run(handlers, node("a", payload={"card": "4111-1111"}))
    for name in ("run", "operation"):
        one = kept.only(name)
        assert one.status.status_code is otel.StatusCode.ERROR
        assert one.attributes["error.type"] == FinalError.code
        assert "4111" not in one.to_json()


async def test_an_attempt_that_is_not_sampled_has_no_span(kept):
    handlers, traces = Handlers(), []

    @handlers.handler("work")
    async def work(operation):
        traces.append(operation.trace.traceparent)

    await run(handlers, node("a"), trace=QUIET)
    assert kept.ended == ()
    assert traces == [QUIET]


async def test_an_attempt_that_lost_its_lease_ends_its_span(kept):
    handlers, begun = Handlers(), asyncio.Event()

    @handlers.handler("work")
    async def work(operation):
        begun.set()
        if operation.attempt == 1:
            await asyncio.Event().wait()

    async with running(handlers) as (executor, capacity):
        capacity.acquire(2)
        for number in (1, 2):
            one = emitted(node("a"), attempt=number, accepted_at=AT)
            body = json.loads(bytes(one.agenda)) | {"trace": {"traceparent": PARENT}}
            one = msgspec.structs.replace(one, agenda=msgspec.Raw(json.dumps(body).encode()))
            executor.start(one, claimed_s=monotonic())
            await begun.wait()
        await executor.ended()
    first, second = kept.named("run")
    assert first.attributes["pop_stream.outcome"] == "lease_lost"
    assert second.attributes["pop_stream.outcome"] == "succeeded"
    assert [one.context.span_id for one in second.links] == [first.context.span_id]
