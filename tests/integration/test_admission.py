"""Admission policies at both entry points, on a real Kafka, and over a crash of ingest."""

import asyncio
import json
import secrets
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
from pop_stream.model.definitions import Customer, Definitions, Insight, Mappers
from pop_stream.model.events.codec import decode_lifecycle
from pop_stream.model.events.lifecycle import AgendaAccepted, AgendaHeld, AgendaRefused
from pop_stream.operations import provisioning
from pop_stream.ports.publisher import Record
from pop_stream.postgres.migrate import migrate
from pop_stream.settings import Settings

PATIENCE_S = 60
SCAN = Insight(
    id="scan",
    mappers=Mappers(operation_types=("scan",)),
    needs_labels=("cleared",),
    paused=True,
)
CLEARED = Customer(id="ann", labels=("cleared",))


class World:
    """An API and topics of their own; ingest comes and goes."""

    def __init__(self, settings, url, publisher, session):
        self.settings = settings
        self.topics = Topics(settings.topic_prefix)
        self.url = url
        self.publisher = publisher
        self.session = session

    async def define(self, *definitions):
        await publish_definitions(self.publisher, self.topics, definitions, Definitions())

    async def post(self, customer_id):
        url = f"{self.url}/v1/agendas"
        async with self.session.post(url, json=agenda(customer_id)) as response:
            return response.status, await response.json()

    async def send(self, customer_id, count):
        """Over Kafka, as one record."""
        value = json.dumps([agenda(customer_id)] * count).encode()
        await self.publisher.publish([Record(self.topics.submissions, None, value, 0)])

    async def events(self, kind, customer_id=None):
        return [
            event
            async for one in read_topic(self.settings, self.topics.agenda_events)
            for event in decode_lifecycle(one.value)
            if isinstance(event, kind)
            and (customer_id is None or event.customer_id == customer_id)
        ]

    async def until_events(self, kind, count, customer_id=None):
        async with within(PATIENCE_S):
            while len(found := await self.events(kind, customer_id)) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        return found


def agenda(customer_id):
    return {"customer_id": customer_id, "operations": [{"name": "a", "type": "scan"}]}


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
        names = Topics(settings.topic_prefix)
        await publish_definitions(publisher, names, [SCAN, CLEARED], Definitions())
        stop, url = asyncio.Event(), asyncio.get_running_loop().create_future()
        await enter(ending_in_order(stop, run_api(settings, stop, on_url=url.set_result)))
        session = await enter(aiohttp.ClientSession())
        yield World(settings, await url, publisher, session)


async def test_a_label_is_needed_at_both_entry_points_and_what_was_let_in_stays(world):
    assert (await world.post("ann"))[0] == 202
    status, body = await world.post("bob")
    assert (status, body["code"]) == (422, "admission_denied")
    async with process("run_ingest", world.settings, crash_point="ingest.accepted") as dying:
        await world.send("bob", 2)
        await world.send("ann", 20)
        async with within(PATIENCE_S):
            await dying.wait()
    # Whether all of it was said to be accepted, or part, the label is taken away meanwhile.
    await world.define(Customer(id="ann"))
    async with process("run_ingest", world.settings), process("run_scheduler", world.settings):
        held = await world.until_events(AgendaHeld, 20)  # those of bob perhaps among them
        assert {event.reason.split(":")[0] for event in held} == {
            "denied now, but perhaps let in before a restart"
        }
        accepted = {event.agenda_id for event in await world.events(AgendaAccepted, "ann")}
        assert len(accepted) == 21
        assert len(accepted & {event.agenda_id for event in held}) >= 18
        assert not await world.events(AgendaRefused, "ann")
        await world.send("ann", 1)
        [refused] = await world.until_events(AgendaRefused, 1, "ann")
        assert refused.issues[0].field == "customer_id"
