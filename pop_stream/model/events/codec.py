"""Encodes and decodes events, and frames: lists of events in one record.

Decoding takes the value of a record; whether its schema version can be read is checked before,
by `schema_version`. Anything that is not the event that is expected raises
UnreadableRecordError, however it is malformed.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.base import Struct
from pop_stream.model.events.lifecycle import LifecycleEvent
from pop_stream.model.events.occasions import OccasionEvent, ScheduleEvent, ScheduleState
from pop_stream.model.events.pull import DeliveryEvent, PollDemandEvent
from pop_stream.model.events.quota import UsageEvent
from pop_stream.model.events.scheduling import (
    AttemptStop,
    EmittedAgenda,
    QueueDescribed,
    ReadyEvent,
    RoutedAgenda,
)

MAX_EVENT_BYTES: Final = 900_000
"""The most that one event may hold, encoded. A record holds more: what follows from an event
carries it on, with more around it."""

_ENCODER: Final = msgspec.json.Encoder()
_LIFECYCLE: Final = msgspec.json.Decoder(LifecycleEvent | list[LifecycleEvent])
_READY: Final = msgspec.json.Decoder(ReadyEvent | list[ReadyEvent])
_FRAME: Final = msgspec.json.Decoder(list[msgspec.Raw])
_EMITTED: Final = msgspec.json.Decoder(EmittedAgenda)
_QUERY_REPLY: Final = msgspec.json.Decoder(QueueDescribed)
_STOP: Final = msgspec.json.Decoder(AttemptStop)
_POLL_DEMAND: Final[msgspec.json.Decoder[PollDemandEvent]] = msgspec.json.Decoder(
    PollDemandEvent
)
_USAGE: Final[msgspec.json.Decoder[UsageEvent]] = msgspec.json.Decoder(UsageEvent)
_DELIVERY: Final[msgspec.json.Decoder[DeliveryEvent]] = msgspec.json.Decoder(DeliveryEvent)
_OCCASION: Final[msgspec.json.Decoder[OccasionEvent]] = msgspec.json.Decoder(OccasionEvent)
_SCHEDULE_EVENTS: Final = msgspec.json.Decoder(ScheduleEvent | list[ScheduleEvent])
_SCHEDULE_STATE: Final = msgspec.json.Decoder(ScheduleState)
_ROUTED: Final = msgspec.json.Decoder(RoutedAgenda)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode(value: Struct | Sequence[Struct]) -> bytes:
    """JSON of an event, of a frame of events, or of any other wire shape."""
    return _ENCODER.encode(value)


def frame(encoded: Iterable[bytes]) -> bytes:
    """A frame of events that are already encoded."""
    return b"[" + b",".join(encoded) + b"]"


def decode_lifecycle(value: bytes | None) -> Sequence[LifecycleEvent]:
    """The events of one record of `pop.agenda-events`.

    Raises:
        UnreadableRecordError: If the value is not one event or a list of events.
    """
    return _decode_many(_LIFECYCLE, value)


def frame_parts(value: bytes | None) -> Sequence[bytes]:
    """The events of a frame, each still encoded; none if the value is not a list."""
    try:
        return [bytes(part) for part in _FRAME.decode(value or b"")]
    except _UNREADABLE:
        return []


def decode_ready(value: bytes | None) -> Sequence[ReadyEvent]:
    """The events of one record of `pop.ready`.

    Raises:
        UnreadableRecordError: If the value is not one event or a list of events.
    """
    return _decode_many(_READY, value)


def decode_emitted(value: bytes | None) -> EmittedAgenda:
    """The agenda in one record of `pop.insight.<id>`.

    Raises:
        UnreadableRecordError: If the value is not an emitted agenda.
    """
    try:
        return _EMITTED.decode(value or b"")
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None


def decode_stop(value: bytes | None) -> AttemptStop:
    """The stop in one record of `pop.controls`.

    Raises:
        UnreadableRecordError: If the value is not a stop.
    """
    try:
        return _STOP.decode(value or b"")
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None


def decode_query_reply(value: bytes | None) -> QueueDescribed:
    """The reply in one record of `pop.query-replies`.

    Raises:
        UnreadableRecordError: If the value is not a reply.
    """
    try:
        return _QUERY_REPLY.decode(value or b"")
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None


def decode_routed(value: bytes | msgspec.Raw) -> RoutedAgenda:
    """One agenda of a page.

    Raises:
        UnreadableRecordError: If the value is not a routed agenda.
    """
    try:
        return _ROUTED.decode(value)
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None


def decode_poll_demand(value: bytes | None) -> PollDemandEvent:
    """The event of one record of `pop.poll-demand`.

    Raises:
        UnreadableRecordError: If the value is no such event.
    """
    return _decode_one(_POLL_DEMAND, value)


def decode_delivery(value: bytes | None) -> DeliveryEvent:
    """The event of one record of `pop.deliveries`.

    Raises:
        UnreadableRecordError: If the value is no such event.
    """
    return _decode_one(_DELIVERY, value)


def decode_usage(value: bytes | None) -> UsageEvent:
    """The event of one record of `pop.quota-usage`.

    Raises:
        UnreadableRecordError: If the value is no such event.
    """
    return _decode_one(_USAGE, value)


def decode_occasion(value: bytes | None) -> OccasionEvent:
    """The event of one record of `pop.occasions`.

    Raises:
        UnreadableRecordError: If the value is no such event.
    """
    return _decode_one(_OCCASION, value)


def decode_schedule_state(value: bytes | None) -> ScheduleState:
    """The state of a schedule in one record of `pop.timekeeper`.

    Raises:
        UnreadableRecordError: If the value is no such state.
    """
    return _decode_one(_SCHEDULE_STATE, value)


def decode_schedule_events(value: bytes | None) -> Sequence[ScheduleEvent]:
    """The events of one record of `pop.schedule-events`.

    Raises:
        UnreadableRecordError: If the value is not one event or a list of events.
    """
    return _decode_many(_SCHEDULE_EVENTS, value)


T = TypeVar("T")


def _decode_one(decoder: msgspec.json.Decoder[T], value: bytes | None) -> T:
    try:
        return decoder.decode(value or b"")
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None


def _decode_many(
    decoder: msgspec.json.Decoder[T | list[T]], value: bytes | None
) -> Sequence[T]:
    try:
        decoded = decoder.decode(value or b"")
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None
    return decoded if isinstance(decoded, list) else (decoded,)
