"""Records that nobody can read, in every topic there is: told of, and nothing stops for them.

Also records of a newer version of this code: what it adds is passed over.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest_asyncio
from ledger_world import told_world

from pop_stream.bus.burial import judges
from pop_stream.bus.definitions import VERSION_HEADER
from pop_stream.bus.topics import Topics, catalog
from pop_stream.bus.whole import read_whole
from pop_stream.core.definitions.definitions import Insight, Mappers
from pop_stream.core.doors.seal import ADMITTED, AUTHORIZATION_HEADER, JUDGED_BY, SEAL_HEADER
from pop_stream.core.events import SCHEMA_HEADER, SCHEMA_VERSION
from pop_stream.core.lifecycle.lifecycle import ENDS, State
from pop_stream.ports.wire import Record
from pop_stream.pullers import Handlers, Puller
from pop_stream.store.ledger import PostgresLedger
from pop_stream.wiring.intake import run_intake
from pop_stream.wiring.rollup import run_rollup
from pop_stream.wiring.scheduler import run_scheduler

PATIENCE_S = 100
MEDIA = Insight(id="media", mappers=Mappers(operation_types=("noop",)), partitions=2)
GARBAGE = (b"\xff\xfe{", b"", b"[" * 5_000, b'{"type": "nothing.known"}', b"7", b"null")
NO_VALUES = tuple(
    (name, None)
    for name in (
        VERSION_HEADER,
        SEAL_HEADER,
        AUTHORIZATION_HEADER,
        ADMITTED[0],
        JUDGED_BY,
        "traceparent",
    )
)
"""Headers as any client may write them, of the names that are read."""

KEYS = (b"3/media/page/0", b"insight/media")
handlers = Handlers()
ran = []


@handlers.handler("noop")
async def noop(call):
    """Note whose it is."""
    ran.append(call.agenda_id)


class World:
    def __init__(self, settings, publisher, pool):
        self.settings = settings
        self.names = Topics(settings.topic_prefix)
        self.publisher = publisher
        self.ledger = PostgresLedger(pool)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Every part but the API, in this process; each must end in order."""
        stop = asyncio.Event()
        puller = Puller("media", handlers=handlers, settings=self.settings)
        async with asyncio.TaskGroup() as tasks:
            for run in (run_intake, run_scheduler, run_rollup):
                tasks.create_task(run(self.settings, stop))
            tasks.create_task(puller.serve(stop))
            try:
                yield
            finally:
                stop.set()

    async def submit(self, *documents):
        values = [json.dumps(one).encode() for one in documents]
        await self.publisher.publish(
            [Record(self.names.submissions, None, one) for one in values]
        )

    async def ended(self, *ids):
        async with asyncio.timeout(PATIENCE_S):
            while True:
                entries = await self.ledger.entries(ids)
                if len(entries) == len(ids) and {e.state for e in entries.values()} <= ENDS:
                    assert {e.state for e in entries.values()} == {State.SUCCEEDED}
                    return
                await asyncio.sleep(0.05)

    async def held(self, *ids):
        async with asyncio.timeout(PATIENCE_S):
            while True:
                entries = await self.ledger.entries(ids)
                if [e.state for e in entries.values()] == [State.HELD] * len(ids):
                    return
                await asyncio.sleep(0.05)

    async def poison(self, topic, *values):
        partitions = await self.publisher.partitions(topic)
        await self.publisher.publish(
            [
                Record(topic, key, value, partition, headers=NO_VALUES)
                for partition in range(partitions)
                for key in KEYS
                for value in values
            ]
        )

    async def buried(self, wanted):
        """Wait for so many letters, by topic and partition of what they are of."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = Counter(
                    (one["topic"], one["partition"]) for one in await self.letters()
                )
                if all(found[place] >= count for place, count in wanted.items()):
                    return
                await asyncio.sleep(0.2)

    async def letters(self):
        """The letters that parts wrote, without what a test has put among them."""
        topic = self.names.dead_letters
        values = [one.value async for one in read_whole(self.settings, topic)]
        return [json.loads(one) for one in values if one not in GARBAGE]


def agenda(agenda_id, **changes):
    operation = {"name": "only", "type": "noop"}
    return {"id": agenda_id, "customer_id": "anna", "operations": [operation], **changes}


@pytest_asyncio.fixture
async def world(settings, tmp_path):
    async with told_world(settings, tmp_path, MEDIA, World) as world:
        yield world


async def test_poison_in_every_topic_is_told_of_and_stops_nothing(world):
    names = world.names
    fixed = [spec.name for spec in catalog(names)]
    readers = {*judges(names), names.submissions, names.ready, names.agenda_events}
    before, after = (
        [f"{when}-{number}" for number in range(12)] for when in ("before", "after")
    )
    async with world.running():
        await world.submit(*map(agenda, before))
        await world.ended(*before)
        for topic in (*fixed, names.insight("media")):
            await world.poison(topic, *GARBAGE)
        await world.submit(*map(agenda, after))
        await world.ended(*after)
        await world.buried(
            {
                (topic, partition): len(KEYS) * len(GARBAGE)
                for topic in (*readers, names.insight("media"))
                for partition in range(await world.publisher.partitions(topic))
            }
        )
    async with world.running():  # who begins anew reads definitions and others from the start
        await world.submit(agenda("again"))
        await world.ended("again")
        await world.poison(names.definitions, GARBAGE[0])
        await world.buried({(names.definitions, 0): len(KEYS) * (len(GARBAGE) + 1)})
    letters = await world.letters()
    assert all(one["reason"] and one["code"] for one in letters)
    places = Counter((one["topic"], one["partition"], one["offset"]) for one in letters)
    assert {times for (topic, *_), times in places.items() if topic in judges(names)} == {1}


async def test_a_garbled_page_of_the_table_is_told_of_and_the_others_go_on(world):
    """The pages of agendas that wait are overwritten while nobody looks."""
    names = world.names
    held = [f"held-{number}" for number in range(3)]
    async with world.running():
        await world.submit(*(agenda(one, hold=True) for one in held))
        await world.held(*held)
    changelog = f"{names.prefix}scheduler-ready-changelog"
    pages = [
        (one.key, one.partition)
        async for one in read_whole(world.settings, changelog)
        if b"/page/" in one.key
    ]
    assert pages
    await world.publisher.publish(
        [Record(changelog, key, b"\xff garbage", partition) for key, partition in pages]
    )
    async with world.running():
        await world.submit(agenda("fine"))
        await world.ended("fine")
    rows = [one for one in await world.letters() if one["topic"] == changelog]
    assert {one["reason"].split()[1].rstrip(":") for one in rows} == {
        key.decode() for key, _ in pages
    }


async def test_what_a_newer_version_adds_is_passed_over(world):
    async with world.running():
        await world.submit(agenda("warm"))
        await world.ended("warm")
        emitted = [
            json.loads(one.value)
            async for one in read_whole(world.settings, world.names.insight("media"))
        ]
        newer = emitted[0] | {
            "agenda_id": "newer",
            "colour": "blue",
            "agenda": {**agenda("newer"), "colour": "blue", "operations": [
                {"name": "only", "type": "noop", "colour": "blue"}
            ]},
        }  # fmt: skip
        topic = world.names.insight("media")
        await world.publisher.publish([Record(topic, b"newer", json.dumps(newer).encode())])
        # In one frame: an event of a kind unknown here, and one with a field unknown here.
        events = [
            {"type": "agenda.painted", "agenda_id": "newer", "at": "2026-03-01T00:00:00Z"},
            {"type": "agenda.accepted", "agenda_id": "newer", "at": "2026-03-01T00:00:00Z",
             "insight_id": "media", "customer_id": "anna", "agenda": agenda("newer"),
             "operations": ["only"], "colour": "blue"},
        ]  # fmt: skip
        events_topic = world.names.agenda_events
        await world.publisher.publish(
            [Record(events_topic, b"newer", json.dumps(events).encode())]
        )
        await world.ended("newer")
        await world.submit(agenda("then"))
        await world.ended("then")
    [letter] = await world.letters()
    assert letter["topic"] == world.names.agenda_events
    assert "agenda.painted" in letter["reason"]


ROWS = {"idle", "claims", "renewals", "settlements", "commands"}
"""Of notes for the scheduler: lists, to which a later version may add an element."""


def newer(value, old_id, new_id):
    """A record as a later version may write it of another agenda: with more in it."""

    def grown(document):
        if isinstance(document, list):
            return [grown(one) for one in document]
        if not isinstance(document, dict):
            return document
        known = {key: of(key, one) for key, one in document.items()}
        return {**known, "colour": {"red": 0.1}}

    def of(key, value):
        if key in ROWS and isinstance(value, list):  # `idle` of a claim is a number
            return [[*row, {"red": 0.1}] for row in value]
        if key == "origins":  # else it would be a repeat
            return [[-1, 0, 0] for _ in value]
        return value if key == "spent_s" else grown(value)  # which has names of types

    return json.dumps(grown(json.loads(value))).replace(old_id, new_id).encode()


async def test_records_of_a_newer_version_are_read_in_every_topic(world):
    names = world.names
    own = {names.submissions, names.insight("media"), names.agenda_events}
    changelog = f"{names.prefix}scheduler-ready-changelog"
    inside = [one.name for one in catalog(names) if one.name not in {*own, changelog}]
    stop = {"type": "attempt.stop", "agenda_id": "old-one", "insight_id": "media",
            "attempt": 7, "reason": "cancelled"}  # fmt: skip

    async def written_again(*topics, if_in=b""):
        await world.publisher.publish(
            [
                Record(
                    topic,
                    one.key,
                    newer(one.value, "old-one", "new-one"),
                    one.partition,
                    [(SCHEMA_HEADER, b"%d" % (SCHEMA_VERSION + 1))],
                )
                for topic in topics
                async for one in read_whole(world.settings, topic)
                if if_in in one.value
            ]
        )

    async def has_run(agenda_id):
        async with asyncio.timeout(PATIENCE_S):
            while agenda_id not in ran:  # noqa: ASYNC110  # a handler of this process notes it
                await asyncio.sleep(0.05)

    async with world.running():
        await world.submit(agenda("old-one"))
        await world.ended("old-one")
        await world.publisher.publish(
            [Record(names.controls, b"old-one", json.dumps(stop).encode())]
        )
        await written_again(names.ready, if_in=b"insight.placed")
        await has_run("new-one")  # so what was placed was emitted
        await written_again(*inside, names.insight("media"), names.agenda_events)
        await world.ended("new-one")
        await world.submit(agenda("last-one"), {**agenda("odd-one"), "colour": "blue"})
        await world.ended("last-one")
    [letter] = await world.letters()  # of what a submitter asks for, nothing is passed over
    assert letter["topic"] == names.submissions
    assert "colour" in letter["reason"]


async def test_all_that_is_written_tells_its_version_and_one_too_far_off_is_not_read(world):
    names = world.names
    far = [(SCHEMA_HEADER, b"9")]
    topics = (names.submissions, names.ready, names.insight("media"), names.agenda_events)
    async with world.running():
        await world.submit(agenda("before"))
        await world.ended("before")
        for topic in topics:
            [value, *_] = [one.value async for one in read_whole(world.settings, topic)]
            value = value.replace(b"before", b"far-off")
            await world.publisher.publish([Record(topic, b"media", value, headers=far)])
        await world.submit(agenda("after"))
        await world.ended("after")
    letters = await world.letters()
    assert {one["topic"] for one in letters} == {*topics}
    assert all("of schema version '9'" in one["reason"] for one in letters)
    assert len(letters) == len(topics)
    assert await world.ledger.entries(["far-off"]) == {}
    for topic in (*(spec.name for spec in catalog(names)), names.insight("media")):
        told = [one.headers async for one in read_whole(world.settings, topic)]
        versions = [dict(headers).get(SCHEMA_HEADER) for headers in told]
        assert {*versions} <= {b"%d" % SCHEMA_VERSION, b"9"}, topic
