"""Publishes how agendas have ended, to `pop.agenda-ends`, while a rule waits for that.

An end is published before the transaction that folds it is committed. So none is lost; one may
be published twice, by a process that dies in between, and has the same position then.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from pop_stream.kafka.lifecycle_reader import LifecycleEntry
from pop_stream.kafka.publisher import publish_writable
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.codec import encode
from pop_stream.model.events.rules import POSITION_HEADER
from pop_stream.policy.lifecycle.ends import (
    AgendaEnd,
    PlacedEvent,
    ended_agenda,
    ends_of,
    may_end,
    position_of_event,
    trace_headers,
)
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.ports.summaries import SummaryChange

_TIMEOUT_S: Final = 10.0
"""A transaction is open meanwhile."""

BeforeCommit = Callable[[Sequence[SummaryChange]], Awaitable[None]]


class EndsPublisher:
    """Publishes ends.

    Args:
        topics: Names of topics.
        publisher: Of ends.
        definitions: Says which rules wait for ends.
    """

    def __init__(
        self, topics: Topics, publisher: Publisher, definitions: DefinitionSource
    ) -> None:
        self._topics = topics
        self._publisher = publisher
        self._definitions = definitions

    def before_commit(self, entries: Sequence[LifecycleEntry]) -> BeforeCommit | None:
        """What is to be done before a batch is committed; None if no rule waits for ends."""
        rules = self._definitions.current.rules.values()
        owners = {one.owner for one in rules if one.on == "agenda.ended"}
        if not owners:
            return None

        async def tell(changes: Sequence[SummaryChange]) -> None:
            ends = _ends(entries, changes)
            wanted = [
                (one, body) for one, body in ends if {None, one.summary.customer_id} & owners
            ]
            if wanted:
                await self._publish(wanted)

        return tell

    async def _publish(self, ends: Sequence[tuple[AgendaEnd, bytes]]) -> None:
        topic = self._topics.agenda_ends
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                partitions = await self._publisher.partitions(topic)
                records = [_record(topic, one, body, partitions) for one, body in ends]
                await publish_writable(self._publisher, records)
        except TimeoutError:
            msg = f"{topic} did not take ends within {_TIMEOUT_S:.0f} s"
            raise UnavailableError(msg) from None


def _ends(
    entries: Sequence[LifecycleEntry], changes: Sequence[SummaryChange]
) -> Iterator[tuple[AgendaEnd, bytes]]:
    """The ends among a batch's changes, in the order of their positions, with the agendas."""
    placed: dict[str, list[PlacedEvent]] = defaultdict(list)
    for record, event, _, number in entries:
        if event is not None:
            position = position_of_event(record.offset, number)
            placed[event.agenda_id].append(PlacedEvent(event, record.partition, position))
    found: list[tuple[AgendaEnd, bytes]] = []
    for before, after in changes:
        lifecycle = placed.get(after.agenda_id, [])
        if may_end(lifecycle):
            found += [(one, after.body) for one in ends_of(before, lifecycle)]
    return iter(sorted(found, key=lambda one: one[0].position))


def _record(topic: str, end: AgendaEnd, body: bytes, partitions: int) -> Record:
    headers = [
        (POSITION_HEADER, f"{end.partition}/{end.position}".encode()),
        *((name, one.encode()) for name, one in trace_headers(body).items()),
    ]
    ended = ended_agenda(end.summary, body)
    key = ended.agenda_id.encode()
    # Those of one partition stay in their order.
    return Record(topic, key, encode(ended), end.partition % partitions, headers=headers)
