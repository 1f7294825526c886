"""What cannot be read in any topic of the catalog becomes a dead letter, or is counted.

So does a record whose schema version is too far away, however well it would decode; and
whoever reads the topic takes the good record after both.
"""

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest_asyncio
from aiohttp import ClientSession
from http_worker import HttpWorker
from ledger_world import running_ledger_world
from parts_in_process import all_but_pullers
from skipped_records import skipped_records

from pop_stream.kafka.definitions import publish_definitions
from pop_stream.kafka.topic_reader import read_topic
from pop_stream.kafka.topics import Topics, catalog
from pop_stream.model.definitions import Customer, Definitions, Insight, Mappers
from pop_stream.model.events.schema_version import SCHEMA_HEADER
from pop_stream.ports.publisher import Record

PATIENCE_S = 60
STORED = Path(__file__).parents[1] / "records"
MEDIA = Insight(id="media", mappers=Mappers(operation_types=("noop",)), partitions=1)
FAR = [(SCHEMA_HEADER, b"9")]
GARBAGE = b"\xff\xfe{"

LETTERED = ("submissions", "ready", "agenda-events", "insight.media")
"""Topics read by a group: each of the two becomes a letter, once."""

COUNTED = (
    "controls",
    "quota-usage",
    "query-replies",
    "poll-demand",
    "deliveries",
    "occasions",
    "timekeeper",
    "schedule-events",
    "rule-states",
    "rule-actions",
)
"""Topics of our own parts alone: each reader skips and counts the two."""

BOTH = (*LETTERED, *COUNTED)

COMPACTED = ("definitions", "scheduler-ready-changelog")
"""What is kept for ever is read of whatever version; see `test_poison` for the table's rows."""

FOR_PEOPLE = ("agenda-ends", "idle-insights", "decisions", "dead-letters", "dead-webhooks")
"""What only rules act upon, or nothing: a letter of a letter would have letters without end."""


@pytest_asyncio.fixture
async def world(settings, tmp_path):
    async with running_ledger_world(settings, tmp_path, MEDIA) as world:
        yield world


def agenda(agenda_id, customer_id="anna", kind="noop"):
    operations = [{"name": "only", "type": kind}]
    return {"id": agenda_id, "customer_id": customer_id, "operations": operations}


class Caller(HttpWorker):
    """Asks one process of the API for everything that makes it read its topics."""

    async def submit(self, *agendas):
        url = f"{self._url}/v1/agendas"
        async with self._session.post(url, json=list(agendas)) as response:
            return response.status

    async def until_submitted(self, document):
        while await self.submit(document) != 202:  # noqa: ASYNC110  # another part tells the API
            await asyncio.sleep(0.1)

    async def ready(self, insight):
        """The scheduler's answer to a question; None while there is none."""
        async with self._session.get(f"{self._url}/v1/insights/{insight}/queue") as response:
            return (await response.json())["ready"] if response.status == 200 else None

    async def run(self, *ids, insight="media"):
        """Pull and complete just these."""
        missing = {*ids}
        while missing:
            for one in await self.pull(insight=insight, wait_s=5):
                missing.remove(one["agenda_id"])
                assert (await self.report(one, "complete", outcome="succeeded"))[0] == 200

    async def until_stopped(self, agenda_id):
        """Pull it, cancel it, and receive the reason."""
        [one] = await self.pull()
        assert one["agenda_id"] == agenda_id
        cancel = f"{self._url}/v1/agendas/{agenda_id}/cancel"
        while (await self._session.post(cancel, json={})).status == 404:  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # there is no summary yet
        while not (await self.report(one, "heartbeat"))[1].get("stop"):  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # another part tells the API
        await self.report(one, "complete", outcome="stopped")


