"""What the scheduler does with one event: keep what it changes, then decide, or leave that."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pop_stream.bus.publisher import publish_until_acknowledged
from pop_stream.bus.topics import Topics
from pop_stream.core.backlog import hearing
from pop_stream.core.definitions.definitions import Insight
from pop_stream.core.errors import UnreadableRecordError
from pop_stream.core.events import (
    InsightAsked,
    InsightNoted,
    InsightPlaced,
    InsightTick,
    ReadyEvent,
    decode_placed,
    decode_ready,
    encode,
)
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.table import ReadyTable
from pop_stream.ports.wire import Publisher, Record
from pop_stream.scheduler.desk import Desk, save_rows
from pop_stream.scheduler.desks import Desks
from pop_stream.scheduler.emission import Emission, Source
from pop_stream.scheduler.on_topic import OnTopic, Tails

MOST_PUT_OFF: Final = 128
"""Records in a row that may leave the choice to the next: some ten milliseconds' work. So a
round of five to fifty, which waits for acknowledgements, never lets them pile up."""


TOLD_EVERY: Final = 500
"""Records of a partition after which a row tells how far they were handled. Most change nothing
in an idle one, and whoever has the partition next reads again what no row tells of."""


class NoEventError(UnreadableRecordError):
    """A record of `pop.ready` is no event; nothing was done, so nothing need be read anew."""


@dataclass(slots=True)
class _PutOff:
    """Desks of a partition that wait for their choice, and for how many records already."""

    desks: dict[str, Desk] = field(default_factory=dict)
    records: int = 0

    def add(self, desks: Mapping[str, Desk]) -> None:
        self.desks.update(desks)
        self.records += 1


class Rounds:
    """All desks of this worker, by partition of `pop.ready`; one event at a time.

    Args:
        table: The ReadyAgenda table.
        publisher: Ours, idempotent, with acks=all; not Faust's.
        definitions: Customers and insights in force.
        clock: For the instants in events.
        topics: Names of topics.
        create_topic: Makes sure an insight's topic exists, with its partitions.
        partitions: Of `pop.ready`.
        is_sure_of: Whether a partition is surely this worker's at the moment.
        tails: Reads what is on insights' topics already.
        term: Greater with each owner of a partition; asked when it is loaded.
    """

    def __init__(  # noqa: PLR0913  # every port the scheduler needs, named once
        self,
        *,
        table: ReadyTable,
        publisher: Publisher,
        definitions: DefinitionSource,
        clock: Clock,
        topics: Topics,
        create_topic: Callable[[Insight], Awaitable[None]],
        partitions: int,
        is_sure_of: Callable[[int], bool],
        tails: Tails,
        term: Callable[[], int] = lambda: 0,
    ) -> None:
        self._publisher = publisher
        self._clock = clock
        self._topics = topics
        self._is_sure_of = is_sure_of
        self._desks = Desks(
            table=table,
            definitions=definitions,
            clock=clock,
            topics=topics,
            partitions=partitions,
            term=term,
        )
        self._emission = Emission(
            self._desks,
            table=table,
            publisher=publisher,
            clock=clock,
            topics=topics,
            create_topic=create_topic,
            is_sure_of=is_sure_of,
            on_topic=OnTopic(topics, tails),
        )
        self._put_off: dict[int, _PutOff] = {}
        self._untold: dict[int, int] = {}

    def desks(self) -> list[Desk]:
        """All insights this worker decides for."""
        return self._desks.everywhere

    def sure_desks(self) -> list[Desk]:
        """Those of partitions that are surely this worker's still."""
        return [desk for desk in self.desks() if self._is_sure_of(desk.partition)]

    def loaded(self) -> set[int]:
        """Partitions whose backlogs are in memory."""
        return self._desks.loaded

    def may_emit(self, desk: Desk) -> bool:
        """Whether a round may choose one now, or must look because definitions changed."""
        if not self._desks.is_up_to_date:
            return True
        now = self._clock.now().timestamp()
        return desk.slots() > 0 and desk.backlog.queue.may_pick(now)

    def has_grown(self, desk: Desk) -> bool:
        """Whether its topic has fewer partitions than its definition says by now."""
        return 0 < desk.partitions_before < self._desks.partitions_of(desk)

    def kept_until(self, partition: int) -> int | None:
        """The offset before which the table shows all records to have been handled.

        None if no row tells.
        """
        shelves = [desk.shelf for desk in self._desks.of(partition).values()]
        torn = [shelf.offset for shelf in shelves if shelf.lacks_rows]
        last = min(torn) if torn else max((shelf.offset for shelf in shelves), default=-1)
        return None if last < 0 else last + 1

    def unload(self, partition: int) -> None:
        """Forget a partition; its next event reads it from the table again."""
        self._desks.unload(partition)
        self._put_off.pop(partition, None)

    async def handle(
        self,
        source: Source,
        value: bytes | None,
        *,
        next_waits: bool = False,
        catches_up: bool = False,
    ) -> None:
        """Handle one record of `pop.ready`.

        Args:
            source: Where the record was read.
            value: Its value.
            next_waits: Whether the next record of the partition is at hand. Then what this
                one changes is told and kept, and the choice is left to that one, which knows
                more; but not more than `MOST_PUT_OFF` times in a row.
            catches_up: Whether it is left to that one however often it was before.

        Raises:
            NoEventError: If it is no event; nothing was done.
            UnavailableError: If the partition is not surely this worker's any more; what
                was done since its last row must be forgotten.
        """
        try:
            ready_events = decode_ready(value)
        except UnreadableRecordError as error:
            raise NoEventError(str(error)) from None
        await self._open(source.partition)
        away = self._desks.take_letters(source.partition)
        touched: dict[str, Desk] = {}
        for event in ready_events:
            for desk in self._desks.concerned(source.partition, event):
                away += self._take(desk, event)
                touched[desk.insight_id] = desk
            away += self._desks.astray(source.partition, event)
        if away:
            await publish_until_acknowledged(self._publisher, away)
        put_off = self._put_off.setdefault(source.partition, _PutOff())
        if next_waits and (catches_up or put_off.records < MOST_PUT_OFF):
            put_off.add(touched)
            await self._note([*touched.values()], source)
            return
        touched = {**self._put_off.pop(source.partition).desks, **touched}
        await self._emission.decide(self._desks.with_mates(source.partition, touched), source)
        self._tell_progress(source)

    async def _note(self, touched: Sequence[Desk], source: Source) -> None:
        """Keep what a record changed; what there is to tell is told first, and not put off."""
        if all(desk.backlog.outbox.is_empty for desk in touched):
            save_rows(touched, source.offset)
        else:
            await self._emission.decide(touched, source, choose=False)

    def _tell_progress(self, source: Source) -> None:
        """Have a row tell now and then that this record was handled, and all before it."""
        untold = self._untold.get(source.partition, 0) + 1
        desks = self._desks.of(source.partition).values()
        if untold >= TOLD_EVERY and desks:
            newest = max(desks, key=lambda desk: desk.shelf.offset)
            # A snapshot: not of one that has just had a row, whatever its size.
            untold = source.offset - newest.shelf.offset + 1
            if untold >= TOLD_EVERY:
                newest.shelf.tell(newest.backlog, source.offset)
                untold = 0
        self._untold[source.partition] = untold

    async def _open(self, partition: int) -> None:
        """Have the partition's desks as they should be before an event."""
        self._emission.be_sure_of(partition)
        self._desks.of(partition)
        self._desks.take_up_definitions()
        doubtful = self._desks.take_doubtful(partition)
        if doubtful:
            await self._emission.make_good(doubtful, partition)

    def _take(self, desk: Desk, event: ReadyEvent) -> list[Record]:
        """Let the desk take note of an event; returns what is to be answered."""
        match event:
            case InsightPlaced():
                self._place(desk, event)
            case InsightNoted():
                hearing.hear(desk.backlog, event, self._clock.now().timestamp())
            case InsightTick():
                desk.look_again(event, self._clock.now())
            case InsightAsked():
                now, limit = self._clock.now(), self._desks.limit(desk)
                answer = desk.answer(event, now, limited_by=limit)
                key = desk.insight_id.encode()
                return [Record(self._topics.answers, key, encode(answer))]
        return []

    def _place(self, desk: Desk, event: InsightPlaced) -> None:
        agendas = [decode_placed(one) for one in event.agendas]
        fresh = desk.backlog.news(agendas, event.origins)
        if fresh:
            now = self._clock.now().timestamp()
            number = desk.backlog.place([agendas[index] for index in fresh], now)
            desk.shelf.put_page(number, [bytes(event.agendas[index]) for index in fresh])
