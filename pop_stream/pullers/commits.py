"""Commits of claims, and what became of one whose answer was lost while partitions moved.

Beside an offset is written by whom, and where each owner before took over. So whoever lost a
partition with a commit on its way can tell whether the next owner began after it.
"""

import asyncio
import secrets
from collections.abc import Mapping, Set
from typing import Any, Final, Self

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

_ANSWER_S: Final = 5.0
_RETRY_S: Final = 1.0
_REMEMBERED: Final = 16

_log = structlog.get_logger()


class Trail:
    """Who has committed in a partition: the metadata of its committed offset, as a value.

    Args:
        mark: Of whoever committed last.
        before: Marks of owners before, newest first, each with the last offset it committed.
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
        """The trail of who goes on at an offset, which may be the same as before."""
        if mark == self.mark:
            return self
        return Trail(mark, ((self.mark, offset), *self._before)[:_REMEMBERED])

    def holds(self, mark: str, wanted: int, committed: int) -> bool:
        """Whether this mark has committed an offset, or one after it.

        Args:
            mark: Whose commit.
            wanted: Of what.
            committed: The offset that the trail is of.
        """
        known = ((self.mark, committed), *self._before)
        return any(who == mark and at >= wanted for who, at in known)


class ClaimCommits:
    """Commits for one consumer, however long that takes; it is told of each rebalance."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self._mark = secrets.token_hex(6)
        self._trails: dict[TopicPartition, Trail] = {}
        self._term = 0

    def moved(self) -> None:
        """The group has just given partitions, be they the same as before."""
        self._trails.clear()
        self._term += 1

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit; False if others have the partitions, and will read these records.

        Of a commit without an answer nobody knows whether it is written. It is asked for again,
        for this puller may have been frozen, and others may have what it was about to start.
        """
        partitions, term = sorted(tp.partition for tp in offsets), self._term
        is_told = False
        while term == self._term:
            try:
                async with asyncio.timeout(_ANSWER_S):
                    marked = await self._marked(offsets)
                    if term != self._term:
                        break
                    await self._consumer.commit(marked)
            except (CommitFailedError, IllegalStateError):
                break
            except (KafkaError, TimeoutError) as error:
                if not is_told:
                    _log.warning("claim.uncommitted", partitions=partitions, error=repr(error))
                is_told = True
                await asyncio.sleep(_RETRY_S)
            else:
                return True
        is_written = await self._is_written(offsets)
        _log.info("claim.overtaken", partitions=partitions, is_written=is_written)
        return is_written

    async def _marked(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, str]]:
        """The offsets with their trails, asked for where the partition is new here."""
        trails = self._trails
        if new := offsets.keys() - trails.keys():
            known = await self._committed(new)
            for tp in new:
                trail = Trail(self._mark)
                if tp in known:
                    offset, metadata = known[tp]
                    trail = Trail.read(metadata).taken_over(self._mark, offset)
                trails[tp] = trail
        return {tp: (offset, trails[tp].written()) for tp, offset in offsets.items()}

    async def _is_written(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether the next owner began after the commit, so that nobody else has its records.

        A commit is written whole, so one partition tells for all.
        """
        while True:
            try:
                async with asyncio.timeout(_ANSWER_S):
                    known = await self._committed(offsets.keys())
            except (KafkaError, TimeoutError):
                await asyncio.sleep(_RETRY_S)
            else:
                return any(
                    Trail.read(metadata).holds(self._mark, offsets[tp], committed)
                    for tp, (committed, metadata) in known.items()
                )

    async def _committed(
        self, partitions: Set[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[int, str]]:
        coordinator: Any = self._consumer._coordinator  # noqa: SLF001  # for metadata
        found: Mapping[TopicPartition, tuple[int, str]]
        found = await coordinator.fetch_committed_offsets([*partitions])
        return found
