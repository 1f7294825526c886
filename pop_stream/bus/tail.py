"""Reads a topic from its end, whole and without a group: what every process is to hear."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from time import monotonic
from typing import Final, NoReturn

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from pop_stream.bus import clients
from pop_stream.bus.patience import hold_while_quiet
from pop_stream.settings import Settings

_LOOK_EVERY_S: Final = 1.0
_POLL_MS: Final = 10_000
_RECALL_MS: Final = 500
_RECALLED_WITHIN_S: Final = 3.0

_log = structlog.get_logger()


class Tail:
    """Hears what is written after it began, each record once, in order.

    An interruption misses nothing: it goes on where it was. A topic that does not exist, as
    in a cluster of an earlier version, is waited for.

    Args:
        settings: Where the cluster is.
        topic: Of one partition.
        client_id: Shown in the broker's logs.
        hear: Called with every record; must not raise.
        since: Begin with what was written from this instant on; None with what is written
            from now on.
        newest: Begin with so many records that are there already; those that are not read
            within three seconds are passed over.

    Attributes:
        began: Set once nothing is missed any more, and the newest that were there are heard.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        *,
        client_id: str,
        hear: Callable[[ConsumerRecord], None],
        since: datetime | None = None,
        newest: int = 0,
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._client_id = client_id
        self._hear = hear
        self._since = since
        self._newest = newest
        self._heard = asyncio.Condition()
        self._next: int | None = None
        self.began = asyncio.Event()

    async def run(self) -> NoReturn:
        """Read until cancelled."""
        while True:
            consumer = clients.consumer(
                self._settings,
                client_id=self._client_id,
                group_id=None,
                auto_offset_reset="latest",
            )
            try:
                async with clients.started(consumer):
                    hold_while_quiet(consumer)
                    await self._read(consumer)
            except (KafkaError, OSError) as error:
                _log.warning("tail.interrupted", topic=self._topic, error=repr(error))
                await asyncio.sleep(_LOOK_EVERY_S)

    async def _read(self, consumer: AIOKafkaConsumer) -> NoReturn:
        while self._topic not in await clients.undisturbed(consumer.topics()):  # noqa: ASYNC110  # no event
            await asyncio.sleep(_LOOK_EVERY_S)
        partition = TopicPartition(self._topic, 0)
        consumer.assign([partition])
        if self._next is None:
            self._next = await self._first(consumer, partition)
        consumer.seek(partition, self._next)
        if self._newest and not self.began.is_set():
            await self._recall(consumer, partition)
        self.began.set()
        while True:
            await self._hear_some(consumer, partition, _POLL_MS)

    async def _recall(self, consumer: AIOKafkaConsumer, partition: TopicPartition) -> None:
        """Hear what is there already, or as much of it as time allows."""
        ends = await clients.undisturbed(consumer.end_offsets([partition]))
        until_s = monotonic() + _RECALLED_WITHIN_S
        while self._next is None or self._next < ends[partition]:
            if monotonic() > until_s:
                _log.warning("tail.shortened", topic=self._topic, unheard_from=self._next)
                self._next = ends[partition]
                consumer.seek(partition, self._next)
                return
            await self._hear_some(consumer, partition, _RECALL_MS)

    async def _hear_some(
        self, consumer: AIOKafkaConsumer, partition: TopicPartition, wait_ms: int
    ) -> None:
        fetched = await consumer.getmany(timeout_ms=wait_ms)
        for record in fetched.get(partition, ()):
            self._hear(record)
            self._next = record.offset + 1
        async with self._heard:
            self._heard.notify_all()

    async def catch_up(self) -> None:
        """Return once all is heard that was written before the call."""
        await self.began.wait()
        partition = TopicPartition(self._topic, 0)
        # Over a connection of its own: the reader's has a fetch that the broker may hold.
        asking = clients.consumer(
            self._settings, client_id=f"{self._client_id}-end", group_id=None
        )
        async with clients.started(asking):
            end = (await clients.undisturbed(asking.end_offsets([partition])))[partition]
        async with self._heard:
            await self._heard.wait_for(lambda: (self._next or 0) >= end)

    async def _first(self, consumer: AIOKafkaConsumer, partition: TopicPartition) -> int:
        """The offset to begin with."""
        if self._since is not None:
            at_ms = int(self._since.timestamp() * 1000)
            found = await clients.undisturbed(consumer.offsets_for_times({partition: at_ms}))
            if found[partition] is not None:
                return int(found[partition].offset)
        ends = await clients.undisturbed(consumer.end_offsets([partition]))
        if not self._newest:
            return int(ends[partition])
        begins = await clients.undisturbed(consumer.beginning_offsets([partition]))
        return max(int(begins[partition]), int(ends[partition]) - self._newest)
