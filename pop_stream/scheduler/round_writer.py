"""Writes rounds: publishes the chosen agendas and the rows that record them concurrently.

Neither of the two waits for the other, so a crash may leave either without the other:

    published, not recorded    The round is chosen again. What is found on the insight's topic
                               is not published a second time; should it be, pullers and the
                               rollup drop the repeat by its attempt number.
    recorded, not published    The row names the round. Whoever loads the row next publishes
                               what the topic lacks (`recover_round`).

A round is published only when the rows of the round before are durable, so a crash leaves at
most one round of a partition in either state.

Its records are agendas, lifecycle events, stops and dead letters. Nothing is decided here but
the partition of each emitted agenda.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog
from msgspec import Raw

from pop_stream.kafka.dead_letters import agenda_dead_letter
from pop_stream.kafka.lifecycle_reader import lifecycle_records
from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Insight
from pop_stream.model.errors import UnavailableError, UnreadableRecordError
from pop_stream.model.events.codec import encode
from pop_stream.model.events.lifecycle import AgendaEmitted
from pop_stream.model.events.scheduling import AttemptStop, EmittedAgenda, RoutedAgenda
from pop_stream.policy.backlog.agenda_index import ChosenAgenda, page_and_slot
from pop_stream.policy.backlog.outbox import OutboxBatch
from pop_stream.policy.flow_control.emission_gate import CurrentDepth
from pop_stream.policy.rounds import PlannedRound
from pop_stream.ports.clock import Clock
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.ports.ready_table import BacklogTable
from pop_stream.scheduler.emitted_attempts import (
    MAX_COPIES,
    AttemptKeys,
    EmittedAttempts,
    missing_from_topic,
)
from pop_stream.scheduler.insight import OwnedInsight, save_backlogs
from pop_stream.scheduler.insight_registry import InsightRegistry
from pop_stream.scheduler.metrics import RoundMetrics
from pop_stream.scheduler.state.row_format import JournaledRound
from pop_stream.telemetry import tracing

if TYPE_CHECKING:
    from pop_stream.telemetry.spans import Spans

PART: Final = "scheduler"
"""The scheduler's name in its consumer group, client ids and dead letters."""


def emitted_records(
    topics: Topics,
    owned: OwnedInsight,
    chosen: Sequence[tuple[ChosenAgenda, EmittedAgenda]],
    *,
    partitions: int,
    now: datetime,
) -> list[Record]:
    """A round's agendas for the insight's topic, each in the partition the scheduler assigns.

    Args:
        topics: Names of topics.
        owned: After the choice.
        chosen: In order of emission, each with what is emitted.
        partitions: Of the insight's topic.
        now: The present instant.
    """
    group_type = owned.backlog.insight.group_type
    topic = topics.insight(owned.insight_id, group_type)
    is_shared = group_type == "share"
    assigned = owned.scheduler.assign_partitions(
        [one for one, _ in chosen], partitions, now.timestamp()
    )
    return [
        Record(
            topic,
            one.agenda_id.encode(),
            encode(one),
            partition,
            own_batch=is_shared,
        )
        for (_, one), partition in zip(chosen, assigned, strict=True)
    ]


def _record_waits(
    spans: "Spans",
    owned: OwnedInsight,
    chosen: Sequence[tuple[ChosenAgenda, EmittedAgenda]],
) -> Iterator[tuple[str, str]]:
    """Record the waits of first attempts; those of later ones are no wait for a turn only.

    Yields:
        Of each agenda that is sampled, its id and that of its trace.
    """
    for position, (choice, one) in enumerate(chosen, start=1):
        if choice.attempt > 1:
            continue
        is_due = choice.wait_s is not None
        since = one.emitted_at - timedelta(seconds=choice.wait_s or 0.0)
        attributes = {
            "pop_stream.round.position": position,
            "pop_stream.round.size": len(chosen),
            "pop_stream.insight.ready": owned.backlog.ready,
            "pop_stream.insight.in_flight": owned.backlog.in_flight,
            "pop_stream.was_held": not is_due,
        }
        since = since if is_due else one.accepted_at
        if trace_id := spans.record_wait(one, since=since, attributes=attributes):
            yield one.agenda_id, trace_id


