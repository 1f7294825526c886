"""A record of `pop.ready` in two halves, for when the whole of it cannot be handled."""

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from pop_stream.core.errors import UnreadableRecordError
from pop_stream.core.events.codec import (
    decode_placed,
    decode_ready,
    encode,
    frame,
    parts_of,
)
from pop_stream.core.events.ready import InsightNoted, InsightPlaced, ReadyEvent

_NOTED: Final = (
    "idle",
    "claims",
    "renewals",
    "unproven",
    "settlements",
    "commands",
)
"""In the order in which they are heeded, so that halves are heeded as the whole."""


def halves(value: bytes | None) -> tuple[bytes, bytes] | None:
    """The former and the latter half of what a record says, each as a record's value.

    Handled one after the other they come to the same. None if it says one thing only, or
    cannot be read.
    """
    parts = parts_of(value)
    if len(parts) > 1:
        former, latter = _cut(parts)
        return _joined(former), _joined(latter)
    try:
        events = decode_ready(value)
    except UnreadableRecordError:
        return None
    event = events[0] if events else None
    if isinstance(event, InsightPlaced) and len(event.agendas) > 1:
        middle = len(event.agendas) // 2
        return _both(
            replace(event, agendas=event.agendas[:middle], origins=event.origins[:middle]),
            replace(event, agendas=event.agendas[middle:], origins=event.origins[middle:]),
        )
    if isinstance(event, InsightNoted):
        noted = [(name, one) for name in _NOTED for one in getattr(event, name)]
        if len(noted) > 1:
            former, latter = _cut(noted)
            return _both(_with(event, former), _with(event, latter))
    return None


def usable(value: bytes | None) -> tuple[Sequence[ReadyEvent], Sequence[str]]:
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
            both = halves(part)
            if both is None:
                reasons.append(str(error))
            else:
                waiting += reversed(both)
    return found, reasons


def _whole(value: bytes | None) -> Sequence[ReadyEvent]:
    events = decode_ready(value)
    for event in events:
        if isinstance(event, InsightPlaced):
            if len(event.origins) < len(event.agendas):
                msg = f"{len(event.agendas)} agendas with {len(event.origins)} origins"
                raise UnreadableRecordError(msg)
            for body in event.agendas:
                decode_placed(body)
    return events


def _cut(some: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    middle = len(some) // 2
    return some[:middle], some[middle:]


def _joined(parts: Sequence[bytes]) -> bytes:
    return frame(parts) if len(parts) > 1 else parts[0]


def _with(event: InsightNoted, noted: Sequence[tuple[str, Any]]) -> InsightNoted:
    told = {name: tuple(one for its, one in noted if its == name) for name in _NOTED}
    return replace(event, **told)


def _both(former: ReadyEvent, latter: ReadyEvent) -> tuple[bytes, bytes]:
    return encode(former), encode(latter)
