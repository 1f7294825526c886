"""What the scheduler does with one event: keep what it changes, then decide, or leave that."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Insight
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import decode_ready, encode
from pop_stream.model.events.scheduling import (
    EmissionLimit,
    QueueQueried,
    ReadyEvent,
)
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.ports.ready_table import BacklogTable
from pop_stream.scheduler.emitted_attempts import EmittedAttempts, NewestReader
from pop_stream.scheduler.insight import OwnedInsight, save_backlogs
from pop_stream.scheduler.insight_registry import InsightRegistry
from pop_stream.scheduler.round_writer import RecordPosition, RoundWriter

MAX_DEFERRED_RECORDS: Final = 128
"""Records in a row that may leave the choice to the next: some ten milliseconds' work. So a
round of five to fifty, which waits for acknowledgements, never lets them pile up."""


PROGRESS_EVERY_RECORDS: Final = 500
"""Records of a partition after which a row tells how far they were handled. Most change nothing
in an idle one, and whoever has the partition next reads again what no row tells of."""


class NotAnEventError(UnreadableRecordError):
    """A record of `pop.ready` is no event; nothing was done, so nothing need be read anew."""


@dataclass(slots=True)
class _DeferredInsights:
    """Desks of a partition that wait for their choice, and for how many records already."""

    insights: dict[str, OwnedInsight] = field(default_factory=dict)
    records: int = 0

    def add(self, insights: Mapping[str, OwnedInsight]) -> None:
        self.insights.update(insights)
        self.records += 1


class ReadyEventHandler:
    """All desks of this worker, by partition of `pop.ready`; one event at a time.

    Args:
        table: The ReadyAgenda table.
        publisher: Ours, idempotent, with acks=all; not Faust's.
        definitions: Customers and insights in force.
        clock: For the instants in events.
        topics: Names of topics.
        create_topic: Makes sure an insight's topic exists, with its partitions.
        partitions: Of `pop.ready`.
        owns: Whether a partition is surely this worker's at the moment.
        read_newest: Reads what is on insights' topics already.
        epoch: Greater with each owner of a partition; asked when it is loaded.
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
    ) -> None:
        self._publisher = publisher
        self._clock = clock
        self._topics = topics
        self._owns = owns
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
        )
        self._deferred: dict[int, _DeferredInsights] = {}
        self._records_since_progress: dict[int, int] = {}

    def insights(self) -> list[OwnedInsight]:
        """All insights this worker decides for."""
        return self._registry.all_insights

    def owned_insights(self) -> list[OwnedInsight]:
        """Those of partitions that are surely this worker's still."""
        return [owned for owned in self.insights() if self._owns(owned.partition)]

    def loaded(self) -> set[int]:
        """Partitions whose backlogs are in memory."""
        return self._registry.loaded

    def may_emit(self, owned: OwnedInsight) -> bool:
        """Whether a round may choose one now, or must look because definitions changed."""
        if not self._registry.is_up_to_date:
            return True
        now = self._clock.now().timestamp()
        return owned.scheduler.budget() > 0 and owned.backlog.queue.may_pick(now)

    def needs_partitions(self, owned: OwnedInsight) -> bool:
        """Whether its topic has fewer partitions than its definition says by now."""
        return 0 < owned.partitions_to_grow_from < self._registry.partitions_of(owned)

    def handled_until(self, partition: int) -> int | None:
        """The offset before which the table shows all records to have been handled.

        None if no row tells.
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
        """Forget a partition; its next event reads it from the table again."""
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
        """Handle one record of `pop.ready`.

        Args:
            record_position: Where the record was read.
            value: Its value.
            has_next: Whether the next record of the partition is at hand. Then what this
                one changes is told and kept, and the choice is left to that one, which knows
                more; but not more than `MAX_DEFERRED_RECORDS` times in a row.
            is_catching_up: Whether it is left to that one however often it was before.

        Raises:
            NotAnEventError: If it is no event; nothing was done.
            UnavailableError: If the partition is not surely this worker's any more; what
                was done since its last row must be forgotten.
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
        """Keep what a record changed; what there is to tell is told first, and not put off."""
        if all(owned.backlog.outbox.is_empty for owned in changed):
            save_backlogs(changed, record_position.offset)
        else:
            await self._round_writer.write_rounds(changed, record_position, choose=False)

    def _record_progress(self, record_position: RecordPosition) -> None:
        """Have a row tell now and then that this record was handled, and all before it."""
        since_progress = self._records_since_progress.get(record_position.partition, 0) + 1
        insights = self._registry.in_partition(record_position.partition).values()
        if since_progress >= PROGRESS_EVERY_RECORDS and insights:
            newest = max(insights, key=lambda owned: owned.store.offset)
            # A snapshot: not of one that has just had a row, whatever its size.
            since_progress = record_position.offset - newest.store.offset + 1
            if since_progress >= PROGRESS_EVERY_RECORDS:
                newest.store.record_progress(newest.backlog, record_position.offset)
                since_progress = 0
        self._records_since_progress[record_position.partition] = since_progress

    async def _prepare(self, partition: int) -> None:
        """Have the partition's desks as they should be before an event."""
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
        if effects.page is not None:
            owned.store.write_page(*effects.page)
        if effects.reply is None:
            return []
        key = owned.insight_id.encode()
        return [Record(self._topics.query_replies, key, encode(effects.reply))]
