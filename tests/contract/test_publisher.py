"""The port `Publisher`: a list of records, and a real Kafka."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from time import monotonic
from typing import Protocol

import pytest
import pytest_asyncio
from aiokafka import TopicPartition
from aiokafka.admin import NewTopic
from deadlines import within
from fakes import MemoryPublisher

from pop_stream.kafka import clients, connections
from pop_stream.kafka.publisher import CHUNK_BYTES, KafkaPublisher, publish_until_acknowledged
from pop_stream.kafka.topic_reader import read_topic
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import RecordTooLargeError, UnavailableError
from pop_stream.model.events.schema_version import SCHEMA_HEADER, SCHEMA_VERSION
from pop_stream.model.partitioning import partition_of
from pop_stream.operations import provisioning
from pop_stream.ports.publisher import MAX_RECORD_BYTES, Publisher, Record
from pop_stream.settings import Settings

TOPICS = Topics("t.")
Written = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]


class Press(Protocol):
    """A publisher, and what became of its records."""

    publisher: Publisher
    topic: str

    async def written(self) -> list[Written]:
        """Partition, key, value and headers, by partition, in order."""

    async def publish_in_vain(self) -> None:
        """Publish to where nobody acknowledges."""


class MemoryPress:
    def __init__(self) -> None:
        self.publisher = MemoryPublisher(partition_count=4)
        self.topic = TOPICS.decisions

    async def written(self) -> list[Written]:
        found = [
            (
                partition_of(one.key or b"", 4) if one.partition is None else one.partition,
                one.key,
                one.value,
                tuple(one.headers),
            )
            for one in self.publisher.on(self.topic)
        ]
        return sorted(found, key=lambda one: one[0])

    async def publish_in_vain(self) -> None:
        self.publisher.failures.append(UnavailableError("nobody"))
        await self.publisher.publish([Record(self.topic, b"k", b"lost")])


def own_headers(record):
    """Without that of the schema's version, which each bears."""
    *own, version = record.headers
    assert version == (SCHEMA_HEADER, b"%d" % SCHEMA_VERSION)
    return tuple(own)


class KafkaPress:
    def __init__(self, settings: Settings, publisher: KafkaPublisher) -> None:
        self.publisher = publisher
        self.topic = Topics(settings.topic_prefix).decisions
        self._settings = settings

    async def written(self) -> list[Written]:
        consumer = clients.consumer(self._settings, client_id="look", group_id=None)
        async with consumer:
            partitions = [TopicPartition(self.topic, number) for number in range(4)]
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            found: list[Written] = []
            while any([await consumer.position(one) < ends[one] for one in partitions]):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += [(r.partition, r.key, r.value, own_headers(r)) for r in records]
            return sorted(found, key=lambda one: one[0])

    async def publish_in_vain(self) -> None:
        producer = clients.producer(self._settings, client_id="vain")
        async with KafkaPublisher(
            producer, acknowledge_timeout=timedelta(seconds=1)
        ) as publisher:
            await publisher.publish([Record(f"{self.topic}.missing", b"k", b"lost")])


@pytest.fixture
def memory_press() -> Press:
    return MemoryPress()


@pytest_asyncio.fixture
async def kafka_press(settings: Settings) -> AsyncIterator[Press]:
    await provisioning.ensure_topics(settings)
    async with connections.publisher(settings, client_id="press") as publisher:
        yield KafkaPress(settings, publisher)


@pytest.fixture(params=["memory_press", "kafka_press"])
def press(request: pytest.FixtureRequest) -> Press:
    return request.getfixturevalue(request.param)


async def test_records_go_where_key_or_partition_say_in_order(press):
    keys = [f"key-{number}".encode() for number in range(40)]
    by_key = [Record(press.topic, key, b"%d" % n) for n, key in enumerate(keys)]
    addressed = [Record(press.topic, b"x", b"p%d" % n, n % 4) for n in range(8)]
    await press.publisher.publish(by_key)
    await press.publisher.publish(addressed)
    expected = [(partition_of(key, 4), key, b"%d" % n, ()) for n, key in enumerate(keys)]
    expected += [(n % 4, b"x", b"p%d" % n, ()) for n in range(8)]
    assert await press.written() == sorted(expected, key=lambda one: one[0])


async def test_tombstones_headers_and_missing_keys_arrive(press):
    await press.publisher.publish(
        [
            Record(press.topic, b"k", None, 1),
            Record(press.topic, None, b"v", 1),
            Record(press.topic, b"k", b"", 1, [("trace", b"\x00\xff"), ("trace", b"2")]),
        ]
    )
    assert await press.written() == [
        (1, b"k", None, ()),
        (1, None, b"v", ()),
        (1, b"k", b"", (("trace", b"\x00\xff"), ("trace", b"2"))),
    ]


async def test_publishing_nothing_writes_nothing(press):
    await press.publisher.publish([])
    assert await press.written() == []


async def test_partitions_are_counted(press):
    assert await press.publisher.partitions(press.topic) == 4


async def test_a_record_without_acknowledgement_raises(press):
    with pytest.raises(UnavailableError):
        await press.publish_in_vain()
    await press.publisher.publish([Record(press.topic, b"k", b"later", 0)])
    assert await press.written() == [(0, b"k", b"later", ())]


