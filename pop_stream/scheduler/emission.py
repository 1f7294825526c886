"""Rounds: chosen, then emitted and kept side by side, and made good after a crash.

Neither of the two waits for the other, so a crash may leave either without the other. Emitted
and not kept, a round is chosen again: a repeat, which the attempt number lets pullers and the
rollup drop. Kept and not emitted, its row tells of it, and what its topic lacks is emitted by
whoever reads the row. No round begins before the one before it is both, so there is one such.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple

import structlog

from pop_stream import faults
from pop_stream.bus.publisher import lifecycle_records, publish_until_acknowledged
from pop_stream.bus.topics import Topics
from pop_stream.core.backlog.outbox import Told
from pop_stream.core.backlog.whereabouts import Chosen
from pop_stream.core.definitions.definitions import Insight
from pop_stream.core.errors import UnavailableError
from pop_stream.core.events import encode
from pop_stream.ports.clock import Clock
from pop_stream.ports.table import ReadyTable
from pop_stream.ports.wire import Publisher, Record
from pop_stream.scheduler import telling
from pop_stream.scheduler.decisions import decided
from pop_stream.scheduler.desk import Desk, save_rows
from pop_stream.scheduler.desks import Desks
from pop_stream.scheduler.on_topic import MOST_WRITTEN, Attempts, OnTopic, lacking
from pop_stream.scheduler.rows import RoundNote

MOST_CHOSEN: Final = 2_000
"""Of one round, so that its decision and its journal row fit a record; the next follows."""

_log = structlog.get_logger()


class Source(NamedTuple):
    """Where a record of `pop.ready` was read."""

    partition: int
    offset: int


class _Draft(NamedTuple):
    """What a desk has to say after an event.

    Attributes:
        told: To be published before the row is written, for what is kept must have been told.
        emitted: A round's agendas.
        also: What else there is to tell of the round.
    """

    told: Sequence[Record] = ()
    emitted: Sequence[Record] = ()
    also: Sequence[Record] = ()


class Emission:
    """Writes for all desks; one record of `pop.ready` at a time.

    Args:
        desks: All of this worker's.
        table: The ReadyAgenda table.
        publisher: Ours, idempotent, with acks=all; not Faust's.
        clock: For the instants in events.
        topics: Names of topics.
        create_topic: Makes sure an insight's topic exists, with its partitions.
        is_sure_of: Whether a partition is surely this worker's at the moment.
        on_topic: Knows what is on insights' topics already.
    """

    def __init__(  # noqa: PLR0913  # every port it needs, named once
        self,
        desks: Desks,
        *,
        table: ReadyTable,
        publisher: Publisher,
        clock: Clock,
        topics: Topics,
        create_topic: Callable[[Insight], Awaitable[None]],
        is_sure_of: Callable[[int], bool],
        on_topic: OnTopic,
    ) -> None:
        self._desks = desks
        self._table = table
        self._publisher = publisher
        self._clock = clock
        self._topics = topics
        self._create_topic = create_topic
        self._is_sure_of = is_sure_of
        self._on_topic = on_topic
        self._rows_of_rounds = 0

    def be_sure_of(self, partition: int) -> None:
        """Rows and rounds of one who has lost the partition would mix with its owner's.

        Raises:
            UnavailableError: If the partition is not surely this worker's.
        """
        if not self._is_sure_of(partition):
            msg = f"the group may have given partition {partition} to another scheduler"
            raise UnavailableError(msg)

    async def decide(
        self, desks: Sequence[Desk], source: Source, *, choose: bool = True
    ) -> None:
        """A round of each desk, all side by side, and the rows that tell of them.

        Without a choice, what there is to tell is told and kept all the same.
        Returns once all is acknowledged but the rows, for which the next round waits.

        Raises:
            UnavailableError: If a topic cannot be made, or the partition is not surely this
                worker's any more; what was done since its last row must be forgotten.
        """
        if choose:
            await self._on_topic.look_back(desks)
        drafts = [await self._draft(desk, source, choose=choose) for desk in desks]
        told = [record for draft in drafts for record in draft.told]
        emitted = [record for draft in drafts for record in draft.emitted]
        also = [record for draft in drafts for record in draft.also]

        if told or also:
            await self._come_first(source.partition, told)
        keep = partial(self._keep, desks, source.offset, at_once=bool(told or also))
        if not also:
            keep()
            return
        rounds = [*emitted, *also]
        await self._side_by_side(rounds, len(emitted) // 2 + 1, keep, source.partition)
        for desk, draft in zip(desks, drafts, strict=True):
            if draft.also:
                desk.shelf.last_round = None

    async def make_good(self, desks: Sequence[Desk], partition: int) -> None:
        """Emit what a crash kept from being emitted, of desks just read.

        What is on its topic is not emitted again. The rest of the round is told of again, as
        nobody can say how much of that was lost.

        Raises:
            UnavailableError: If the topics cannot be read or made, or the partition is not
                surely this worker's.
        """
        lately = [(desk, desk.shelf.last_round) for desk in desks if desk.shelf.last_round]
        doubtful = [
            (desk, note, chosen)
            for desk, note in lately
            if (chosen := desk.unclaimed(note.refs))
        ]
        there = await self._on_topic.attempts(
            [(desk, MOST_WRITTEN * len(note.refs)) for desk, note, _ in doubtful]
        )
        records: list[Record] = []
        for (desk, note, chosen), known in zip(doubtful, there, strict=True):
            await self._fit_topic(desk)
            emitted, also = await self._records(desk, chosen, note, known)
            records += [*emitted, *also]
            _log.info("round.made_good", insight_id=desk.insight_id, lacked=len(emitted))
        self.be_sure_of(partition)
        await self._publish(records, partition)
        for desk in desks:
            desk.shelf.last_round = None

    async def _draft(self, desk: Desk, source: Source, *, choose: bool) -> _Draft:
        """Let happen what is due, choose, and word all there is to tell."""
        now = self._clock.now()
        desk.backlog.wake(now.timestamp())
        desk.observe(now)
        slots, depth = self._desks.room(desk, MOST_CHOSEN) if choose else 0, desk.depth
        before = desk.checkpoint(self._topics, now) if slots > 0 else ()
        chosen = desk.backlog.choose(slots, now.timestamp())
        if chosen or desk.topic_partitions:
            await self._fit_topic(desk)
        told = await self._told(desk, desk.backlog.take_told(), now)
        if not chosen:
            return _Draft(told)
        desk.shelf.last_round = note = RoundNote(
            refs=tuple(one.ref for one in chosen),
            at=now.timestamp(),
            slots=slots,
            lag=depth.unclaimed,
            in_flight=depth.in_flight,
            offset=source.offset,
            definitions=self._desks.version,
        )
        known = desk.take_known(chosen, now)
        emitted, also = await self._records(desk, chosen, note, known)
        desk.checkpoints.sent(before, note.at)
        return _Draft(told, emitted, [*before, *also])

    async def _told(self, desk: Desk, told: Told, now: datetime) -> list[Record]:
        if not told:
            return []
        topic = self._topics.agenda_events
        return [
            *telling.stops(self._topics, desk, told),
            *telling.letters(self._topics, desk, told, now),
            *await lifecycle_records(self._publisher, topic, told.lifecycle),
        ]

    async def _records(
        self,
        desk: Desk,
        chosen: Sequence[Chosen],
        note: RoundNote,
        known: Attempts,
    ) -> tuple[list[Record], list[Record]]:
        """A round's agendas but those known to be on their topic, and what tells of it."""
        at = datetime.fromtimestamp(note.at, UTC)
        emitted = telling.emitted_records(
            self._topics,
            desk,
            lacking(chosen, known),
            partitions=await self._publisher.partitions(self._on_topic.name(desk)),
            at=at,
            now=self._clock.now(),
        )
        decision = decided(desk, chosen, note, limited_by=self._desks.limit(desk))
        lifecycle = await lifecycle_records(
            self._publisher, self._topics.agenda_events, telling.emissions(desk, chosen, at)
        )
        value = encode(decision)
        desk.checkpoints.decided += len(value)
        why = Record(self._topics.decisions, desk.insight_id.encode(), value)
        return emitted, [why, *lifecycle]

    async def _come_first(self, partition: int, told: Sequence[Record]) -> None:
        """What must be acknowledged before a round is written."""
        # So a crash finds one round under way at most. What this record itself has led to
        # need not be kept for it: it is read again.
        await self._table.kept(self._rows_of_rounds)
        self.be_sure_of(partition)
        if told:
            await self._publish(told, partition)
            self.be_sure_of(partition)

    def _keep(self, desks: Sequence[Desk], offset: int, *, at_once: bool) -> None:
        """Write the rows; those of rounds at once, for later rounds wait for them."""
        save_rows(desks, offset)
        if at_once:
            self._table.send()
            self._rows_of_rounds = self._table.written

    async def _side_by_side(
        self,
        rounds: Sequence[Record],
        half: int,
        keep: Callable[[], None],
        partition: int,
    ) -> None:
        """Write rounds and their rows; the brokers may have any part of either first.

        So a test may say which: `half` of the records are some of the agendas.
        """
        left = rounds
        if faults.is_set("scheduler.emitting"):
            left = await self._ahead(left, half)
            faults.reach("scheduler.emitting")
        if faults.is_set("scheduler.emitted"):
            left = await self._ahead(left, len(left))
            faults.reach("scheduler.emitted")
        keep()
        if faults.is_set("scheduler.kept"):
            await self._table.kept()
            faults.reach("scheduler.kept")
        if faults.is_set("scheduler.kept_half"):
            await self._table.kept()
            left = await self._ahead(left, half)
            faults.reach("scheduler.kept_half")
        await self._publish(left, partition)
        faults.reach("scheduler.decided")

    async def _publish(self, records: Sequence[Record], partition: int) -> None:
        """Until all is acknowledged, or the partition may be another's: then it decides.

        What is given up may have been on its way for longer than a session, as after a freeze.
        """
        again = partial(self.be_sure_of, partition)
        await publish_until_acknowledged(self._publisher, records, before_again=again)

    async def _ahead(self, records: Sequence[Record], count: int) -> Sequence[Record]:
        """Write the first so many now; returns the rest."""
        await publish_until_acknowledged(self._publisher, records[:count])
        return records[count:]

    async def _fit_topic(self, desk: Desk) -> None:
        """Create the insight's topic, or let it grow with the definition."""
        insight = desk.backlog.insight
        if desk.topic_partitions < insight.partitions:
            await self._create_topic(insight)
            desk.topic_partitions = insight.partitions
