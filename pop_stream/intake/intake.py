"""The part that takes submissions in: whole batches, validated, placed, handed on."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from typing import Final

import structlog
from aiokafka import ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from msgspec import Raw

from pop_stream import faults
from pop_stream.bus import clients
from pop_stream.bus.batches import Beat, handle_batches
from pop_stream.bus.doors import DoorKeeper
from pop_stream.bus.publisher import (
    FRAME_BYTES,
    lifecycle_records,
    publish_until_acknowledged,
)
from pop_stream.bus.ready import ready_record
from pop_stream.bus.topics import Topics
from pop_stream.core.backlog.page import PAGE_SLOTS
from pop_stream.core.definitions.definitions import Definitions
from pop_stream.core.doors.placement import Placement
from pop_stream.core.events import InsightPlaced
from pop_stream.core.values.identity import ANYONE
from pop_stream.intake.abreast import Abreast
from pop_stream.intake.entry import Entry
from pop_stream.intake.gate import Gate, Senders, place
from pop_stream.intake.sorting import PART, Placed, Sorted, Sorter
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import FollowedDefinitions
from pop_stream.ports.wire import Publisher
from pop_stream.settings import Settings

BATCH_RECORDS: Final = 2_000
"""Most submissions of one batch; a batch is in memory twice while it is handled."""

SLICE_BYTES: Final = 256 * 1024
"""Sorted without a breath in between; a fraction of a second's work."""

_LEAST_S: Final = 0.006
_MOST_S: Final = 0.025
_FULL_BYTES: Final = 64 * 1024
_EASING: Final = 3.0
"""Between batches: each is a record that the scheduler handles and a round that a puller reads,
claims and commits; and one of many agendas costs hardly more than one of one. The first after a
rest is not delayed."""

_log = structlog.get_logger()


class Intake:
    """Validates and places submissions; stateless but for the definitions it last saw."""

    def __init__(
        self,
        settings: Settings,
        publisher: Publisher,
        definitions: FollowedDefinitions,
        clock: Clock,
        gate: Gate | None = None,
        doors: DoorKeeper | None = None,
    ) -> None:
        self._gate = gate
        self._doors = doors
        self._entry = None if doors is None else Entry(doors.door, settings.seal_key)
        self._settings = settings
        self._topics = Topics(settings.topic_prefix)
        self._publisher = publisher
        self._definitions = definitions
        self._abreast = Abreast(definitions)
        self._clock = clock
        self._seen: Definitions | None = None
        self._has_quotas = False
        self._sorter = self._new_sorter(Definitions())

    async def run(self, stop: asyncio.Event) -> None:
        """Take submissions in until `stop`."""
        consumer = clients.consumer(
            self._settings, client_id=PART, group_id=self._topics.group(PART)
        )
        beat = Beat(_LEAST_S, _MOST_S, _FULL_BYTES, easing=_EASING)
        async with consumer:
            beat.lead(consumer)
            consumer.subscribe([self._topics.submissions], listener=_Newcomer(self._doors))
            _log.info("intake.started", topic=self._topics.submissions)
            await handle_batches(
                consumer,
                self.handle,
                max_records=BATCH_RECORDS,
                stop=stop,
                beat=beat,
            )

    async def handle(self, records: Sequence[ConsumerRecord]) -> None:
        """Take in one batch; returns once all that came of it is acknowledged.

        A crash before the commit repeats the batch: the rollup skips an acceptance it knows,
        the scheduler a page whose origin it has seen.
        """
        await self._abreast.catch_up(records)
        current = self._definitions.current
        if current is not self._seen:
            self._seen, self._sorter = current, self._new_sorter(current)
            self._has_quotas = current.has_quotas
        ends = {one.partition: one.offset + 1 for one in records}
        batch = await self._sorted(records)
        if self._doors is not None and self._entry is not None and self._entry.take_decided():
            # Whoever reads these records again must not refuse what is accepted now.
            await self._doors.begin(ends)
        lifecycle = await lifecycle_records(
            self._publisher, self._topics.agenda_events, batch.lifecycle
        )
        partitions = await self._publisher.partitions(self._topics.ready)
        ready = [
            ready_record(self._topics, current, _placed(*page), partitions=partitions)
            for page in _pages(batch)
        ]
        if faults.is_set("intake.accepted"):  # else sent side by side, and either may be first
            await publish_until_acknowledged(self._publisher, lifecycle)
            faults.reach("intake.accepted")
        await publish_until_acknowledged(self._publisher, [*lifecycle, *ready, *batch.dead])
        faults.reach("intake.placed")
        if self._doors is not None and self._has_quotas:
            self._doors.door.handled(ends)
        if batch.dead:
            _log.info("submissions.refused", count=len(batch.dead))

    async def _sorted(self, records: Sequence[ConsumerRecord]) -> Sorted:
        """Sort a batch, with a breath now and then: heartbeats go over the same loop."""
        senders: Senders = await self._gate.senders(records) if self._gate else {}
        batch, now, worked = Sorted(), self._clock.now(), 0
        for record in by_age(records):
            sender = senders.get(place(record), ANYONE)
            self._sorter.add(batch, record, now=now, sender=sender)
            worked += len(record.value or b"")
            if worked > SLICE_BYTES:
                worked = 0
                await asyncio.sleep(0)
        return batch

    def _new_sorter(self, definitions: Definitions) -> Sorter:
        placement = Placement(definitions.insights.values(), definitions.customers)
        return Sorter(
            self._topics,
            placement,
            max_agenda_bytes=self._settings.max_agenda_bytes,
            callback_urls={
                one.id: one.callback_url
                for one in definitions.customers.values()
                if one.callback_url
            },
            templates=definitions.templates,
            entry=self._entry,
        )


class _Newcomer(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Hears what is begun of partitions before it reads them."""

    def __init__(self, doors: DoorKeeper | None) -> None:
        self._doors = doors

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Called by the consumer."""
        if self._doors is not None and assigned:
            await self._doors.catch_up()

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Called by the consumer; what is under way is acknowledged by then, or read again."""


def by_age(records: Sequence[ConsumerRecord]) -> Iterator[ConsumerRecord]:
    """The records of all partitions by timestamp, those of one partition in their order.

    A timestamp is that of the broker which led the partition then; one that goes back does not
    move its record before its neighbour, for the scheduler tells repeats by that order.
    """
    by_partition: dict[int, list[tuple[int, ConsumerRecord]]] = {}
    for record in records:
        lane = by_partition.setdefault(record.partition, [])
        lane.append((max(record.timestamp, lane[-1][0] if lane else 0), record))
    for _, record in merge(*by_partition.values(), key=lambda pair: pair[0]):
        yield record


def _placed(insight_id: str, page: Sequence[Placed]) -> InsightPlaced:
    return InsightPlaced(
        insight_id=insight_id,
        agendas=tuple(Raw(placed.body) for placed in page),
        origins=tuple(placed.origin for placed in page),
    )


def _pages(batch: Sorted) -> Iterator[tuple[str, Sequence[Placed]]]:
    """Cut each insight's agendas into pages, bounded by count and by bytes."""
    for insight_id, placed in batch.placed.items():
        page: list[Placed] = []
        size = 0
        for one in placed:
            if page and (len(page) == PAGE_SLOTS or size + len(one.body) > FRAME_BYTES):
                yield insight_id, page
                page, size = [], 0
            page.append(one)
            size += len(one.body)
        yield insight_id, page
