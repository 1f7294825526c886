"""The events of an attempt's progress and end, none of them too large for a record."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from msgspec import UNSET

from pop_stream.model.events.base import AppendedOperation, Diagnostic, OperationProgress
from pop_stream.model.events.lifecycle import (
    AgendaFailed,
    AgendaProgressed,
    AgendaStopped,
    AgendaSucceeded,
    LifecycleEvent,
)
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.puller.execution.failure import Failure
from pop_stream.puller.handlers.invocation import DETAIL_BYTES

PROGRESS_BYTES: Final = 336 * 1024
"""Most bytes of operations in one event. It holds the largest operation (`RESULT_BYTES`, its
texts and diagnostics), and leaves an event that also has diagnostics below 512 KiB."""

_MAX_TYPES: Final = 200
"""Above it, the seconds by operation type get an event without operations."""

_FIXED_BYTES: Final = 320
"""More than what an operation's progress takes besides its name, message and result."""

_WORST_ESCAPE: Final = 6
"""Bytes that one character may become in JSON."""


@dataclass(frozen=True, slots=True)
class AttemptChanges:
    """What has changed in an attempt and is not published yet.

    Attributes:
        appended: Published before the progress, which may be of these.
    """

    operations: Sequence[OperationProgress] = ()
    appended: Sequence[AppendedOperation] = ()


NO_CHANGES: Final = AttemptChanges()


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """How an attempt ended.

    Attributes:
        spent_s: Worker-seconds by operation type.
        failure: Why it failed; None if it did not.
        is_stopped: Whether it ended because it was to stop.
    """

    at: datetime
    spent_s: dict[str, float] = field(default_factory=dict)
    failure: Failure | None = None
    is_stopped: bool = False


def outcome_events(
    emitted: EmittedAgenda, changes: AttemptChanges, end: AttemptOutcome
) -> list[LifecycleEvent]:
    """The last events of an attempt, in order: progress that does not fit, then its end."""
    events: list[LifecycleEvent] = [*_appended(emitted, changes.appended, end.at)]
    *earlier, last = [*_chunks(changes.operations)] or [()]
    if len(end.spent_s) > _MAX_TYPES:
        earlier, last = [*earlier, last], ()
    events += [_progressed(emitted, chunk, end.at) for chunk in earlier]
    facts: dict[str, Any] = {
        **_attempt(emitted, end.at),
        "operations": last,
        "spent_s": {kind: round(seconds, 6) for kind, seconds in end.spent_s.items()},
    }
    if end.is_stopped:
        return [*events, AgendaStopped(**facts)]
    if end.failure is None:
        return [*events, AgendaSucceeded(**facts)]
    failed = AgendaFailed(
        **facts,
        message=end.failure.message,
        retryable=end.failure.retryable,
        diagnostics=end.failure.diagnostics,
    )
    return [*events, failed]


def progress_events(
    emitted: EmittedAgenda, changes: AttemptChanges, *, at: datetime
) -> list[LifecycleEvent]:
    """The events of changes while the attempt runs, in order; none if nothing has changed."""
    return [
        *_appended(emitted, changes.appended, at),
        *(_progressed(emitted, chunk, at) for chunk in _chunks(changes.operations)),
    ]


def encoded_size(operations: Iterable[OperationProgress]) -> int:
    """At least as many bytes as the operations take in JSON."""
    return sum(
        _FIXED_BYTES
        + (0 if one.result is UNSET else len(one.result))
        + _WORST_ESCAPE * (len(one.name) + len(one.message))
        + sum(map(_bytes_of_diagnostic, one.diagnostics))
        for one in operations
    )


def _bytes_of_diagnostic(one: Diagnostic) -> int:
    detail = 0 if one.detail is None else DETAIL_BYTES
    return _FIXED_BYTES + _WORST_ESCAPE * (len(one.message) + len(one.code)) + detail


def _attempt(emitted: EmittedAgenda, at: datetime) -> dict[str, Any]:
    return {
        "agenda_id": emitted.agenda_id,
        "at": at,
        "insight_id": emitted.insight_id,
        "attempt": emitted.attempt,
    }


def _progressed(
    emitted: EmittedAgenda, operations: tuple[OperationProgress, ...], at: datetime
) -> AgendaProgressed:
    return AgendaProgressed(**_attempt(emitted, at), operations=operations)


def _appended(
    emitted: EmittedAgenda, appended: Sequence[AppendedOperation], at: datetime
) -> Iterator[AgendaProgressed]:
    held: list[AppendedOperation] = []
    size = 0
    for one in appended:
        more = _FIXED_BYTES + len(one.operation)
        if held and size + more > PROGRESS_BYTES:
            yield AgendaProgressed(**_attempt(emitted, at), appended=tuple(held))
            held, size = [], 0
        held.append(one)
        size += more
    if held:
        yield AgendaProgressed(**_attempt(emitted, at), appended=tuple(held))


def _chunks(operations: Sequence[OperationProgress]) -> Iterator[tuple[OperationProgress, ...]]:
    if len(operations) == 1:
        yield tuple(operations)
        return
    held: list[OperationProgress] = []
    size = 0
    for one in operations:
        more = encoded_size((one,))
        if held and size + more > PROGRESS_BYTES:
            yield tuple(held)
            held, size = [], 0
        held.append(one)
        size += more
    if held:
        yield tuple(held)
