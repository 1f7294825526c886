"""Builds the records of a round and of an outbox: agendas, events, stops and dead letters.

Nothing is published here and nothing is decided, but for the partition of each emitted agenda.
"""

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
from pop_stream.policy.backlog.outbox import OutboxBatch
from pop_stream.policy.backlog.page import ChosenAgenda, page_and_slot
from pop_stream.ports.publisher import Record
from pop_stream.scheduler.insight import OwnedInsight

PART: Final = "scheduler"
"""The scheduler's name in its consumer group, client ids and dead letters."""


def emitted_records(
    topics: Topics,
    owned: OwnedInsight,
    chosen: Sequence[ChosenAgenda],
    *,
    partitions: int,
    at: datetime,
    now: datetime,
) -> list[Record]:
    """A round's agendas for the insight's topic, each in the partition the scheduler assigns.

    Args:
        topics: Names of topics.
        owned: After the choice.
        chosen: In order of emission.
        partitions: Of the insight's topic.
        at: When they were chosen.
        now: The present instant.
    """
    group_type = owned.backlog.insight.group_type
    topic = topics.insight(owned.insight_id, group_type)
    is_shared = group_type == "share"
    assigned = owned.scheduler.assign_partitions(chosen, partitions, now.timestamp())
    return [
        Record(
            topic,
            one.agenda_id.encode(),
            encode(_emitted_agenda(owned, one, at)),
            partition,
            own_batch=is_shared,
        )
        for one, partition in zip(chosen, assigned, strict=True)
    ]


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
    return EmittedAgenda(
        agenda_id=chosen.agenda_id,
        insight_id=owned.insight_id,
        customer_id=chosen.customer_id,
        attempt=chosen.attempt,
        accepted_at=routed.accepted_at,
        emitted_at=at,
        lease_ms=owned.backlog.insight.lease_ms,
        agenda=Raw(routed.agenda),
        # If its only operation had succeeded, the agenda would have ended.
        resumes=chosen.attempt > 1 and len(routed.operation_types) > 1,
        run_from=_run_from(routed) if chosen.attempt > 1 else 0,
    )
