"""What a reader of several partitions may rely on, whichever client library is behind it."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from deadlines import within

from pop_stream.kafka import clients, connections
from pop_stream.kafka.batch_consumer import BatchPacer
from pop_stream.kafka.hardening import fetcher
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.schema_version import checked_value
from pop_stream.operations import provisioning
from pop_stream.ports.publisher import Record

HELD_MS = 5_000
"""How long the broker holds a request for records that do not come."""

BUSY_S = 0.4
SOON_S = HELD_MS / 1000 / 2


@pytest_asyncio.fixture
async def topic(settings) -> str:
    await provisioning.ensure_topics(settings)
    return Topics(settings.topic_prefix).decisions


@pytest_asyncio.fixture
async def consumer(settings, topic) -> AsyncIterator[AIOKafkaConsumer]:
    reader = clients.consumer(
        settings, client_id="reader", group_id=None, fetch_max_wait_ms=HELD_MS
    )
    async with reader:
        partitions = [TopicPartition(topic, number) for number in range(4)]
        reader.assign(partitions)
        await reader.seek_to_beginning(*partitions)
        yield reader


async def in_hand(consumer: AIOKafkaConsumer, partition: TopicPartition) -> None:
    """Wait until the client has fetched something of the partition, which nobody has taken."""
    async with within(20):
        while not consumer.highwater(partition):  # noqa: ASYNC110  # another task fetches
            await asyncio.sleep(0.01)  # the client has no event for it


async def held(consumer: AIOKafkaConsumer) -> None:
    """Wait until a broker has a fetch of the client's that it does not answer yet."""
    async with within(20):
        while not any(one._requests for one in consumer._client._conns.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # the client has no event for it


async def take(consumer: AIOKafkaConsumer) -> list[bytes | None]:
    fetched = await consumer.getmany(timeout_ms=int(SOON_S * 1000))
    return [record.value for records in fetched.values() for record in records]


@pytest.mark.timeout(60)
async def test_a_reader_that_was_busy_gets_new_records_at_once(settings, topic, consumer):
    """While it is busy its client may ask for no other partition, and leave this one out."""
    async with connections.publisher(settings, client_id="writer") as publisher:
        await publisher.publish([Record(topic, b"k", b"first", 0)])
        await in_hand(consumer, TopicPartition(topic, 0))
        await asyncio.sleep(BUSY_S)  # the reader works on something else
        assert await take(consumer) == [b"first"]
        await publisher.publish([Record(topic, b"k", b"second", 0)])
        assert await take(consumer) == [b"second"]


@pytest.mark.timeout(60)
async def test_what_comes_until_the_reader_is_due_comes_in_one_batch(settings, topic, consumer):
    """Else the first of it would, and the rest of it a beat later."""
    pacer = BatchPacer(SOON_S)
    pacer.pace_fetches(consumer)
    async with connections.publisher(settings, client_id="writer") as publisher:
        await publisher.publish([Record(topic, b"k", b"after a rest", 0)])
        assert await take(consumer) == [b"after a rest"], "the first waits for nobody"
        pacer.begin()
        for value in (b"first", b"second"):
            await publisher.publish([Record(topic, b"k", value, 0)])
        await pacer.wait()
        assert await take(consumer) == [b"first", b"second"]


@pytest.mark.timeout(60)
async def test_an_expedited_reader_gets_what_there_is(settings, topic, consumer):
    pacer = BatchPacer(0.0, relaxed_interval_s=30.0)
    pacer.pace_fetches(consumer)
    async with connections.publisher(settings, client_id="writer") as publisher:
        await publisher.publish([Record(topic, b"k", b"first", 0)])
        assert await take(consumer) == [b"first"]
        pacer.begin()
        await publisher.publish([Record(topic, b"k", b"second", 0)])
        assert await take(consumer) == []
        pacer.expedite(1.0)
        assert await take(consumer) == [b"second"]


@pytest_asyncio.fixture
async def patient(settings, topic, monkeypatch) -> AsyncIterator[AIOKafkaConsumer]:
    """Whose every fetch is held for long, as that of a member of a group that is at rest."""
    monkeypatch.setattr(fetcher, "fetch_wait_s", lambda _: HELD_MS / 1000)
    async with clients.consumer(settings, client_id="reader", group_id=None) as reader:
        fetcher.use_adaptive_fetch_wait(reader)
        yield reader


@pytest.mark.timeout(60)
async def test_new_partitions_do_not_wait_for_the_fetch_before(settings, topic, patient):
    mine, others = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with connections.publisher(settings, client_id="writer") as publisher:
        await publisher.publish([Record(topic, b"k", b"one", 1)])
        patient.assign([mine])
        await patient.seek_to_end(mine)
        await held(patient)
        patient.assign([others])
        patient.seek(others, 0)
        assert await take(patient) == [b"one"]


@pytest.mark.timeout(60)
async def test_other_requests_do_not_wait_for_a_held_fetch(topic, patient):
    mine = TopicPartition(topic, 0)
    patient.assign([mine])
    await patient.seek_to_end(mine)
    await held(patient)
    async with within(SOON_S):
        assert await patient.end_offsets([mine]) == {mine: 0}


@pytest.mark.parametrize(
    ("quiet_s", "fetch_wait_s"), [(0.0, 0.5), (0.4, 0.5), (2.0, 2.0), (4.0, 4.0), (1e6, 4.0)]
)
def test_a_fetch_is_held_as_long_as_nothing_came(quiet_s, fetch_wait_s):
    assert fetcher.fetch_wait_s(quiet_s) == fetch_wait_s


@pytest.mark.timeout(90)
async def test_what_is_read_ahead_is_bounded_by_bytes_however_much_waits(
    settings, topic, consumer
):
    large, each, partitions = b"x" + os.urandom(899_999), 12, range(4)
    async with connections.publisher(settings, client_id="writer") as publisher:
        for number in partitions:
            for _ in range(0, each, 4):
                await publisher.publish([Record(topic, b"k", large, number)] * 4)
        for number in partitions:
            await in_hand(consumer, TopicPartition(topic, number))
    places = [TopicPartition(topic, number) for number in partitions]
    async with within(60):
        while len(consumer._fetcher._records) < len(places):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # the client has no event for it
    fetched = await consumer.getmany(timeout_ms=0)
    sizes = {tp: sum(len(one.value) for one in records) for tp, records in fetched.items()}
    assert sizes.keys() == {*places}
    assert all(size <= clients.PARTITION_BYTES for size in sizes.values())
    assert sum(sizes.values()) <= clients.FETCH_BYTES


async def test_a_batch_that_grows_is_read_as_one_unreadable_record(settings, topic, consumer):
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.kafka_bootstrap,
        compression_type="gzip",
        max_request_size=100_000_000,
    )
    async with producer:
        for value in (b"before", b"\0" * 60_000_000, b"after"):
            await producer.send_and_wait(topic, value, partition=0)
    found = []
    async with within(30):
        while len(found) < 3:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += records
    assert [one.value for one in found] == [b"before", None, b"after"]
    with pytest.raises(UnreadableRecordError, match="more than 8,388,608 bytes"):
        checked_value(found[1])
