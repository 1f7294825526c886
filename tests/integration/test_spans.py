"""One trace from a submission to its operations, over Kafka, as a collector is sent it."""

import asyncio

import pytest_asyncio
from deadlines import within
from one_process import one_process
from span_fakes import collector

from pop_stream.kafka import connections
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Insight, Mappers
from pop_stream.model.retry import Backoff
from pop_stream.ports.publisher import Record
from pop_stream.puller import Handlers, RetryableError
from pop_stream.puller.handlers.builtin import builtin
from pop_stream.telemetry.tracing import traced

ID, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{ID}-{SPAN}-01"
MEDIA = Insight(
    id="media",
    mappers=Mappers(operation_types=("work", "http")),
    max_attempts=3,
    backoff=Backoff(first_s=0.1, jitter=0.0),
)
WITHIN_S = 60


def handlers(settings):
    found = Handlers()
    found.include(builtin(settings))

    @found.handler("work")
    async def work(operation):
        if operation.payload == "fails once" and operation.attempt == 1:
            message = "not yet"
            raise RetryableError(message)

    return found


@pytest_asyncio.fixture
async def system(settings, tmp_path, monkeypatch):
    async with collector() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        known = settings.model_copy(
            update={"tracing": True, "http_networks": ("127.0.0.1/32",)}
        )
        with traced(known, "test"):
            async with one_process(known, tmp_path, [MEDIA], handlers(known)) as opened:
                opened.receiver = receiver
                yield opened


async def until(is_met):
    async with within(WITHIN_S):
        while not is_met():  # noqa: ASYNC110  # a collector is sent them
            await asyncio.sleep(0.05)


async def test_one_trace_leads_from_http_over_kafka_to_operations_and_their_calls(system):
    receiver = system.receiver
    operations = [
        {"name": "first", "type": "work"},
        {"name": "second", "type": "work", "payload": "fails once", "depends_on": ["first"]},
        {
            "name": "third",
            "type": "http",
            "payload": {"url": f"{receiver.url}/called"},
            "depends_on": ["second"],
        },
    ]
    body = {"id": "a-1", "customer_id": "acme", "operations": operations}
    status, answer = await system.call(
        "POST", "/v1/agendas", json=body, headers={"traceparent": PARENT}
    )
    assert status == 202, answer
    # A trace that begins here is not sampled: a ratio of 0.
    await system.submit("a-2", {"name": "n", "type": "work"})
    await system.state("a-1", "succeeded")
    await system.state("a-2", "succeeded")
    await until(lambda: len(receiver.named("run")) == 2 and len(receiver.spans) == 8)

    [submit], [wait] = receiver.named("submit"), receiver.named("wait")
    first, second = sorted(receiver.named("run"), key=lambda one: one.start_ns)
    assert {one.trace_id for one in receiver.spans} == {ID}
    assert submit.parent_id == SPAN
    assert {one.parent_id for one in (wait, first, second)} == {submit.span_id}
    assert submit.start_ns <= wait.start_ns <= wait.end_ns
    assert wait.attributes["pop_stream.customer.id"] == "acme"
    assert wait.attributes["pop_stream.round.position"] == 1

    # The second attempt links to the first, and repeats only what had failed.
    assert (first.links, second.links) == ([], [first.span_id])
    assert (first.is_error, second.is_error) == (True, False)
    ran = {
        run: [
            one.attributes["pop_stream.operation.name"]
            for one in sorted(receiver.named("operation"), key=lambda one: one.start_ns)
            if one.parent_id == run.span_id
        ]
        for run in (first, second)
    }
    assert ran == {first: ["first", "second"], second: ["second", "third"]}

    # What an operation calls is its child.
    [third] = receiver.named("operation", operation_name="third")
    [call] = receiver.calls
    assert call["traceparent"] == f"00-{ID}-{third.span_id}-01"


async def test_a_submission_by_kafka_continues_its_producers_trace(system):
    receiver = system.receiver
    names = Topics(system.settings.topic_prefix)
    value = b'{"id":"k-1","customer_id":"acme","operations":[{"name":"n","type":"work"}]}'
    headers = (("traceparent", PARENT.encode()),)
    async with connections.publisher(system.settings, client_id="test") as publisher:
        await publisher.publish([Record(names.submissions, None, value, headers=headers)])
    await system.state("k-1", "succeeded")
    await until(lambda: len(receiver.spans) == 4)
    [submit], [run] = receiver.named("submit"), receiver.named("run")
    [operation] = receiver.named("operation")
    assert (submit.trace_id, submit.parent_id) == (ID, SPAN)
    assert (run.parent_id, operation.parent_id) == (submit.span_id, run.span_id)
    assert submit.attributes["messaging.destination.name"] == names.submissions