def emitted_events(
    owned: OwnedInsight, chosen: Sequence[ChosenAgenda], now: datetime
) -> list[AgendaEmitted]:
    """The lifecycle events of a round, one for each agenda."""
    expedite_reports = owned.scheduler.expedite_reports()
    return [
        AgendaEmitted(
            agenda_id=one.agenda_id,
            at=now,
            insight_id=owned.insight_id,
            attempt=one.attempt,
            expedite_reports=expedite_reports,
        )
        for one in chosen
    ]


def stop_records(topics: Topics, owned: OwnedInsight, outbox: OutboxBatch) -> list[Record]:
    """Requests to pullers to stop attempts."""
    return [
        Record(
            topics.controls,
            stop.agenda_id.encode(),
            encode(
                AttemptStop(
                    agenda_id=stop.agenda_id,
                    insight_id=owned.insight_id,
                    attempt=stop.attempt,
                    reason=stop.reason,
                    accepted_at=_accepted_at(owned, stop.ref),
                )
            ),
        )
        for stop in outbox.stops
    ]


def _accepted_at(owned: OwnedInsight, ref: int | None) -> datetime | None:
    if ref is None:
        return None
    try:
        return owned.store.agenda(*page_and_slot(ref)).accepted_at
    except (LookupError, UnreadableRecordError):
        return None  # the attempt is to stop all the same


def dead_letter_records(
    topics: Topics, owned: OwnedInsight, outbox: OutboxBatch, now: datetime
) -> list[Record]:
    """The dead letters of agendas that have exhausted their attempts."""
    return [
        agenda_dead_letter(
            topics,
            failed,
            owned.backlog.insight,
            agenda=bytes(owned.store.agenda(*page_and_slot(failed.ref)).agenda),
            part=PART,
            at=now,
        )
        for failed in outbox.failed
    ]


def _run_from(routed: RoutedAgenda) -> int:
    return routed.attempt if routed.run_from is None else routed.run_from


def _emitted_agenda(owned: OwnedInsight, chosen: ChosenAgenda, at: datetime) -> EmittedAgenda:
    routed = owned.store.agenda(*page_and_slot(chosen.ref))
    waits = owned.backlog.index.overrides(chosen.ref)
    since = waits.waiting_since
    return EmittedAgenda(
        agenda_id=chosen.agenda_id,
        insight_id=owned.insight_id,
        customer_id=chosen.customer_id,
        attempt=chosen.attempt,
        accepted_at=routed.accepted_at,
        emitted_at=at,
        lease_ms=owned.backlog.insight.lease_ms,
        agenda=Raw(routed.agenda),
        run_from=_run_from(routed) if chosen.attempt > 1 else 0,
        deferrals=waits.deferrals,
        resolved=waits.resolved,
        waiting_since=datetime.fromtimestamp(since, UTC) if since else None,
    )


MAX_ROUND_SIZE: Final = 2_000
"""Most agendas of one round, so that its decision and its journal row each fit a record. What
is left is chosen by the next event."""

_log = structlog.get_logger()


class RecordPosition(NamedTuple):
    """Where a record of `pop.ready` was read."""

    partition: int
    offset: int


class _RoundDraft(NamedTuple):
    """The records of one insight after an event.

    Attributes:
        outbox: Acknowledged before the row is written: the row says that they are out.
        emitted: The round's agendas, for the insight's topic.
        announcements: The round's decision and lifecycle events; empty if there is no round.
    """

    outbox: Sequence[Record] = ()
    emitted: Sequence[Record] = ()
    announcements: Sequence[Record] = ()


