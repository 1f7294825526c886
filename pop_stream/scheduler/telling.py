"""The records that tell of a round and of all else that happened with it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Raw

from pop_stream.bus.dead_letters import failed_agenda
from pop_stream.bus.topics import Topics
from pop_stream.core.backlog.outbox import Told
from pop_stream.core.backlog.page import place_of
from pop_stream.core.backlog.whereabouts import Chosen
from pop_stream.core.errors import UnreadableRecordError
from pop_stream.core.events import (
    AgendaEmitted,
    AttemptStop,
    EmittedAgenda,
    PlacedAgenda,
    encode,
)
from pop_stream.core.gate.spread import spread
from pop_stream.core.values.partitioning import partition_of
from pop_stream.ports.wire import Record
from pop_stream.scheduler.desk import Desk

PART: Final = "scheduler"


def emitted_records(
    topics: Topics,
    desk: Desk,
    chosen: Sequence[Chosen],
    *,
    partitions: int,
    at: datetime,
    now: datetime,
) -> list[Record]:
    """A round's agendas for the insight's topic; the desk takes note where each one goes.

    Args:
        topics: Names of topics.
        desk: After the choice.
        chosen: In order of emission.
        partitions: Of the insight's topic.
        at: When they were chosen.
        now: The present instant.
    """
    group_type = desk.backlog.insight.group_type
    topic, seconds = topics.insight(desk.insight_id, group_type), now.timestamp()
    is_shared = group_type == "share"
    keys = [one.agenda_id.encode() for one in chosen]
    homes = (partition_of(key, partitions) for key in keys)
    lines = spread(homes, desk.backlog.on_topic.waiting(partitions))
    records: list[Record] = []
    for one, key, partition in zip(chosen, keys, lines, strict=True):
        desk.backlog.on_topic.send(one.ref, partition, seconds)
        value = encode(_emitted_agenda(desk, one, at))
        records.append(Record(topic, key, value, partition, alone=is_shared))
    return records


def emissions(desk: Desk, chosen: Sequence[Chosen], now: datetime) -> list[AgendaEmitted]:
    """What the lifecycle hears of a round."""
    wants_news = desk.wants_news()
    return [
        AgendaEmitted(
            agenda_id=one.agenda_id,
            at=now,
            insight_id=desk.insight_id,
            attempt=one.attempt,
            wants_news=wants_news,
        )
        for one in chosen
    ]


def stops(topics: Topics, desk: Desk, told: Told) -> list[Record]:
    """What pullers hear: attempts that are to stop."""
    return [
        Record(
            topics.controls,
            stop.agenda_id.encode(),
            encode(
                AttemptStop(
                    agenda_id=stop.agenda_id,
                    insight_id=desk.insight_id,
                    attempt=stop.attempt,
                    reason=stop.reason,
                    accepted_at=_accepted_at(desk, stop.ref),
                )
            ),
        )
        for stop in told.stops
    ]


def _accepted_at(desk: Desk, ref: int | None) -> datetime | None:
    if ref is None:
        return None
    try:
        return desk.shelf.agenda(*place_of(ref)).accepted_at
    except (LookupError, UnreadableRecordError):
        return None  # a stop is told all the same


def letters(topics: Topics, desk: Desk, told: Told, now: datetime) -> list[Record]:
    """The dead letters of agendas that failed for good."""
    return [
        failed_agenda(
            topics,
            failed,
            desk.backlog.insight,
            agenda=bytes(desk.shelf.agenda(*place_of(failed.ref)).agenda),
            part=PART,
            at=now,
        )
        for failed in told.failed
    ]


def _run_from(placed: PlacedAgenda) -> int:
    return placed.attempt if placed.run_from is None else placed.run_from


def _emitted_agenda(desk: Desk, chosen: Chosen, at: datetime) -> EmittedAgenda:
    placed = desk.shelf.agenda(*place_of(chosen.ref))
    return EmittedAgenda(
        agenda_id=chosen.agenda_id,
        insight_id=desk.insight_id,
        customer_id=chosen.customer_id,
        attempt=chosen.attempt,
        accepted_at=placed.accepted_at,
        emitted_at=at,
        lease_ms=desk.backlog.insight.lease_ms,
        agenda=Raw(placed.agenda),
        # Of a lone operation nothing can have succeeded that would not have ended the agenda.
        resumes=chosen.attempt > 1 and len(placed.operation_types) > 1,
        run_from=_run_from(placed) if chosen.attempt > 1 else 0,
    )
