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
from pop_stream.bus.batches import BatchPacer, handle_batches
from pop_stream.bus.doors import QuotaGossip
from pop_stream.bus.publisher import (
    FRAME_BYTES,
    lifecycle_records,
    publish_until_acknowledged,
)
from pop_stream.bus.ready import ready_record
from pop_stream.bus.topics import Topics
from pop_stream.core.backlog.page import PAGE_SLOTS
from pop_stream.core.definitions.definitions import Definitions
from pop_stream.core.doors.placement import InsightRouter
from pop_stream.core.events import InsightAgendasRouted
from pop_stream.core.values.identity import ANYONE
from pop_stream.intake.abreast import DefinitionsBarrier
from pop_stream.intake.entry import KafkaAdmission
from pop_stream.intake.gate import Gate, Senders, record_position
from pop_stream.intake.sorting import PART, RoutedAgenda, BatchResult, SubmissionProcessor
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import FollowedDefinitions
from pop_stream.ports.wire import Publisher
from pop_stream.settings import Settings

BATCH_RECORDS: Final = 2_000
"""Most submissions of one batch; a batch is in memory twice while it is handled."""

YIELD_EVERY_BYTES: Final = 256 * 1024
"""Sorted without a breath in between; a fraction of a second's work."""

_MIN_BATCH_INTERVAL_S: Final = 0.006
_MAX_BATCH_INTERVAL_S: Final = 0.025
_FULL_BATCH_BYTES: Final = 64 * 1024
_ADAPTIVE_FACTOR: Final = 3.0
"""Between batches: each is a record that the scheduler handles and a round that a puller reads,
claims and commits; and one of many agendas costs hardly more than one of one. The first after a
rest is not delayed."""

_log = structlog.get_logger()


class Ingest:
    """Validates and places submissions; stateless but for the definitions it last saw."""

    def __init__(
        self,
        settings: Settings,
        publisher: Publisher,
        definitions: FollowedDefinitions,
        clock: Clock,
        sender_authenticator: Gate | None = None,
        doors: QuotaGossip | None = None,
    ) -> None:
        self._sender_authenticator = sender_authenticator
        self._quota_gossip = doors
        self._admission = (
            None if doors is None else KafkaAdmission(doors.door, settings.signing_key)
        )
        self._settings = settings
        self._topics = Topics(settings.topic_prefix)
        self._publisher = publisher
        self._definitions = definitions
        self._definitions_barrier = DefinitionsBarrier(definitions)
        self._clock = clock
        self._definitions_in_use: Definitions | None = None
        self._has_quotas = False
        self._processor = self._new_processor(Definitions())

    async def run(self, stop: asyncio.Event) -> None:
        """Take submissions in until `stop`."""
        consumer = clients.consumer(
            self._settings, client_id=PART, group_id=self._topics.group(PART)
        )
        pacer = BatchPacer(
            _MIN_BATCH_INTERVAL_S,
            _MAX_BATCH_INTERVAL_S,
            _FULL_BATCH_BYTES,
            adaptive_factor=_ADAPTIVE_FACTOR,
        )
        async with consumer:
            pacer.pace_fetches(consumer)
            consumer.subscribe(
                [self._topics.submissions], listener=_RebalanceListener(self._quota_gossip)
            )
            _log.info("intake.started", topic=self._topics.submissions)
            await handle_batches(
                consumer,
                self.handle,
                max_records=BATCH_RECORDS,
                stop=stop,
                pacer=pacer,
            )

    async def handle(self, records: Sequence[ConsumerRecord]) -> None:
        """Take in one batch; returns once all that came of it is acknowledged.

        A crash before the commit repeats the batch: the rollup skips an acceptance it knows,
        the scheduler a page whose origin it has seen.
        """
        await self._definitions_barrier.catch_up(records)
        current = self._definitions.current
        if current is not self._definitions_in_use:
            self._definitions_in_use, self._processor = current, self._new_processor(current)
            self._has_quotas = current.has_quotas
        ends = {one.partition: one.offset + 1 for one in records}
        batch = await self._process(records)
        if (
            self._quota_gossip is not None
            and self._admission is not None
            and self._admission.take_has_decided()
        ):
            # Whoever reads these records again must not refuse what is accepted now.
            await self._quota_gossip.begin(ends)
        lifecycle = await lifecycle_records(
            self._publisher, self._topics.agenda_events, batch.lifecycle
        )
        partitions = await self._publisher.partitions(self._topics.ready)
        ready = [
            ready_record(self._topics, current, _insight_placed(*page), partitions=partitions)
            for page in _pages(batch)
        ]
        if faults.is_set("intake.accepted"):  # else sent side by side, and either may be first
            await publish_until_acknowledged(self._publisher, lifecycle)
            faults.crash_point("intake.accepted")
        await publish_until_acknowledged(self._publisher, [*lifecycle, *ready, *batch.dead])
        faults.crash_point("intake.placed")
        if self._quota_gossip is not None and self._has_quotas:
            self._quota_gossip.door.mark_processed(ends)
        if batch.dead:
            _log.info("submissions.refused", count=len(batch.dead))

    async def _process(self, records: Sequence[ConsumerRecord]) -> BatchResult:
        """Sort a batch, with a breath now and then: heartbeats go over the same loop."""
        senders: Senders = (
            await self._sender_authenticator.senders(records)
            if self._sender_authenticator
            else {}
        )
        batch, now, worked = BatchResult(), self._clock.now(), 0
        for record in by_timestamp(records):
            sender = senders.get(record_position(record), ANYONE)
            self._processor.add(batch, record, now=now, sender=sender)
            worked += len(record.value or b"")
            if worked > YIELD_EVERY_BYTES:
                worked = 0
                await asyncio.sleep(0)
        return batch

    def _new_processor(self, definitions: Definitions) -> SubmissionProcessor:
        router = InsightRouter(definitions.insights.values(), definitions.customers)
        return SubmissionProcessor(
            self._topics,
            router,
            max_agenda_bytes=self._settings.max_agenda_bytes,
            callback_urls={
                one.id: one.callback_url
                for one in definitions.customers.values()
                if one.callback_url
            },
            templates=definitions.templates,
            admission=self._admission,
        )


class _RebalanceListener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Hears what is begun of partitions before it reads them."""

    def __init__(self, doors: QuotaGossip | None) -> None:
        self._quota_gossip = doors

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Called by the consumer."""
        if self._quota_gossip is not None and assigned:
            await self._quota_gossip.catch_up()

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Called by the consumer; what is under way is acknowledged by then, or read again."""


def by_timestamp(records: Sequence[ConsumerRecord]) -> Iterator[ConsumerRecord]:
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


def _insight_placed(insight_id: str, page: Sequence[RoutedAgenda]) -> InsightAgendasRouted:
    return InsightAgendasRouted(
        insight_id=insight_id,
        agendas=tuple(Raw(placed.body) for placed in page),
        origins=tuple(placed.origin for placed in page),
    )


def _pages(batch: BatchResult) -> Iterator[tuple[str, Sequence[RoutedAgenda]]]:
    """Cut each insight's agendas into pages, bounded by count and by bytes."""
    for insight_id, placed in batch.placed.items():
        page: list[RoutedAgenda] = []
        size = 0
        for one in placed:
            if page and (len(page) == PAGE_SLOTS or size + len(one.body) > FRAME_BYTES):
                yield insight_id, page
                page, size = [], 0
            page.append(one)
            size += len(one.body)
        yield insight_id, page
