"""Dead letters come from Kafka into the database, each once, and are redriven from there."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest_asyncio
from deadlines import within
from memory_dead_letters import MemoryDeadLetters
from parts_in_process import all_but_pullers

from pop_stream.api_models.dead_letters import LetterSelection
from pop_stream.client import Client
from pop_stream.kafka import connections
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Insight, Mappers
from pop_stream.model.errors import UnavailableError
from pop_stream.ports.publisher import Record
from pop_stream.rollup.dead_letters import store_dead_letters

PATIENCE_S = 60
GARBAGE = b"\xff\xfe{"


@pytest_asyncio.fixture
async def publisher(settings, migrated):
    async with connections.publisher(settings, client_id="test") as publisher:
        yield publisher


@pytest_asyncio.fixture
async def migrated(settings):
    from pop_stream.operations import provisioning  # noqa: PLC0415  # needs the servers

    await provisioning.migrate(settings)


class Interrupted(MemoryDeadLetters):
    """Is away for its first two calls."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    async def add(self, letters):
        self.calls += 1
        if self.calls <= 2:
            raise UnavailableError
        await super().add(letters)


@asynccontextmanager
async def storing(settings, store):
    stop = asyncio.Event()
    task = asyncio.create_task(store_dead_letters(settings, store=store, stop=stop))
    try:
        yield
    finally:
        stop.set()
        async with within(PATIENCE_S):
            await task


def letter(offset):
    return {
        "type": "record.refused", "topic": "pop.submissions", "partition": 0,
        "offset": offset, "at": "2026-01-01T00:00:00Z", "part": "ingest",
        "code": "submission_refused", "reason": "no", "value_base64": "e30=",
    }  # fmt: skip


async def until_stored(store, number):
    async with within(PATIENCE_S):
        while len(store.stored) < number:  # noqa: ASYNC110  # the broker tells nobody
            await asyncio.sleep(0.05)


async def test_letters_are_stored_once_though_the_database_was_away(settings, publisher):
    topic, store = Topics(settings.topic_prefix).dead_letters, Interrupted()
    values = [json.dumps(letter(one)).encode() for one in (1, 2)]
    repeated = [values[0], GARBAGE, values[1], values[0]]
    await publisher.publish([Record(topic, b"k", one) for one in repeated])
    async with storing(settings, store):
        await until_stored(store, 2)
    assert [one.letter.offset for one in store.stored.values()] == [1, 2]
    calls = store.calls
    await publisher.publish([Record(topic, b"k", json.dumps(letter(3)).encode())])
    async with storing(settings, store):  # goes on where the other ended
        await until_stored(store, 3)
    assert store.calls == calls + 1


async def test_a_refused_submission_is_mended_by_a_definition_and_redriven(settings, publisher):
    topic = Topics(settings.topic_prefix).submissions
    agenda = {"id": "a1", "customer_id": "acme", "operations": [{"name": "x", "type": "new"}]}
    async with (
        all_but_pullers(settings, within_s=PATIENCE_S) as url,
        Client(url) as client,
        within(PATIENCE_S),
    ):
        await publisher.publish([Record(topic, b"a1", json.dumps(agenda).encode())])
        where = LetterSelection(customer_id=("acme",), kind=("refused",))
        while not (found := (await client.dead_letters.page(where)).letters):  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # the rollup tells nobody
        refused = await client.dead_letters.redrive(found[0].id)
        assert (refused.outcome, refused.state) == ("refused", "open")
        mappers = Mappers(operation_types=("new",))
        await client.insights.create(Insight(id="late", mappers=mappers, partitions=1))
        while (done := await client.dead_letters.redrive(found[0].id)).outcome == "refused":  # noqa: ASYNC110  # another part tells the API
            await asyncio.sleep(0.1)  # until this process knows the definition
        assert (done.outcome, done.state) == ("done", "redriven")
        while (await client.agenda("a1")).state.value == "refused":  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # the rollup tells nobody
        assert (await client.agenda("a1")).insight_id == "late"
        assert (await client.dead_letters.redrive(found[0].id)).outcome == "already"
        audit = [one async for one in client.audit.all(kind="dead-letters")]
        assert {one.action for one in audit} == {"commanded", "finished"}
