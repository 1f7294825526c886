"""The API on a real Kafka and a real Postgres."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from aiohttp import ClientSession
from aiokafka import TopicPartition
from deadlines import within
from fakes import FixedDefinitions, FixedQueryReplies, MemoryDeliveries
from msgspec import Raw
from pydantic import SecretStr

from pop_stream.api.app import ApiPorts, create_app
from pop_stream.api.http.server import serve
from pop_stream.clock import WallClock
from pop_stream.kafka import clients, topics
from pop_stream.kafka.publisher import KafkaPublisher
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions, Insight, Mappers
from pop_stream.model.events.base import OperationProgress
from pop_stream.model.events.lifecycle import (
    AgendaAccepted,
    AgendaClaimed,
    AgendaProgressed,
    AgendaSucceeded,
)
from pop_stream.model.ids import InsightId
from pop_stream.model.partitioning import partition_of
from pop_stream.postgres.agendas import PostgresAgendas
from pop_stream.postgres.completions import PostgresCompletions
from pop_stream.postgres.dead_letters import PostgresDeadLetters
from pop_stream.postgres.definitions import PostgresDefinitions
from pop_stream.postgres.keys import PostgresAuditLog, PostgresKeys
from pop_stream.postgres.migrate import migrate
from pop_stream.postgres.occurrences import PostgresOccurrences
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.pullers import PostgresPullers
from pop_stream.postgres.signals import PostgresSignals
from pop_stream.postgres.stats import PostgresStats
from pop_stream.postgres.summaries import PostgresSummaries
from pop_stream.postgres.summary_reader import PostgresSummaryReader
from pop_stream.settings import Settings

pytestmark = pytest.mark.timeout(180)

AT = datetime(2026, 1, 1, tzinfo=UTC)
FILES = Insight(id="files", mappers=Mappers(operation_types=("http",)))
AGENDA = {"customer_id": "acme", "operations": [{"name": "fetch", "type": "http"}]}


@dataclass
class World:
    """An API that listens, and the adapters behind it."""

    url: str
    session: ClientSession
    store: PostgresSummaries
    settings: Settings
    offset: int = 0

    async def post(self, body) -> tuple[int, dict]:
        async with self.session.post(f"{self.url}/v1/agendas", json=body) as response:
            return response.status, await response.json(content_type=None)

    async def get(self, path: str) -> tuple[int, dict]:
        async with self.session.get(f"{self.url}{path}") as response:
            return response.status, await response.json(content_type=None)

    async def fold(self, *lifecycle) -> None:
        start, self.offset = self.offset, self.offset + 1
        spans = {0: (start, self.offset)}
        topic = Topics(self.settings.topic_prefix).agenda_events
        await self.store.fold(topic, spans, lifecycle)

    async def submitted(self) -> list[tuple[int, bytes, dict]]:
        """Partition, key and agenda of every record on the submissions topic."""
        partitions = [
            TopicPartition(self.topic.name, one) for one in range(self.topic.partitions)
        ]
        async with clients.consumer(self.settings, client_id="test", group_id=None) as consumer:
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            found = []
            while len(found) < sum(ends.values()):
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    found += [
                        (one.partition, one.key, json.loads(one.value)) for one in records
                    ]
            return found

    @property
    def topic(self) -> topics.TopicSpec:
        names = Topics(self.settings.topic_prefix)
        return next(one for one in topics.catalog(names) if one.name == names.submissions)


@asynccontextmanager
async def served(settings: Settings, *, acknowledge_timeout: timedelta) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        pool = await enter(open_pool(settings))
        producer = clients.producer(settings, client_id="api")
        ports = ApiPorts(
            publisher=await enter(
                KafkaPublisher(producer, acknowledge_timeout=acknowledge_timeout)
            ),
            summaries=PostgresSummaryReader(pool),
            agendas=PostgresAgendas(pool),
            definitions=FixedDefinitions(Definitions(insights={InsightId("files"): FILES})),
            definition_store=PostgresDefinitions(pool),
            questions=FixedQueryReplies(),
            deliveries=MemoryDeliveries(),
            clock=WallClock(),
            keys=PostgresKeys(pool),
            audit=PostgresAuditLog(pool),
            dead_letters=PostgresDeadLetters(pool),
            signals=PostgresSignals(pool),
            completions=PostgresCompletions(pool),
            occurrences=PostgresOccurrences(pool),
            stats=PostgresStats(pool),
            pullers=PostgresPullers(pool),
        )
        url = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()
        tasks = await enter(asyncio.TaskGroup())
        app = create_app(ports, settings)
        tasks.create_task(serve(app, settings, stop, on_url=url.set_result))
        stack.callback(stop.set)
        session = await enter(ClientSession())
        yield World(await url, session, PostgresSummaries(pool), settings)


@pytest_asyncio.fixture
async def world(settings: Settings) -> AsyncIterator[World]:
    await migrate(settings.postgres_dsn.get_secret_value())
    admin = clients.admin(settings, client_id="test")
    await admin.start()
    try:
        specs = topics.catalog(Topics(settings.topic_prefix))
        await topics.ensure(admin, specs, replication_factor=1)
    finally:
        await admin.close()
    async with served(settings, acknowledge_timeout=timedelta(seconds=20)) as opened:
        yield opened


def accepted(agenda_id: str, **changes) -> AgendaAccepted:
    body = {"id": agenda_id, **AGENDA}
    return AgendaAccepted(
        agenda_id=agenda_id,
        at=AT,
        insight_id="files",
        customer_id="acme",
        operations=("fetch",),
        agenda=Raw(json.dumps(body).encode()),
        **changes,
    )


def attempt(kind, agenda_id: str, **facts):
    return kind(agenda_id=agenda_id, at=AT, insight_id="files", attempt=1, **facts)


async def test_202_means_that_kafka_has_it(world):
    status, body = await world.post(AGENDA)
    assert status == 202
    ((partition, key, agenda),) = await world.submitted()
    assert agenda == {"id": body["id"], **AGENDA}
    assert key == body["id"].encode()
    assert partition == partition_of(key, world.topic.partitions)


async def test_a_list_is_published_once_each_without_the_refused(world):
    ids = [f"a{number}" for number in range(2_000)]
    sent = [{"id": one, **AGENDA} for one in ids]
    status, body = await world.post([*sent, {"id": "bad"}])
    assert (status, body["accepted"], body["refused"]) == (202, 2_000, 1)
    assert sorted(agenda["id"] for _, _, agenda in await world.submitted()) == sorted(ids)


async def test_many_at_once_are_all_published(world):
    answers = await asyncio.gather(*(world.post(AGENDA) for _ in range(200)))
    assert {status for status, _ in answers} == {202}
    published = [agenda["id"] for _, _, agenda in await world.submitted()]
    assert sorted(published) == sorted(body["id"] for _, body in answers)


async def test_progress_is_read_as_it_was_folded(world):
    running = OperationProgress(
        name="fetch", state="running", percent=40, result=Raw(b'{"size": 5}')
    )
    await world.fold(
        accepted("a1", link_id="l1"),
        attempt(AgendaClaimed, "a1", puller_id="p1", lease_ms=1_000),
        attempt(AgendaProgressed, "a1", operations=(running,)),
    )
    _, agenda = await world.get("/v1/agendas/a1")
    assert (agenda["state"], agenda["puller_id"], agenda["percent"]) == ("running", "p1", 40.0)
    assert agenda["agenda"] == {"id": "a1", **AGENDA}
    _, progress = await world.get("/v1/agendas/a1/progress")
    (operation,) = progress["operations"]
    assert (operation["type"], operation["result"]) == ("http", {"size": 5})
    _, link = await world.get("/v1/links/l1/summary")
    assert (link["total"], link["counts"], link["percent"]) == (1, {"running": 1}, 40.0)
    assert (await world.get("/v1/agendas/none"))[0] == 404


async def test_a_stream_follows_what_is_folded(world):
    opening = asyncio.create_task(world.session.get(f"{world.url}/v1/agendas/a1/events"))
    await world.fold(accepted("a1"))
    async with within(20), await opening as response:
        assert await state(response) == "ready"
        await world.fold(attempt(AgendaClaimed, "a1", puller_id="p1", lease_ms=1_000))
        assert await state(response) == "running"
        await world.fold(attempt(AgendaSucceeded, "a1"))
        assert await state(response) == "succeeded"
        assert await response.content.read() == b""


async def state(response) -> str:
    data = (await response.content.readuntil(b"\n\n")).decode().split("data: ")[1]
    return json.loads(data)["state"]


async def test_ready_while_both_servers_answer(world):
    assert await world.get("/readyz") == (
        200,
        {"status": "ready", "parts": {"kafka": "ok", "postgres": "ok"}},
    )


async def test_without_topics_a_submission_is_503_and_not_lost_silently(settings):
    async with served(settings, acknowledge_timeout=timedelta(seconds=1)) as world:
        status, body = await world.post(AGENDA)
        assert (status, body["code"]) == (503, "unavailable")


async def test_reads_are_503_and_submissions_go_on_without_a_database(world):
    away = world.settings.model_copy(
        update={"postgres_dsn": SecretStr("postgresql://pop:secret@127.0.0.1:1/pop")}
    )
    async with served(away, acknowledge_timeout=timedelta(seconds=20)) as blind:
        assert (await blind.post(AGENDA))[0] == 202
        for path in ("/v1/agendas/a1", "/v1/links/l1/summary", "/v1/agendas/a1/events"):
            status, body = await blind.get(path)
            assert (status, body["code"]) == (503, "unavailable")
            assert "secret" not in str(body)
        status, body = await blind.get("/readyz")
        assert (status, body["parts"]) == (503, {"kafka": "ok", "postgres": "away"})
