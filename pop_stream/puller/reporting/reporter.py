"""Publishes lifecycle events of attempts in batches, in order per agenda, with backpressure.

Events of progress and of ends are made here too; none is too large for a record.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Final, NoReturn

import structlog
from msgspec import UNSET

from pop_stream.kafka.batch_consumer import BatchPacer
from pop_stream.kafka.lifecycle_reader import lifecycle_records
from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.base import AppendedOperation, Diagnostic, OperationProgress
from pop_stream.model.events.lifecycle import (
    AgendaDeferred,
    AgendaFailed,
    AgendaProgressed,
    AgendaStopped,
    AgendaSucceeded,
    LifecycleEvent,
)
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.puller.execution.failure import Deferral, Failure
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
        deferral: What it waits for; None if for nothing.
    """

    at: datetime
    spent_s: dict[str, float] = field(default_factory=dict)
    failure: Failure | None = None
    is_stopped: bool = False
    deferral: Deferral | None = None


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
    if end.deferral is not None:
        until, waits_for = end.deferral.until, end.deferral.message
        return [*events, AgendaDeferred(**facts, until=until, message=waits_for)]
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


BATCH_EVENTS: Final = 2_000
"""Most events of one publication: encoding more would hold up the event loop."""

MAX_PENDING_EVENTS: Final = 20_000
MAX_PENDING_BYTES: Final = 32 * 1024 * 1024
"""While so much is unacknowledged, no new agendas are claimed."""

_MIN_INTERVAL_S: Final = 0.02
"""Between two publications: nobody waits for an end as runners do for a claim, and each costs
brokers and readers much the same whatever it holds. The first after a pause is not delayed."""

_EVENT_BYTES: Final = 300
_RETRY_S: Final = 0.5

_log = structlog.get_logger()


class Reporter:
    """One per puller.

    An event added after a pause is published at once; what is added during a publication, or
    within 20 ms of its start, is the next one. Nothing is dropped while Kafka is away.

    Args:
        publisher: Where to.
        topic: Of the lifecycle.
    """

    def __init__(self, publisher: Publisher, topic: str) -> None:
        self._publisher = publisher
        self._topic = topic
        self._waiting: deque[tuple[LifecycleEvent, int]] = deque()
        self._added_event = asyncio.Event()
        self._acknowledged_condition = asyncio.Condition()
        self._added = self._acknowledged = 0
        self._held_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether so much is unacknowledged that no new work should be taken."""
        return (
            self._added - self._acknowledged > MAX_PENDING_EVENTS
            or self._held_bytes > MAX_PENDING_BYTES
        )

    def add(self, lifecycle: Sequence[LifecycleEvent]) -> None:
        """Have events published; those of one agenda in the order they are added."""
        for event in lifecycle:
            size = _size(event)
            self._waiting.append((event, size))
            self._held_bytes += size
        self._added += len(lifecycle)
        self._added_event.set()

    async def wait_acknowledged(self) -> None:
        """Wait until everything added so far is acknowledged."""
        target = self._added
        async with self._acknowledged_condition:
            await self._acknowledged_condition.wait_for(lambda: self._acknowledged >= target)

    async def run(self) -> NoReturn:
        """Publish what is added; runs until cancelled."""
        pacer = BatchPacer(_MIN_INTERVAL_S)
        while True:
            await self._added_event.wait()
            while self._waiting:
                await pacer.wait()
                pacer.begin()
                batch = list(islice(self._waiting, BATCH_EVENTS))
                events = [event for event, _ in batch]
                await publish_lifecycle(self._publisher, self._topic, events)
                for _, size in batch:
                    self._waiting.popleft()
                    self._held_bytes -= size
                async with self._acknowledged_condition:
                    self._acknowledged += len(batch)
                    self._acknowledged_condition.notify_all()
            self._added_event.clear()


async def publish_lifecycle(
    publisher: Publisher,
    topic: str,
    lifecycle: Sequence[LifecycleEvent],
    *others: Record,
) -> None:
    """Publish events, and other records with them, however long the broker is away.

    Args:
        publisher: Where to.
        topic: Of the lifecycle.
        lifecycle: At least one event, or at least one other record.
        others: Written in the same publication.
    """
    records = [*await _records(publisher, topic, lifecycle), *others]
    await publish_until_acknowledged(publisher, records)


async def _records(
    publisher: Publisher, topic: str, lifecycle: Sequence[LifecycleEvent]
) -> Sequence[Record]:
    while True:
        try:
            return await lifecycle_records(publisher, topic, lifecycle)
        except UnavailableError as error:
            _log.warning("lifecycle.unavailable", error=str(error))
            await asyncio.sleep(_RETRY_S)


def _size(event: LifecycleEvent) -> int:
    if isinstance(event, AgendaProgressed | AgendaSucceeded | AgendaFailed | AgendaDeferred):
        return _EVENT_BYTES + encoded_size(event.operations)
    return _EVENT_BYTES
