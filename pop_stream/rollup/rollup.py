"""The running part: reads lifecycle events where the database says, and folds batches."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from pop_stream.clock import WallClock, wait_until_set
from pop_stream.kafka import clients
from pop_stream.kafka.batch_consumer import (
    BatchPacer,
    OffsetCommitter,
    bytes_of,
    progress_of,
)
from pop_stream.kafka.clients import KafkaConsumer, RebalanceListener
from pop_stream.kafka.dead_letters import dead_letter
from pop_stream.kafka.lifecycle_reader import LifecycleEntry, RejectedEvent, read
from pop_stream.kafka.publisher import publish_writable
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import OffsetsMovedError, UnavailableError, UnstorableError
from pop_stream.model.events.codec import encode
from pop_stream.policy.ingress.signature import RecordSigner
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.records import TopicPartition, with_value
from pop_stream.ports.summaries import SummaryStore
from pop_stream.rollup.ends import EndsPublisher
from pop_stream.rollup.metrics import RollupMetrics
from pop_stream.settings import Settings


class FoldPositions(RebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Next offsets by partition, of one topic.

    They are unknown after every rebalance and after every doubt, and what is read from a
    partition whose position is unknown is not to be folded.

    Attributes:
        next_offsets: What the database holds. Replaced, never cleared, so that a running fold
            when a rebalance comes does not bring an outdated position back.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.next_offsets: dict[int, int] = {}

    def reset(self) -> None:
        """Make every position unknown, so that the database is asked again."""
        self.next_offsets = {}

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Make every position unknown; called by the consumer."""
        self.reset()

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Make every position unknown; called by the consumer, which goes by its offsets."""
        self.reset()

    async def seek_unknown(self, consumer: KafkaConsumer, store: SummaryStore) -> None:
        """Ask the database for the positions that are unknown, and seek there."""
        if all(tp.partition in self.next_offsets for tp in consumer.assignment()):
            return
        offsets = await store.next_offsets(self._topic)
        for tp in consumer.assignment():
            if tp.partition not in self.next_offsets:
                # An offset that retention has removed makes the consumer go to the earliest.
                consumer.seek(tp, offsets.get(tp.partition, 0))
                self.next_offsets[tp.partition] = offsets.get(tp.partition, 0)


def offset_ranges(
    entries: Iterable[LifecycleEntry], known: dict[int, int]
) -> dict[int, tuple[int, int]]:
    """What folding the entries consumes: by partition, from where to where.

    A record that the entries do not end is left to be read again.
    """
    ends = {one.record.partition: one.record.offset + one.ends_record for one in entries}
    return {partition: (known[partition], end) for partition, end in ends.items()}


PART: Final = "rollup"

BATCH_EVENTS: Final = 5_000
"""Most events of one transaction."""

MIN_BACKOFF: Final = timedelta(milliseconds=100)
MAX_BACKOFF: Final = timedelta(seconds=5)

_MIN_BATCH_INTERVAL_S: Final = 0.04
_MAX_BATCH_INTERVAL_S: Final = 0.4
_FULL_BATCH_BYTES: Final = 512 * 1024
"""Between batches: most agendas then end in the batch of their emission, and are
written once. The first after a rest is not delayed."""

_FETCH_BYTES: Final = 1024 * 1024
_WALL: Final = WallClock()

_log = structlog.get_logger()


async def roll_up(  # noqa: PLR0913  # every port it needs, named once
    settings: Settings,
    *,
    store: SummaryStore,
    publisher: Publisher,
    stop: asyncio.Event,
    clock: Clock = _WALL,
    metrics: RollupMetrics | None = None,
    definitions: DefinitionSource | None = None,
) -> None:
    """Fold what is written to `pop.agenda-events`, until `stop`.

    Any number of processes may run it; Kafka shares the partitions among them. The
    publisher takes the dead letters, and the ends that rules of `definitions` wait for. What is
    folded is counted in `metrics`, if given.
    """
    topics = Topics(settings.topic_prefix)
    consumer = clients.consumer(
        settings,
        client_id=PART,
        group_id=topics.group(PART),
        max_partition_fetch_bytes=_FETCH_BYTES,
    )
    signer = RecordSigner(settings.signing_keys)
    rollup = Rollup(
        topics,
        consumer,
        store=store,
        publisher=publisher,
        clock=clock,
        signer=signer,
        metrics=metrics or RollupMetrics(CollectorRegistry()),
        ends=None if definitions is None else EndsPublisher(topics, publisher, definitions),
    )
    async with consumer:
        _log.info("rollup.started", topic=topics.agenda_events)
        await rollup.run(stop)


class Rollup:
    """One member of the group.

    The database alone knows what was folded. Whenever that may differ from what this
    process believes (a rebalance, an outage, a commit whose answer was lost, another owner)
    it drops what it holds, asks, and reads on from there; offsets in Kafka only show lag.
    """

    def __init__(  # noqa: PLR0913  # every port it needs, named once
        self,
        topics: Topics,
        consumer: KafkaConsumer,
        *,
        store: SummaryStore,
        publisher: Publisher,
        clock: Clock,
        signer: RecordSigner,
        metrics: RollupMetrics,
        ends: EndsPublisher | None = None,
    ) -> None:
        self._topics = topics
        self._metrics = metrics
        self._ends = ends
        self._topic = topics.agenda_events
        self._consumer = consumer
        self._store = store
        self._publisher = publisher
        self._clock = clock
        self._signer = signer
        self._folded_offsets = FoldPositions(self._topic)
        self._pause = timedelta(0)
        self._pacer = BatchPacer(
            _MIN_BATCH_INTERVAL_S, _MAX_BATCH_INTERVAL_S, _FULL_BATCH_BYTES
        )
        self._commits = OffsetCommitter(consumer)
        self._progress = progress_of(consumer, topics.group(PART))

    async def run(self, stop: asyncio.Event) -> None:
        """Subscribe and fold until `stop`, which is seen between two batches."""
        self._pacer.pace_fetches(self._consumer)
        self._consumer.subscribe([self._topic], listener=self._folded_offsets)
        with self._progress:
            while not stop.is_set():
                try:
                    await self._folded_offsets.seek_unknown(self._consumer, self._store)
                    self._log_resumed()
                    await self._fold_once()
                except OffsetsMovedError as error:
                    _log.info("rollup.offsets_moved", reason=str(error))
                    self._folded_offsets.reset()
                except UnavailableError as error:
                    self._folded_offsets.reset()
                    await self._back_off(stop, error)
            await self._commits.flush()

    async def _fold_once(self) -> None:
        """Fold what has been fetched, in batches of bounded size."""
        await self._pacer.wait()
        known = self._folded_offsets.next_offsets
        fetched = await self._consumer.getmany(timeout_ms=250, max_records=BATCH_EVENTS)
        if known is not self._folded_offsets.next_offsets:
            return  # a rebalance came between: what was fetched is fetched again
        if fetched:
            self._pacer.begin(bytes_of(fetched))
        kept = {tp: many for tp, many in fetched.items() if tp.partition in known}
        self._progress.mark_read(kept)
        records = [one for many in kept.values() for one in many]
        entries: list[LifecycleEntry] = []
        refusals: list[RejectedEvent] = []
        now = self._clock.now()
        for record in records:
            found, refused = read(record, now=now, signer=self._signer)
            entries += found
            refusals += refused
        await self._dead_letter(refusals)
        for start in range(0, len(entries), BATCH_EVENTS):
            await self._fold(entries[start : start + BATCH_EVENTS], known)
        if entries:
            folded = {TopicPartition(self._topic, p): known[p] for p in known}
            self._progress.mark_handled(folded)
            await self._commits.mark_processed(folded)
        else:
            await self._commits.flush()

    async def _fold(self, entries: Sequence[LifecycleEntry], known: dict[int, int]) -> None:
        """Fold in one transaction, or in smaller ones around an event that no row can hold."""
        lifecycle = [entry.event for entry in entries if entry.event is not None]
        consumed = offset_ranges(entries, known)
        try:
            with self._metrics.write_timed():
                tell = None if self._ends is None else self._ends.before_commit(entries)
                folded = await self._store.fold(self._topic, consumed, lifecycle, tell)
        except UnstorableError as error:
            await self._split_unstorable(entries, known, error)
            return
        known.update((partition, end) for partition, (_, end) in consumed.items())
        self._metrics.record(folded, self._clock.now())
        _log.debug("rollup.folded", applied=folded.applied, skipped=folded.skipped)

    async def _split_unstorable(
        self, entries: Sequence[LifecycleEntry], known: dict[int, int], error: UnstorableError
    ) -> None:
        if len(entries) > 1:
            middle = len(entries) // 2
            await self._fold(entries[:middle], known)
            await self._fold(entries[middle:], known)
            return
        entry = entries[0]
        if entry.event is None:
            raise error
        alone = with_value(entry.record, encode(entry.event))
        await self._dead_letter([RejectedEvent(alone, (error.code, str(error)))])
        await self._fold([entry._replace(event=None)], known)

    async def _dead_letter(self, refusals: Sequence[RejectedEvent]) -> None:
        """Write dead letters, before their offsets are consumed, so that none is lost."""
        if not refusals:
            return
        now = self._clock.now()
        await publish_writable(
            self._publisher,
            [
                dead_letter(self._topics, one.record, part=PART, at=now, error=one.error)
                for one in refusals
            ],
        )
        _log.info("records.refused", count=len(refusals), reason=refusals[0].error[1])

    async def _back_off(self, stop: asyncio.Event, error: UnavailableError) -> None:
        """Pause, longer each time, and stay a member of the group meanwhile."""
        if not self._pause:
            _log.warning("rollup.waiting", reason=str(error))
        self._pause = min(2 * self._pause or MIN_BACKOFF, MAX_BACKOFF)
        # The group expels a member that never asks for records, so ask for those of none.
        self._consumer.pause(*self._consumer.assignment())
        await self._consumer.getmany(timeout_ms=0)
        await wait_until_set(stop, self._pause.total_seconds())
        self._consumer.resume(*self._consumer.assignment())

    def _log_resumed(self) -> None:
        if self._pause:
            _log.info("rollup.resumed")
        self._pause = timedelta(0)
