"""Brings what was decided about occurrences of schedules into the database.

It reads `pop.schedule-events`, which anyone may write to: what is not the event of an
occurrence, or that no row can hold, is logged, counted and passed.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import structlog

from pop_stream.kafka.topics import Topics
from pop_stream.kafka.unreadable_records import skip_unreadable
from pop_stream.model.errors import UnreadableRecordError, UnstorableError
from pop_stream.model.events.codec import decode_schedule_events
from pop_stream.model.events.occasions import ScheduleEvent
from pop_stream.model.events.schema_version import checked_value
from pop_stream.model.ids import OWN_ID_LENGTH
from pop_stream.model.schedule import schedule_of
from pop_stream.ports.occurrences import OccurrenceStore
from pop_stream.ports.records import ConsumedRecord
from pop_stream.rollup.storing import store_topics
from pop_stream.settings import Settings

PART: Final = "occurrences"

_BATCH_RECORDS: Final = 20
"""Frames of one transaction; each may have some hundred events."""

_log = structlog.get_logger()


async def store_occurrences(
    settings: Settings, *, store: OccurrenceStore, stop: asyncio.Event
) -> None:
    """Store what is reported of occurrences, until `stop`; any number of processes may."""

    async def add(records: Sequence[ConsumedRecord]) -> None:
        await _add(store, [*read_events(records)])

    names = [Topics(settings.topic_prefix).schedule_events]
    await store_topics(settings, names, add, stop, part=PART, batch_records=_BATCH_RECORDS)


async def _add(store: OccurrenceStore, events: Sequence[ScheduleEvent]) -> None:
    """Store a batch, or halves of it around an event that no row can hold."""
    try:
        await store.add(events)
    except UnstorableError as error:
        if len(events) == 1:
            _log.warning("occurrence.unstorable", reason=str(error))
            return
        middle = len(events) // 2
        await _add(store, events[:middle])
        await _add(store, events[middle:])


def read_events(records: Iterable[ConsumedRecord]) -> Iterator[ScheduleEvent]:
    """The events of records whose ids fit; others are logged, counted and left out."""
    for record in records:
        try:
            events = decode_schedule_events(checked_value(record))
        except UnreadableRecordError as error:
            skip_unreadable(record, error)
            continue
        for one in events:
            known = len(one.agenda_id) <= OWN_ID_LENGTH and schedule_of(one.agenda_id)
            if known and one.schedule_id == known:
                yield one
            else:
                _log.warning("occurrence.ids_differ", partition=record.partition)
