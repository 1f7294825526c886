"""Events as JSON, alone or in frames (lists of events in one record), and their schema version.

Every record carries the schema version it was written in, and every reader checks it. The
version goes up when a reader of the version before could misunderstand what is written: when
a field changes its meaning or goes away. A new field or a new kind of event does not need it.
A record without a version is of the first one, so programs that know nothing of versions may
write.

A record of `pop.ready` that cannot be handled whole can be split in two halves.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.base import Struct
from pop_stream.model.events.lifecycle import LifecycleEvent
from pop_stream.model.events.pull import DeliveryEvent, PollDemandEvent
from pop_stream.model.events.quota import UsageEvent
from pop_stream.model.events.scheduling import (
    AttemptStop,
    EmittedAgenda,
    InsightAgendasRouted,
    InsightAttemptsReported,
    QueueDescribed,
    ReadyEvent,
    RoutedAgenda,
)

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
_ROUTED: Final = msgspec.json.Decoder(RoutedAgenda)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode(value: Struct | Sequence[Struct]) -> bytes:
    """JSON of an event, of a frame of events, or of any other wire shape."""
    return _ENCODER.encode(value)


def frame(encoded: Iterable[bytes]) -> bytes:
    """A frame made of events that are encoded already."""
    return b"[" + b",".join(encoded) + b"]"


def decode_lifecycle(value: bytes | None) -> Sequence[LifecycleEvent]:
    """The events of one record of `pop.agenda-events`.

    Raises:
        UnreadableRecordError: If the value is not one event or a list of events.
    """
    return _decode_many(_LIFECYCLE, value)


def frame_parts(value: bytes | None) -> Sequence[bytes]:
    """The events of a frame, each still encoded; none if the value is no frame."""
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
        UnreadableRecordError: If the value is no stop.
    """
    try:
        return _STOP.decode(value or b"")
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None


def decode_query_reply(value: bytes | None) -> QueueDescribed:
    """The answer in one record of `pop.query-replies`.

    Raises:
        UnreadableRecordError: If the value is no answer.
    """
    try:
        return _QUERY_REPLY.decode(value or b"")
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None


def decode_routed(value: bytes | msgspec.Raw) -> RoutedAgenda:
    """One agenda of a page.

    Raises:
        UnreadableRecordError: If the value is not a placed agenda.
    """
    try:
        return _ROUTED.decode(value)
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None


def decode_poll_demand(value: bytes | None) -> PollDemandEvent:
    """What one record of `pop.poll-demand` says.

    Raises:
        UnreadableRecordError: If the value is neither.
    """
    return _decode_one(_POLL_DEMAND, value)


def decode_delivery(value: bytes | None) -> DeliveryEvent:
    """What one record of `pop.deliveries` says.

    Raises:
        UnreadableRecordError: If the value is neither.
    """
    return _decode_one(_DELIVERY, value)


def decode_usage(value: bytes | None) -> UsageEvent:
    """What one record of `pop.quota-usage` says.

    Raises:
        UnreadableRecordError: If the value is neither.
    """
    return _decode_one(_USAGE, value)


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


SCHEMA_VERSION: Final = 1
"""What this code writes; it reads the one before, if there is one, and the one after."""

SCHEMA_HEADER: Final = "pop-schema"
"""The header of a record with its version, in digits."""

_VERSION_HEADER: Final = (SCHEMA_HEADER, b"%d" % SCHEMA_VERSION)
_VERSION_HEADERS: Final = (_VERSION_HEADER,)
_MIN_VERSION: Final = max(SCHEMA_VERSION - 1, 1)
_MAX_VERSION: Final = SCHEMA_VERSION + 1
_READABLE: Final = frozenset(
    b"%d" % version for version in range(_MIN_VERSION, _MAX_VERSION + 1)
)
_MAX_SHOWN: Final = 20


