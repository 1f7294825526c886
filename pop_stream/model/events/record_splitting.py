"""Splits a record of `pop.ready` in two, to isolate what in it cannot be handled.

The scheduler halves a record that it cannot handle until a single event, agenda or report
remains, and only that becomes a dead letter. Replay uses the same halves, so it sees the same
pages.
"""

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import (
    decode_ready,
    decode_routed,
    encode,
    frame,
    frame_parts,
)
from pop_stream.model.events.scheduling import (
    InsightAgendasRouted,
    InsightAttemptsReported,
    ReadyEvent,
)

_REPORTED_FIELDS: Final = (
    "idle",
    "claims",
    "heartbeats",
    "settlements",
    "commands",
)
"""In the order in which they are applied, so that halves have the effect of the whole."""


def split_record(value: bytes | None) -> tuple[bytes, bytes] | None:
    """The two halves of a record's content, each as a record's value.

    Handled one after the other they have the effect of the whole. None if the record has a
    single item, or cannot be read.
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
    """The events of a record that the scheduler could use, in order, and why not the rest.

    A readable record is returned as it is; any other is split as the scheduler splits it, so
    pages come out as they were routed.
    """
    found: list[ReadyEvent] = []
    reasons: list[str] = []
    waiting = [value]
    while waiting:
        part = waiting.pop()
        try:
            found += _checked_events(part)
        except UnreadableRecordError as error:
            both = split_record(part)
            if both is None:
                reasons.append(str(error))
            else:
                waiting += reversed(both)
    return found, reasons


def _checked_events(value: bytes | None) -> Sequence[ReadyEvent]:
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
