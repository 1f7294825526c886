"""The events of an attempt's progress and end, none of them too large for a record."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from msgspec import UNSET

from pop_stream.core.events import (
    AgendaFailed,
    AgendaProgressed,
    AgendaSucceeded,
    EmittedAgenda,
    LifecycleEvent,
    OperationProgress,
)
from pop_stream.pullers.failure import Failure

PROGRESS_BYTES: Final = 336 * 1024
"""Most bytes of operations in one event. It holds the largest operation (`RESULT_BYTES` and
its texts), and leaves an event that also has diagnostics below 512 KiB."""

_MOST_TYPES: Final = 200
"""Above it, the seconds by operation type get an event without operations."""

_FIXED_BYTES: Final = 320
"""More than what an operation's progress takes besides its name, message and result."""

_WORST_ESCAPE: Final = 6
"""Bytes that one character may become in JSON."""


def ending(
    emitted: EmittedAgenda,
    operations: Sequence[OperationProgress],
    failure: Failure | None,
    *,
    at: datetime,
    spent_s: dict[str, float],
) -> list[LifecycleEvent]:
    """The last events of an attempt, in order: progress that does not fit, then its end.

    Args:
        emitted: The attempt.
        operations: Those with progress that was not told yet.
        failure: None if it succeeded.
        at: When it ended.
        spent_s: Worker-seconds by operation type.
    """
    *earlier, last = [*_chunks(operations)] or [()]
    if len(spent_s) > _MOST_TYPES:
        earlier, last = [*earlier, last], ()
    told: list[LifecycleEvent] = [_progressed(emitted, chunk, at) for chunk in earlier]
    rounded = {kind: round(seconds, 6) for kind, seconds in spent_s.items()}
    if failure is None:
        end: LifecycleEvent = AgendaSucceeded(
            agenda_id=emitted.agenda_id,
            at=at,
            insight_id=emitted.insight_id,
            attempt=emitted.attempt,
            operations=last,
            spent_s=rounded,
        )
    else:
        end = AgendaFailed(
            agenda_id=emitted.agenda_id,
            at=at,
            insight_id=emitted.insight_id,
            attempt=emitted.attempt,
            message=failure.message,
            retryable=failure.retryable,
            operations=last,
            spent_s=rounded,
            diagnostics=failure.diagnostics,
        )
    return [*told, end]


def progress(
    emitted: EmittedAgenda, operations: Sequence[OperationProgress], *, at: datetime
) -> list[LifecycleEvent]:
    """Events that tell of changed operations while the attempt runs."""
    return [_progressed(emitted, chunk, at) for chunk in _chunks(operations)]


def bytes_of(operations: Iterable[OperationProgress]) -> int:
    """At least as many bytes as the operations take in JSON."""
    return sum(
        _FIXED_BYTES
        + (0 if one.result is UNSET else len(one.result))
        + _WORST_ESCAPE * (len(one.name) + len(one.message))
        + sum(_bytes_of_diagnostic(told) for told in one.diagnostics)
        for one in operations
    )


def _bytes_of_diagnostic(told: Diagnostic) -> int:
    detail = 0 if told.detail is None else DETAIL_BYTES
    return _FIXED_BYTES + _WORST_ESCAPE * len(told.message) + detail


def _progressed(
    emitted: EmittedAgenda, operations: tuple[OperationProgress, ...], at: datetime
) -> AgendaProgressed:
    return AgendaProgressed(
        agenda_id=emitted.agenda_id,
        at=at,
        insight_id=emitted.insight_id,
        attempt=emitted.attempt,
        operations=operations,
    )


def _chunks(operations: Sequence[OperationProgress]) -> Iterator[tuple[OperationProgress, ...]]:
    if len(operations) == 1:
        yield tuple(operations)
        return
    held: list[OperationProgress] = []
    size = 0
    for one in operations:
        more = bytes_of((one,))
        if held and size + more > PROGRESS_BYTES:
            yield tuple(held)
            held, size = [], 0
        held.append(one)
        size += more
    if held:
        yield tuple(held)
