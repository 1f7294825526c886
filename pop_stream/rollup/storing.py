"""Brings what is on topics into the database, beside the fold, as a group of its own.

What is read is stored before its offset is committed, so it is stored at least once: the store
must not mind a repeat. While the database is away it pauses and stays in its group.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from itertools import chain
from typing import Final

import structlog

from pop_stream.clock import wait_until_set
from pop_stream.kafka import clients
from pop_stream.kafka.batch_consumer import OffsetCommitter
from pop_stream.kafka.clients import KafkaConsumer
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnavailableError
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.settings import Settings

_POLL_MS: Final = 1_000
_FETCH_BYTES: Final = 4 * 1024 * 1024
_PAUSE: Final = timedelta(seconds=2)

_log = structlog.get_logger()

Store = Callable[[Sequence[ConsumedRecord]], Awaitable[None]]
"""Stores the records of a batch; raises UnavailableError while that cannot be done."""


async def store_topics(
    settings: Settings,
    names: Sequence[str],
    store: Store,
    stop: asyncio.Event,
    *,
    part: str,
    batch_records: int,
) -> None:
    """Store what is written to topics, until `stop`; any number of processes may.

    Args:
        settings: Where the cluster is.
        names: Of the topics.
        store: Where to.
        stop: Ends it.
        part: The name of its group.
        batch_records: Most records that are stored at once.
    """
    consumer = clients.consumer(
        settings,
        client_id=part,
        group_id=Topics(settings.topic_prefix).group(part),
        max_partition_fetch_bytes=_FETCH_BYTES,
    )
    consumer.subscribe([*names])
    async with consumer:
        await _Storing(consumer, store, batch_records).run(stop)


class _Storing:
    """One member of the group."""

    def __init__(self, consumer: KafkaConsumer, store: Store, batch_records: int) -> None:
        self._consumer = consumer
        self._store = store
        self._batch_records = batch_records
        self._commits = OffsetCommitter(consumer)

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            fetched = await self._consumer.getmany(
                timeout_ms=_POLL_MS, max_records=self._batch_records
            )
            if not fetched:
                await self._commits.flush()
                continue
            if not await self._until_stored([*chain(*fetched.values())], stop):
                return  # nothing of it is committed: it is read again
            await self._commits.mark_processed(
                {TopicPartition(*tp): many[-1].offset + 1 for tp, many in fetched.items()}
            )
        await self._commits.flush()

    async def _until_stored(
        self, records: Sequence[ConsumedRecord], stop: asyncio.Event
    ) -> bool:
        """Store a batch, however long the database is away; False if the stop came first."""
        return await until_available(
            self._consumer,
            lambda: self._store(records),
            stop,
            on_postponed=lambda why: _log.info("records.storing_postponed", reason=why),
        )


async def until_available(
    consumer: KafkaConsumer,
    do: Callable[[], Awaitable[object]],
    stop: asyncio.Event,
    *,
    on_postponed: Callable[[str], None],
) -> bool:
    """Do something, however long the database is away; False if the stop came first.

    Args:
        consumer: Stays in its group meanwhile, and reads nothing.
        do: Raises UnavailableError while it cannot be done; called again then.
        stop: Ends it.
        on_postponed: Called with the reason, each time.
    """
    while True:
        try:
            await do()
        except UnavailableError as error:
            on_postponed(str(error))
        else:
            return True
        # The group expels a member that never asks for records, so ask for those of none.
        consumer.pause(*consumer.assignment())
        await consumer.getmany(timeout_ms=0)
        if await wait_until_set(stop, _PAUSE.total_seconds()):
            return False
        consumer.resume(*consumer.assignment())
