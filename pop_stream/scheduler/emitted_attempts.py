"""What is on insights' topics already, though the table may not know it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import Final

from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import decode_emitted
from pop_stream.policy.backlog.page import ChosenAgenda
from pop_stream.scheduler.insight import InsightScheduler

MAX_COPIES: Final = 3
"""So often a record may be on its topic, as one whose acknowledgement failed was sent again."""

_FIRST_READ: Final = 100
_FULL_READ: Final = 6_000

AttemptKey = tuple[str, int]
"""An agenda, and the number of an attempt."""

AttemptKeys = Set[AttemptKey]

NewestReader = Callable[
    [Mapping[str, int], Callable[[bytes], AttemptKey | None]],
    Awaitable[Mapping[str, Sequence[AttemptKey | None]]],
]
"""Reads the newest values of topics: so many of each partition, or all if there are fewer."""


class EmittedAttempts:
    """Looks.

    Args:
        topics: Names of topics.
        read_newest: Reads them.
    """

    def __init__(self, topics: Topics, read_newest: NewestReader) -> None:
        self._topics = topics
        self._read_newest = read_newest

    async def load_unrecorded(self, schedulers: Sequence[InsightScheduler]) -> None:
        """Find what is on the topic of an insight that was just read, before its first round.

        A crash may have let a round out and kept its row from being written. It is chosen
        again, but what is there is not sent again: it might go elsewhere, to two pullers.

        Raises:
            UnavailableError: If the topics cannot be read; they are looked at again.
        """
        new = [
            scheduler
            for scheduler in schedulers
            if scheduler.known is None and scheduler.slots()
        ]
        glanced = await self._unrecorded(new, _FIRST_READ)
        # What was forgotten is the newest of each partition. If it fills what was looked at
        # of one, there may be more.
        many = [
            scheduler
            for scheduler in new
            if MAX_COPIES * len(glanced[scheduler.insight_id]) >= _FIRST_READ
        ]
        found = glanced | await self._unrecorded(many, _FULL_READ)
        for scheduler in new:
            scheduler.known = found[scheduler.insight_id]

    async def _unrecorded(
        self, schedulers: Sequence[InsightScheduler], most: int
    ) -> dict[str, set[AttemptKey]]:
        there = await self.attempts([(scheduler, most) for scheduler in schedulers])
        return {
            scheduler.insight_id: {
                one for one in seen if scheduler.backlog.slots.is_ready(*one)
            }
            for scheduler, seen in zip(schedulers, there, strict=True)
        }

    async def attempts(
        self, schedulers: Sequence[tuple[InsightScheduler, int]]
    ) -> list[AttemptKeys]:
        """Those on the topic of each; what is no such record is left out.

        Args:
            schedulers: Each with how many of the newest records of a partition are looked at.

        Raises:
            UnavailableError: If the topics cannot be read.
        """
        if not schedulers:
            return []
        there = await self._read_newest(
            {self.topic_of(scheduler): most for scheduler, most in schedulers}, _attempt
        )
        return [
            {one for one in there.get(self.topic_of(scheduler), ()) if one is not None}
            for scheduler, _ in schedulers
        ]

    def topic_of(self, scheduler: InsightScheduler) -> str:
        """Of the insight's topic."""
        return self._topics.insight(scheduler.insight_id, scheduler.backlog.insight.group_type)


def missing_from_topic(
    chosen: Sequence[ChosenAgenda], known: AttemptKeys
) -> list[ChosenAgenda]:
    """Those of a round that are not known to be on their topic."""
    return [one for one in chosen if (one.agenda_id, one.attempt) not in known]


def _attempt(value: bytes) -> AttemptKey | None:
    try:
        emitted = decode_emitted(value)
    except UnreadableRecordError:
        return None
    return emitted.agenda_id, emitted.attempt