async def test_a_heap_of_records_is_written_whole_and_in_order(press):
    value = b"v" * 200_000
    count = 2 * CHUNK_BYTES // len(value)
    records = [Record(press.topic, b"%d" % number, value, 2) for number in range(count)]
    await publish_until_acknowledged(press.publisher, records)
    assert [int(key or b"") for _, key, _, _ in await press.written()] == [*range(count)]


async def test_many_small_records_and_a_large_one_keep_their_order(press):
    """They may be sent together, which must not show."""
    values = [b"%d" % number for number in range(500)]
    values[250] = b"v" * 300_000
    headers = (("trace", b"\x00\xff"),)
    records = [
        Record(press.topic, None if n % 7 == 0 else b"k%d" % n, value, n % 3 % 2, headers)
        for n, value in enumerate(values)
    ]
    records[100] = Record(press.topic, b"gone", None, 1)
    await press.publisher.publish(records)
    written = [(one.partition, one.key, one.value, headers) for one in records]
    written[100] = (1, b"gone", None, ())
    assert await press.written() == sorted(written, key=lambda one: one[0])


async def test_publish_returns_where_each_record_was_written(press):
    values = [b"%d" % number for number in range(200)]
    values[50] = b"v" * 100_000
    records = [Record(press.topic, b"k%d" % n, value) for n, value in enumerate(values)]
    places = [*await press.publisher.publish(records[:3])]
    places += await press.publisher.publish(records[3:])
    written = [(partition, value) for partition, _, value, _ in await press.written()]
    for record, place in zip(records, places, strict=True):
        lane = [value for partition, value in written if partition == place.partition]
        assert lane[place.offset] == record.value


async def test_records_that_name_no_partition_keep_the_order_of_those_that_do(press):
    home = partition_of(b"k", 4)
    records = [Record(press.topic, b"k", b"%d" % n, home if n % 2 else None) for n in range(50)]
    await press.publisher.publish(records)
    assert [value for _, _, value, _ in await press.written()] == [b"%d" % n for n in range(50)]


async def test_a_batch_without_acknowledgement_raises(kafka_press, settings):
    producer = clients.producer(settings, client_id="vain")
    records = [Record(f"{kafka_press.topic}.missing", b"k", b"lost", 0) for _ in range(100)]
    async with KafkaPublisher(producer, acknowledge_timeout=timedelta(seconds=1)) as publisher:
        with pytest.raises(UnavailableError):
            await publisher.publish(records)


async def test_a_broker_answers(press):
    await press.publisher.ping()


async def test_what_was_begun_before_its_right_was_lost_is_never_written(settings):
    """It waits while that is not known, fails once it is lost, and holds nothing else up."""
    await provisioning.ensure_topics(settings)
    topics, asked = Topics(settings.topic_prefix), asyncio.Event()
    may = {topics.decisions: None, topics.ready: True}

    def ask(topic, since):
        assert since <= monotonic()
        asked.set()
        return may[topic]

    async with connections.publisher(settings, client_id="fenced", may=ask) as publisher:
        press = KafkaPress(settings, publisher)
        late = [Record(press.topic, b"k", b"late", 0)]
        publishing = asyncio.create_task(publisher.publish(late))
        async with within(20):
            await asked.wait()
        may[topics.decisions] = False
        with pytest.raises(UnavailableError, match="Fenced"):
            async with within(20):
                await publishing
        await publisher.publish([Record(topics.ready, b"k", b"{}", 0)])
        may[topics.decisions] = True
        await publisher.publish([Record(press.topic, b"k", b"after", 0)])
        assert await press.written() == [(0, b"k", b"after", ())]


async def test_a_topic_that_takes_less_keeps_back_only_what_it_cannot_take(
    kafka_press, settings
):
    topic = f"{settings.topic_prefix}narrow"
    async with connections.admin_client(settings) as admin:
        limits = {"max.message.bytes": "50000"}
        await admin.create_topics([NewTopic(topic, 1, 1, topic_configs=limits)])
    large = random.Random(0).randbytes(60_000)
    values = [b"first", large, b"second", large, b"third", *(b"%d" % n for n in range(20))]
    with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes"):
        await kafka_press.publisher.publish([Record(topic, b"k", large, 0)])
    async with within(60):
        await publish_until_acknowledged(
            kafka_press.publisher, [Record(topic, b"k", one, 0) for one in values]
        )
    found = [one.value async for one in read_topic(settings, topic)]
    written = [one for one in values if one != large]
    assert list(dict.fromkeys(found)) == written


async def test_a_record_beyond_the_limit_is_refused_before_any_is_written(press):
    records = [Record(press.topic, b"k", b"small"), Record(press.topic, b"k", b"x" * 1_000_000)]
    with pytest.raises(RecordTooLargeError):
        await press.publisher.publish(records)
    assert await press.written() == []


async def test_a_record_of_the_largest_size_is_written_even_if_it_cannot_be_compressed(press):
    value = random.Random(0).randbytes(MAX_RECORD_BYTES - 1)
    await press.publisher.publish([Record(press.topic, b"k", value, 0)])
    assert [one[2] for one in await press.written()] == [value]
