"""Reads one insight's topic as a member of its group, as fast as agendas can be taken.

Commits of claims, and what became of one whose answer was lost while partitions moved.

Beside an offset is written by whom, and where whoever came after each owner began; everybody
writes that before anything else. So whoever lost a partition with a commit on its way can tell
whether its next owner began after it.
"""

import asyncio
import secrets
from collections.abc import Collection, Mapping, Set
from contextlib import suppress
from time import monotonic
from typing import Any, Final, NoReturn, Self

import structlog

from pop_stream.kafka import clients
from pop_stream.kafka.clients import KafkaConsumer, RebalanceListener, RoundRobinAssignor
from pop_stream.kafka.errors import COMMIT_SUPERSEDED, KafkaError
from pop_stream.kafka.topics import InsightSubscription
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.puller.claiming.pipeline import BUFFER_RECORDS, ClaimContext, ClaimPipeline
from pop_stream.settings import Settings

_ANSWER_S: Final = 5.0
_RETRY_S: Final = 1.0
_HEIR_S: Final = 30.0
_REMEMBERED: Final = 16

_log = structlog.get_logger()


class Trail:
    """Who has committed in a partition: the metadata of its committed offset, as a value.

    Args:
        mark: Of whoever committed last; empty for somebody who leaves none.
        before: Marks of owners before, newest first, each with where the one after it began.
    """

    __slots__ = ("_before", "mark")

    def __init__(self, mark: str, before: tuple[tuple[str, int], ...] = ()) -> None:
        self.mark = mark
        self._before = before

    @classmethod
    def read(cls, metadata: str) -> Self:
        """What `written` gave; anything else is somebody's of whom nothing is known."""
        mark, _, rest = metadata.partition(" ")
        pairs = [one.partition("@") for one in rest.split()]
        return cls(mark, tuple((who, int(at)) for who, _, at in pairs if at.isdecimal()))

    def written(self) -> str:
        """As metadata: some hundred characters."""
        return " ".join([self.mark, *(f"{who}@{at}" for who, at in self._before)])

    def taken_over(self, mark: str, offset: int) -> "Trail":
        """The trail of who begins at an offset, unless it is its own already."""
        if mark == self.mark:
            return self
        if not self.mark:
            return Trail(mark)
        return Trail(mark, ((self.mark, offset), *self._before)[:_REMEMBERED])

    def holds(self, mark: str, wanted: int, committed: int) -> bool | None:
        """Whether what follows this mark begins at an offset, or after it.

        Args:
            mark: Whose commit.
            wanted: Of what.
            committed: The offset that the trail is of.

        Returns:
            None if the mark is not in the trail.
        """
        known = ((self.mark, committed), *self._before)
        return next((at >= wanted for who, at in known if who == mark), None)


