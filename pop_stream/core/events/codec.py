"""The events' JSON, and frames: lists of events in one record."""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from pop_stream.core.errors import UnreadableRecordError
from pop_stream.core.events.accounts import InsightAnswered
from pop_stream.core.events.base import Struct
from pop_stream.core.events.counts import CountEvent
from pop_stream.core.events.handouts import HandoutEvent, PullEvent
from pop_stream.core.events.insight import AttemptStop, EmittedAgenda
from pop_stream.core.events.lifecycle import LifecycleEvent
from pop_stream.core.events.ready import PlacedAgenda, ReadyEvent

_ENCODER: Final = msgspec.json.Encoder()
_LIFECYCLE: Final = msgspec.json.Decoder(LifecycleEvent | list[LifecycleEvent])
_READY: Final = msgspec.json.Decoder(ReadyEvent | list[ReadyEvent])
_FRAME: Final = msgspec.json.Decoder(list[msgspec.Raw])
_EMITTED: Final = msgspec.json.Decoder(EmittedAgenda)
_ANSWER: Final = msgspec.json.Decoder(InsightAnswered)
_STOP: Final = msgspec.json.Decoder(AttemptStop)
_PULL: Final[msgspec.json.Decoder[PullEvent]] = msgspec.json.Decoder(PullEvent)
_COUNT: Final[msgspec.json.Decoder[CountEvent]] = msgspec.json.Decoder(CountEvent)
_HANDOUT: Final[msgspec.json.Decoder[HandoutEvent]] = msgspec.json.Decoder(HandoutEvent)
_PLACED: Final = msgspec.json.Decoder(PlacedAgenda)
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
    return _events(_LIFECYCLE, value)


def parts_of(value: bytes | None) -> Sequence[bytes]:
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
    return _events(_READY, value)


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


def decode_answer(value: bytes | None) -> InsightAnswered:
    """The answer in one record of `pop.answers`.

    Raises:
        UnreadableRecordError: If the value is no answer.
    """
    try:
        return _ANSWER.decode(value or b"")
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None


def decode_placed(value: bytes | msgspec.Raw) -> PlacedAgenda:
    """One agenda of a page.

    Raises:
        UnreadableRecordError: If the value is not a placed agenda.
    """
    try:
        return _PLACED.decode(value)
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None


def decode_pull(value: bytes | None) -> PullEvent:
    """What one record of `pop.pulls` says.

    Raises:
        UnreadableRecordError: If the value is neither.
    """
    return _lone(_PULL, value)


def decode_handout(value: bytes | None) -> HandoutEvent:
    """What one record of `pop.handouts` says.

    Raises:
        UnreadableRecordError: If the value is neither.
    """
    return _lone(_HANDOUT, value)


def decode_count(value: bytes | None) -> CountEvent:
    """What one record of `pop.counts` says.

    Raises:
        UnreadableRecordError: If the value is neither.
    """
    return _lone(_COUNT, value)


T = TypeVar("T")


def _lone(decoder: msgspec.json.Decoder[T], value: bytes | None) -> T:
    try:
        return decoder.decode(value or b"")
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None


def _events(decoder: msgspec.json.Decoder[T | list[T]], value: bytes | None) -> Sequence[T]:
    try:
        decoded = decoder.decode(value or b"")
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None
    return decoded if isinstance(decoded, list) else (decoded,)
