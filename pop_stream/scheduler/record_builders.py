"""The records that tell of a round and of all else that happened with it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Raw

from pop_stream.kafka.dead_letters import agenda_dead_letter
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import encode
from pop_stream.model.events.lifecycle import AgendaEmitted
from pop_stream.model.events.scheduling import AttemptStop, EmittedAgenda, RoutedAgenda
from pop_stream.model.partitioning import partition_of
from pop_stream.policy.backlog.outbox import OutboxBatch
from pop_stream.policy.backlog.page import ChosenAgenda, page_and_slot
from pop_stream.policy.flow_control.partition_balance import spread
from pop_stream.ports.publisher import Record
from pop_stream.scheduler.insight import InsightScheduler

PART: Final = "scheduler"


def emitted_records(
    topics: Topics,
    scheduler: InsightScheduler,
    chosen: Sequence[ChosenAgenda],
    *,
    partitions: int,
    at: datetime,
    now: datetime,
) -> list[Record]:
    """A round's agendas for the insight's topic; the desk takes note where each one goes.

    Args:
        topics: Names of topics.
        scheduler: After the choice.
        chosen: In order of emission.
        partitions: Of the insight's topic.
        at: When they were chosen.
        now: The present instant.
    """
    group_type = scheduler.backlog.insight.group_type
    topic, seconds = topics.insight(scheduler.insight_id, group_type), now.timestamp()
    is_shared = group_type == "share"
    keys = [one.agenda_id.encode() for one in chosen]
    home_partitions = (partition_of(key, partitions) for key in keys)
    partitions_chosen = spread(
        home_partitions, scheduler.backlog.emitted_offsets.waiting(partitions)
    )
    records: list[Record] = []
    for one, key, partition in zip(chosen, keys, partitions_chosen, strict=True):
        scheduler.backlog.emitted_offsets.send(one.ref, partition, seconds)
        value = encode(_emitted_agenda(scheduler, one, at))
        records.append(Record(topic, key, value, partition, own_batch=is_shared))
    return records


def emitted_events(
    scheduler: InsightScheduler, chosen: Sequence[ChosenAgenda], now: datetime
) -> list[AgendaEmitted]:
    """What the lifecycle hears of a round."""
    expedite_reports = scheduler.expedite_reports()
    return [
        AgendaEmitted(
            agenda_id=one.agenda_id,
            at=now,
            insight_id=scheduler.insight_id,
            attempt=one.attempt,
            expedite_reports=expedite_reports,
        )
        for one in chosen
    ]


def stop_records(
    topics: Topics, scheduler: InsightScheduler, outbox: OutboxBatch
) -> list[Record]:
    """What pullers hear: attempts that are to stop."""
    return [
        Record(
            topics.controls,
            stop.agenda_id.encode(),
            encode(
                AttemptStop(
                    agenda_id=stop.agenda_id,
                    insight_id=scheduler.insight_id,
                    attempt=stop.attempt,
                    reason=stop.reason,
                    accepted_at=_accepted_at(scheduler, stop.ref),
                )
            ),
        )
        for stop in outbox.stops
    ]


def _accepted_at(scheduler: InsightScheduler, ref: int | None) -> datetime | None:
    if ref is None:
        return None
    try:
        return scheduler.store.agenda(*page_and_slot(ref)).accepted_at
    except (LookupError, UnreadableRecordError):
        return None  # a stop is told all the same


def dead_letter_records(
    topics: Topics, scheduler: InsightScheduler, outbox: OutboxBatch, now: datetime
) -> list[Record]:
    """The dead letters of agendas that failed for good."""
    return [
        agenda_dead_letter(
            topics,
            failed,
            scheduler.backlog.insight,
            agenda=bytes(scheduler.store.agenda(*page_and_slot(failed.ref)).agenda),
            part=PART,
            at=now,
        )
        for failed in outbox.failed
    ]


def _run_from(placed: RoutedAgenda) -> int:
    return placed.attempt if placed.run_from is None else placed.run_from


def _emitted_agenda(
    scheduler: InsightScheduler, chosen: ChosenAgenda, at: datetime
) -> EmittedAgenda:
    placed = scheduler.store.agenda(*page_and_slot(chosen.ref))
    return EmittedAgenda(
        agenda_id=chosen.agenda_id,
        insight_id=scheduler.insight_id,
        customer_id=chosen.customer_id,
        attempt=chosen.attempt,
        accepted_at=placed.accepted_at,
        emitted_at=at,
        lease_ms=scheduler.backlog.insight.lease_ms,
        agenda=Raw(placed.agenda),
        # Of a lone operation nothing can have succeeded that would not have ended the agenda.
        resumes=chosen.attempt > 1 and len(placed.operation_types) > 1,
        run_from=_run_from(placed) if chosen.attempt > 1 else 0,
    )
