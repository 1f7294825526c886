"""A topic read from beginning to end by who has no event loop, as fast as it is used."""

import asyncio
from collections.abc import Iterator
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from pop_stream.bus import clients
from pop_stream.settings import Settings

_FETCH_BYTES: Final = 1024 * 1024
_MOST_RECORDS: Final = 500


def partitions_of(settings: Settings, topic: str) -> list[int]:
    """The partitions of a topic, in order; none if it does not exist."""

    async def ask() -> list[int]:
        consumer = clients.consumer(settings, topic, client_id="history", group_id=None)
        async with consumer:
            return sorted(consumer.partitions_for_topic(topic) or ())

    return asyncio.run(ask())


def records(
    settings: Settings, place: TopicPartition, *, end: int | None = None
) -> Iterator[ConsumerRecord]:
    """All records of a partition; in memory are only those of a fetch or two.

    Args:
        settings: Where the cluster is.
        place: The partition.
        end: Before this offset; None for up to the present end.
    """
    with asyncio.Runner() as runner:
        consumer, end = runner.run(_begin(settings, place, end))
        try:
            while runner.run(consumer.position(place)) < end:
                for record in runner.run(_fetch(consumer, place)):
                    if record.offset < end:
                        yield record
        finally:
            runner.run(consumer.stop())


async def _begin(
    settings: Settings, place: TopicPartition, end: int | None
) -> tuple[AIOKafkaConsumer, int]:
    consumer = clients.consumer(
        settings,
        client_id="history",
        group_id=None,
        max_partition_fetch_bytes=_FETCH_BYTES,
    )
    await consumer.start()
    consumer.assign([place])
    await consumer.seek_to_beginning(place)
    present = (await consumer.end_offsets([place]))[place]
    return consumer, present if end is None else min(present, end)


async def _fetch(consumer: AIOKafkaConsumer, place: TopicPartition) -> list[ConsumerRecord]:
    fetched = await consumer.getmany(place, timeout_ms=500, max_records=_MOST_RECORDS)
    found: list[ConsumerRecord] = fetched.get(place, [])
    return found
