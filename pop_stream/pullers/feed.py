"""Reads one insight's topic as a member of its group, as fast as agendas can be taken."""

import asyncio
import secrets
from collections.abc import Collection, Mapping
from contextlib import suppress
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
from pop_stream.bus.topics import ReadyQueue
from pop_stream.pullers.pipeline import HAND_RECORDS, ClaimPipeline, Intake
from pop_stream.settings import Settings

_POLL_S: Final = 0.25
_ANSWER_S: Final = 5.0
_RETRY_S: Final = 1.0
_NO_POLL_LIMIT_MS: Final = 2**31 - 1

_log = structlog.get_logger()


class InsightFeed:
    """One per insight of a puller.

    Records are read before they can be taken, so that one is in hand when a slot is free.
    They are not committed until they are claimed, so for the scheduler they are lag.

    Args:
        settings: Where the cluster is.
        queue: What to read, and as which group.
        intake: Shared with the puller's other feeds.
    """

    def __init__(self, settings: Settings, queue: ReadyQueue, intake: Intake) -> None:
        self._settings = settings
        self._queue = queue
        self._intake = intake

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

        mark = secrets.token_hex(8)

        async def commit(offsets: Mapping[TopicPartition, int]) -> bool:
            return await _commit(consumer, offsets, mark)

        try:
            await consumer.start()
            async with ClaimPipeline(self._intake, commit, end_within_s=_ANSWER_S) as pipeline:
                within_s = self._settings.session_timeout.total_seconds() / 2
                consumer.subscribe(
                    [self._queue.topic], listener=_Revocation(pipeline, within_s)
                )
                while not stop.is_set() and not pipeline.has_failed:
                    await _read(consumer, pipeline)
        finally:
            await _leave(consumer)


class _Revocation(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped here
    """Partitions move only after the claims under way are committed, so nobody repeats them."""

    def __init__(self, pipeline: ClaimPipeline, within_s: float) -> None:
        self._pipeline = pipeline
        self._within_s = within_s

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Called before the group is joined again."""
        if revoked:
            await self._pipeline.settle(self._within_s)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Called once the group has settled."""
        _log.info("feed.assigned", partitions=sorted(tp.partition for tp in assigned))


async def _read(consumer: AIOKafkaConsumer, pipeline: ClaimPipeline) -> None:
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
                timeout_ms=int(_POLL_S * 1000), max_records=HAND_RECORDS
            )
            for records in fetched.values():
                pipeline.add(records)


async def _commit(
    consumer: AIOKafkaConsumer, offsets: Mapping[TopicPartition, int], mark: str
) -> bool:
    """Commit, however long that takes; False if others have the partitions, and the records.

    Of a commit without an answer nobody knows whether it is written. It is asked for again,
    for this puller may have been frozen, and others may have what it was about to start.

    Args:
        consumer: Member of the group.
        offsets: By partition.
        mark: Written with them; nobody else's.
    """
    marked = {tp: (offset, mark) for tp, offset in offsets.items()}
    partitions = sorted(tp.partition for tp in offsets)
    is_told = False
    while True:
        try:
            async with asyncio.timeout(_ANSWER_S):
                await consumer.commit(marked)
        except (CommitFailedError, IllegalStateError) as error:
            is_written = await _is_written(consumer, marked)
            facts = {"partitions": partitions, "error": type(error).__name__}
            _log.info("claim.overtaken", **facts, is_written=is_written)
            return is_written
        except (KafkaError, TimeoutError) as error:
            if not is_told:
                _log.warning("claim.uncommitted", partitions=partitions, error=repr(error))
            is_told = True
            await asyncio.sleep(_RETRY_S)
        else:
            return True


async def _is_written(
    consumer: AIOKafkaConsumer, marked: Mapping[TopicPartition, tuple[int, str]]
) -> bool:
    """Whether a commit was written whose answer a dead coordinator kept, as its marks show.

    It is refused when asked for again after the group has moved the partitions. But whoever has
    them now began after it, so nobody else will be given its records. One commit is written
    whole: where another has gone on in one partition, the mark in another one tells.
    """
    coordinator = consumer._coordinator  # noqa: SLF001  # `committed` gives no metadata
    while True:
        try:
            async with asyncio.timeout(_ANSWER_S):
                known = await coordinator.fetch_committed_offsets([*marked])
        except (KafkaError, TimeoutError):
            await asyncio.sleep(_RETRY_S)
        else:
            return any(known.get(tp) == committed for tp, committed in marked.items())


async def _leave(consumer: AIOKafkaConsumer) -> None:
    try:
        async with asyncio.timeout(_ANSWER_S):
            await consumer.stop()
    except (KafkaError, TimeoutError, OSError) as error:
        _log.warning("group.not_left", error=repr(error))
