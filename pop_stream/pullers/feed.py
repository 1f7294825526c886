"""Reads one insight's topic as a member of its group, as fast as agendas can be taken."""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final, NoReturn

import structlog
from aiokafka import (
    AIOKafkaConsumer,
    ConsumerRebalanceListener,
    ConsumerRecord,
    TopicPartition,
)
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError

from pop_stream.bus import clients
from pop_stream.bus.topics import InsightSubscription
from pop_stream.pullers.commits import ClaimCommitter
from pop_stream.pullers.pipeline import BUFFER_RECORDS, ClaimPipeline, ClaimContext
from pop_stream.settings import Settings

_POLL_S: Final = 4.0
_ANSWER_S: Final = 5.0
_RETRY_S: Final = 1.0
_NO_POLL_LIMIT_MS: Final = 2**31 - 1

_log = structlog.get_logger()


class InsightConsumer:
    """One per insight of a puller.

    Records are read before they can be taken, so that one is in hand when a slot is free.
    They are not committed until they are claimed, so for the scheduler they are lag.

    Args:
        settings: Where the cluster is.
        queue: What to read, and as which group.
        claim_context: Shared with the puller's other feeds.
    """

    def __init__(
        self, settings: Settings, queue: InsightSubscription, claim_context: ClaimContext
    ) -> None:
        self._settings = settings
        self._queue = queue
        self._claim_context = claim_context

    async def consume(self, stop: asyncio.Event) -> None:
        """Take agendas until `stop`, then leave the group.

        The topic must exist: asking for another may create it. It returns early if a claim
        failed; call it again.

        Raises:
            KafkaError: If Kafka is in trouble; call it again.
            OSError: The same.
        """
        consumer = clients.consumer(
            self._settings,
            client_id=f"puller.{self._queue.insight_id}",
            group_id=self._queue.group,
            partition_assignment_strategy=(RoundRobinPartitionAssignor,),
            # A full puller does not poll, and is no less alive for it.
            max_poll_interval_ms=_NO_POLL_LIMIT_MS,
        )

        commits = ClaimCommitter(consumer)
        pipeline = ClaimPipeline(self._claim_context, commits.commit, end_within_s=_ANSWER_S)
        try:
            await consumer.start()
            async with pipeline:
                within_s = self._settings.session_timeout.total_seconds() / 2
                listener = _RebalanceListener(pipeline, commits, within_s)
                consumer.subscribe([self._queue.topic], listener=listener)
                await _read_until(stop, consumer, pipeline, commits)
        finally:
            await _leave(consumer)


class _RebalanceListener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped here
    """Partitions move only after the claims under way are committed, so nobody repeats them."""

    def __init__(
        self, pipeline: ClaimPipeline, commits: ClaimCommitter, within_s: float
    ) -> None:
        self._pipeline = pipeline
        self._commits = commits
        self._within_s = within_s

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Called before the group is joined again."""
        if revoked:
            await self._pipeline.settle(self._within_s)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Called once the group has settled."""
        self._commits.moved(assigned)
        _log.info("feed.assigned", partitions=sorted(tp.partition for tp in assigned))


async def _read_until(
    stop: asyncio.Event,
    consumer: AIOKafkaConsumer,
    pipeline: ClaimPipeline,
    commits: ClaimCommitter,
) -> None:
    """Read until `stop`, or until a claim failed; at rest nothing else wakes this."""
    reading = asyncio.create_task(_read_forever(consumer, pipeline, commits))
    others = (commits.begin(), stop.wait(), pipeline.failed())
    waits = [reading, *map(asyncio.create_task, others)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    if not reading.cancelled():
        reading.result()


async def _read_forever(
    consumer: AIOKafkaConsumer, pipeline: ClaimPipeline, commits: ClaimCommitter
) -> NoReturn:
    while True:
        await _read(consumer, pipeline, commits)


async def _read(
    consumer: AIOKafkaConsumer, pipeline: ClaimPipeline, commits: ClaimCommitter
) -> None:
    """Take in hand what there is, or wait a little.

    Everything is read as it comes: the client asks a broker for nothing while it holds
    records of one of its partitions.
    """
    if not await pipeline.room(_POLL_S):
        return
    with suppress(TimeoutError):
        # While the group rebalances, `getmany` heeds no timeout of its own.
        async with asyncio.timeout(_ANSWER_S):
            fetched: Mapping[TopicPartition, list[ConsumerRecord]] = await consumer.getmany(
                timeout_ms=int(_POLL_S * 1000), max_records=BUFFER_RECORDS
            )
            for tp, records in fetched.items():
                commits.note_read(tp, records[0].offset)
                pipeline.add(records)


async def _leave(consumer: AIOKafkaConsumer) -> None:
    try:
        async with asyncio.timeout(_ANSWER_S):
            await consumer.stop()
    except (KafkaError, TimeoutError, OSError) as error:
        _log.warning("group.not_left", error=repr(error))
