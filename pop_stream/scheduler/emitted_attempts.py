"""Reads from insights' topics which attempts are emitted already.

After a crash the table may know less than the topics. What is on a topic is not published a
second time: the repeat might go to another partition, and so to a second puller.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import Final

from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import decode_emitted
from pop_stream.policy.backlog.agenda_index import ChosenAgenda
from pop_stream.scheduler.insight import OwnedInsight

MAX_COPIES: Final = 3
"""Most copies of a record on its topic: one whose acknowledgement was lost is sent again."""

_FIRST_READ: Final = 100
_FULL_READ: Final = 6_000
"""Newest records of a partition that are read: at first, and if those may not be all. A full
round of the largest size, three times over, fits the second."""

AttemptKey = tuple[str, int]
"""An agenda's id and the number of an attempt."""

AttemptKeys = Set[AttemptKey]

NewestReader = Callable[
    [Mapping[str, int], Callable[[bytes], AttemptKey | None]],
    Awaitable[Mapping[str, Sequence[AttemptKey | None]]],
]
"""Reads the newest records of topics, given how many of each partition, and applies the
function to each value."""


class EmittedAttempts:
    """Reads attempts from insights' topics; keeps nothing itself.

    Args:
        topics: Names of topics.
        read_newest: Reads the newest records.
    """

    def __init__(self, topics: Topics, read_newest: NewestReader) -> None:
        self._topics = topics
        self._read_newest = read_newest

    async def load_unrecorded(self, insights: Sequence[OwnedInsight]) -> None:
        """Set `emitted_before` of insights that were just loaded and are about to emit.

        These are attempts that are on the topic while the table has them as ready: a crash let
        a round be published and kept its row from being written. Does nothing for insights that
        have it already.

        Raises:
            UnavailableError: If the topics cannot be read; nothing was set.
        """
        new = [
            owned
            for owned in insights
            if owned.emitted_before is None and owned.scheduler.budget()
        ]
        first = await self._unrecorded(new, _FIRST_READ)
        # They are the newest records of each partition. If they fill what was read of one,
        # there may be more of them.
        many = [
            owned for owned in new if MAX_COPIES * len(first[owned.insight_id]) >= _FIRST_READ
        ]
        found = first | await self._unrecorded(many, _FULL_READ)
        for owned in new:
            owned.emitted_before = found[owned.insight_id]

    async def _unrecorded(
        self, insights: Sequence[OwnedInsight], most: int
    ) -> dict[str, set[AttemptKey]]:
        there = await self.attempts([(owned, most) for owned in insights])
        return {
            owned.insight_id: {one for one in seen if owned.backlog.index.is_ready(*one)}
            for owned, seen in zip(insights, there, strict=True)
        }

    async def attempts(self, insights: Sequence[tuple[OwnedInsight, int]]) -> list[AttemptKeys]:
        """The attempts on the topic of each insight, in the order of `insights`.

        Records that are no emitted agendas are left out.

        Args:
            insights: Each with how many of the newest records of a partition are read.

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
        """The name of the insight's topic."""
        return self._topics.insight(owned.insight_id, owned.backlog.insight.group_type)


def missing_from_topic(
    chosen: Sequence[ChosenAgenda], known: AttemptKeys
) -> list[ChosenAgenda]:
    """Those of a round that are not known to be on their topic, in the round's order."""
    return [one for one in chosen if (one.agenda_id, one.attempt) not in known]


def _attempt(value: bytes) -> AttemptKey | None:
    try:
        emitted = decode_emitted(value)
    except UnreadableRecordError:
        return None
    return emitted.agenda_id, emitted.attempt
