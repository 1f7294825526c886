"""Reads one insight's topic as a member of its group, as fast as agendas can be taken."""

import asyncio
from collections import deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final

import structlog
from aiokafka import (
    AIOKafkaConsumer,
    ConsumerRebalanceListener,
    ConsumerRecord,
    TopicPartition,
)
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from pop_stream.bus import clients
from pop_stream.bus.topics import Topics
from pop_stream.pullers.capacity import Capacity
from pop_stream.pullers.claims import Claimer
from pop_stream.pullers.reporter import Reporter
from pop_stream.pullers.running import RunningAgendas
from pop_stream.settings import Settings

_POLL_S: Final = 0.25
_ANSWER_S: Final = 5.0
_TOPIC_EVERY_S: Final = 0.5
_RETRY_S: Final = 1.0
_NO_POLL_LIMIT_MS: Final = 2**31 - 1

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Intake:
    """Where the feeds of a puller put what they read."""

    claimer: Claimer
    running: RunningAgendas
    reporter: Reporter
    capacity: Capacity


class InsightFeed:
    """One per insight of a puller.

    Records are held in hand between reading and claiming, never more than could be taken
    when they were read. They are not committed yet, so for the scheduler they are lag.

    Args:
        settings: Where the cluster is.
        insight_id: Whose topic and group.
        intake: Shared with the puller's other feeds.
    """

    def __init__(self, settings: Settings, insight_id: str, intake: Intake) -> None:
        topics = Topics(settings.topic_prefix)
        self._settings = settings
        self._insight_id = insight_id
        self._topic = topics.insight(insight_id)
        self._group = topics.puller_group(insight_id)
        self._intake = intake
        self._hand: deque[ConsumerRecord] = deque()
        self._claiming = asyncio.Lock()

    async def run(self, stop: asyncio.Event) -> None:
        """Take agendas until `stop`, then leave the group; outlives any fault of Kafka."""
        while not stop.is_set():
            try:
                await self._consume(stop)
            except (KafkaError, OSError) as error:
                _log.warning("feed.interrupted", insight_id=self._insight_id, error=repr(error))
                await _pause(stop, _RETRY_S)

    async def _consume(self, stop: asyncio.Event) -> None:
        consumer = clients.consumer(
            self._settings,
            client_id=f"puller.{self._insight_id}",
            group_id=self._group,
            partition_assignment_strategy=(RoundRobinPartitionAssignor,),
            # A full puller does not poll, and is no less alive for it.
            max_poll_interval_ms=_NO_POLL_LIMIT_MS,
        )
        try:
            await consumer.start()
            # Only a topic that exists is subscribed to: asking for another may create it.
            while not stop.is_set() and self._topic not in await consumer.topics():
                await _pause(stop, _TOPIC_EVERY_S)
            if not stop.is_set():
                consumer.subscribe([self._topic], listener=_Revocation(self))
            while not stop.is_set():
                await self._take(consumer)
        finally:
            self._hand.clear()
            await _leave(consumer)

    async def _take(self, consumer: AIOKafkaConsumer) -> None:
        """Read if nothing is in hand, claim what there is room for, and start it."""
        if not await self._has_room():
            return
        if not self._hand:
            await self._read(consumer)
        async with self._claiming:
            capacity = self._intake.capacity
            slots = capacity.take(len(self._hand))
            started = 0
            try:
                started = await self._start(consumer, slots) if slots else 0
            finally:
                capacity.give_back(slots - started)

    async def _has_room(self) -> bool:
        if self._intake.reporter.is_full:
            await asyncio.sleep(_POLL_S)
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_S):
                await self._intake.capacity.some()
        return self._intake.capacity.free > 0

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        with suppress(TimeoutError):
            # While the group rebalances, `getmany` heeds no timeout of its own.
            async with asyncio.timeout(_ANSWER_S):
                fetched: Mapping[TopicPartition, list[ConsumerRecord]] = await consumer.getmany(
                    timeout_ms=int(_POLL_S * 1000), max_records=self._intake.capacity.free
                )
                for records in fetched.values():
                    self._hand.extend(records)

    async def _start(self, consumer: AIOKafkaConsumer, slots: int) -> int:
        records = [self._hand.popleft() for _ in range(slots)]
        claimed_s = monotonic()

        async def commit(offsets: Mapping[TopicPartition, int]) -> bool:
            return await _commit(consumer, offsets)

        claimed = await self._intake.claimer.claim(records, commit)
        for emitted in claimed:
            self._intake.running.start(emitted, claimed_s=claimed_s)
        return len(claimed)

    async def let_go(self) -> None:
        """End the claim that is under way and drop what is in hand; others will read it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.session_timeout.total_seconds() / 2):
                await self._claiming.acquire()
                self._claiming.release()
        self._hand.clear()


class _Revocation(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped here
    """Partitions move only after the claim under way is committed, so nobody repeats it."""

    def __init__(self, feed: InsightFeed) -> None:
        self._feed = feed

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Called before the group is joined again."""
        if revoked:
            await self._feed.let_go()

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Called once the group has settled."""
        _log.info("feed.assigned", partitions=sorted(tp.partition for tp in assigned))


async def _commit(consumer: AIOKafkaConsumer, offsets: Mapping[TopicPartition, int]) -> bool:
    """Commit; False if that surely failed, since the partitions have moved."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            await consumer.commit(dict(offsets))
    except (CommitFailedError, IllegalStateError) as error:
        partitions = sorted(tp.partition for tp in offsets)
        _log.info("claim.overtaken", partitions=partitions, error=type(error).__name__)
        return False
    except (KafkaError, TimeoutError) as error:
        # Nobody knows whether it is written. The claims are, so the agendas are run here;
        # if the records come again, the window or the lease tells them for repeats.
        _log.warning("claim.uncommitted", error=repr(error))
    return True


async def _leave(consumer: AIOKafkaConsumer) -> None:
    try:
        async with asyncio.timeout(_ANSWER_S):
            await consumer.stop()
    except (KafkaError, TimeoutError, OSError) as error:
        _log.warning("group.not_left", error=repr(error))


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