class ClaimCommitter:
    """Commits for one consumer, however long that takes.

    It is told of each rebalance, and of what is read; `begin` has to run.
    """

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer
        self._term = 0
        self._mark = ""
        self._began: dict[TopicPartition, int] = {}
        self._trails: dict[TopicPartition, Trail] = {}
        self._given: Collection[TopicPartition] = ()
        self._moved, self._has_begun = asyncio.Event(), asyncio.Event()

    def moved(self, assigned: Collection[TopicPartition]) -> None:
        """The group has just given these partitions, be they the same as before."""
        self._term += 1
        self._mark = secrets.token_hex(4)
        self._began, self._trails = {}, {}
        self._given = assigned
        self._has_begun.clear()
        self._moved.set()

    def note_read(self, partition: TopicPartition, offset: int) -> None:
        """The first of some records that were read; the first ever tells where this began."""
        self._began.setdefault(partition, offset)

    async def begin(self) -> NoReturn:
        """After each rebalance write where this consumer goes on, before it commits anything.

        A commit that is written but does not count yet, for a follower is missing, is undone
        by that: whoever waits for it then reads in the trail that its records are read again.
        """
        while True:
            await self._moved.wait()
            self._moved.clear()
            term = self._term
            while term == self._term and not self._has_begun.is_set():
                try:
                    async with asyncio.timeout(_ANSWER_S):
                        await self._begin(term)
                except COMMIT_SUPERSEDED:
                    break
                except (KafkaError, TimeoutError) as error:
                    _log.warning("claim.begin_uncommitted", error=repr(error))
                    await asyncio.sleep(_RETRY_S)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> Collection[TopicPartition]:
        """Commit; those partitions of which others will not read the records before.

        Of a commit without an answer nobody knows whether it is written. It is asked for again,
        for this puller may have been frozen, and others may have what it was about to start.
        """
        partitions, term, mark = sorted(tp.partition for tp in offsets), self._term, self._mark
        is_told = False
        while term == self._term:
            try:
                async with asyncio.timeout(_ANSWER_S):
                    await self._has_begun.wait()
                    if term != self._term:
                        break
                    await self._consumer.commit(self._marked(offsets))
            except COMMIT_SUPERSEDED:
                break
            except (KafkaError, TimeoutError) as error:
                if not is_told:
                    _log.warning("claim.uncommitted", partitions=partitions, error=repr(error))
                is_told = True
                await asyncio.sleep(_RETRY_S)
            else:
                return offsets.keys()
        written = await self._written(offsets, mark)
        _log.info(
            "claim.superseded",
            partitions=partitions,
            written=sorted(tp.partition for tp in written),
        )
        return written

    async def _begin(self, term: int) -> None:
        given, began = self._given, self._began
        if given:
            for tp, at in zip(given, await self._positions(given), strict=True):
                began.setdefault(tp, at)
            known = await self._committed({*given})
            if term != self._term:
                return
            for tp in given:
                metadata = known[tp][1] if tp in known else ""
                self._trails[tp] = Trail.read(metadata).taken_over(self._mark, began[tp])
            await self._consumer.commit(self._marked({tp: began[tp] for tp in given}))
        if term == self._term:
            self._has_begun.set()

    async def _positions(self, partitions: Collection[TopicPartition]) -> list[int]:
        found: list[int] = await asyncio.gather(*map(self._consumer.position, partitions))
        return found

    def _marked(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, str]]:
        return {tp: (offset, self._trails[tp].written()) for tp, offset in offsets.items()}

    async def _written(
        self, offsets: Mapping[TopicPartition, int], mark: str
    ) -> Collection[TopicPartition]:
        """Of which partitions the next owner began after the commit, once all have one.

        Before, a commit that is on its way to the followers could still count.
        """
        until_s = monotonic() + _HEIR_S
        while True:
            try:
                async with asyncio.timeout(_ANSWER_S):
                    known = await self._committed(offsets.keys())
            except (KafkaError, TimeoutError):
                await asyncio.sleep(_RETRY_S)
                continue
            trails = {tp: (at, Trail.read(metadata)) for tp, (at, metadata) in known.items()}
            if monotonic() > until_s or all(
                tp in trails and trails[tp][1].mark != mark for tp in offsets
            ):
                return _told(offsets, mark, trails)
            await asyncio.sleep(_RETRY_S)

    async def _committed(
        self, partitions: Set[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[int, str]]:
        coordinator: Any = self._consumer._coordinator  # noqa: SLF001  # for metadata
        found: Mapping[TopicPartition, tuple[int, str]]
        found = await coordinator.fetch_committed_offsets([*partitions])
        return found


def _told(
    offsets: Mapping[TopicPartition, int],
    mark: str,
    trails: Mapping[TopicPartition, tuple[int, Trail]],
) -> Collection[TopicPartition]:
    """Those whose trail tells that what follows the mark begins after the commit.

    Where others wrote no trail, the other partitions tell: a commit is written whole.
    """
    told = {
        tp: trail.holds(mark, offsets[tp], committed)
        for tp, (committed, trail) in trails.items()
    }
    known = [one for one in told.values() if one is not None]
    others = bool(known) and all(known)
    return {tp for tp in offsets if (others if told.get(tp) is None else told[tp])}


_POLL_S: Final = 4.0
_NO_POLL_LIMIT_MS: Final = 2**31 - 1


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
            partition_assignment_strategy=(RoundRobinAssignor,),
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


class _RebalanceListener(RebalanceListener):  # type: ignore[misc]  # aiokafka is untyped here
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
        _log.info("consumer.assigned", partitions=sorted(tp.partition for tp in assigned))


async def _read_until(
    stop: asyncio.Event,
    consumer: KafkaConsumer,
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
    consumer: KafkaConsumer, pipeline: ClaimPipeline, commits: ClaimCommitter
) -> NoReturn:
    while True:
        await _read(consumer, pipeline, commits)


async def _read(
    consumer: KafkaConsumer, pipeline: ClaimPipeline, commits: ClaimCommitter
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
            fetched: Mapping[TopicPartition, list[ConsumedRecord]] = await consumer.getmany(
                timeout_ms=int(_POLL_S * 1000), max_records=BUFFER_RECORDS
            )
            for tp, records in fetched.items():
                commits.note_read(tp, records[0].offset)
                pipeline.add(records)


async def _leave(consumer: KafkaConsumer) -> None:
    try:
        async with asyncio.timeout(_ANSWER_S):
            await consumer.stop()
    except (KafkaError, TimeoutError, OSError) as error:
        _log.warning("consumer.leave_failed", error=repr(error))
