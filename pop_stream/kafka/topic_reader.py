"""Reads topics without a group: all of one, a range, up to the present end, the newest records.

Nobody's position changes and nothing is committed. All readers hold a few megabytes at a time;
records that retention removed meanwhile are left out.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, TypeVar

from pop_stream.kafka import clients
from pop_stream.kafka.clients import KafkaConsumer
from pop_stream.kafka.errors import KafkaError
from pop_stream.model.errors import UnavailableError
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.settings import Settings

_POLL_MS = 500
_FETCH_WAIT_MS = 50
"""Short, as a broker may still hold the fetch of one partition when the next is read."""

_SMALL_FETCH_BYTES = 1024 * 1024

_NEWEST_TIMEOUT_S = 20.0
_NEWEST_PARTITION_BYTES = 256 * 1024
_NEWEST_FETCH_BYTES = 8 * 1024 * 1024
"""Of one answer of a broker; a larger record comes alone."""

T = TypeVar("T")


async def read_topic(settings: Settings, topic: str) -> AsyncIterator[ConsumedRecord]:
    """The records of all partitions up to their ends, one partition after the other, in order.

    A topic that does not exist has none.
    """
    async with clients.consumer(
        settings, client_id="whole", group_id=None
    ) as metadata_consumer:
        if topic not in await metadata_consumer.topics():
            return
    # The client knows the partitions of topics that it is subscribed to; they are read singly.
    async with clients.consumer(
        settings, topic, client_id="whole", group_id=None, fetch_max_wait_ms=_FETCH_WAIT_MS
    ) as consumer:
        numbers = sorted(consumer.partitions_for_topic(topic) or ())
        consumer.unsubscribe()
        for number in numbers:
            async for record in _partition(consumer, TopicPartition(topic, number)):
                yield record


async def read_partition(
    settings: Settings, partition: TopicPartition
) -> AsyncIterator[ConsumedRecord]:
    """The records of one partition up to its present end, in order, a little at a time."""
    async with clients.consumer(
        settings, client_id="whole", group_id=None, max_partition_fetch_bytes=_SMALL_FETCH_BYTES
    ) as consumer:
        async for record in _partition(consumer, partition):
            yield record


async def read_range(
    settings: Settings, partition: TopicPartition, start: int, end: int
) -> AsyncGenerator[ConsumedRecord, None]:
    """The records of one partition from `start` up to, not including, `end`, in order."""
    async with clients.consumer(settings, client_id="range", group_id=None) as consumer:
        consumer.assign([partition])
        first = (await consumer.beginning_offsets([partition]))[partition]
        if first < end:
            consumer.seek(partition, max(start, first))
            async for record in _until(consumer, partition, end):
                yield record


async def read_to_end(
    settings: Settings, starts: Mapping[TopicPartition, int]
) -> AsyncGenerator[tuple[int, Sequence[ConsumedRecord], int], None]:
    """The records of a topic's partitions, from where each starts up to their present ends.

    Args:
        settings: Where the cluster is.
        starts: By partition, the offset to start from; all of one topic.

    Yields:
        A partition's number, records of it in order, and the offset after them; now and then
        without records, so that the caller can stop.
    """
    async with clients.consumer(
        settings, client_id="to-end", group_id=None, fetch_max_wait_ms=_FETCH_WAIT_MS
    ) as consumer:
        consumer.assign([*starts])
        firsts = await consumer.beginning_offsets([*starts])
        ends = await consumer.end_offsets([*starts])
        left = {one: end for one, end in ends.items() if max(starts[one], firsts[one]) < end}
        consumer.pause(*(starts.keys() - left.keys()))
        for one in left:
            consumer.seek(one, max(starts[one], firsts[one]))
        async for one, records, reached in _batches(consumer, left):
            yield one.partition, records, reached


async def read_newest(
    settings: Settings, most: Mapping[str, int], read: Callable[[bytes], T]
) -> Mapping[str, Sequence[T]]:
    """What `read` returns for the newest records of topics, in order within a partition.

    Args:
        settings: Where the cluster is.
        most: By topic, how many records of each partition; a missing topic has none.
        read: Called with each value; the value itself is not kept.

    Raises:
        UnavailableError: If the brokers cannot be read within 20 s.
    """
    found: dict[str, list[T]] = {topic: [] for topic in most}
    try:
        async with asyncio.timeout(_NEWEST_TIMEOUT_S):
            async for record in _newest_records(settings, most):
                found[record.topic].append(read(record.value or b""))
    except (KafkaError, OSError, TimeoutError) as error:
        msg = f"the newest records of {', '.join(most)} cannot be read: {error!r}"
        raise UnavailableError(msg) from error
    return found


async def _newest_records(
    settings: Settings, most: Mapping[str, int]
) -> AsyncIterator[ConsumedRecord]:
    metadata_consumer = clients.consumer(settings, client_id="newest", group_id=None)
    async with metadata_consumer:
        names = most.keys() & await metadata_consumer.topics()
    if not names:
        return
    # The client knows the partitions of topics that it is subscribed to.
    consumer = clients.consumer(
        settings,
        *names,
        client_id="newest",
        group_id=None,
        fetch_max_wait_ms=_FETCH_WAIT_MS,
        max_partition_fetch_bytes=_NEWEST_PARTITION_BYTES,
        fetch_max_bytes=_NEWEST_FETCH_BYTES,
    )
    async with consumer:
        consumer.unsubscribe()
        ends = await _seek_newest(consumer, {name: most[name] for name in names})
        async for _, records, _ in _batches(consumer, ends):
            for record in records:
                yield record


async def _seek_newest(
    consumer: KafkaConsumer, most: Mapping[str, int]
) -> dict[TopicPartition, int]:
    """Seek to the newest records; returns the ends of partitions that have records."""
    partitions = [
        TopicPartition(topic, number)
        for topic in most
        for number in consumer.partitions_for_topic(topic) or ()
    ]
    if not partitions:
        return {}
    firsts = await consumer.beginning_offsets(partitions)
    ends = await consumer.end_offsets(partitions)
    starts = {one: max(firsts[one], ends[one] - most[one.topic]) for one in partitions}
    filled = {one: end for one, end in ends.items() if starts[one] < end}
    consumer.assign([*filled])
    for one in filled:
        consumer.seek(one, starts[one])
    return filled


async def _batches(
    consumer: KafkaConsumer, ends: Mapping[TopicPartition, int]
) -> AsyncGenerator[tuple[TopicPartition, Sequence[ConsumedRecord], int], None]:
    """Records of each partition up to its end, possibly none, and the offset after them."""
    left = dict(ends)
    while left:
        fetched = await consumer.getmany(*left, timeout_ms=_POLL_MS)
        for one in [*left]:
            reached = await consumer.position(one)
            yield one, fetched.get(one, ()), reached
            if reached >= left[one]:
                consumer.pause(one)
                del left[one]


async def _partition(
    consumer: KafkaConsumer, partition: TopicPartition
) -> AsyncIterator[ConsumedRecord]:
    consumer.assign([partition])
    await consumer.seek_to_beginning(partition)
    end = (await consumer.end_offsets([partition]))[partition]
    async for record in _until(consumer, partition, end):
        yield record


async def _until(
    consumer: KafkaConsumer, partition: TopicPartition, end: int
) -> AsyncIterator[ConsumedRecord]:
    while await consumer.position(partition) < end:
        fetched = await consumer.getmany(partition, timeout_ms=_POLL_MS)
        for record in fetched.get(partition, ()):
            if record.offset < end:
                yield record


_MAX_RECORDS: Final = 500


def iterate_sync(records: AsyncIterator[ConsumedRecord]) -> Iterator[ConsumedRecord]:
    """The same records for code without an event loop; must not be called inside one."""
    with asyncio.Runner() as runner:
        batches = iter(lambda: runner.run(_next_batch(records)), [])
        yield from chain.from_iterable(batches)


async def _next_batch(records: AsyncIterator[ConsumedRecord]) -> list[ConsumedRecord]:
    """The next records, some hundreds at once; none at the end."""
    batch: list[ConsumedRecord] = []
    async for record in records:
        batch.append(record)
        if len(batch) == _MAX_RECORDS:
            break
    return batch
