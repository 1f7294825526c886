"""The running part: reads submissions in batches, and publishes what became of them.

The API may know an insight a moment before ingest does. What it has answered with 202 would be
refused here, for fitting no insight; so ingest waits for the definitions by which submissions
were admitted, if those are still on their way.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from time import monotonic
from types import MappingProxyType
from typing import Final

import structlog
from msgspec import Raw

from pop_stream.extensions import period_resolvers
from pop_stream.ingest.sender_authentication import (
    KafkaSubmissionQuota,
    SenderAuthenticator,
    Senders,
    record_position,
)
from pop_stream.ingest.submission_processor import (
    PART,
    BatchResult,
    EncodedAgenda,
    SubmissionProcessor,
)
from pop_stream.kafka import clients
from pop_stream.kafka.batch_consumer import BatchPacer, handle_batches
from pop_stream.kafka.clients import RebalanceListener
from pop_stream.kafka.definitions import header_version
from pop_stream.kafka.lifecycle_reader import FRAME_BYTES, lifecycle_records, ready_record
from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.kafka.quota_gossip import QuotaGossip
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.scheduling import InsightAgendasRouted
from pop_stream.model.identity import ANYONE
from pop_stream.policy.backlog.agenda_index import PAGE_SLOTS
from pop_stream.policy.ingress.policies import BUILT_IN, AdmissionPolicy
from pop_stream.policy.ingress.rankers import RankFunction
from pop_stream.policy.ingress.signature import DEFINITIONS_VERSION_HEADER, RecordSigner
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import FollowedDefinitions
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.settings import Settings

_MAX_WAIT_S: Final = 5.0
_PAUSE_AFTER_TIMEOUT_S: Final = 60.0
_POLL_EVERY_S: Final = 0.01

_log = structlog.get_logger()


class DefinitionsBarrier:
    """Keeps ingest from deciding by older definitions than the API did.

    Anyone who may write submissions may name any version. What is not written is not waited
    for, so that nobody holds up others by it.

    Args:
        definitions: As ingest follows them.
        max_wait_s: Longest wait. Then what is known decides, and for a minute nothing is
            waited for: definitions cannot be read.
    """

    def __init__(
        self, definitions: FollowedDefinitions, max_wait_s: float = _MAX_WAIT_S
    ) -> None:
        self._definitions = definitions
        self._max_wait_s = max_wait_s
        self._paused_until = 0.0

    async def catch_up(self, records: Iterable[ConsumedRecord]) -> None:
        """Return once the definitions are as new as those that the records were checked by."""
        newer = {header_version(one, DEFINITIONS_VERSION_HEADER) for one in records}
        newer = {one for one in newer if one > self._definitions.read_up_to}
        if not newer or monotonic() < self._paused_until:
            return
        try:
            async with asyncio.timeout(self._max_wait_s):
                written = await self._definitions.end_offset()
                wanted = max((one for one in newer if one <= written), default=0)
                while self._definitions.read_up_to < wanted:  # noqa: ASYNC110  # no event
                    await asyncio.sleep(_POLL_EVERY_S)
        except (TimeoutError, UnavailableError):
            self._paused_until = monotonic() + _PAUSE_AFTER_TIMEOUT_S
            known = self._definitions.read_up_to
            _log.warning("definitions.stale", known=known, wanted=max(newer))


BATCH_RECORDS: Final = 2_000
"""Most submissions of one batch; a batch is in memory twice while it is handled."""

YIELD_EVERY_BYTES: Final = 256 * 1024
"""Processed between two yields to the event loop; a fraction of a second's work."""

_MIN_BATCH_INTERVAL_S: Final = 0.006
_MAX_BATCH_INTERVAL_S: Final = 0.025
_FULL_BATCH_BYTES: Final = 64 * 1024
_ADAPTIVE_FACTOR: Final = 3.0
"""Between batches: each is a record that the scheduler handles and a round that a puller reads,
claims and commits; and one of many agendas costs hardly more than one of one. The first after a
rest is not delayed."""


