"""Publishes lifecycle events in batches, in order per agenda, with backpressure."""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final, NoReturn

import structlog

from pop_stream.kafka.batch_consumer import BatchPacer
from pop_stream.kafka.event_records import lifecycle_records
from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.lifecycle import (
    AgendaFailed,
    AgendaProgressed,
    AgendaSucceeded,
    LifecycleEvent,
)
from pop_stream.ports.publisher import Publisher, Record, RecordTooLargeError
from pop_stream.puller.reporting.attempt_events import encoded_size

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
    try:
        await publish_until_acknowledged(publisher, records)
    except RecordTooLargeError:
        await _publish_one_by_one(publisher, records)


async def _records(
    publisher: Publisher, topic: str, lifecycle: Sequence[LifecycleEvent]
) -> Sequence[Record]:
    while True:
        try:
            return await lifecycle_records(publisher, topic, lifecycle)
        except UnavailableError as error:
            _log.warning("lifecycle.unavailable", error=str(error))
            await asyncio.sleep(_RETRY_S)


async def _publish_one_by_one(publisher: Publisher, records: Sequence[Record]) -> None:
    for record in records:
        try:
            await publish_until_acknowledged(publisher, [record])
        except RecordTooLargeError as error:
            # The parts of an event are bounded so that this cannot be; one event too large
            # must not keep all others back.
            _log.error("lifecycle.too_large", key=record.key, error=str(error))


def _size(event: LifecycleEvent) -> int:
    if isinstance(event, AgendaProgressed | AgendaSucceeded | AgendaFailed):
        return _EVENT_BYTES + encoded_size(event.operations)
    return _EVENT_BYTES
