"""What is on insights' topics already, though the table may not know it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import Final

from pop_stream.bus.topics import Topics
from pop_stream.core.backlog.whereabouts import Chosen
from pop_stream.core.errors import UnreadableRecordError
from pop_stream.core.events import decode_emitted
from pop_stream.scheduler.desk import Desk

MOST_WRITTEN: Final = 3
"""So often a record may be on its topic, as one whose acknowledgement failed was sent again."""

_GLANCE: Final = 100
_LOOK: Final = 6_000

Attempt = tuple[str, int]
"""An agenda, and the number of an attempt."""

Attempts = Set[Attempt]

Tails = Callable[
    [Mapping[str, int], Callable[[bytes], Attempt | None]],
    Awaitable[Mapping[str, Sequence[Attempt | None]]],
]
"""Reads the newest values of topics: so many of each partition, or all if there are fewer."""


class OnTopic:
    """Looks.

    Args:
        topics: Names of topics.
        tails: Reads them.
    """

    def __init__(self, topics: Topics, tails: Tails) -> None:
        self._topics = topics
        self._tails = tails

    async def look_back(self, desks: Sequence[Desk]) -> None:
        """Find what is on the topic of an insight that was just read, before its first round.

        A crash may have let a round out and kept its row from being written. It is chosen
        again, but what is there is not sent again: it might go elsewhere, to two pullers.

        Raises:
            UnavailableError: If the topics cannot be read; they are looked at again.
        """
        new = [desk for desk in desks if desk.known is None and desk.slots()]
        glanced = await self._forgotten(new, _GLANCE)
        # What was forgotten is the newest of each partition. If it fills what was looked at
        # of one, there may be more.
        many = [desk for desk in new if MOST_WRITTEN * len(glanced[desk.insight_id]) >= _GLANCE]
        found = glanced | await self._forgotten(many, _LOOK)
        for desk in new:
            desk.known = found[desk.insight_id]

    async def _forgotten(self, desks: Sequence[Desk], most: int) -> dict[str, set[Attempt]]:
        there = await self.attempts([(desk, most) for desk in desks])
        return {
            desk.insight_id: {one for one in seen if desk.backlog.slots.is_ready(*one)}
            for desk, seen in zip(desks, there, strict=True)
        }

    async def attempts(self, desks: Sequence[tuple[Desk, int]]) -> list[Attempts]:
        """Those on the topic of each; what is no such record is left out.

        Args:
            desks: Each with how many of the newest records of a partition are looked at.

        Raises:
            UnavailableError: If the topics cannot be read.
        """
        if not desks:
            return []
        there = await self._tails({self.name(desk): most for desk, most in desks}, _attempt)
        return [
            {one for one in there.get(self.name(desk), ()) if one is not None}
            for desk, _ in desks
        ]

    def name(self, desk: Desk) -> str:
        """Of the insight's topic."""
        return self._topics.insight(desk.insight_id, desk.backlog.insight.group_type)


def lacking(chosen: Sequence[Chosen], known: Attempts) -> list[Chosen]:
    """Those of a round that are not known to be on their topic."""
    return [one for one in chosen if (one.agenda_id, one.attempt) not in known]


def _attempt(value: bytes) -> Attempt | None:
    try:
        emitted = decode_emitted(value)
    except UnreadableRecordError:
        return None
    return emitted.agenda_id, emitted.attempt
