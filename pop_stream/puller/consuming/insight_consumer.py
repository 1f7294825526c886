"""Reads one insight's topic as a member of its consumer group."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final, NoReturn

import structlog

from pop_stream.kafka import clients
from pop_stream.kafka.batch_consumer import progress_of
from pop_stream.kafka.clients import KafkaConsumer, RebalanceListener, RoundRobinAssignor
from pop_stream.kafka.errors import COMMIT_SUPERSEDED, KafkaError
from pop_stream.kafka.topics import InsightSubscription
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.puller.claiming.pipeline import BUFFER_RECORDS, ClaimContext, ClaimPipeline
from pop_stream.settings import Settings
from pop_stream.telemetry.progress import ConsumerProgress

_ANSWER_S: Final = 5.0
_RETRY_S: Final = 1.0
_POLL_S: Final = 4.0
_NO_POLL_LIMIT_MS: Final = 2**31 - 1

_log = structlog.get_logger()


class ClaimCommitter:
    """Commits what one consumer has claimed, and says whether that is known to count.

    Args:
        consumer: A member of the insight's group.
        progress: Shows what is committed.
    """

    def __init__(self, consumer: KafkaConsumer, progress: ConsumerProgress) -> None:
        self._consumer = consumer
        self._generation = 0
        self._progress = progress

    def end_generation(self) -> None:
        """Partitions move: what is not committed by now is not tried again."""
        self._generation += 1

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit offsets, and try again until there is an answer or partitions move.

        Args:
            offsets: What follows the last claimed record, by partition.

        Returns:
            Whether the commit counts. If not, it was refused, or may have been written though
            no answer came: the caller gives up what it has claimed.
        """
        partitions = sorted(tp.partition for tp in offsets)
        generation, is_logged = self._generation, False
        while generation == self._generation:
            try:
                async with asyncio.timeout(_ANSWER_S):
                    await self._consumer.commit(offsets)
            except COMMIT_SUPERSEDED:
                break
            except (KafkaError, TimeoutError) as error:
                if not is_logged:
                    _log.warning("claim.uncommitted", partitions=partitions, error=repr(error))
                is_logged = True
                await asyncio.sleep(_RETRY_S)
            else:
                self._progress.mark_handled(offsets)
                return True
        # A commit whose answer was lost while partitions moved is written or is not, and may
        # come to count while their next owner looks where to begin. Starting what it covers
        # could start it twice; giving it up costs an attempt at most. If it was not written,
        # the next owner reads the records and claims the same attempts. If it was, nobody
        # reads them, and their leases end.
        _log.info("claim.given_up", partitions=partitions)
        return False


class InsightConsumer:
    """Consumes an insight's topic as a member of its consumer group; one per insight.

    Records are read ahead, so that one is in hand when a slot becomes free. They are committed
    once they are claimed; until then they are lag to the scheduler.

    Args:
        settings: Where the cluster is.
        queue: What to read, and as which group.
        claim_context: Shared with the puller's other consumers.
    """

    def __init__(
        self, settings: Settings, queue: InsightSubscription, claim_context: ClaimContext
    ) -> None:
        self._settings = settings
        self._queue = queue
        self._claim_context = claim_context

    async def consume(self, stop: asyncio.Event) -> None:
        """Read and claim until `stop`, then leave the group. The topic must exist.

        Ends early, with the error, if Kafka or a claim fails; it may be called again.

        Raises:
            KafkaError: If Kafka is in trouble; call it again.
            OSError: The same.
        """
        consumer = clients.consumer(
            self._settings,
            client_id=f"puller.{self._queue.insight_id}",
            group_id=self._queue.group,
            partition_assignment_strategy=(RoundRobinAssignor,),
            # A full puller does not poll, and is no less alive for it.
            max_poll_interval_ms=_NO_POLL_LIMIT_MS,
        )

        progress = progress_of(consumer, self._queue.group)
        committer = ClaimCommitter(consumer, progress)
        pipeline = ClaimPipeline(self._claim_context, committer.commit, end_within_s=_ANSWER_S)
        try:
            await consumer.start()
            with progress:
                async with pipeline:
                    within_s = self._settings.session_timeout.total_seconds() / 2
                    listener = _RebalanceListener(pipeline, committer, within_s)
                    consumer.subscribe([self._queue.topic], listener=listener)
                    await _read_until(stop, consumer, pipeline, progress)
        finally:
            await _leave(consumer)


class _RebalanceListener(RebalanceListener):  # type: ignore[misc]  # aiokafka is untyped here
    """Lets partitions move only after the claims in progress are committed."""

    def __init__(
        self, pipeline: ClaimPipeline, committer: ClaimCommitter, within_s: float
    ) -> None:
        self._pipeline = pipeline
        self._committer = committer
        self._within_s = within_s

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Called before the group is joined again."""
        try:
            if revoked:
                await self._pipeline.drain(self._within_s)
        finally:
            # Before this consumer is a member of the next generation: as such a commit of
            # before could set back what the partition's new owner has committed.
            self._committer.end_generation()

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Called once the group has settled."""
        _log.info("consumer.assigned", partitions=sorted(tp.partition for tp in assigned))


async def _read_until(
    stop: asyncio.Event,
    consumer: KafkaConsumer,
    pipeline: ClaimPipeline,
    progress: ConsumerProgress,
) -> None:
    """Read until `stop`, or until a claim failed; at rest nothing else wakes this."""
    reading = asyncio.create_task(_read_forever(consumer, pipeline, progress))
    waits = [reading, *map(asyncio.create_task, (stop.wait(), pipeline.wait_failed()))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    if not reading.cancelled():
        reading.result()


async def _read_forever(
    consumer: KafkaConsumer, pipeline: ClaimPipeline, progress: ConsumerProgress
) -> NoReturn:
    """Take in hand what there is, or wait a little, again and again.

    Everything is read as it comes: the client asks a broker for nothing while it holds
    records of one of its partitions.
    """
    while True:
        if not await pipeline.wait_for_room(_POLL_S):
            continue
        with suppress(TimeoutError):
            # While the group rebalances, `getmany` heeds no timeout of its own.
            async with asyncio.timeout(_ANSWER_S):
                fetched: Mapping[
                    TopicPartition, Sequence[ConsumedRecord]
                ] = await consumer.getmany(
                    timeout_ms=int(_POLL_S * 1000), max_records=BUFFER_RECORDS
                )
                progress.mark_read(fetched)
                for records in fetched.values():
                    pipeline.add(records)


async def _leave(consumer: KafkaConsumer) -> None:
    try:
        async with asyncio.timeout(_ANSWER_S):
            await consumer.stop()
    except (KafkaError, TimeoutError, OSError) as error:
        _log.warning("consumer.leave_failed", error=repr(error))
