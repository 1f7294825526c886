"""Deduplication on a real Kafka: both entry points, a killed scheduler, another owner."""

import asyncio
import json
import secrets
import signal
from contextlib import AsyncExitStack

import aiohttp
import pytest_asyncio
from databases import database
from deadlines import within
from part_processes import process
from parts_in_process import ending_in_order
from pydantic import SecretStr

from pop_stream.composition.api import run_api
from pop_stream.kafka import connections
from pop_stream.kafka.definitions import publish_definitions
from pop_stream.kafka.topic_reader import read_topic
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions, Insight, Mappers
from pop_stream.model.events.codec import decode_lifecycle
from pop_stream.model.events.lifecycle import AgendaCancelled
from pop_stream.operations import provisioning
from pop_stream.ports.publisher import Record
from pop_stream.postgres.migrate import migrate
from pop_stream.settings import Settings

PATIENCE_S = 60
SCAN = Insight(id="scan", mappers=Mappers(operation_types=("scan",)), paused=True)


class World:
    """An API, ingest and a topic of their own; schedulers come and go."""

    def __init__(self, settings, url, publisher, session):
        self.settings = settings
        self.topics = Topics(settings.topic_prefix)
        self.url = url
        self.publisher = publisher
        self.session = session

    async def post(self, document):
        async with self.session.post(f"{self.url}/v1/agendas", json=document) as response:
            return response.status, await response.json(), response.headers

    async def send(self, *documents):
        """Over Kafka, all in one partition and so in order."""
        records = [
            Record(self.topics.submissions, None, json.dumps(one).encode(), 0)
            for one in documents
        ]
        await self.publisher.publish(records)

    async def until_ready(self, count):
        async with within(PATIENCE_S):
            while await self._ready() != count:  # noqa: ASYNC110  # another process tells
                await asyncio.sleep(0.1)

    async def _ready(self):
        async with self.session.get(f"{self.url}/v1/insights/scan/queue") as response:
            return (await response.json()).get("ready")

    async def until_duplicates(self, *agenda_ids):
        """Of whom these ended as duplicates, once all of them did."""
        async with within(PATIENCE_S):
            while True:
                found = {
                    event.agenda_id: event.duplicate_of
                    async for one in read_topic(self.settings, self.topics.agenda_events)
                    for event in decode_lifecycle(one.value)
                    if isinstance(event, AgendaCancelled)
                }
                if found.keys() >= {*agenda_ids}:
                    return {one: found[one] for one in agenda_ids}
                await asyncio.sleep(0.2)


def agenda(agenda_id, key, **dedupe):
    return {
        "id": agenda_id,
        "customer_id": "ann",
        "operations": [{"name": "scan", "type": "scan"}],
        "dedupe": {"key": key, **dedupe},
    }


@pytest_asyncio.fixture
async def world(servers, tmp_path):
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        settings = Settings(
            kafka_bootstrap=servers.bootstrap,
            postgres_dsn=SecretStr(await enter(database(servers.dsn))),
            topic_prefix=f"t{secrets.token_hex(4)}.",
            http_port=0,
            scheduler_data=tmp_path / "table",
        )
        await migrate(settings.postgres_dsn.get_secret_value())
        await provisioning.ensure_topics(settings)
        publisher = await enter(connections.publisher(settings, client_id="test"))
        await publish_definitions(
            publisher, Topics(settings.topic_prefix), [SCAN], Definitions()
        )
        stop, url = asyncio.Event(), asyncio.get_running_loop().create_future()
        await enter(ending_in_order(stop, run_api(settings, stop, on_url=url.set_result)))
        await enter(process("run_ingest", settings))
        session = await enter(aiohttp.ClientSession())
        yield World(settings, await url, publisher, session)


async def test_one_of_several_stands_for_the_key_whoever_owns_the_partition(world, tmp_path):
    async with process("run_scheduler", world.settings) as killed:
        assert (await world.post(agenda("first", "k")))[0] == 202
        await world.until_ready(1)
        status, body, headers = await world.post(agenda("second", "k"))
        assert (status, body["code"], body["duplicate_of"]) == (409, "duplicate", "first")
        assert int(headers["Retry-After"]) == 60
        await world.send(agenda("third", "k", on_duplicate="replace"))
        assert await world.until_duplicates("first") == {"first": "third"}
        killed.send_signal(signal.SIGKILL)
        await killed.wait()
    # What comes meanwhile is let in, for nobody answers, and decided by the next owner.
    assert (await world.post(agenda("meanwhile", "k")))[0] == 202
    elsewhere = world.settings.model_copy(update={"scheduler_data": tmp_path / "elsewhere"})
    async with process("run_scheduler", elsewhere):
        assert await world.until_duplicates("meanwhile") == {"meanwhile": "third"}
        await world.until_ready(1)
        assert (await world.post(agenda("late", "k")))[0] == 409
        await world.send(agenda("fourth", "k", on_duplicate="keep"), agenda("fifth", "k"))
        found = await world.until_duplicates("fourth", "fifth")
        assert found == {"fourth": "third", "fifth": "third"}
        assert (await world.post(agenda("other", "another key")))[0] == 202
        await world.until_ready(2)
