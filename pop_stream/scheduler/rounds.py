"""What the scheduler does with one event: keep, decide, emit and tell, keep again.

Emit, then write the table: a crash between the two repeats a round, and the attempt number
lets pullers and the rollup drop the repeats. The other order could lose one.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

import structlog
from msgspec.structs import replace

from pop_stream import faults
from pop_stream.bus.dead_letters import dead_row
from pop_stream.bus.publisher import lifecycle_records, publish_until_acknowledged
from pop_stream.bus.ready import ready_record
from pop_stream.bus.topics import Topics
from pop_stream.core.backlog import hearing
from pop_stream.core.backlog.backlog import Backlog
from pop_stream.core.backlog.whereabouts import Chosen
from pop_stream.core.definitions.definitions import Definitions, Insight
from pop_stream.core.errors import UnavailableError, UnreadableRecordError
from pop_stream.core.events import (
    InsightAsked,
    InsightNoted,
    InsightPlaced,
    InsightTick,
    Limit,
    ReadyEvent,
    decode_placed,
    decode_ready,
    encode,
)
from pop_stream.core.fairness.flow import Share
from pop_stream.core.gate import pools
from pop_stream.core.values.ids import CustomerId, InsightId
from pop_stream.core.values.partitioning import partition_of
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.table import ReadyTable
from pop_stream.ports.wire import Publisher, Record
from pop_stream.scheduler import telling
from pop_stream.scheduler.decisions import decided
from pop_stream.scheduler.desk import Desk
from pop_stream.scheduler.shelf import Shelf, insights_in

MOST_CHOSEN: Final = 2_000
"""Of one round, so that its decision and its journal row fit a record; the next follows."""

MOST_PUT_OFF: Final = 128
"""Records in a row that may leave the choice to the next: some ten milliseconds' work. So a
round of five to fifty, which waits for acknowledgements, never lets them pile up."""

_log = structlog.get_logger()


class NoEventError(UnreadableRecordError):
    """A record of `pop.ready` is no event; nothing was done, so nothing need be read anew."""


class Source(NamedTuple):
    """Where a record of `pop.ready` was read."""

    partition: int
    offset: int


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
        term: Callable[[], int] = lambda: 0,
    ) -> None:
        self._term = term
        self._is_sure_of = is_sure_of
        self._table = table
        self._publisher = publisher
        self._definitions = definitions
        self._clock = clock
        self._topics = topics
        self._create_topic = create_topic
        self._partitions = partitions
        self._desks: dict[int, dict[str, Desk]] = {}
        self._put_off: dict[int, _PutOff] = {}
        self._letters: dict[int, list[Record]] = {}
        self._in_force: Definitions | None = None
        self._rows_of_rounds = 0

    def desks(self) -> list[Desk]:
        """All insights this worker decides for."""
        return [desk for desks in self._desks.values() for desk in desks.values()]

    def sure_desks(self) -> list[Desk]:
        """Those of partitions that are surely this worker's still."""
        return [desk for desk in self.desks() if self._is_sure_of(desk.partition)]

    def loaded(self) -> set[int]:
        """Partitions whose backlogs are in memory."""
        return set(self._desks)

    def may_emit(self, desk: Desk) -> bool:
        """Whether a round may choose one now, or must look because definitions changed."""
        if self._definitions.current is not self._in_force:
            return True
        now = self._clock.now().timestamp()
        return desk.slots() > 0 and desk.backlog.queue.may_pick(now)

    def kept_until(self, partition: int) -> int | None:
        """The offset after the last record that the table shows to have been handled.

        Records that changed nothing are not shown. None if no row tells.
        """
        self._ensure_loaded(partition)
        offsets = [desk.shelf.offset for desk in self._desks[partition].values()]
        last = max(offsets, default=-1)
        return None if last < 0 else last + 1

    def unload(self, partition: int) -> None:
        """Forget a partition; its next event reads it from the table again."""
        self._desks.pop(partition, None)
        self._put_off.pop(partition, None)

    async def handle(
        self, source: Source, value: bytes | None, *, next_waits: bool = False
    ) -> None:
        """Handle one record of `pop.ready`.

        Args:
            source: Where the record was read.
            value: Its value.
            next_waits: Whether the next record of the partition is at hand. Then what this
                one changes is kept, and the choice is left to that one, which knows more;
                but not more than `MOST_PUT_OFF` times in a row.

        Raises:
            NoEventError: If it is no event; nothing was done.
            UnavailableError: If the partition is not surely this worker's any more; what
                was done since its last row must be forgotten.
        """
        try:
            ready_events = decode_ready(value)
        except UnreadableRecordError as error:
            raise NoEventError(str(error)) from None
        self._be_sure_of(source.partition)
        self._ensure_loaded(source.partition)
        away = self._letters.pop(source.partition, [])
        self._take_up_definitions()
        touched: dict[str, Desk] = {}
        for event in ready_events:
            for desk in self._concerned(source.partition, event):
                away += self._take(desk, event)
                touched[desk.insight_id] = desk
            away += self._astray(source.partition, event)
        if away:
            await publish_until_acknowledged(self._publisher, away)
        put_off = self._put_off.setdefault(source.partition, _PutOff())
        # What is kept must have been told before, so what there is to tell is not put off.
        is_silent = all(desk.backlog.outbox.is_empty for desk in touched.values())
        if next_waits and is_silent and put_off.records < MOST_PUT_OFF:
            put_off.add(touched)
            for desk in touched.values():
                desk.shelf.save(desk.backlog, source.offset)
            return
        touched = {**self._put_off.pop(source.partition).desks, **touched}
        await self._decide(self._with_pools(source.partition, touched), source)

    async def _decide(self, desks: Sequence[Desk], source: Source) -> None:
        """A round of each desk; the rows are sent at once, for later rounds wait for them."""
        is_told = False
        for desk in desks:
            is_told |= await self._refill(desk, source)
            desk.shelf.save(desk.backlog, source.offset)
            faults.reach("scheduler.kept")
        if is_told:
            self._table.send()
            self._rows_of_rounds = self._table.written

    def _be_sure_of(self, partition: int) -> None:
        """Rows and rounds of one who has lost the partition would mix with its owner's."""
        if not self._is_sure_of(partition):
            msg = f"the group may have given partition {partition} to another scheduler"
            raise UnavailableError(msg)

    def _ensure_loaded(self, partition: int) -> None:
        if partition not in self._desks:
            self._letters[partition] = self._load(partition)

    def _load(self, partition: int) -> list[Record]:
        """Read the partition's backlogs; dead letters of rows that cannot be read."""
        desks: dict[str, Desk] = {}
        letters: list[Record] = []
        now = self._clock.now()
        for insight_id, rows in insights_in(self._table, partition).items():
            desk = self._new_desk(partition, insight_id)
            desk.shelf.load(rows, desk.backlog, now.timestamp())
            desks[insight_id] = desk
            for key, reason in desk.shelf.unreadable.items():
                _log.error("row.unreadable", partition=partition, key=key, reason=reason)
                row = (key, rows.get(key, b""))
                letters.append(dead_row(self._topics, partition, row, at=now, reason=reason))
        self._desks[partition] = desks
        ready = sum(desk.backlog.ready for desk in desks.values())
        _log.info("backlog.loaded", partition=partition, insights=len(desks), ready=ready)
        return letters

    def _concerned(self, partition: int, event: ReadyEvent) -> Sequence[Desk]:
        """The desks an event is for; none if the insight is at home elsewhere."""
        desks = self._desks[partition]
        if isinstance(event, InsightTick) and not event.insight_id:
            return [*desks.values()]
        desk = desks.get(event.insight_id)
        if desk is None and self._is_due(partition, event):
            desk = desks[event.insight_id] = self._new_desk(partition, event.insight_id)
        return [desk] if desk else []

    def _is_due(self, partition: int, event: ReadyEvent) -> bool:
        """Whether the event needs a new desk: notes of an insight never placed are nobody's."""
        is_known = event.insight_id in self._definitions.current.insights
        is_placed = isinstance(event, InsightPlaced)
        return (is_known or is_placed) and self._home(event.insight_id) == partition

    def _astray(self, partition: int, event: ReadyEvent) -> list[Record]:
        """An event that was sent here by older definitions, sent on to where it belongs."""
        if not event.insight_id or event.insight_id in self._desks[partition]:
            return []
        if self._home(event.insight_id) == partition:
            return []
        current = self._definitions.current
        return [ready_record(self._topics, current, event, partitions=self._partitions)]

    def _home(self, insight_id: str) -> int:
        return partition_of(self._definitions.current.home(insight_id), self._partitions)

    def _new_desk(self, partition: int, insight_id: str) -> Desk:
        insight = self._definitions.current.insights.get(InsightId(insight_id))
        backlog = Backlog(insight or Insight(id=insight_id), self._share)
        shelf = Shelf(self._table, partition, insight_id, self._term())
        desk = Desk(InsightId(insight_id), partition, backlog, shelf)
        desk.is_defined = insight is not None
        return desk

    def _with_pools(self, partition: int, touched: Mapping[str, Desk]) -> list[Desk]:
        """The desks touched, and those that share a pool with one and have work waiting.

        All of one partition: rows of another may not be written while its event is handled.
        """
        shared = {desk.backlog.insight.pool for desk in touched.values()} - {None}
        mates = (
            desk
            for desk in (self._desks[partition].values() if shared else ())
            if desk.backlog.insight.pool in shared
            and desk.backlog.ready
            and desk.insight_id not in touched
        )
        return [*touched.values(), *mates]

    def _room(self, desk: Desk) -> int:
        """How many agendas a round may emit, within what the insight's pool has left."""
        slots = min(desk.slots(), MOST_CHOSEN)
        pool = self._definitions.current.pools.get(desk.backlog.insight.pool or "")
        if pool is None or slots <= 0:
            return slots
        mates = [one for one in self.desks() if one.backlog.insight.pool == pool.id]
        limits = pools.limits(pool.max_in_flight, [mate.claimant() for mate in mates])
        free = pool.max_in_flight - sum(mate.backlog.in_flight for mate in mates)
        return min(slots, free, limits[desk.insight_id] - desk.backlog.in_flight)

    def _limit(self, desk: Desk) -> Limit:
        """What keeps the desk from emitting, its topic and its customers left aside."""
        if not desk.backlog.ready:
            return ""
        cap = desk.backlog.insight.max_in_flight
        if cap is not None and desk.backlog.in_flight >= cap:
            return "max_in_flight"
        return "pool" if desk.slots() > 0 and self._room(desk) <= 0 else ""

    def _share(self, customer_id: CustomerId) -> Share:
        customer = self._definitions.current.customer(customer_id)
        return Share(
            weight=customer.weight,
            max_in_flight=customer.max_in_flight,
            rate_per_s=customer.rate_per_s,
            burst=customer.burst,
            paused=customer.paused,
        )

    def _take_up_definitions(self) -> None:
        current = self._definitions.current
        if current is self._in_force:
            return
        self._in_force = current
        for desk in self.desks():
            insight = current.insights.get(desk.insight_id)
            desk.is_defined = insight is not None
            if insight is not None:
                desk.backlog.reconfigure(insight)

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
                now, limit = self._clock.now(), self._limit(desk)
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

    async def _refill(self, desk: Desk, source: Source) -> bool:
        """Let happen what is due, choose, publish all there is to tell; whether there was."""
        now = self._clock.now()
        desk.backlog.wake(now.timestamp())
        desk.observe(now)
        slots, depth = self._room(desk), desk.depth
        chosen = desk.backlog.choose(slots, now.timestamp())
        if chosen or desk.topic_partitions:
            await self._fit_topic(desk)
        if not chosen and desk.backlog.outbox.is_empty:
            return False
        told = desk.backlog.take_told()
        records = [
            *telling.stops(self._topics, told),
            *telling.letters(self._topics, desk, told, now),
        ]
        lifecycle = told.lifecycle
        if chosen:
            decision = replace(
                decided(desk, chosen, depth=depth, slots=slots, at=now),
                partition=source.partition,
                offset=source.offset,
                definitions=self._in_force.version if self._in_force else 0,
            )
            why = Record(self._topics.decisions, desk.insight_id.encode(), encode(decision))
            records = [*await self._emit(desk, chosen, now), why, *records]
            lifecycle += telling.emissions(desk, chosen, now)
        topic = self._topics.agenda_events
        records += await lifecycle_records(self._publisher, topic, lifecycle)
        # Of rounds without a row a crash would repeat every one, so there is one at most; and
        # what this record has led to need not be kept, for it is read again.
        await self._table.kept(self._rows_of_rounds)
        self._be_sure_of(source.partition)
        if faults.is_set("scheduler.emitting"):  # else all are sent side by side
            half = len(chosen) // 2 + 1
            await publish_until_acknowledged(self._publisher, records[:half])
            faults.reach("scheduler.emitting")
            records = records[half:]
        await publish_until_acknowledged(self._publisher, records)
        faults.reach("scheduler.emitted")
        self._be_sure_of(source.partition)
        return True

    async def _emit(
        self, desk: Desk, chosen: Sequence[Chosen], now: datetime
    ) -> Sequence[Record]:
        topic = self._topics.insight(desk.insight_id, desk.backlog.insight.group_type)
        partitions = await self._publisher.partitions(topic)
        return telling.emitted_records(
            self._topics, desk, chosen, partitions=partitions, now=now
        )

    async def _fit_topic(self, desk: Desk) -> None:
        """Create the insight's topic, or let it grow with the definition."""
        insight = desk.backlog.insight
        if desk.topic_partitions < insight.partitions:
            await self._create_topic(insight)
            desk.topic_partitions = insight.partitions
