"""The published schemas: what the parts write fits them, and what just fits them is taken."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import ClientSession
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from deadlines import within
from jsonschema import Draft202012Validator
from parts_in_process import all_but_pullers

from pop_stream.kafka import connections
from pop_stream.kafka.definitions import publish_definitions
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Customer, Definitions, Insight, Mappers, ResourcePool
from pop_stream.operations import provisioning
from pop_stream.puller import FinalError, Handlers, OperationCall, Puller
from pop_stream.resources import resource_folder
from pop_stream.settings import Settings

pytestmark = pytest.mark.timeout(180)

PATIENCE_S = 60
DEFINITIONS = (
    Customer(id="acme", weight=2, max_in_flight=50, rate_per_s=100),
    ResourcePool(id="machines", max_in_flight=100),
    Insight(id="media", mappers=Mappers(operation_types=("good", "bad")), pool="machines"),
    # The least text that any pattern of the schemas allows is the type of a foreign operation.
    Insight(id="foreign", mappers=Mappers(operation_types=("x",))),
)
FULL = {
    "customer_id": "acme",
    "title": "all there is",
    "link_id": "l1",
    "params": {"kind": "test"},
    "priority": 2,
    "rank": 3,
    "fairness_key": "k1",
    "cost_s": 0.5,
}

LEAST = {"string": "x", "date-time": "2026-01-01T00:00:00Z", "integer": 1, "number": 1}


def operation(name: str, kind: str, **rest: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **rest}


GOOD = {
    **FULL,
    "id": "good",
    "operations": [
        operation("first", "good", payload={"n": 1}, params={"p": True}),
        operation("then", "good", payload="@<first.out::/n>", depends_on=["first"]),
    ],
}
BAD = {"id": "bad", "customer_id": "acme", "operations": [operation("only", "bad")]}
REFUSED = {"id": "refused", "customer_id": "acme", "operations": []}


def schema(name: str) -> dict[str, Any]:
    return json.loads((resource_folder("topics") / "schemas" / f"{name}.json").read_text())


def faults(name: str, values: list[Any]) -> list[str]:
    checker = Draft202012Validator.FORMAT_CHECKER
    assert "date-time" in checker.checkers, "instants would go unchecked"
    judge = Draft202012Validator(schema(name), format_checker=checker)
    return [
        f"{fault.json_path}: {fault.message}" for v in values for fault in judge.iter_errors(v)
    ]


def least(part: dict[str, Any], whole: dict[str, Any]) -> Any:
    """The smallest value that a schema allows, from what it says alone."""
    if "$ref" in part:
        return least(whole["$defs"][part["$ref"].rpartition("/")[2]], whole)
    if "anyOf" in part:
        return least(part["anyOf"][0], whole)
    if "enum" in part:
        return part["enum"][0]
    if part["type"] == "object":
        return {name: least(part["properties"][name], whole) for name in part["required"]}
    if part["type"] == "array":
        return [least(part["items"], whole) for _ in range(part.get("minItems", 0))]
    return LEAST[part.get("format", part["type"])]


@dataclass
class System:
    """Everything but pullers, and clients that know nothing of this package."""

    settings: Settings
    url: str
    session: ClientSession
    producer: AIOKafkaProducer

    @property
    def topics(self) -> Topics:
        return Topics(self.settings.topic_prefix)

    async def until(self, path: str, is_met: Callable[[Any], bool]) -> Any:
        async with within(PATIENCE_S):
            while True:
                async with self.session.get(f"{self.url}{path}") as response:
                    answer = await response.json()
                if response.status == 200 and is_met(answer):
                    return answer
                await asyncio.sleep(0.05)

    async def ended(self, agenda_id: str) -> str:
        def is_terminal(answer: Any) -> bool:
            return answer["state"] in {"succeeded", "failed", "refused"}

        answer = await self.until(f"/v1/agendas/{agenda_id}", is_terminal)
        return answer["state"]

    async def produce(self, topic: str, key: str | None, value: Any) -> None:
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        await self.producer.send_and_wait(topic, raw, key=key.encode() if key else None)

    async def raw(self, topic: str) -> list[bytes]:
        """The values of all records of a topic."""
        found: list[bytes] = []
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.settings.kafka_bootstrap, auto_offset_reset="earliest"
        )
        async with within(PATIENCE_S), consumer:
            numbers = await self.producer.partitions_for(topic)
            partitions = [TopicPartition(topic, number) for number in numbers]
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            while len(found) < sum(ends.values()):
                fetched = await consumer.getmany(timeout_ms=500)
                found += [one.value for some in fetched.values() for one in some]
        return found

    async def values(self, topic: str) -> list[Any]:
        """The same as JSON."""
        return [json.loads(one) for one in await self.raw(topic)]

    async def records_of_a_group(self, topic: str, group: str, count: int) -> list[Any]:
        """What a foreign worker reads of an insight, committed as it is read."""
        found: list[Any] = []
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.settings.kafka_bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with within(PATIENCE_S), consumer:
            while topic not in await consumer.topics():  # noqa: ASYNC110  # no event tells
                await asyncio.sleep(0.05)
            consumer.subscribe([topic])
            while len(found) < count:
                fetched = await consumer.getmany(timeout_ms=500)
                found += [json.loads(one.value) for some in fetched.values() for one in some]
                await consumer.commit()
        return found


EVERY_DAY = (
    "accepted",
    "refused",
    "emitted",
    "claimed",
    "heartbeat",
    "progressed",
    "succeeded",
    "failed",
)


@pytest_asyncio.fixture
async def system(settings: Settings, tmp_path) -> AsyncIterator[System]:
    known = settings.model_copy(update={"scheduler_data": tmp_path / "scheduler"})
    await provisioning.migrate(known)
    async with connections.publisher(known, client_id="test") as publisher:
        topics = Topics(known.topic_prefix)
        await publish_definitions(publisher, topics, DEFINITIONS, Definitions())
    producer = AIOKafkaProducer(bootstrap_servers=known.kafka_bootstrap)
    async with (
        all_but_pullers(known, within_s=PATIENCE_S) as url,
        ClientSession() as session,
        producer,
    ):
        yield System(known, url, session, producer)


@asynccontextmanager
async def pulling(settings: Settings) -> AsyncIterator[None]:
    handlers = Handlers()

    @handlers.handler("good")
    async def good(call: OperationCall) -> Any:
        await call.report(50, "half way")
        # Longer than progress is kept back, and than a heartbeat.
        await asyncio.sleep(0.8)
        return call.payload

    @handlers.handler("bad")
    async def bad(_: OperationCall) -> None:
        msg = "there is no such file"
        raise FinalError(msg)

    quick = settings.model_copy(update={"heartbeat": settings.lag_interval})
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        puller = Puller("media", handlers=handlers, settings=quick)
        tasks.create_task(puller.serve(stop))
        try:
            yield
        finally:
            stop.set()


async def test_what_the_parts_write_fits_the_published_schemas(system):
    topics = system.topics
    async with system.session.post(f"{system.url}/v1/agendas", json=[GOOD, BAD]) as response:
        assert response.status == 202
    await system.produce(topics.submissions, "refused", REFUSED)
    await system.produce(topics.submissions, None, b"no json at all")
    async with pulling(system.settings):
        states = [await system.ended(one) for one in ("good", "bad", "refused")]
    assert states == ["succeeded", "failed", "refused"]
    await system.until("/v1/insights/media/queue", lambda queue: queue["in_flight"] == 0)

    submitted = [
        one for one in await system.raw(topics.submissions) if b'"operations":[{' in one
    ]
    written = {
        "submission": [json.loads(one) for one in submitted],
        "ready": await system.values(topics.ready),
        "insight": await system.values(topics.insight("media")),
        "agenda-events": await system.values(topics.agenda_events),
        "definitions": await system.values(topics.definitions),
        "decisions": await system.values(topics.decisions),
        "query-replies": await system.values(topics.query_replies),
        "dead-letters": await system.values(topics.dead_letters),
    }
    assert all(written.values())
    assert {name: found for name in written if (found := faults(name, written[name]))} == {}
    events = [one for value in written["agenda-events"] for one in _listed(value)]
    known = schema("agenda-events")["anyOf"][-1]["discriminator"]["mapping"]
    types = {event["type"] for event in events}
    assert types <= known.keys()
    assert {f"agenda.{one}" for one in EVERY_DAY} <= types


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


async def test_foreign_programs_need_the_schemas_alone(system):
    """The least agenda there is, run by a worker that writes the least events there are."""
    topics = system.topics
    submission = schema("submission")
    await system.produce(topics.submissions, "keyed", least(submission, submission))
    await system.produce(topics.submissions, None, [least(submission, submission)] * 2)

    topic, group = topics.insight("foreign"), topics.puller_group("foreign")
    read = await system.records_of_a_group(topic, group, 3)
    assert faults("insight", read) == []
    assert "keyed" in {record["agenda_id"] for record in read}

    events = schema("agenda-events")
    for record in read:
        for kind in ("AgendaClaimed", "AgendaSucceeded"):
            event = least(events["$defs"][kind], events)
            event |= {name: record[name] for name in event if name in record}
            assert faults("agenda-events", [event]) == []
            await system.produce(topics.agenda_events, record["agenda_id"], event)
    assert {await system.ended(record["agenda_id"]) for record in read} == {"succeeded"}
    await system.until("/v1/insights/foreign/queue", lambda queue: queue["in_flight"] == 0)
    assert await system.values(topics.dead_letters) == []
