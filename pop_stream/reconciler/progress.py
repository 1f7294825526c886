"""Whether rollup, relay and ingest have come far enough to say anything of an agenda."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from pop_stream.kafka import clients
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnavailableError
from pop_stream.ports.lag import LagProbe
from pop_stream.ports.records import TopicPartition
from pop_stream.settings import Settings

_CATCH_UP_TIMEOUT_S: Final = 30.0
_FOLD_TIMEOUT_S: Final = 60.0
_POLL_EVERY_S: Final = 0.25


class TopicBounds(NamedTuple):
    """Where a topic begins and ends, by partition."""

    begins: Mapping[int, int]
    ends: Mapping[int, int]


ReadBounds = Callable[[str], Awaitable[TopicBounds]]
"""`read_bounds` of one cluster."""


class FoldedOffsets(Protocol):
    """How far the rollup has come; raises UnavailableError while Postgres is away."""

    async def folded(self, topic: str) -> Mapping[int, int]:
        """How far each partition of a topic has been folded."""
        ...


class FoldCheck(NamedTuple):
    """How the rollup stands with `pop.agenda-events`.

    Attributes:
        behind: Events that were not folded when the check began.
        errors: What no rollup can catch up with, for people.
    """

    behind: int
    errors: list[str]


class PartProgress:
    """Waits for the parts that carry agendas on.

    Args:
        topics: Names of topics and groups.
        folded: How far the rollup has come.
        probe: How far ingest and relay have come.
        bounds: Where topics begin and end.
    """

    def __init__(
        self, topics: Topics, folded: FoldedOffsets, probe: LagProbe, bounds: ReadBounds
    ) -> None:
        self._topics = topics
        self._folded = folded
        self._probe = probe
        self._read_bounds = bounds

    async def wait_until_folded(self) -> None:
        """Wait until all lifecycle events that are written by now are folded.

        Raises:
            UnavailableError: If that takes half a minute, or Kafka or Postgres is away.
        """
        written = await self._ends("relay", self._topics.agenda_events)
        await self._wait_until(lambda: self._has_folded(written))

    async def wait_until_arrived(self) -> None:
        """Wait until all that is written by now has come to where agendas are counted.

        Events are folded and relayed, submissions are placed.

        Raises:
            UnavailableError: If that takes half a minute, or Kafka or Postgres is away.
        """
        events, submissions = self._topics.agenda_events, self._topics.submissions
        written = await self._ends("relay", events)
        submitted = await self._ends("ingest", submissions)

        async def has_arrived() -> bool:
            return (
                await self._has_folded(written)
                and _reaches(await self._committed("relay", events), written)
                and _reaches(await self._committed("ingest", submissions), submitted)
            )

        await self._wait_until(has_arrived)

    async def check_folding(self) -> FoldCheck:
        """Compare folded offsets with the topic, and wait until all is folded that can be.

        Raises:
            UnavailableError: If the rollup does not keep up, or Kafka or Postgres is away.
        """
        topic = self._topics.agenda_events
        before = await self._folded.folded(topic)
        bounds = await self._read_bounds(topic)
        after = await self._folded.folded(topic)
        errors = [*_offset_errors(topic, bounds, before, after)]
        behind = sum(max(0, end - after.get(number, 0)) for number, end in bounds.ends.items())
        if not errors:
            try:
                async with asyncio.timeout(_FOLD_TIMEOUT_S):
                    while not await self._has_folded(bounds.ends):  # noqa: ASYNC110  # no event
                        await asyncio.sleep(_POLL_EVERY_S)
            except TimeoutError:
                msg = (
                    f"the rollup has not folded what was written {_FOLD_TIMEOUT_S:g} s ago: it "
                    "is down or far behind, so nothing can be said of any agenda; see to it "
                    "first"
                )
                raise UnavailableError(msg) from None
        return FoldCheck(behind, errors)

    async def _has_folded(self, ends: Mapping[int, int]) -> bool:
        return _reaches(await self._folded.folded(self._topics.agenda_events), ends)

    async def _wait_until(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        try:
            async with asyncio.timeout(_CATCH_UP_TIMEOUT_S):
                while not await is_so():  # noqa: ASYNC110  # other processes advance
                    await asyncio.sleep(_POLL_EVERY_S)
        except TimeoutError:
            msg = "rollup, relay or ingest is far behind, so nothing can be said of any agenda"
            raise UnavailableError(msg) from None

    async def _ends(self, part: str, topic: str) -> Mapping[int, int]:
        progress = await self._probe.fetch_group_offsets(self._topics.group(part), topic)
        if progress is None:
            msg = f"how far {part} has come with {topic} is not known"
            raise UnavailableError(msg)
        return progress.ends

    async def _committed(self, part: str, topic: str) -> Mapping[int, int]:
        progress = await self._probe.fetch_group_offsets(self._topics.group(part), topic)
        return {} if progress is None else progress.committed


def _reaches(known: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    return all(known.get(number, 0) >= end for number, end in ends.items())


def _offset_errors(
    topic: str, bounds: TopicBounds, before: Mapping[int, int], after: Mapping[int, int]
) -> Iterator[str]:
    """What is wrong with what was folded before the bounds were read, and after.

    Both are needed: events are written and folded while the bounds are read, so what is folded
    after may lie beyond the end, and what was folded before may lie behind the beginning.
    """
    for number, end in sorted(bounds.ends.items()):
        begin, known = bounds.begins.get(number, 0), after.get(number, 0)
        if (was := before.get(number, 0)) > end:
            yield (
                f"partition {number} of {topic} was folded up to {was} and ends at {end}: "
                "the topic was made anew, or has lost records; clear its consumed_offsets"
            )
        elif known < begin:
            yield (
                f"partition {number} of {topic} was folded up to {known} and begins at "
                f"{begin}: retention removed what was never folded"
            )


async def read_bounds(settings: Settings, topic: str) -> TopicBounds:
    """Where each partition of a topic begins and ends now."""
    async with clients.consumer(settings, topic, client_id="ledger", group_id=None) as consumer:
        numbers = sorted(consumer.partitions_for_topic(topic) or ())
        partitions = [TopicPartition(topic, number) for number in numbers]
        begins = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
    return TopicBounds(
        {one.partition: offset for one, offset in begins.items()},
        {one.partition: offset for one, offset in ends.items()},
    )