class VersionedRecord(Protocol):
    """A record as it is read."""

    @property
    def value(self) -> bytes | None:
        """None deletes."""
        ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Names and values; a header without a value counts as none."""
        ...


def with_schema_version(headers: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """The headers with the version of this code; one that has a version keeps it."""
    if not headers:
        return [_VERSION_HEADER]
    if any(name == SCHEMA_HEADER for name, _ in headers):
        return [*headers]
    return [*headers, _VERSION_HEADER]


def checked_value(record: VersionedRecord) -> bytes | None:
    """The record's value, if this code may read it.

    Raises:
        UnreadableRecordError: If it is of a version more than one away; names both.
    """
    if not record.headers or record.headers == _VERSION_HEADERS:
        return record.value
    for name, version in record.headers:
        if name == SCHEMA_HEADER and version and version not in _READABLE:
            shown = version[:_MAX_SHOWN].decode(errors="replace")
            readable = f"{_MIN_VERSION} to {_MAX_VERSION}"
            msg = f"of schema version {shown!r}, but {readable} can be read here"
            raise UnreadableRecordError(msg)
    return record.value


_REPORTED_FIELDS: Final = (
    "idle",
    "claims",
    "heartbeats",
    "settlements",
    "commands",
)
"""In the order in which they are heeded, so that halves are heeded as the whole."""


def split_record(value: bytes | None) -> tuple[bytes, bytes] | None:
    """The former and the latter half of what a record says, each as a record's value.

    Handled one after the other they come to the same. None if it says one thing only, or
    cannot be read.
    """
    parts = frame_parts(value)
    if len(parts) > 1:
        former, latter = _split(parts)
        return _joined(former), _joined(latter)
    try:
        events = decode_ready(value)
    except UnreadableRecordError:
        return None
    event = events[0] if events else None
    if isinstance(event, InsightAgendasRouted) and len(event.agendas) > 1:
        middle = len(event.agendas) // 2
        return _both(
            replace(event, agendas=event.agendas[:middle], origins=event.origins[:middle]),
            replace(event, agendas=event.agendas[middle:], origins=event.origins[middle:]),
        )
    if isinstance(event, InsightAttemptsReported):
        reported = [(name, one) for name in _REPORTED_FIELDS for one in getattr(event, name)]
        if len(reported) > 1:
            former, latter = _split(reported)
            return _both(_with(event, former), _with(event, latter))
    return None


def readable_events(value: bytes | None) -> tuple[Sequence[ReadyEvent], Sequence[str]]:
    """What the scheduler could use of a record, in its order, and why not the rest.

    Its whole where all can be read; else it is parted as the scheduler parts it, so that pages
    come out as they were placed.
    """
    found: list[ReadyEvent] = []
    reasons: list[str] = []
    waiting = [value]
    while waiting:
        part = waiting.pop()
        try:
            found += _whole(part)
        except UnreadableRecordError as error:
            both = split_record(part)
            if both is None:
                reasons.append(str(error))
            else:
                waiting += reversed(both)
    return found, reasons


def _whole(value: bytes | None) -> Sequence[ReadyEvent]:
    events = decode_ready(value)
    for event in events:
        if isinstance(event, InsightAgendasRouted):
            if len(event.origins) < len(event.agendas):
                msg = f"{len(event.agendas)} agendas with {len(event.origins)} origins"
                raise UnreadableRecordError(msg)
            for body in event.agendas:
                decode_routed(body)
    return events


def _split(some: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    middle = len(some) // 2
    return some[:middle], some[middle:]


def _joined(parts: Sequence[bytes]) -> bytes:
    return frame(parts) if len(parts) > 1 else parts[0]


def _with(
    event: InsightAttemptsReported, reported: Sequence[tuple[str, Any]]
) -> InsightAttemptsReported:
    fields = {
        name: tuple(one for its, one in reported if its == name) for name in _REPORTED_FIELDS
    }
    return replace(event, **fields)


def _both(former: ReadyEvent, latter: ReadyEvent) -> tuple[bytes, bytes]:
    return encode(former), encode(latter)
