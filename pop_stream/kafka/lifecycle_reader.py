"""Reads and addresses records of events.

A record of `pop.agenda-events` is an event or a frame of them: it is read as events to fold and
parts that cannot be used. Frames are built per partition for writers.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import decode_lifecycle, encode, frame, frame_parts
from pop_stream.model.events.lifecycle import LifecycleEvent
from pop_stream.model.events.scheduling import ReadyEvent
from pop_stream.model.events.schema_version import checked_value
from pop_stream.model.ids import OWN_ID_LENGTH, OWN_ID_PATTERN
from pop_stream.model.partitioning import partition_of
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.ports.records import ConsumedRecord, with_value

MAX_CLOCK_AHEAD: Final = timedelta(days=1)
"""How far ahead a producer's clock may be; a later instant would beat all events after it."""

_ID: Final = re.compile(OWN_ID_PATTERN)


class LifecycleEntry(NamedTuple):
    """One event of a record; `event` is None where nothing of a record is left to fold.

    Attributes:
        ends_record: Whether it is the last of its record.
    """

    record: ConsumedRecord
    event: LifecycleEvent | None
    ends_record: bool


@dataclass(frozen=True, slots=True)
class RejectedEvent:
    """A record, or one event of a frame, that cannot be used.

    Attributes:
        record: With only the rejected part as its value.
        error: Stable code and a reason for people.
    """

    record: ConsumedRecord
    error: tuple[str, str]


def read(
    record: ConsumedRecord, *, now: datetime
) -> tuple[list[LifecycleEntry], list[RejectedEvent]]:
    """The events of one record, in order, and what of it cannot be used.

    A bad event of a frame takes none of the others with it. There is at least one entry, so
    that every record is accounted for.
    """
    events, refusals = _decode(record)
    sound: list[LifecycleEvent] = []
    for event in events:
        if reason := _rejection(event, now):
            error = (UnreadableRecordError.code, reason)
            refusals.append(RejectedEvent(with_value(record, encode(event)), error))
        else:
            sound.append(event)
    if not sound:
        return [LifecycleEntry(record, None, ends_record=True)], refusals
    last = len(sound) - 1
    return [LifecycleEntry(record, event, n == last) for n, event in enumerate(sound)], refusals


def _decode(record: ConsumedRecord) -> tuple[Sequence[LifecycleEvent], list[RejectedEvent]]:
    value = None
    try:
        value = checked_value(record)
        return decode_lifecycle(value), []
    except UnreadableRecordError as error:
        parts = frame_parts(value)
        if not parts:
            return [], [RejectedEvent(record, (error.code, str(error)))]
    events: list[LifecycleEvent] = []
    refusals: list[RejectedEvent] = []
    for part in parts:
        try:
            events += decode_lifecycle(part)
        except UnreadableRecordError as error:
            alone = with_value(record, part)
            refusals.append(RejectedEvent(alone, (error.code, str(error))))
    return events, refusals


def _rejection(event: LifecycleEvent, now: datetime) -> str:
    if not _ID.fullmatch(event.agenda_id):
        return f"agenda_id {event.agenda_id[:OWN_ID_LENGTH]!r} is no id"
    if event.at > now + MAX_CLOCK_AHEAD:
        return f"at {event.at.isoformat()} lies in the future; the producer's clock is wrong"
    return ""


FRAME_BYTES: Final = 256 * 1024
"""Largest frame of several events; a single event may be larger."""


async def lifecycle_records(
    publisher: Publisher, topic: str, lifecycle: Iterable[LifecycleEvent]
) -> list[Record]:
    """Records for `pop.agenda-events`: by partition, frames of at most `FRAME_BYTES`.

    Events of one agenda keep their order. The key of a frame is its first agenda's.
    """
    partitions = await publisher.partitions(topic)
    by_partition: dict[int, list[tuple[str, bytes]]] = {}
    for event in lifecycle:
        partition = partition_of(event.agenda_id.encode(), partitions)
        encoded = (event.agenda_id, encode(event))
        by_partition.setdefault(partition, []).append(encoded)
    return [
        Record(topic, key.encode(), value, partition)
        for partition, encoded in by_partition.items()
        for key, value in _frames(encoded)
    ]


def _frames(encoded: Sequence[tuple[str, bytes]]) -> Iterable[tuple[str, bytes]]:
    if len(encoded) == 1:
        yield encoded[0]
        return
    held: list[bytes] = []
    key, size = encoded[0][0], 0
    for agenda_id, value in encoded:
        if held and size + len(value) > FRAME_BYTES:
            yield key, frame(held)
            held, key, size = [], agenda_id, 0
        held.append(value)
        size += len(value)
    yield key, frame(held)


def ready_record(
    topics: Topics, definitions: Definitions, event: ReadyEvent, *, partitions: int
) -> Record:
    """The record of one event, for the partition whose owner schedules the insight.

    Args:
        topics: Names of topics.
        definitions: Those in force; insights that share a pool share a partition.
        event: About one insight.
        partitions: The number of partitions of `pop.ready`.
    """
    partition = partition_of(definitions.routing_key(event.insight_id), partitions)
    return Record(topics.ready, event.insight_id.encode(), encode(event), partition)