async def everything_is_taken(world, caller, when):
    """Each topic of `BOTH`, and definitions, carry something without which this ends never."""
    few = [agenda(f"{when}-few-{number}", f"few-{when}") for number in range(3)]
    late = Insight(id=f"late-{when}", mappers=Mappers(operation_types=(when,)), partitions=1)
    customer = Customer(id=f"few-{when}", max_ready=2)
    await publish_definitions(
        world.publisher, world.names, [customer, late, MEDIA], Definitions()
    )
    await caller.until_submitted(agenda(f"{when}-late", kind=when))  # definitions
    await caller.run(
        f"{when}-late", insight=late.id
    )  # poll-demand, deliveries, ready, submissions
    assert await caller.submit(*few[:2]) == 202
    while await caller.ready("media") is None:  # noqa: ASYNC110  # answers
        await asyncio.sleep(0.1)
    assert await caller.submit(few[2]) == 429
    await caller.run(*(one["id"] for one in few[:2]))
    await caller.until_submitted(few[2])  # counts: that the two have ended
    await caller.run(few[2]["id"])
    assert await caller.submit(agenda(f"{when}-stop")) == 202
    await caller.until_stopped(f"{when}-stop")  # controls
    ids = [f"{when}-late", f"{when}-few-0", f"{when}-few-1", f"{when}-few-2", f"{when}-stop"]
    await world.until_known(*ids)


async def spoil(world, name):
    """One record too far away and one that is none, in each partition of a topic."""
    topic = world.names.prefix + name
    document = json.loads((STORED / f"{name.split('.')[0]}.json").read_text())["next"][0]
    value = json.dumps(document.get("value", document)).encode()
    key = document.get("key", "media").encode()
    partitions = range(await world.publisher.partitions(topic))
    far = [Record(topic, key, value, one, FAR) for one in partitions if name in BOTH]
    none = [Record(topic, b"insight/none", GARBAGE, one) for one in partitions]
    await world.publisher.publish([*far, *none])


async def spoiled(world, name):
    """Where those are now, and what the reason of each begins with."""
    topic = world.names.prefix + name
    return {
        (topic, one.partition, one.offset): "of schema version '9'" if is_far else ""
        async for one in read_topic(world.settings, topic)
        if (is_far := dict(one.headers).get(SCHEMA_HEADER) == b"9") or one.value == GARBAGE
    }


async def read_dead_letters(world):
    topic = world.names.dead_letters
    values = [one.value async for one in read_topic(world.settings, topic)]
    return [json.loads(one) for one in values if one != GARBAGE]


def place(letter):
    return letter["topic"], letter["partition"], letter["offset"]


def test_every_topic_is_known_to_this_test():
    fixed = {spec.name for spec in catalog(Topics(""))}
    assert fixed == {*BOTH, *COMPACTED, *FOR_PEOPLE} - {"insight.media"}


async def test_each_record_that_cannot_be_read_is_reported_and_the_next_is_taken(world):
    """A scheduler that begins anew reads `pop.ready` again from where its last row was, so it
    may write letters again for what came after that.
    """
    async with (
        all_but_pullers(world.settings, within_s=PATIENCE_S) as url,
        ClientSession() as session,
    ):
        caller = Caller(session, url)
        await everything_is_taken(world, caller, "before")
        for name in (*BOTH, "definitions", *FOR_PEOPLE):
            await spoil(world, name)
        await everything_is_taken(world, caller, "after")
        wanted = {
            where: reason
            for name in LETTERED
            for where, reason in (await spoiled(world, name)).items()
        }
        assert {where[0] for where in wanted} == {world.names.prefix + one for one in LETTERED}
        while len(found := await read_dead_letters(world)) < len(wanted):  # noqa: ASYNC110  # Kafka tells
            await asyncio.sleep(0.2)
        assert Counter(map(place, found)) == dict.fromkeys(wanted, 1)
        counts = {one: skipped_records().get(world.names.prefix + one, 0) for one in COUNTED}
        assert min(counts.values()) >= 2, counts
        assert skipped_records()[f"{world.names.prefix}definitions"] >= 1
    async with all_but_pullers(world.settings, within_s=PATIENCE_S) as url:
        async with ClientSession() as session:  # nobody who begins anew writes one again
            await everything_is_taken(world, Caller(session, url), "again")
        anew = Counter(map(place, await read_dead_letters(world))) - Counter(map(place, found))
    assert {topic for topic, *_ in anew} <= {world.names.ready}
    for letter in found:
        assert letter["reason"].startswith(wanted[place(letter)] or letter["reason"][0])
