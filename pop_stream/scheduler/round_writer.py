"""Rounds: chosen, then emitted and kept side by side, and made good after a crash.

Neither of the two waits for the other, so a crash may leave either without the other. Emitted
and not kept, a round is chosen again: a repeat, which the attempt number lets pullers and the
rollup drop. Kept and not emitted, its row tells of it, and what its topic lacks is emitted by
whoever reads the row. No round begins before the one before it is both, so there is one such.

The record of a round: who was chosen, and why the others still wait.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple

import structlog

from pop_stream.kafka.publisher import lifecycle_records, publish_until_acknowledged
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Insight
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.codec import encode
from pop_stream.policy.backlog.outbox import OutboxBatch
from pop_stream.policy.flow_control.emission_gate import CurrentDepth
from pop_stream.policy.insight_scheduler import PlannedRound
from pop_stream.ports.clock import Clock
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.ports.ready_table import BacklogTable
from pop_stream.scheduler import record_builders
from pop_stream.scheduler.emitted_attempts import (
    MAX_COPIES,
    AttemptKeys,
    EmittedAttempts,
    missing_from_topic,
)
from pop_stream.scheduler.insight import OwnedInsight, save_backlogs
from pop_stream.scheduler.insight_registry import InsightRegistry
from pop_stream.scheduler.state.row_format import JournaledRound

MAX_ROUND_SIZE: Final = 2_000
"""Of one round, so that its decision and its journal row fit a record; the next follows."""

_log = structlog.get_logger()


class RecordPosition(NamedTuple):
    """Where a record of `pop.ready` was read."""

    partition: int
    offset: int


class _RoundDraft(NamedTuple):
    """What a desk has to say after an event.

    Attributes:
        told: To be published before the row is written, for what is kept must have been told.
        emitted: A round's agendas.
        announcements: What else there is to tell of the round.
    """

    told: Sequence[Record] = ()
    emitted: Sequence[Record] = ()
    announcements: Sequence[Record] = ()


class RoundWriter:
    """Writes for all desks; one record of `pop.ready` at a time.

    Args:
        registry: All schedulers of this worker.
        table: The ReadyAgenda table.
        publisher: Ours, idempotent, with acks=all; not Faust's.
        clock: For the instants in events.
        topics: Names of topics.
        create_topic: Makes sure an insight's topic exists, with its partitions.
        owns: Whether a partition is surely this worker's at the moment.
        emitted_reader: Knows what is on insights' topics already.
    """

    def __init__(  # noqa: PLR0913  # every port it needs, named once
        self,
        registry: InsightRegistry,
        *,
        table: BacklogTable,
        publisher: Publisher,
        clock: Clock,
        topics: Topics,
        create_topic: Callable[[Insight], Awaitable[None]],
        owns: Callable[[int], bool],
        emitted_reader: EmittedAttempts,
    ) -> None:
        self._registry = registry
        self._table = table
        self._publisher = publisher
        self._clock = clock
        self._topics = topics
        self._create_topic = create_topic
        self._owns = owns
        self._emitted_reader = emitted_reader
        self._last_round_row = 0

    def ensure_owned(self, partition: int) -> None:
        """Rows and rounds of one who has lost the partition would mix with its owner's.

        Raises:
            UnavailableError: If the partition is not surely this worker's.
        """
        if not self._owns(partition):
            msg = f"the group may have given partition {partition} to another scheduler"
            raise UnavailableError(msg)

    async def write_rounds(
        self,
        insights: Sequence[OwnedInsight],
        record_position: RecordPosition,
        *,
        choose: bool = True,
    ) -> None:
        """A round of each desk, all side by side, and the rows that tell of them.

        Without a choice, what there is to tell is told and kept all the same.
        Returns once all is acknowledged but the rows, for which the next round waits.

        Raises:
            UnavailableError: If a topic cannot be made, or the partition is not surely this
                worker's any more; what was done since its last row must be forgotten.
        """
        if choose:
            await self._emitted_reader.load_unrecorded(insights)
        drafts = [
            await self._draft_round(owned, record_position, choose=choose) for owned in insights
        ]
        told = [record for draft in drafts for record in draft.told]
        emitted = [record for draft in drafts for record in draft.emitted]
        announcements = [record for draft in drafts for record in draft.announcements]

        if told or announcements:
            await self._publish_before_rows(record_position.partition, told)
        self._write_rows(insights, record_position.offset, flush=bool(told or announcements))
        if not announcements:
            return
        # Rounds and rows are sent side by side; the brokers may have any part of either first.
        await self._publish([*emitted, *announcements], record_position.partition)
        for owned, draft in zip(insights, drafts, strict=True):
            if draft.announcements:
                owned.store.unconfirmed_round = None

    async def recover_round(self, insights: Sequence[OwnedInsight], partition: int) -> None:
        """Emit what a crash kept from being emitted, of desks just read.

        What is on its topic is not emitted again. The rest of the round is told of again, as
        nobody can say how much of that was lost.

        Raises:
            UnavailableError: If the topics cannot be read or made, or the partition is not
                surely this worker's.
        """
        lately = [
            (owned, owned.store.unconfirmed_round)
            for owned in insights
            if owned.store.unconfirmed_round
        ]
        unconfirmed = [
            (owned, note, chosen)
            for owned, note in lately
            if (chosen := owned.scheduler.unclaimed_of(note.refs))
        ]
        emitted_before = await self._emitted_reader.attempts(
            [(owned, MAX_COPIES * len(note.refs)) for owned, note, _ in unconfirmed]
        )
        records: list[Record] = []
        for (owned, note, chosen), known in zip(unconfirmed, emitted_before, strict=True):
            await self._ensure_topic(owned)
            depth = CurrentDepth(note.lag, note.in_flight)
            planned = PlannedRound(note.at, note.slots, depth, chosen)
            emitted, announcements = await self._records(owned, planned, note, known)
            records += [*emitted, *announcements]
            _log.info("round.recovered", insight_id=owned.insight_id, lacked=len(emitted))
        self.ensure_owned(partition)
        await self._publish(records, partition)
        for owned in insights:
            owned.store.unconfirmed_round = None

    async def _draft_round(
        self, owned: OwnedInsight, record_position: RecordPosition, *, choose: bool
    ) -> _RoundDraft:
        """Let happen what is due, choose, and word all there is to tell."""
        now = self._clock.now()
        seconds = now.timestamp()
        owned.scheduler.advance_to(seconds)
        limit = self._registry.budget_within_pool(owned, MAX_ROUND_SIZE) if choose else 0
        before = owned.checkpoint(self._topics, now) if limit > 0 else ()
        planned = owned.scheduler.plan_round(seconds, limit)
        if planned.chosen or owned.topic_partitions:
            await self._ensure_topic(owned)
        told = await self._told(owned, owned.scheduler.drain_outbox(), now)
        if not planned.chosen:
            return _RoundDraft(told)
        owned.store.unconfirmed_round = note = JournaledRound(
            refs=tuple(one.ref for one in planned.chosen),
            at=planned.at,
            slots=planned.slots,
            lag=planned.depth.unclaimed,
            in_flight=planned.depth.in_flight,
            offset=record_position.offset,
            definitions=self._registry.definitions_version,
        )
        known = owned.take_emitted_before(planned.chosen, now)
        emitted, announcements = await self._records(owned, planned, note, known)
        owned.checkpoints.record_sent(before, note.at)
        return _RoundDraft(told, emitted, [*before, *announcements])

    async def _told(
        self, owned: OwnedInsight, told: OutboxBatch, now: datetime
    ) -> list[Record]:
        if not told:
            return []
        topic = self._topics.agenda_events
        return [
            *record_builders.stop_records(self._topics, owned, told),
            *record_builders.dead_letter_records(self._topics, owned, told, now),
            *await lifecycle_records(self._publisher, topic, told.lifecycle),
        ]

    async def _records(
        self,
        owned: OwnedInsight,
        planned: PlannedRound,
        note: JournaledRound,
        known: AttemptKeys,
    ) -> tuple[list[Record], list[Record]]:
        """A round's agendas but those known to be on their topic, and what tells of it."""
        at = datetime.fromtimestamp(note.at, UTC)
        emitted = record_builders.emitted_records(
            self._topics,
            owned,
            missing_from_topic(planned.chosen, known),
            partitions=await self._publisher.partitions(self._emitted_reader.topic_of(owned)),
            at=at,
            now=self._clock.now(),
        )
        decision = owned.scheduler.decision(
            planned,
            limited_by=self._registry.limiting_cause(owned),
            partition=owned.partition,
            offset=note.offset,
            definitions=note.definitions,
        )
        lifecycle = await lifecycle_records(
            self._publisher,
            self._topics.agenda_events,
            record_builders.emitted_events(owned, planned.chosen, at),
        )
        value = encode(decision)
        owned.checkpoints.decided += len(value)
        why = Record(self._topics.decisions, owned.insight_id.encode(), value)
        return emitted, [why, *lifecycle]

    async def _publish_before_rows(self, partition: int, told: Sequence[Record]) -> None:
        """What must be acknowledged before a round is written."""
        # So a crash finds one round under way at most. What this record itself has led to
        # need not be kept for it: it is read again.
        await self._table.wait_durable(self._last_round_row)
        self.ensure_owned(partition)
        if told:
            await self._publish(told, partition)
            self.ensure_owned(partition)

    def _write_rows(
        self, insights: Sequence[OwnedInsight], offset: int, *, flush: bool
    ) -> None:
        """Write the rows; those of rounds at once, for later rounds wait for them."""
        save_backlogs(insights, offset)
        if flush:
            self._table.send_now()
            self._last_round_row = self._table.written

    async def _publish(self, records: Sequence[Record], partition: int) -> None:
        """Until all is acknowledged, or the partition may be another's: then it decides.

        What is given up may have been on its way for longer than a session, as after a freeze.
        """
        again = partial(self.ensure_owned, partition)
        await publish_until_acknowledged(self._publisher, records, before_retry=again)

    async def _ensure_topic(self, owned: OwnedInsight) -> None:
        """Create the insight's topic, or let it grow with the definition."""
        insight = owned.backlog.insight
        if owned.topic_partitions < insight.partitions:
            await self._create_topic(insight)
            owned.topic_partitions = insight.partitions
