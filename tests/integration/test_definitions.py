"""Definitions on the real stack: from HTTP through Postgres and Kafka to the running parts."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import crash_points
import pytest
import pytest_asyncio
from aiohttp import ClientSession
from deadlines import within
from lifecycle_events import accepted, succeeded
from parts_in_process import ending_in_order

from pop_stream.composition.ingest import run_ingest
from pop_stream.composition.rollup import run_rollup
from pop_stream.composition.scheduler import run_scheduler
from pop_stream.kafka import connections
from pop_stream.kafka.definitions import DefinitionFollower, definition_record
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Customer, Insight, encode_definition
from pop_stream.model.errors import InUseError
from pop_stream.model.identity import ANYONE
from pop_stream.model.revisions import Author, put, remove
from pop_stream.operations import provisioning
from pop_stream.operations.definition_outbox import DefinitionsOutboxRelay
from pop_stream.ports.publisher import Record
from pop_stream.postgres.definitions import PostgresDefinitionOutbox, PostgresDefinitions
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.summaries import PostgresSummaries
from pop_stream.settings import Settings

pytestmark = pytest.mark.timeout(180)

PATIENCE_S = 60
AUTHOR = Author(principal=ANYONE, request_id="test")


@dataclass
class World:
    """A migrated world; parts are started by the tests."""

    settings: Settings

    @property
    def topics(self) -> Topics:
        return Topics(self.settings.topic_prefix)

    @asynccontextmanager
    async def store(self) -> AsyncIterator[PostgresDefinitions]:
        async with open_pool(self.settings) as pool:
            yield PostgresDefinitions(pool)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[DefinitionFollower]:
        async with DefinitionFollower(self.settings, client_id="test") as follower:
            yield follower

    async def publish(self, *records: Any) -> None:
        async with connections.publisher(self.settings, client_id="test") as publisher:
            await publisher.publish(records)


@pytest_asyncio.fixture
async def world(settings: Settings, tmp_path) -> World:
    known = settings.model_copy(update={"scheduler_data": tmp_path / "scheduler"})
    await provisioning.migrate(known)
    return World(known)


async def until(got: Callable[[], bool], *, within_s: float = PATIENCE_S) -> None:
    async with within(within_s):
        while not got():  # noqa: ASYNC110  # a follower has no event to wait for
            await asyncio.sleep(0.01)


@asynccontextmanager
async def api(
    world: World, crash_point: str | None = None
) -> AsyncIterator[tuple[ClientSession, Any]]:
    """The API as a process of its own, so that it can be killed."""
    environment = {
        **os.environ,
        "POP_KAFKA_BOOTSTRAP": world.settings.kafka_bootstrap,
        "POP_POSTGRES_DSN": world.settings.postgres_dsn.get_secret_value(),
        "POP_TOPIC_PREFIX": world.settings.topic_prefix,
        "POP_HTTP_PORT": "0",
    }
    process = await asyncio.create_subprocess_exec(
        *crash_points.command(crash_point),
        "serve",
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        async with within(PATIENCE_S):
            url = (await process.stdout.readline()).decode().strip()
        async with ClientSession(url) as session:
            yield session, process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with within(PATIENCE_S):
            await process.wait()


async def test_a_change_over_http_reaches_every_part_within_a_second(world):
    async with world.following() as follower, api(world) as (session, _):
        for weight in (2, 3, 4):
            content = {"weight": weight, "title": f"to {weight}"}
            async with session.put("/v1/customers/acme", json=content) as response:
                assert response.status in {200, 201}

            def received(weight: int = weight) -> bool:
                return follower.current.customer("acme").weight == weight

            await until(received, within_s=1)
        async with session.delete("/v1/customers/acme") as response:
            assert response.status == 204
        await until(lambda: not follower.current.customers, within_s=1)


async def test_a_follower_tells_how_far_definitions_are_written_and_how_far_it_read(world):
    async with world.following() as follower:
        before = await follower.end_offset()
        assert follower.read_up_to == before
        await world.publish(definition_record(world.topics, "customer/acme", b"no JSON"))
        await until(lambda: follower.read_up_to > before)
        assert follower.read_up_to == await follower.end_offset() == before + 1
        assert follower.current.version <= before


async def test_of_writers_with_the_same_etag_one_wins(world):
    async with api(world) as (one, _), api(world) as (other, _):
        async with one.put("/v1/customers/acme", json={}) as response:
            tag = response.headers["ETag"]

        async def write(session: ClientSession, weight: int) -> int:
            async with session.patch(
                "/v1/customers/acme", json={"weight": weight}, headers={"If-Match": tag}
            ) as response:
                return response.status

        writers = [write((one, other)[n % 2], n + 2) for n in range(8)]
        statuses = await asyncio.gather(*writers)
        assert sorted(statuses) == [200] + [412] * 7
        async with other.get("/v1/customers/acme") as response:
            assert (await response.json())["version"] == 2


@pytest.mark.parametrize("place", ["api.defined", "outbox.published"])
async def test_a_committed_change_survives_the_kill_of_its_api(world, tmp_path, place):
    """Killed after the commit, or after writing to Kafka: another API process tells it."""
    async with world.following() as follower:
        async with api(world, crash_point=place) as (session, process):
            # Published by another task, the answer may come before the end.
            with suppress(OSError):
                await session.put("/v1/customers/acme", json={"weight": 7})
            async with within(PATIENCE_S):
                await process.wait()
        assert process.returncode == -signal.SIGKILL
        async with world.store() as store:
            assert (await store.get("customer", "acme")).definition.weight == 7
        async with api(world):
            await until(lambda: follower.current.customer("acme").weight == 7, within_s=10)


async def test_the_outbox_is_published_in_order_and_once(world):
    async with (
        open_pool(world.settings) as pool,
        connections.publisher(world.settings, client_id="test") as publisher,
        world.following() as follower,
    ):
        store, outbox = PostgresDefinitions(pool), PostgresDefinitionOutbox(pool)
        changes = [put(Customer(id="acme", weight=n)) for n in range(1, 6)]
        for change in changes:
            await store.change([change], AUTHOR)
        await store.change([remove("customer", "acme")], AUTHOR)
        await store.change([put(Customer(id="acme", weight=9))], AUTHOR)
        several = [DefinitionsOutboxRelay(outbox, publisher, world.topics) for _ in range(3)]
        drained = await asyncio.gather(*(one.drain() for one in several))
        assert sorted(map(len, drained)) == [0, 0, 7]
        await until(lambda: follower.current.customer("acme").weight == 9)
        assert follower.versions_by_key["customer/acme"] == 7


async def test_an_outdated_record_is_skipped_and_repaired(world):
    async with (
        open_pool(world.settings) as pool,
        connections.publisher(world.settings, client_id="test") as publisher,
        world.following() as follower,
    ):
        store = PostgresDefinitions(pool)
        publication = DefinitionsOutboxRelay(
            PostgresDefinitionOutbox(pool), publisher, world.topics
        )
        for weight in (2, 3):
            await store.change([put(Customer(id="acme", weight=weight))], AUTHOR)
        await publication.drain()
        await until(lambda: follower.versions_by_key.get("customer/acme") == 2)
        old = encode_definition(Customer(id="acme", weight=2))
        await publisher.publish(
            [definition_record(world.topics, "customer/acme", old, version=1)]
        )
        await until(lambda: follower.versions_by_key["customer/acme"] == 1)
        assert follower.current.customer("acme").weight == 3
        assert await publication.repair(follower.versions_by_key) == ["customer/acme"]
        await until(lambda: follower.versions_by_key["customer/acme"] == 2)
        assert await publication.repair(follower.versions_by_key) == []


async def test_migrate_takes_up_what_only_the_topic_knew_and_the_file(world, tmp_path):
    by_hand = Insight(id="by-hand", title="written with kcat")
    body = encode_definition(by_hand)
    await world.publish(definition_record(world.topics, "insight/by-hand", body))
    file = tmp_path / "definitions.toml"
    file.write_text(
        '[pools.gpu]\nmax_in_flight = 2\n[insights.media]\npool = "gpu"\n'
        '[templates.t.agenda]\ncustomer_id = "acme"\n'
    )
    known = world.settings.model_copy(update={"definitions_file": file})
    done = await provisioning.migrate(known)
    assert sorted(one.rpartition(" ")[2] for one in done) == [
        "insight/by-hand",
        "insight/media",
        "pool/gpu",
        "template/t",
    ]
    assert await provisioning.migrate(known) == []
    async with world.store() as store, world.following() as follower:
        assert (await store.get("insight", "by-hand")).definition == by_hand
        assert follower.current.templates["t"].version == 1
    file.write_text("[insights.media]\npartitions = 2\n")
    with pytest.raises(ValueError, match=r"pool .*cannot change from 'gpu'"):
        await provisioning.migrate(known)


@asynccontextmanager
async def scheduling(world: World) -> AsyncIterator[None]:
    stop = asyncio.Event()
    parts = (run_ingest(world.settings, stop), run_scheduler(world.settings, stop))
    async with ending_in_order(stop, *parts):
        yield


async def define(session: ClientSession, path: str, content: dict[str, Any]) -> None:
    async with session.put(path, json=content) as response:
        assert response.status in {200, 201}, await response.text()


async def partitions_of(world: World, topic: str) -> int:
    async with connections.admin_client(world.settings) as admin:
        [describe_topic_configs] = await admin.describe_topics([topic])
    return len(describe_topic_configs["partitions"])


async def test_a_running_scheduler_acts_on_changes(world):
    """Paused, then not; targeted anew, its topic grown, weighted: never with a restart."""
    topic = world.topics.insight("media")
    path = "/v1/insights/media"
    mappers = {"operation_types": ["scan"]}
    submission = [
        {"id": f"a{n}", "customer_id": "acme", "operations": [{"name": "s", "type": "scan"}]}
        for n in range(20)
    ]
    async with api(world) as (session, _), scheduling(world):

        async def queue() -> dict[str, Any]:
            async with session.get(f"{path}/queue") as response:
                return {"status": response.status, "customers": [{}], **await response.json()}

        async def queue_until(got: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
            found: dict[str, Any] = {}
            try:
                async with within(PATIENCE_S):
                    while not got(found := await queue()):  # noqa: ASYNC110  # no event
                        await asyncio.sleep(0.05)
            except TimeoutError:
                pytest.fail(f"last seen: {found}")
            return found

        await define(session, path, {"mappers": mappers, "partitions": 1, "target": 2})
        await define(session, "/v1/customers/acme", {"paused": True})
        async with within(PATIENCE_S):
            while True:
                async with session.post("/v1/agendas", json=submission) as response:
                    if response.status == 202:
                        break
                await asyncio.sleep(0.05)
        held = await queue_until(lambda found: found.get("ready") == 20)
        assert (held["in_flight"], held["customers"][0]["held_by"]) == (0, "paused")

        began = asyncio.get_running_loop().time()
        await define(session, "/v1/customers/acme", {"paused": False})
        await queue_until(lambda found: found.get("in_flight") == 2)
        assert asyncio.get_running_loop().time() - began < 3
        assert await partitions_of(world, topic) == 1

        async with session.patch(path, json={"target": 7, "partitions": 3}) as response:
            assert response.status == 200
        await queue_until(lambda found: found.get("in_flight") == 7)
        async with within(PATIENCE_S):
            while await partitions_of(world, topic) != 3:  # noqa: ASYNC110  # nor has Kafka
                await asyncio.sleep(0.1)
        async with session.patch(path, json={"partitions": 2}) as response:
            problem = await response.json()
        assert (response.status, problem["issues"][0]["field"]) == (422, "partitions")
        async with session.patch(path, json={"algorithm": "fifo"}) as response:
            assert response.status == 200
        await queue_until(lambda found: found.get("algorithm") == "fifo")
        async with session.patch("/v1/customers/acme", json={"weight": 9}) as response:
            assert response.status == 200
        await queue_until(lambda found: found["customers"][0].get("weight") == 9)


async def test_what_has_work_under_way_is_not_deleted(world):
    async with open_pool(world.settings) as pool:
        store, summaries = PostgresDefinitions(pool), PostgresSummaries(pool)
        await store.change([put(Customer(id="acme")), put(Insight(id="media"))], AUTHOR)
        topic = world.topics.agenda_events
        got = [accepted(agenda_id=f"a{n}", insight_id="media") for n in range(4)]
        await summaries.fold(topic, {0: (0, 1)}, got)
        for kind, name in (("insight", "media"), ("customer", "acme")):
            with pytest.raises(InUseError) as error:
                await store.change([remove(kind, name)], AUTHOR)
            some = "4 agendas that have not ended, such as a0, a1, a2"
            assert error.value.used_by == (some,)
        ended = [succeeded(agenda_id=f"a{n}") for n in range(4)]
        await summaries.fold(topic, {0: (1, 2)}, ended)
        await store.change([remove("insight", "media"), remove("customer", "acme")], AUTHOR)


async def test_what_kafka_brought_too_early_runs_once_it_is_defined(world):
    """A run of a template that is not defined yet: refused, kept, and submitted again."""
    stop = asyncio.Event()
    run = {"id": "r1", "template_id": "scan", "payload": {"file": "a.mov"}}
    template = {
        "agenda": {
            "customer_id": "acme",
            "operations": [{"name": "s", "type": "scan", "payload": "@<pop.payload::/file>"}],
        }
    }

    async with api(world) as (session, _), scheduling(world), asyncio.TaskGroup() as parts:
        parts.create_task(run_rollup(world.settings, stop))

        async def agenda_until(state: str) -> dict[str, Any]:
            async with within(PATIENCE_S):
                while True:
                    async with session.get("/v1/agendas/r1") as response:
                        found = await response.json()
                    if found.get("state") == state:
                        return found
                    await asyncio.sleep(0.05)

        try:
            await world.publish(
                Record(world.topics.submissions, b"r1", json.dumps(run).encode())
            )
            refused = await agenda_until("refused")
            assert refused["agenda"] == run
            assert refused["issues"][0]["field"] == "template_id"
            await define(session, "/v1/agenda-templates/scan", template)
            await define(
                session, "/v1/insights/media", {"mappers": {"operation_types": ["scan"]}}
            )
            async with within(PATIENCE_S):
                while True:
                    async with session.post("/v1/resubmissions") as response:
                        got = await response.json()
                    if got["resubmitted"] == 1:
                        break
                    await asyncio.sleep(0.05)
            placed = await agenda_until("emitted")
            assert placed["agenda"]["template"] == {"id": "scan", "version": 1}
            assert placed["agenda"]["operations"][0]["payload"] == "a.mov"
            async with session.get("/v1/agendas/r1/explain") as response:
                got = await response.json()
            assert (got["went_to"], got["insight_id"]) == ("media", "media")
        finally:
            stop.set()