class Ingest:
    """Validates and routes submissions; stateless but for the definitions it last saw."""

    def __init__(  # noqa: PLR0913  # what it works with, named once
        self,
        settings: Settings,
        publisher: Publisher,
        definitions: FollowedDefinitions,
        clock: Clock,
        sender_authenticator: SenderAuthenticator | None = None,
        quota_gossip: QuotaGossip | None = None,
        *,
        policies: Sequence[AdmissionPolicy] = BUILT_IN,
        rankers: Mapping[str, RankFunction] = MappingProxyType({}),
    ) -> None:
        self._policies = policies
        self._rankers = rankers
        self._sender_authenticator = sender_authenticator
        self._quota_gossip = quota_gossip
        self._signer = RecordSigner(settings.signing_keys)
        self._quota = (
            None
            if quota_gossip is None
            else KafkaSubmissionQuota(quota_gossip.quota_ledger, self._signer)
        )
        self._resolvers = period_resolvers()
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
        """Process submissions until `stop`, which is seen between two batches."""
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
                [self._topics.submissions],
                listener=_IngestRebalanceListener(self._quota_gossip),
            )
            _log.info("ingest.started", topic=self._topics.submissions)
            await handle_batches(
                consumer,
                self.handle,
                max_records=BATCH_RECORDS,
                stop=stop,
                group=self._topics.group(PART),
                pacer=pacer,
            )

    async def handle(self, records: Sequence[ConsumedRecord]) -> None:
        """Process one batch; returns once all that came of it is acknowledged.

        A crash before the commit repeats the batch: the rollup skips an acceptance it knows,
        the scheduler a page whose origin it has seen.
        """
        await self._definitions_barrier.catch_up(records)
        current = self._definitions.current
        if current is not self._definitions_in_use:
            before, self._definitions_in_use = self._definitions_in_use, current
            self._processor.follow(current)
            if before is None or not current.decides_like(before):
                self._has_quotas = current.has_quotas
        ends = {one.partition: one.offset + 1 for one in records}
        batch = await self._process(records)
        if (
            self._quota_gossip is not None
            and self._quota is not None
            and self._quota.take_has_decided()
        ):
            # Whoever reads these records again must not refuse what is accepted now.
            await self._quota_gossip.begin(ends)
        lifecycle = await lifecycle_records(
            self._publisher,
            self._topics.agenda_events,
            batch.lifecycle,
            signer=self._signer,
        )
        partitions = await self._publisher.partitions(self._topics.ready)
        ready = [
            ready_record(self._topics, current, _insight_routed(*page), partitions=partitions)
            for page in _pages(batch)
        ]
        # Sent side by side: either may be first with the brokers, and a crash leave one only.
        await publish_until_acknowledged(
            self._publisher, [*lifecycle, *ready, *batch.dead_letters]
        )
        for span, refused in batch.spans:
            span.end(error_type=refused)
        if self._quota_gossip is not None and self._has_quotas:
            self._quota_gossip.quota_ledger.mark_processed(ends)
        if batch.dead_letters:
            _log.info("submissions.refused", count=len(batch.dead_letters))

    async def _process(self, records: Sequence[ConsumedRecord]) -> BatchResult:
        """Process a batch, yielding now and then: heartbeats go over the same event loop."""
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
        return SubmissionProcessor(
            self._topics,
            definitions,
            max_agenda_bytes=self._settings.max_agenda_bytes,
            defined_customers_only=self._settings.defined_customers_only,
            quota=self._quota,
            resolvers=self._resolvers,
            policies=self._policies,
            rankers=self._rankers,
        )


class _IngestRebalanceListener(RebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Reads up to where others have begun partitions before they are consumed."""

    def __init__(self, quota_gossip: QuotaGossip | None) -> None:
        self._quota_gossip = quota_gossip

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Called by the consumer."""
        if self._quota_gossip is not None and assigned:
            await self._quota_gossip.catch_up()

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Called by the consumer; what is in flight is acknowledged by then, or read again."""


def by_timestamp(records: Sequence[ConsumedRecord]) -> Iterator[ConsumedRecord]:
    """The records of all partitions by timestamp, those of one partition in their order.

    A timestamp is that of the broker which led the partition then; one that goes back does not
    move its record before its neighbour, for the scheduler knows repeats by that order.
    """
    by_partition: dict[int, list[tuple[int, ConsumedRecord]]] = {}
    for record in records:
        lane = by_partition.setdefault(record.partition, [])
        lane.append((max(record.timestamp, lane[-1][0] if lane else 0), record))
    for _, record in merge(*by_partition.values(), key=lambda pair: pair[0]):
        yield record


def _insight_routed(insight_id: str, page: Sequence[EncodedAgenda]) -> InsightAgendasRouted:
    return InsightAgendasRouted(
        insight_id=insight_id,
        agendas=tuple(Raw(one.body) for one in page),
        origins=tuple(one.origin for one in page),
    )


def _pages(batch: BatchResult) -> Iterator[tuple[str, Sequence[EncodedAgenda]]]:
    """Cut each insight's agendas into pages, bounded by count and by bytes."""
    for insight_id, routed in batch.routed.items():
        page: list[EncodedAgenda] = []
        size = 0
        for one in routed:
            if page and (len(page) == PAGE_SLOTS or size + len(one.body) > FRAME_BYTES):
                yield insight_id, page
                page, size = [], 0
            page.append(one)
            size += len(one.body)
        yield insight_id, page
