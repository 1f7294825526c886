"""The newest values of topics, as a scheduler asks for them: of a list, and of a real Kafka."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

import pytest
import pytest_asyncio
from aiokafka import TopicPartition
from deadlines import within
from fakes import MemoryPublisher

from pop_stream.kafka import clients, connections
from pop_stream.kafka import topic_follower as topic_follower_module
from pop_stream.kafka.hardening import fetcher
from pop_stream.kafka.topic_follower import TopicFollower
from pop_stream.kafka.topic_reader import read_newest, read_to_end
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnavailableError
from pop_stream.operations import provisioning
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.scheduler.emitted_attempts import NewestReader
from pop_stream.settings import Settings

WITHIN_S = 15


class Shore(NamedTuple):
    publisher: Publisher
    topics: Topics
    read_newest: NewestReader


@pytest.fixture
def memory_shore() -> Shore:
    publisher = MemoryPublisher()
    return Shore(publisher, Topics("t."), publisher.read_newest)


@pytest_asyncio.fixture
async def kafka_shore(settings: Settings) -> AsyncIterator[Shore]:
    await provisioning.ensure_topics(settings)
    async with connections.publisher(settings, client_id="shore") as publisher:
        yield Shore(publisher, Topics(settings.topic_prefix), partial(read_newest, settings))


@pytest.fixture(params=["memory_shore", "kafka_shore"])
def shore(request: pytest.FixtureRequest) -> Shore:
    return request.getfixturevalue(request.param)


async def test_each_partition_gives_its_newest_in_order_and_no_more_than_it_has(shore):
    here, there, empty = (
        shore.topics.decisions,
        shore.topics.controls,
        shore.topics.query_replies,
    )
    lanes = {0: 9, 2: 2}
    await shore.publisher.publish(
        [Record(here, b"k", b"%d-%d" % (n, i), n) for n, k in lanes.items() for i in range(k)]
    )
    await shore.publisher.publish([Record(there, b"k", b"other", 0)])
    missing = f"{here}.missing"
    found = await shore.read_newest(
        {here: 3, there: 5, empty: 5, missing: 5}, lambda value: (value.decode(), len(value))
    )
    lanes = [[one for one in found[here] if one and one[0][0] == lane] for lane in "02"]
    assert lanes == [[("0-6", 3), ("0-7", 3), ("0-8", 3)], [("2-0", 3), ("2-1", 3)]]
    assert {topic: [*found[topic]] for topic in (there, empty, missing)} == {
        there: [("other", 5)],
        empty: [],
        missing: [],
    }


async def test_brokers_that_do_not_answer_raise():
    nowhere = Settings(kafka_bootstrap="127.0.0.1:9")
    with pytest.raises(UnavailableError, match=r"newest records of t\.x"):
        await read_newest(nowhere, {"t.x": 1}, bytes)


async def test_partitions_are_read_on_from_where_each_was_left(settings):
    await provisioning.ensure_topics(settings)
    topic = Topics(settings.topic_prefix).decisions

    async def read(starts):
        found, reached = {}, {}
        lots = read_to_end(settings, {TopicPartition(topic, n): at for n, at in starts.items()})
        async for partition, records, after in lots:
            found.setdefault(partition, []).extend(one.value for one in records)
            reached[partition] = after
        return found, reached

    async with within(WITHIN_S), connections.publisher(settings, client_id="t") as one:
        assert await read({0: 0, 1: 0}) == ({}, {})
        lanes = {0: [b"%d" % n for n in range(2_000)], 2: [b"last"]}
        await one.publish([Record(topic, b"k", row, n) for n in lanes for row in lanes[n]])
        assert await read({0: 0, 1: 0, 2: 0}) == (lanes, {0: 2_000, 2: 1})
        assert await read({0: 1_998, 2: 1}) == ({0: lanes[0][1_998:]}, {0: 2_000})


async def test_a_reader_that_is_stopped_while_partitions_change_does_stop(settings):
    await provisioning.ensure_topics(settings)
    partitions = [TopicPartition(Topics(settings.topic_prefix).decisions, n) for n in range(3)]
    for changed in (partitions, []):
        reader = clients.consumer(settings, client_id="t", group_id=None)
        async with within(WITHIN_S):
            await reader.start()
            reader.assign(partitions)
            await reader.end_offsets(partitions)
            reader.assign(changed)
            await reader.stop()


@asynccontextmanager
async def reading(follower):
    """The follower reads during the block, which ends in time."""
    task = asyncio.create_task(follower.run())
    try:
        async with within(WITHIN_S):
            yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_catching_up_does_not_wait_for_the_fetch_that_the_broker_holds(
    kafka_shore, settings, monkeypatch
):
    monkeypatch.setattr(fetcher, "fetch_wait_s", lambda _: 30.0)
    records = []
    topic = kafka_shore.topics.quota_usage
    follower = TopicFollower(
        settings, topic, client_id="t", on_record=lambda one: records.append(one.value)
    )
    async with reading(follower):
        await follower.catch_up()
        await kafka_shore.publisher.publish([Record(topic, b"k", b"one")])
        await follower.catch_up()
        await follower.catch_up()
    assert records == [b"one"]


async def test_the_newest_records_are_replayed_before_following_begins(kafka_shore, settings):
    topic, records = kafka_shore.topics.quota_usage, []
    await kafka_shore.publisher.publish([Record(topic, b"k", b"%d" % n) for n in range(9)])
    follower = TopicFollower(
        settings,
        topic,
        client_id="t",
        on_record=lambda one: records.append(one.value),
        replay_last=3,
    )
    async with reading(follower):
        await follower.following.wait()
        assert records == [b"6", b"7", b"8"]
        await kafka_shore.publisher.publish([Record(topic, b"k", b"9")])
        await follower.catch_up()
    assert records == [b"6", b"7", b"8", b"9"]


async def test_a_replay_that_takes_too_long_is_cut(kafka_shore, settings, monkeypatch):
    monkeypatch.setattr(topic_follower_module, "_REPLAY_TIMEOUT_S", -1.0)
    topic, records = kafka_shore.topics.quota_usage, []
    await kafka_shore.publisher.publish([Record(topic, b"k", b"old")])
    follower = TopicFollower(
        settings,
        topic,
        client_id="t",
        on_record=lambda one: records.append(one.value),
        replay_last=3,
    )
    async with reading(follower):
        await follower.following.wait()
        await kafka_shore.publisher.publish([Record(topic, b"k", b"new")])
        await follower.catch_up()
    assert records == [b"new"]
