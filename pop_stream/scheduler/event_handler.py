"""Handles one record of `pop.ready`: applies its events, then saves them or writes a round.

A round waits for acknowledgements. While the next record of the partition is at hand, the
choice is deferred to it, and only what the record changed is saved.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry

from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Insight
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import decode_ready, encode
from pop_stream.model.events.scheduling import EmissionLimit, QueueQueried, ReadyEvent
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.ports.ready_table import BacklogTable
from pop_stream.scheduler.emitted_attempts import EmittedAttempts, NewestReader
from pop_stream.scheduler.insight import OwnedInsight, save_backlogs
from pop_stream.scheduler.insight_registry import InsightRegistry
from pop_stream.scheduler.metrics import RoundMetrics
from pop_stream.scheduler.round_writer import RecordPosition, RoundWriter

MAX_DEFERRED_RECORDS: Final = 128
"""Most records in a row that defer their choice: about ten milliseconds of work. A round takes
five to fifty, so deferring longer would gain nothing."""

PROGRESS_EVERY_RECORDS: Final = 500
"""Records of a partition after which a row records how far they were handled. Most records of
an idle partition change nothing, and its next owner reads again what no row covers."""


class NotAnEventError(UnreadableRecordError):
    """A record of `pop.ready` is no event. Nothing was done, so nothing has to be reloaded."""


@dataclass(slots=True)
class _DeferredInsights:
    """Insights of a partition whose choice was deferred, and by how many records."""

    insights: dict[str, OwnedInsight] = field(default_factory=dict)
    records: int = 0

    def add(self, insights: Mapping[str, OwnedInsight]) -> None:
        self.insights.update(insights)
        self.records += 1


class ReadyEventHandler:
    """All insights of this process; called for one record at a time.

    A partition is loaded from the table with its first record, and again after `unload`.

    Args:
        table: The ReadyAgenda table.
        publisher: Idempotent, with acks=all.
        definitions: Customers and insights in force.
        clock: For the instants in events.
        topics: Names of topics.
        create_topic: Creates an insight's topic, or adds the partitions it lacks.
        partitions: How many `pop.ready` has.
        owns: Whether a partition is certainly this process's at the moment.
        read_newest: Reads the newest records of insights' topics.
        epoch: The ownership epoch; called when a partition is loaded, and greater for each
            next owner.
        metrics: Of waits and rounds; shown nowhere if not given.
    """

    def __init__(  # noqa: PLR0913  # every port the scheduler needs, named once
        self,
        *,
        table: BacklogTable,
        publisher: Publisher,
        definitions: DefinitionSource,
        clock: Clock,
        topics: Topics,
        create_topic: Callable[[Insight], Awaitable[None]],
        partitions: int,
        owns: Callable[[int], bool],
        read_newest: NewestReader,
        epoch: Callable[[], int] = lambda: 0,
        metrics: RoundMetrics | None = None,
    ) -> None:
        self._metrics = metrics or RoundMetrics(CollectorRegistry())
        self._publisher, self._owns = publisher, owns
        self._clock, self._topics = clock, topics
        self._registry = InsightRegistry(
            table=table,
            definitions=definitions,
            clock=clock,
            topics=topics,
            partitions=partitions,
            epoch=epoch,
        )
        self._round_writer = RoundWriter(
            self._registry,
            table=table,
            publisher=publisher,
            clock=clock,
            topics=topics,
            create_topic=create_topic,
            owns=owns,
            emitted_reader=EmittedAttempts(topics, read_newest),
            metrics=self._metrics,
        )
        self._deferred: dict[int, _DeferredInsights] = {}
        self._records_since_progress: dict[int, int] = {}

    def insights(self) -> list[OwnedInsight]:
        """Those of all loaded partitions."""
        return self._registry.all_insights

    def owned_insights(self) -> list[OwnedInsight]:
        """Those of partitions that are certainly this process's at the moment."""
        return [owned for owned in self.insights() if self._owns(owned.partition)]

    def limiting_cause(self, owned: OwnedInsight) -> EmissionLimit:
        """See `InsightRegistry.limiting_cause`."""
        return self._registry.limiting_cause(owned)

    def loaded(self) -> set[int]:
        """Partitions whose backlogs are in memory."""
        return self._registry.loaded

    def may_emit(self, owned: OwnedInsight) -> bool:
        """Whether a round could choose an agenda now; True too while definitions are new."""
        if not self._registry.is_up_to_date:
            return True
        now = self._clock.now().timestamp()
        owned.scheduler.refresh_health(now)
        return owned.scheduler.budget() > 0 and owned.backlog.queue.may_pick(now)

    def changed_divisions(self) -> Mapping[str, Mapping[str, int]]:
        """See `InsightRegistry.changed_divisions`."""
        return self._registry.changed_divisions()

    def needs_partitions(self, owned: OwnedInsight) -> bool:
        """Whether its topic has fewer partitions than the definition in force asks for."""
        return 0 < owned.partitions_to_grow_from < self._registry.partitions_of(owned)

    def handled_until(self, partition: int) -> int | None:
        """The offset before which all records were handled, by the rows of the table.

        None if there are no rows. Loads the partition. If rows of an insight are missing, it is
        the offset of the last row before them: what later records led to is known only in part.
        """
        stores = [owned.store for owned in self._registry.in_partition(partition).values()]
        incomplete = [store.offset for store in stores if store.is_incomplete]
        last = (
            min(incomplete)
            if incomplete
            else max((store.offset for store in stores), default=-1)
        )
        return None if last < 0 else last + 1

    def unload(self, partition: int) -> None:
        """Drop what is in memory of a partition; its next record loads it from the table."""
        self._registry.unload(partition)
        self._deferred.pop(partition, None)

    async def handle(
        self,
        record_position: RecordPosition,
        value: bytes | None,
        *,
        has_next: bool = False,
        is_catching_up: bool = False,
    ) -> None:
        """Handle one record of `pop.ready`; a second call with the same record changes nothing.

        Args:
            record_position: Where the record was read.
            value: Its value.
            has_next: Whether the next record of the partition is at hand. Then what this one
                changes is saved, and the choice is deferred to the next, which knows more; at
                most `MAX_DEFERRED_RECORDS` times in a row.
            is_catching_up: Defer the choice however often it was deferred before.

        Raises:
            NotAnEventError: If it is no event. Nothing was done.
            UnavailableError: If the partition is not certainly this process's any more, or a
                topic cannot be read or created. The caller unloads the partition before the
                record is handled again.
        """
        try:
            ready_events = decode_ready(value)
        except UnreadableRecordError as error:
            raise NotAnEventError(str(error)) from None
        await self._prepare(record_position.partition)
        to_publish = self._registry.take_dead_letters(record_position.partition)
        changed: dict[str, OwnedInsight] = {}
        for event in ready_events:
            for owned in self._registry.recipients(record_position.partition, event):
                to_publish += self._apply(owned, event)
                changed[owned.insight_id] = owned
            to_publish += self._registry.misrouted(record_position.partition, event)
        if to_publish:
            await publish_until_acknowledged(self._publisher, to_publish)
        deferred = self._deferred.setdefault(record_position.partition, _DeferredInsights())
        if has_next and (is_catching_up or deferred.records < MAX_DEFERRED_RECORDS):
            deferred.add(changed)
            await self._save([*changed.values()], record_position)
            return
        changed = {**self._deferred.pop(record_position.partition).insights, **changed}
        await self._round_writer.write_rounds(
            self._registry.with_pool_peers(record_position.partition, changed),
            record_position,
        )
        self._record_progress(record_position)

    async def _save(
        self, changed: Sequence[OwnedInsight], record_position: RecordPosition
    ) -> None:
        """Save what a record changed; records in an outbox are published first."""
        if all(owned.backlog.outbox.is_empty for owned in changed):
            save_backlogs(changed, record_position.offset)
        else:
            await self._round_writer.write_rounds(changed, record_position, choose=False)

    def _record_progress(self, record_position: RecordPosition) -> None:
        """Write a row from time to time that records how far the partition was handled."""
        since_progress = self._records_since_progress.get(record_position.partition, 0) + 1
        insights = self._registry.in_partition(record_position.partition).values()
        if since_progress >= PROGRESS_EVERY_RECORDS and insights:
            newest = max(insights, key=lambda owned: owned.store.offset)
            # It costs a snapshot, so no insight pays for it whose newest row is recent enough.
            since_progress = record_position.offset - newest.store.offset + 1
            if since_progress >= PROGRESS_EVERY_RECORDS:
                newest.store.record_progress(newest.backlog, record_position.offset)
                since_progress = 0
        self._records_since_progress[record_position.partition] = since_progress

    async def _prepare(self, partition: int) -> None:
        """Load the partition, apply new definitions, and recover rounds that a crash cut."""
        self._round_writer.ensure_owned(partition)
        self._registry.in_partition(partition)
        self._registry.apply_definitions()
        unconfirmed = self._registry.take_unconfirmed(partition)
        if unconfirmed:
            await self._round_writer.recover_round(unconfirmed, partition)

    def _apply(self, owned: OwnedInsight, event: ReadyEvent) -> list[Record]:
        """Apply an event to an insight; returns the reply to a query."""
        limited_by: EmissionLimit = ""
        if isinstance(event, QueueQueried):
            limited_by = self._registry.limiting_cause(owned)
        now = self._clock.now().timestamp()
        effects = owned.scheduler.apply(event, now, limited_by=limited_by)
        if owned.backlog.start_waits:
            self._metrics.record_starts(owned, now)
        if effects.page is not None:
            owned.store.write_page(*effects.page)
        if effects.reply is None:
            return []
        key = owned.insight_id.encode()
        return [Record(self._topics.query_replies, key, encode(effects.reply))]
