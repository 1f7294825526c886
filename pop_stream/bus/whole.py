"""Topics read beside their groups: whole, or a span of one partition."""

from collections.abc import AsyncIterator

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from pop_stream.bus import clients
from pop_stream.settings import Settings

_POLL_MS = 500
_WAIT_MS = 50
"""A broker may still hold the request of one partition when the next is asked for."""


async def read_whole(settings: Settings, topic: str) -> AsyncIterator[ConsumerRecord]:
    """The records of all partitions, one partition after the other, each in its order.

    Without a group, so that nobody is disturbed and nothing is committed. A topic that does
    not exist has none.
    """
    async with clients.consumer(settings, client_id="whole", group_id=None) as looking:
        if topic not in await looking.topics():
            return
    # Named at the start, the topic's partitions are known; read they are one by one.
    async with clients.consumer(
        settings, topic, client_id="whole", group_id=None, fetch_max_wait_ms=_WAIT_MS
    ) as consumer:
        numbers = sorted(consumer.partitions_for_topic(topic) or ())
        consumer.unsubscribe()
        for number in numbers:
            async for record in _partition(consumer, TopicPartition(topic, number)):
                yield record


async def read_span(
    settings: Settings, partition: TopicPartition, start: int, end: int
) -> AsyncIterator[ConsumerRecord]:
    """The records of one partition from `start` up to, not including, `end`, in order.

    Those that retention has removed are left out.
    """
    async with clients.consumer(settings, client_id="span", group_id=None) as consumer:
        consumer.assign([partition])
        first = (await consumer.beginning_offsets([partition]))[partition]
        if first < end:
            consumer.seek(partition, max(start, first))
            async for record in _until(consumer, partition, end):
                yield record


async def _partition(
    consumer: AIOKafkaConsumer, partition: TopicPartition
) -> AsyncIterator[ConsumerRecord]:
    consumer.assign([partition])
    await consumer.seek_to_beginning(partition)
    end = (await consumer.end_offsets([partition]))[partition]
    async for record in _until(consumer, partition, end):
        yield record


async def _until(
    consumer: AIOKafkaConsumer, partition: TopicPartition, end: int
) -> AsyncIterator[ConsumerRecord]:
    while await consumer.position(partition) < end:
        fetched = await consumer.getmany(partition, timeout_ms=_POLL_MS)
        for record in fetched.get(partition, ()):
            if record.offset < end:
                yield record
