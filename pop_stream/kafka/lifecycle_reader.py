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
from pop_stream.model.errors import (
    RecordTooLargeError,
    UnauthenticatedError,
    UnreadableRecordError,
)
from pop_stream.model.events.codec import (
    MAX_EVENT_BYTES,
    decode_lifecycle,
    encode,
    frame,
    frame_parts,
)
from pop_stream.model.events.lifecycle import SIGNED_EVENTS, LifecycleEvent
from pop_stream.model.events.scheduling import ReadyEvent
from pop_stream.model.events.schema_version import checked_value
from pop_stream.model.ids import OWN_ID_LENGTH, OWN_ID_PATTERN
from pop_stream.model.partitioning import partition_of
from pop_stream.policy.ingress.signature import RecordSigner
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.ports.records import ConsumedRecord, with_value

MAX_CLOCK_AHEAD: Final = timedelta(days=1)
"""How far ahead a producer's clock may be; a later instant would beat all events after it."""

_SIGNS_NOTHING: Final = RecordSigner()
_ID: Final = re.compile(OWN_ID_PATTERN)


class LifecycleEntry(NamedTuple):
    """One event of a record; `event` is None where nothing of a record is left to fold.

    Attributes:
        ends_record: Whether it is the last of its record.
        number: Its place among its record's, from 0.
    """

    record: ConsumedRecord
    event: LifecycleEvent | None
    ends_record: bool
    number: int = 0


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
    record: ConsumedRecord, *, now: datetime, signer: RecordSigner
) -> tuple[list[LifecycleEntry], list[RejectedEvent]]:
    """The events of one record, in order, and what of it cannot be used.

    A bad event of a frame takes none of the others with it. There is at least one entry, so
    that every record is accounted for.

    Args:
        record: Of `pop.agenda-events`.
        now: The present instant.
        signer: Knows what ingest and API have signed.
    """
    events, refusals = decode_record(record)
    is_believed = may_command(record, events, signer)
    sound: list[LifecycleEvent] = []
    for event in events:
        if error := _rejection(event, now, is_believed=is_believed):
            refusals.append(RejectedEvent(with_value(record, encode(event)), error))
        else:
            sound.append(event)
    if not sound:
        return [LifecycleEntry(record, None, ends_record=True)], refusals
    last = len(sound) - 1
    return [
        LifecycleEntry(record, event, n == last, n) for n, event in enumerate(sound)
    ], refusals


def decode_record(
    record: ConsumedRecord,
) -> tuple[Sequence[LifecycleEvent], list[RejectedEvent]]:
    """The events of one record that are events, in order, and what of it is none.

    What is larger than an event may be is none: no part could carry it on.
    """
    value = None
    try:
        value = checked_value(record)
        if len(value or b"") <= MAX_EVENT_BYTES:
            return decode_lifecycle(value), []
        parts: Sequence[bytes] = frame_parts(value) or (value or b"",)
    except UnreadableRecordError as error:
        parts = frame_parts(value)
        if not parts:
            return [], [RejectedEvent(record, (error.code, str(error)))]
    events: list[LifecycleEvent] = []
    refusals: list[RejectedEvent] = []
    for part in parts:
        try:
            events += _decode_part(part)
        except UnreadableRecordError as error:
            alone = with_value(record, part)
            refusals.append(RejectedEvent(alone, (error.code, str(error))))
    return events, refusals


def _decode_part(part: bytes) -> Sequence[LifecycleEvent]:
    if len(part) > MAX_EVENT_BYTES:
        msg = f"an event of {len(part):,} bytes; at most {MAX_EVENT_BYTES:,} can be carried on"
        raise UnreadableRecordError(msg)
    return decode_lifecycle(part)


def may_command(
    record: ConsumedRecord, events: Iterable[LifecycleEvent], signer: RecordSigner
) -> bool:
    """Whether `SIGNED_EVENTS` among the events of a record are to be acted on.

    They are if ingest or the API has signed the record as it is, or if this process has no
    secret to tell by. A record without any of them is not checked.
    """
    if not signer.has_secret or not any(isinstance(one, SIGNED_EVENTS) for one in events):
        return True
    return signer.has_signed(
        record.topic, key=record.key, value=record.value, headers=record.headers or ()
    )


def _rejection(
    event: LifecycleEvent, now: datetime, *, is_believed: bool
) -> tuple[str, str] | None:
    """Why an event is not used: a stable code, and a reason for people."""
    code = UnreadableRecordError.code
    if not _ID.fullmatch(event.agenda_id):
        return code, f"agenda_id {event.agenda_id[:OWN_ID_LENGTH]!r} is no id"
    if event.at > now + MAX_CLOCK_AHEAD:
        at = event.at.isoformat()
        return code, f"at {at} lies in the future; the producer's clock is wrong"
    if isinstance(event, SIGNED_EVENTS) and not is_believed:
        tag = event.__struct_config__.tag
        why = f"{tag} of {event.agenda_id} is not signed by ingest or API: it is forged, or "
        return UnauthenticatedError.code, f"{why}POP_SIGNING_SECRETS differ between parts"
    return None


FRAME_BYTES: Final = 256 * 1024
"""Largest frame of several events; a single event may be larger."""


async def lifecycle_records(
    publisher: Publisher,
    topic: str,
    lifecycle: Iterable[LifecycleEvent],
    *,
    signer: RecordSigner = _SIGNS_NOTHING,
) -> list[Record]:
    """Records for `pop.agenda-events`: by partition, frames of at most `FRAME_BYTES`.

    Events of one agenda keep their order. The key of a frame is its first agenda's.

    Args:
        publisher: Knows the partitions.
        topic: Where they are to be written.
        lifecycle: The events, `SIGNED_EVENTS` only with a signer.
        signer: Signs the records.

    Raises:
        RecordTooLargeError: If an event is larger than any part could carry on.
    """
    partitions = await publisher.partitions(topic)
    by_partition: dict[int, list[tuple[str, bytes]]] = {}
    for event in lifecycle:
        partition = partition_of(event.agenda_id.encode(), partitions)
        encoded = encode(event)
        if len(encoded) > MAX_EVENT_BYTES:
            what = f"{event.__struct_config__.tag} of {event.agenda_id}"
            raise RecordTooLargeError(what, len(encoded), MAX_EVENT_BYTES)
        by_partition.setdefault(partition, []).append((event.agenda_id, encoded))
    return [
        Record(
            topic,
            key.encode(),
            value,
            partition,
            signer.headers(topic, key=key.encode(), value=value),
        )
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
