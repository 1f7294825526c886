"""Follows a topic that every process reads by itself: from its end on, without a group."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from time import monotonic
from typing import Final, NoReturn

import structlog

from pop_stream.kafka import clients
from pop_stream.kafka.clients import KafkaConsumer
from pop_stream.kafka.errors import KafkaError
from pop_stream.kafka.hardening.cancellation import shield_until_answered
from pop_stream.kafka.hardening.fetcher import use_adaptive_fetch_wait
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.settings import Settings

_RETRY_INTERVAL_S: Final = 1.0
_POLL_MS: Final = 10_000
_REPLAY_POLL_MS: Final = 500
_REPLAY_TIMEOUT_S: Final = 3.0

_log = structlog.get_logger()


class TopicFollower:
    """Passes on what is written after it began, each record once, in order.

    After an interruption it goes on where it was, so nothing is missed that retention has not
    removed. A topic that does not exist, as in a cluster of an earlier version, is waited for.
    `run` is called once.

    Args:
        settings: Where the cluster is.
        topic: Of one partition.
        client_id: Shown in the broker's logs.
        on_record: Called with every record; must not raise.
        since: Begin with what was written from this instant on; None with what is written
            from now on.
        replay_last: Begin with so many records that are there already; those that are not read
            within three seconds are skipped.

    Attributes:
        following: Set once the records to begin with are passed on, and nothing is missed from
            then on.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        *,
        client_id: str,
        on_record: Callable[[ConsumedRecord], None],
        since: datetime | None = None,
        replay_last: int = 0,
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._client_id = client_id
        self._on_record = on_record
        self._since = since
        self._replay_last = replay_last
        self._advanced = asyncio.Condition()
        self._next: int | None = None
        self.following = asyncio.Event()

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
                async with consumer:
                    use_adaptive_fetch_wait(consumer)
                    await self._read(consumer)
            except (KafkaError, OSError) as error:
                _log.warning("topic_follower.interrupted", topic=self._topic, error=repr(error))
                await asyncio.sleep(_RETRY_INTERVAL_S)

    async def _read(self, consumer: KafkaConsumer) -> NoReturn:
        while self._topic not in await shield_until_answered(consumer.topics()):  # noqa: ASYNC110  # no event
            await asyncio.sleep(_RETRY_INTERVAL_S)
        partition = TopicPartition(self._topic, 0)
        consumer.assign([partition])
        if self._next is None:
            self._next = await self._start_offset(consumer, partition)
        consumer.seek(partition, self._next)
        if self._replay_last and not self.following.is_set():
            await self._replay(consumer, partition)
        self.following.set()
        while True:
            await self._poll(consumer, partition, _POLL_MS)

    async def _replay(self, consumer: KafkaConsumer, partition: TopicPartition) -> None:
        """Pass on what is there already, or as much of it as time allows."""
        ends = await shield_until_answered(consumer.end_offsets([partition]))
        until_s = monotonic() + _REPLAY_TIMEOUT_S
        while self._next is None or self._next < ends[partition]:
            if monotonic() > until_s:
                _log.warning(
                    "topic_follower.replay_cut", topic=self._topic, skipped_from=self._next
                )
                self._next = ends[partition]
                consumer.seek(partition, self._next)
                return
            await self._poll(consumer, partition, _REPLAY_POLL_MS)

    async def _poll(
        self, consumer: KafkaConsumer, partition: TopicPartition, wait_ms: int
    ) -> None:
        fetched = await consumer.getmany(timeout_ms=wait_ms)
        for record in fetched.get(partition, ()):
            self._on_record(record)
            self._next = record.offset + 1
        async with self._advanced:
            self._advanced.notify_all()

    async def catch_up(self) -> None:
        """Wait until all is passed on that was written before the call; may be called often."""
        await self.following.wait()
        partition = TopicPartition(self._topic, 0)
        # Over a connection of its own: the reader's has a fetch that the broker may hold.
        end_consumer = clients.consumer(
            self._settings, client_id=f"{self._client_id}-end", group_id=None
        )
        async with end_consumer:
            end = (await shield_until_answered(end_consumer.end_offsets([partition])))[
                partition
            ]
        async with self._advanced:
            await self._advanced.wait_for(lambda: (self._next or 0) >= end)

    async def _start_offset(self, consumer: KafkaConsumer, partition: TopicPartition) -> int:
        """The offset to begin with, by `since` or `replay_last`; the end if nothing fits."""
        if self._since is not None:
            at_ms = int(self._since.timestamp() * 1000)
            found = await shield_until_answered(consumer.offsets_for_times({partition: at_ms}))
            if found[partition] is not None:
                return int(found[partition].offset)
        ends = await shield_until_answered(consumer.end_offsets([partition]))
        if not self._replay_last:
            return int(ends[partition])
        begins = await shield_until_answered(consumer.beginning_offsets([partition]))
        return max(int(begins[partition]), int(ends[partition]) - self._replay_last)
