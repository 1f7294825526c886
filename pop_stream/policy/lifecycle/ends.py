"""How agendas have ended, known by a position, whatever is folded again.

An end has a position: that of the event with which the agenda was both accepted and ended. It
is the same in whatever batches the events are folded, so whoever reads an end twice knows.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw

from pop_stream.model.errors import TransitionError
from pop_stream.model.events.lifecycle import (
    AgendaAccepted,
    AgendaCancelled,
    AgendaExhausted,
    AgendaExpired,
    AgendaFailed,
    AgendaStopped,
    AgendaSucceeded,
    LifecycleEvent,
)
from pop_stream.model.events.rules import EndedAgenda
from pop_stream.model.events.scheduling import MAX_MESSAGE_LENGTH
from pop_stream.model.ids import alternate_ids
from pop_stream.model.trace import Trace
from pop_stream.policy.lifecycle.fold import fold
from pop_stream.policy.lifecycle.states import OUTCOMES
from pop_stream.policy.lifecycle.summary import Summary, result_bytes

MAX_RESULTS_BYTES: Final = 64 * 1024
"""Of the results that are published with an end."""

EVENTS_OF_A_RECORD: Final = 16_384
"""More than a record can hold: positions count so many for each offset."""

_MAY_END: Final = (
    AgendaAccepted,
    AgendaCancelled,
    AgendaExhausted,
    AgendaExpired,
    AgendaFailed,
    AgendaStopped,
    AgendaSucceeded,
)


class PlacedEvent(NamedTuple):
    """A lifecycle event, and where it stands in `pop.agenda-events`."""

    event: LifecycleEvent
    partition: int
    position: int


class AgendaEnd(NamedTuple):
    """A summary as it is at an end, and where that was reported."""

    summary: Summary
    partition: int
    position: int


def position_of_event(offset: int, index: int) -> int:
    """The position of an event: greater than those of all before it in its partition.

    Args:
        offset: Of its record.
        index: Among the record's events, from 0.
    """
    return offset * EVENTS_OF_A_RECORD + min(index, EVENTS_OF_A_RECORD - 1)


def may_end(lifecycle: Iterable[PlacedEvent]) -> bool:
    """Whether any of these events could be an end, or make one known."""
    return any(isinstance(one.event, _MAY_END) for one in lifecycle)


def ends_of(before: Summary | None, lifecycle: Iterable[PlacedEvent]) -> Iterator[AgendaEnd]:
    """The ends of one agenda that events lead to.

    Args:
        before: What they are folded on.
        lifecycle: In their order.
    """
    for one in lifecycle:
        try:
            after = fold(before, one.event)
        except TransitionError:
            continue
        if _has_ended(after) and not (
            before is not None and _has_ended(before) and before.attempt == after.attempt
        ):
            yield AgendaEnd(after, one.partition, one.position)
        before = after


def ended_agenda(summary: Summary, body: bytes) -> EndedAgenda:
    """What is published of an end.

    Args:
        summary: As it is then.
        body: The agenda as accepted.
    """
    known = alternate_ids(body)
    return EndedAgenda(
        agenda_id=summary.agenda_id,
        customer_id=summary.customer_id,
        insight_id=summary.insight_id,
        state=summary.state.value,
        attempt=summary.attempt,
        title=summary.title,
        link_id=summary.link_id,
        template_id=known.template_id,
        external_id=known.external_id,
        message=summary.message[:MAX_MESSAGE_LENGTH],
        accepted_at=summary.accepted_at,
        ended_at=summary.ended_at,
        results=_results(summary),
    )


def trace_headers(body: bytes) -> Mapping[str, str]:
    """The headers of the trace that an agenda came with; none if it came with none."""
    try:
        trace = _TRACED_BODY.decode(body).trace
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    known = Trace.of({name: str(one) for name, one in trace.items() if one is not None})
    return known.headers if known is not None else {}


class _TracedBody(msgspec.Struct):
    trace: dict[str, Any] = msgspec.field(default_factory=dict)


_TRACED_BODY: Final = msgspec.json.Decoder(_TracedBody)


def _has_ended(summary: Summary) -> bool:
    return summary.state in OUTCOMES and summary.accepted_at is not None


def _results(summary: Summary) -> dict[str, Raw]:
    if sum(map(result_bytes, summary.operations.values())) > MAX_RESULTS_BYTES:
        return {}
    return {
        name: Raw(bytes(one.result))
        for name, one in summary.operations.items()
        if one.result is not UNSET
    }
