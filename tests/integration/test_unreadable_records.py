"""Records that nobody can read, in every topic: reported, and nothing stops for them."""

import pytest_asyncio
from ledger_world import running_ledger_world
from poison_world import GARBAGE, KEYS, MEDIA, PoisonWorld, agenda
from skipped_records import skipped_records

from pop_stream.kafka.topic_reader import read_topic
from pop_stream.kafka.topics import catalog
from pop_stream.ports.publisher import Record


@pytest_asyncio.fixture
async def world(settings, tmp_path):
    async with running_ledger_world(settings, tmp_path, MEDIA, PoisonWorld) as world:
        yield world


async def test_poison_in_every_topic_is_reported_and_stops_nothing(world):
    names = world.names
    fixed = [spec.name for spec in catalog(names)]
    lettered = {names.submissions, names.ready, names.agenda_events, names.insight("media")}
    counted = {names.definitions, names.controls, names.quota_usage}
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
        await world.until_dead_lettered(
            {
                (topic, partition): len(KEYS) * len(GARBAGE)
                for topic in lettered
                for partition in range(await world.publisher.partitions(topic))
            }
        )
    async with world.running():  # who begins anew reads definitions and others from the start
        await world.submit(agenda("again"))
        await world.ended("again")
        await world.poison(names.definitions, GARBAGE[0])
    read_dead_letters = await world.read_dead_letters()
    assert all(one["reason"] and one["code"] for one in read_dead_letters)
    assert {one["topic"] for one in read_dead_letters} == lettered
    assert counted <= skipped_records().keys()  # topics have a prefix of this test's own


async def test_a_garbled_page_of_the_table_is_reported_and_the_others_go_on(world):
    """The pages of agendas that wait are overwritten while nobody looks."""
    names = world.names
    held = [f"held-{number}" for number in range(3)]
    async with world.running():
        await world.submit(*(agenda(one, hold=True) for one in held))
        await world.held(*held)
    changelog = f"{names.prefix}scheduler-ready-changelog"
    pages = [
        (one.key, one.partition)
        async for one in read_topic(world.settings, changelog)
        if b"/page/" in one.key
    ]
    assert pages
    await world.publisher.publish(
        [Record(changelog, key, b"\xff garbage", partition) for key, partition in pages]
    )
    async with world.running():
        await world.submit(agenda("fine"))
        await world.ended("fine")
    rows = [one for one in await world.read_dead_letters() if one["topic"] == changelog]
    assert {one["reason"].split()[1].rstrip(":") for one in rows} == {
        key.decode() for key, _ in pages
    }
