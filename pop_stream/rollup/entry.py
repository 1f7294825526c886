"""What a record of `pop.agenda-events` comes to: events to fold, and parts to refuse."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from aiokafka import ConsumerRecord

from pop_stream.core.errors import UnreadableRecordError
from pop_stream.core.events import LifecycleEvent, decode_lifecycle, encode, parts_of, value_of
from pop_stream.core.values.ids import OWN_ID_LENGTH, OWN_ID_PATTERN

MOST_AHEAD: Final = timedelta(days=1)
"""How fast a producer's clock may be; a later instant would outdo all that follow it."""

_ID: Final = re.compile(OWN_ID_PATTERN)


class Entry(NamedTuple):
    """One event of a record; None where nothing of a record is left to fold.

    Attributes:
        ends_record: Whether the record is done once this entry is folded.
    """

    record: ConsumerRecord
    event: LifecycleEvent | None
    ends_record: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record, or one event of a frame, that cannot be used.

    Attributes:
        record: With only the refused part as its value.
        error: Stable code and a reason for people.
    """

    record: ConsumerRecord
    error: tuple[str, str]


def read(record: ConsumerRecord, *, now: datetime) -> tuple[list[Entry], list[Refusal]]:
    """The events of one record, in order, and what of it cannot be used.

    A bad event of a frame takes none of the others with it. There is at least one entry, so
    that every record is accounted for.
    """
    events, refusals = _decode(record)
    sound: list[LifecycleEvent] = []
    for event in events:
        if reason := _fault(event, now):
            error = (UnreadableRecordError.code, reason)
            refusals.append(Refusal(replace(record, value=encode(event)), error))
        else:
            sound.append(event)
    if not sound:
        return [Entry(record, None, ends_record=True)], refusals
    last = len(sound) - 1
    return [Entry(record, event, n == last) for n, event in enumerate(sound)], refusals


def _decode(record: ConsumerRecord) -> tuple[Sequence[LifecycleEvent], list[Refusal]]:
    value = None
    try:
        value = value_of(record)
        return decode_lifecycle(value), []
    except UnreadableRecordError as error:
        parts = parts_of(value)
        if not parts:
            return [], [Refusal(record, (error.code, str(error)))]
    events: list[LifecycleEvent] = []
    refusals: list[Refusal] = []
    for part in parts:
        try:
            events += decode_lifecycle(part)
        except UnreadableRecordError as error:
            alone = replace(record, value=part)
            refusals.append(Refusal(alone, (error.code, str(error))))
    return events, refusals


def _fault(event: LifecycleEvent, now: datetime) -> str:
    if not _ID.fullmatch(event.agenda_id):
        return f"agenda_id {event.agenda_id[:OWN_ID_LENGTH]!r} is no id"
    if event.at > now + MOST_AHEAD:
        return f"at {event.at.isoformat()} lies in the future; the producer's clock is wrong"
    return ""