class RoundWriter:
    """Writes the rounds of all insights; called for one record of `pop.ready` at a time.

    Args:
        registry: All insights of this process.
        table: The ReadyAgenda table.
        publisher: Idempotent, with acks=all.
        clock: For the instants in events.
        topics: Names of topics.
        create_topic: Creates an insight's topic, or adds the partitions it lacks.
        owns: Whether a partition is certainly this process's at the moment.
        emitted_reader: Reads which attempts are on insights' topics.
        metrics: Of waits and rounds.
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
        metrics: RoundMetrics,
    ) -> None:
        self._metrics = metrics
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
        """Check before anything is written, which otherwise might mix with the next owner's.

        Raises:
            UnavailableError: If the partition is not certainly this process's.
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
        """Plan and write one round of each insight, all of them concurrently.

        Returns once all records are acknowledged. The rows are not awaited: the next call waits
        for them before it publishes.

        Args:
            insights: Of one partition.
            record_position: Of the record that led here; its offset goes into the rows.
            choose: False publishes and records only what the event led to, and plans no round.

        Raises:
            UnavailableError: If a topic cannot be created, or the partition is not certainly
                this process's any more. What is in memory is then ahead of the table, and the
                caller unloads the partition.
        """
        if choose:
            await self._emitted_reader.load_unrecorded(insights)
        drafts = [
            await self._draft_round(owned, record_position, choose=choose) for owned in insights
        ]
        outbox = [record for draft in drafts for record in draft.outbox]
        emitted = [record for draft in drafts for record in draft.emitted]
        announcements = [record for draft in drafts for record in draft.announcements]

        if outbox or announcements:
            await self._publish_before_rows(record_position.partition, outbox)
        self._write_rows(insights, record_position.offset, flush=bool(outbox or announcements))
        if not announcements:
            return
        # Rounds and rows are sent side by side; the brokers may have any part of either first.
        with self._metrics.round_timed():
            await self._publish([*emitted, *announcements], record_position.partition)
        for owned, draft in zip(insights, drafts, strict=True):
            if draft.announcements:
                owned.store.unconfirmed_round = None

    async def recover_round(self, insights: Sequence[OwnedInsight], partition: int) -> None:
        """Publish what a crash left unpublished of the rounds that the table records.

        Called once for insights just loaded. Agendas that are on their topic are not published
        again. Decision and lifecycle events are: nobody can tell which of them are out, and a
        repeat of them changes nothing.

        Raises:
            UnavailableError: If the topics cannot be read or created, or the partition is not
                certainly this process's.
        """
        unconfirmed = [
            (owned, row, chosen)
            for owned in insights
            if (row := owned.store.unconfirmed_round)
            and (chosen := owned.scheduler.unclaimed_of(row.refs))
        ]
        emitted_before = await self._emitted_reader.attempts(
            [(owned, MAX_COPIES * len(row.refs)) for owned, row, _ in unconfirmed]
        )
        records: list[Record] = []
        for (owned, row, chosen), known in zip(unconfirmed, emitted_before, strict=True):
            await self._ensure_topic(owned)
            depth = CurrentDepth(row.lag, row.in_flight)
            planned = PlannedRound(row.at, row.slots, depth, chosen)
            emitted, announcements = await self._records(owned, planned, row, known)
            records += [*emitted, *announcements]
            _log.info("round.recovered", insight_id=owned.insight_id, lacked=len(emitted))
        self.ensure_owned(partition)
        await self._publish(records, partition)
        for owned in insights:
            owned.store.unconfirmed_round = None

    async def _draft_round(
        self, owned: OwnedInsight, record_position: RecordPosition, *, choose: bool
    ) -> _RoundDraft:
        """Apply what is due, plan a round, and build all records of it."""
        now = self._clock.now()
        seconds = now.timestamp()
        owned.scheduler.advance_to(seconds)
        limit = self._registry.budget_within_pool(owned, MAX_ROUND_SIZE) if choose else 0
        before = owned.checkpoint(self._topics, now) if limit > 0 else ()
        planned = owned.scheduler.plan_round(seconds, limit)
        if planned.chosen or owned.topic_partitions:
            await self._ensure_topic(owned)
        outbox = await self._outbox_records(owned, owned.scheduler.drain_outbox(), now)
        if not planned.chosen:
            return _RoundDraft(outbox)
        owned.store.unconfirmed_round = row = JournaledRound(
            refs=tuple(one.ref for one in planned.chosen),
            at=planned.at,
            slots=planned.slots,
            lag=planned.depth.unclaimed,
            in_flight=planned.depth.in_flight,
            offset=record_position.offset,
            definitions=self._registry.definitions_version,
        )
        known = owned.take_emitted_before(planned.chosen, now)
        emitted, announcements = await self._records(owned, planned, row, known)
        owned.checkpoints.record_sent(before, row.at)
        self._metrics.record_emissions(owned.insight_id, planned.chosen, seconds)
        return _RoundDraft(outbox, emitted, [*before, *announcements])

    async def _outbox_records(
        self, owned: OwnedInsight, outbox: OutboxBatch, now: datetime
    ) -> list[Record]:
        """Requests to stop, dead letters and lifecycle events that do not belong to a round."""
        if not outbox:
            return []
        self._metrics.record_failed(owned.insight_id, outbox.failed)
        topic = self._topics.agenda_events
        return [
            *stop_records(self._topics, owned, outbox),
            *dead_letter_records(self._topics, owned, outbox, now),
            *await lifecycle_records(self._publisher, topic, outbox.lifecycle),
        ]

    async def _records(
        self,
        owned: OwnedInsight,
        planned: PlannedRound,
        row: JournaledRound,
        known: AttemptKeys,
    ) -> tuple[list[Record], list[Record]]:
        """A round's agendas that its topic lacks, and its decision and lifecycle events."""
        at = datetime.fromtimestamp(row.at, UTC)
        chosen = [
            (one, _emitted_agenda(owned, one, at))
            for one in missing_from_topic(planned.chosen, known)
        ]
        if (spans := tracing.active()) is not None:
            self._metrics.note_traces(_record_waits(spans, owned, chosen))
        emitted = emitted_records(
            self._topics,
            owned,
            chosen,
            partitions=await self._publisher.partitions(self._emitted_reader.topic_of(owned)),
            now=self._clock.now(),
        )
        decision = owned.scheduler.decision(
            planned,
            limited_by=self._registry.limiting_cause(owned),
            partition=owned.partition,
            offset=row.offset,
            definitions=row.definitions,
        )
        lifecycle = await lifecycle_records(
            self._publisher,
            self._topics.agenda_events,
            emitted_events(owned, planned.chosen, at),
        )
        value = encode(decision)
        owned.checkpoints.decided += len(value)
        key = owned.insight_id.encode()
        return emitted, [Record(self._topics.decisions, key, value), *lifecycle]

    async def _publish_before_rows(self, partition: int, outbox: Sequence[Record]) -> None:
        """Wait for the rows of the round before, and publish what must precede the rows."""
        # The wait is why a crash leaves one round at most half written. Rows that this record
        # has led to so far need no waiting: after a crash the record is read again.
        await self._table.wait_durable(self._last_round_row)
        self.ensure_owned(partition)
        if outbox:
            await self._publish(outbox, partition)
            self.ensure_owned(partition)

    def _write_rows(
        self, insights: Sequence[OwnedInsight], offset: int, *, flush: bool
    ) -> None:
        """Write the rows; `flush` sends them at once, because the next round waits for them."""
        save_backlogs(insights, offset)
        if flush:
            self._table.send_now()
            self._last_round_row = self._table.written

    async def _publish(self, records: Sequence[Record], partition: int) -> None:
        """Publish until all is acknowledged or the partition may be another process's.

        Ownership is checked before each retry: after a freeze the first attempt may have taken
        longer than a session.
        """
        check = partial(self.ensure_owned, partition)
        await publish_until_acknowledged(self._publisher, records, before_retry=check)

    async def _ensure_topic(self, owned: OwnedInsight) -> None:
        """Create the insight's topic, or add the partitions that its definition asks for."""
        insight = owned.backlog.insight
        if owned.topic_partitions < insight.partitions:
            await self._create_topic(insight)
            owned.topic_partitions = insight.partitions
