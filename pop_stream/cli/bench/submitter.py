"""Hands records to Kafka as fast as a Python producer can: whole batches, built at once."""

import asyncio
from collections.abc import Sequence
from typing import Self

from aiokafka import AIOKafkaProducer

from pop_stream.bus import clients
from pop_stream.settings import Settings

Pair = tuple[bytes, bytes]
"""Key and value of a record."""


class Submitter:
    """An idempotent producer with acks=all that fills one partition's batch after the other.

    Args:
        settings: Where the cluster is.
        topic: Where to; it must exist.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        self._topic = topic
        self._producer: AIOKafkaProducer = clients.producer(settings, client_id="bench")
        self._partitions: list[int] = []
        self._next = 0

    async def __aenter__(self) -> Self:
        await self._producer.start()
        self._partitions = sorted(await self._producer.partitions_for(self._topic))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.stop()

    async def send(self, pairs: Sequence[Pair]) -> list[asyncio.Future[object]]:
        """Hand over records; what is returned is done when they are acknowledged."""
        partition = self._partitions[self._next % len(self._partitions)]
        self._next += 1
        return await send_batches(self._producer, self._topic, partition, pairs)


async def send_batches(
    producer: AIOKafkaProducer, topic: str, partition: int, pairs: Sequence[Pair]
) -> list[asyncio.Future[object]]:
    """Hand records of one partition over in as few batches as they fit in, in order.

    Costs a fraction of `producer.send`, which looks up topic, partition and batch for each.
    """
    waiting: list[asyncio.Future[object]] = []
    batch = producer.create_batch()
    for key, value in pairs:
        if batch.append(key=key, value=value, timestamp=None) is None:
            batch.close()
            waiting.append(await producer.send_batch(batch, topic, partition=partition))
            batch = producer.create_batch()
            batch.append(key=key, value=value, timestamp=None)
    if batch.record_count():
        batch.close()
        waiting.append(await producer.send_batch(batch, topic, partition=partition))
    return waiting
