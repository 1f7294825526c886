"""What is on insights' topics already, though the table may not know it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import Final

from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import decode_emitted
from pop_stream.policy.backlog.page import ChosenAgenda
from pop_stream.scheduler.insight import OwnedInsight

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

    async def load_unrecorded(self, insights: Sequence[OwnedInsight]) -> None:
        """Find what is on the topic of an insight that was just read, before its first round.

        A crash may have let a round out and kept its row from being written. It is chosen
        again, but what is there is not sent again: it might go elsewhere, to two pullers.

        Raises:
            UnavailableError: If the topics cannot be read; they are looked at again.
        """
        new = [
            owned
            for owned in insights
            if owned.emitted_before is None and owned.scheduler.budget()
        ]
        glanced = await self._unrecorded(new, _FIRST_READ)
        # What was forgotten is the newest of each partition. If it fills what was looked at
        # of one, there may be more.
        many = [
            owned for owned in new if MAX_COPIES * len(glanced[owned.insight_id]) >= _FIRST_READ
        ]
        found = glanced | await self._unrecorded(many, _FULL_READ)
        for owned in new:
            owned.emitted_before = found[owned.insight_id]

    async def _unrecorded(
        self, insights: Sequence[OwnedInsight], most: int
    ) -> dict[str, set[AttemptKey]]:
        there = await self.attempts([(owned, most) for owned in insights])
        return {
            owned.insight_id: {one for one in seen if owned.backlog.slots.is_ready(*one)}
            for owned, seen in zip(insights, there, strict=True)
        }

    async def attempts(self, insights: Sequence[tuple[OwnedInsight, int]]) -> list[AttemptKeys]:
        """Those on the topic of each; what is no such record is left out.

        Args:
            insights: Each with how many of the newest records of a partition are looked at.

        Raises:
            UnavailableError: If the topics cannot be read.
        """
        if not insights:
            return []
        there = await self._read_newest(
            {self.topic_of(owned): most for owned, most in insights}, _attempt
        )
        return [
            {one for one in there.get(self.topic_of(owned), ()) if one is not None}
            for owned, _ in insights
        ]

    def topic_of(self, owned: OwnedInsight) -> str:
        """Of the insight's topic."""
        return self._topics.insight(owned.insight_id, owned.backlog.insight.group_type)


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
