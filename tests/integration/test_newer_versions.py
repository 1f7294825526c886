"""Records of a newer version of this code: what it adds is ignored, or reported."""

import asyncio
import json

import pytest_asyncio
from deadlines import within
from ledger_world import running_ledger_world
from poison_world import MEDIA, PATIENCE_S, PoisonWorld, agenda, ran

from pop_stream.kafka.topic_reader import read_topic
from pop_stream.kafka.topics import catalog
from pop_stream.model.events.schema_version import SCHEMA_HEADER, SCHEMA_VERSION
from pop_stream.ports.publisher import Record


@pytest_asyncio.fixture
async def world(settings, tmp_path):
    async with running_ledger_world(settings, tmp_path, MEDIA, PoisonWorld) as world:
        yield world


async def test_what_a_newer_version_adds_is_ignored(world):
    async with world.running():
        await world.submit(agenda("warm"))
        await world.ended("warm")
        emitted = [
            json.loads(one.value)
            async for one in read_topic(world.settings, world.names.insight("media"))
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
    [letter] = await world.read_dead_letters()
    assert letter["topic"] == world.names.agenda_events
    assert "agenda.painted" in letter["reason"]


ROWS = {"idle", "claims", "heartbeats", "settlements", "commands"}
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
                async for one in read_topic(world.settings, topic)
                if if_in in one.value
            ]
        )

    async def has_run(agenda_id):
        async with within(PATIENCE_S):
            while agenda_id not in ran:  # noqa: ASYNC110  # a handler of this process notes it
                await asyncio.sleep(0.05)

    async with world.running():
        await world.submit(agenda("old-one"))
        await world.ended("old-one")
        await world.publisher.publish(
            [Record(names.controls, b"old-one", json.dumps(stop).encode())]
        )
        await written_again(names.ready, if_in=b"insight.agendas.routed")
        await has_run("new-one")  # so what was placed was emitted
        await written_again(*inside, names.insight("media"), names.agenda_events)
        await world.ended("new-one")
        await world.submit(agenda("last-one"), {**agenda("odd-one"), "colour": "blue"})
        await world.ended("last-one")
    [
        letter
    ] = await world.read_dead_letters()  # of what a submitter asks for, nothing is passed over
    assert letter["topic"] == names.submissions
    assert "colour" in letter["reason"]


async def test_all_that_is_written_carries_its_version_and_one_too_far_off_is_not_read(world):
    names = world.names
    far = [(SCHEMA_HEADER, b"9")]
    topics = (names.submissions, names.ready, names.insight("media"), names.agenda_events)
    async with world.running():
        await world.submit(agenda("before"))
        await world.ended("before")
        for topic in topics:
            [value, *_] = [one.value async for one in read_topic(world.settings, topic)]
            value = value.replace(b"before", b"far-off")
            await world.publisher.publish([Record(topic, b"media", value, headers=far)])
        await world.submit(agenda("after"))
        await world.ended("after")
    read_dead_letters = await world.read_dead_letters()
    assert {one["topic"] for one in read_dead_letters} == {*topics}
    assert all("of schema version '9'" in one["reason"] for one in read_dead_letters)
    assert len(read_dead_letters) == len(topics)
    assert await world.ledger.states(["far-off"]) == {}
    for topic in (*(spec.name for spec in catalog(names)), names.insight("media")):
        got = [one.headers async for one in read_topic(world.settings, topic)]
        versions = [dict(headers).get(SCHEMA_HEADER) for headers in got]
        assert {*versions} <= {b"%d" % SCHEMA_VERSION, b"9"}, topic
