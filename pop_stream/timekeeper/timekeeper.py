"""The part that owns schedules: reads their events, fires them when due, writes their rows."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

import structlog
from msgspec.structs import asdict

from pop_stream.clock import wait_until_set
from pop_stream.kafka import clients
from pop_stream.kafka.batch_consumer import OffsetCommitter
from pop_stream.kafka.clients import KafkaConsumer, RebalanceListener
from pop_stream.kafka.errors import KafkaError
from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.kafka.topic_reader import read_topic
from pop_stream.kafka.topics import Topics
from pop_stream.kafka.unreadable_records import skip_unreadable
from pop_stream.model.errors import UnavailableError, UnreadableRecordError
from pop_stream.model.events.codec import decode_occasion, decode_schedule_state, encode
from pop_stream.model.events.occasions import (
    OccurrenceBuffered,
    OccurrenceFired,
    OccurrenceSkipped,
    ScheduleEvent,
    ScheduleState,
)
from pop_stream.model.events.schema_version import checked_value
from pop_stream.model.partitioning import partition_of
from pop_stream.model.schedule import Occurrence
from pop_stream.policy.ingress.admission import Admission
from pop_stream.policy.schedules.keeper import Firing, ScheduleKeeper, merged
from pop_stream.ports.clock import Clock
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.settings import Settings
from pop_stream.timekeeper.submissions import OccurrenceRecords

PART: Final = "timekeeper"

_POLL_S: Final = 0.5
"""How long nobody looks at definitions, or whether it is to stop, while nothing is due."""

_AGAIN_AFTER_S: Final = 1.0
"""When rows are read again that could not be."""

_MAX_RECORDS: Final = 500

_FRAME_EVENTS: Final = 500
"""Decisions of one record; some 300 bytes each."""

_log = structlog.get_logger()


class Timekeeper:
    """Fires the schedules of the partitions that the group gives it, while `run` runs.

    Args:
        settings: Where the cluster is.
        publisher: Of submissions, cancels and rows; open for as long as this object is.
        definitions: Followed; complete when it is given.
        clock: Says when something is due.
        admission: The rules for all submissions.
    """

    def __init__(
        self,
        settings: Settings,
        publisher: Publisher,
        definitions: DefinitionSource,
        clock: Clock,
        admission: Admission,
    ) -> None:
        self._settings = settings
        self._topics = Topics(settings.topic_prefix)
        self._publisher = publisher
        self._definitions = definitions
        self._clock = clock
        self._records = OccurrenceRecords(settings, publisher, definitions, admission)
        self._keeper = ScheduleKeeper()
        self._owned: frozenset[int] = frozenset()
        self._applied: object = None

    async def run(self, stop: asyncio.Event) -> None:
        """Fire what is due until `stop`; whatever is not written by then is decided again."""
        consumer = clients.consumer(
            self._settings, client_id=PART, group_id=self._topics.group(PART)
        )
        listener = _Assignment()
        async with consumer:
            consumer.subscribe([self._topics.occasions], listener=listener)
            commits = OffsetCommitter(consumer)
            _log.info("timekeeper.started", topic=self._topics.occasions)
            while not stop.is_set():
                fetched = await consumer.getmany(
                    timeout_ms=int(self._pause_s() * 1000), max_records=_MAX_RECORDS
                )
                if listener.changed:
                    listener.changed = False  # before: it may change again meanwhile
                    if not await self._has_taken_over(consumer, stop):
                        listener.changed = True
                    continue  # what was fetched is fetched again, from where states are
                await self._take_up_definitions()
                await self._apply([one for records in fetched.values() for one in records])
                await self._fire()
                for partition, records in fetched.items():
                    await commits.mark_processed({partition: records[-1].offset + 1})
                if not fetched:
                    await commits.flush()
            await commits.flush()

    def _pause_s(self) -> float:
        next_at = self._keeper.next_at
        if next_at is None:
            return _POLL_S
        left_s = (next_at - self._clock.now()).total_seconds()
        return max(0.0, min(_POLL_S, left_s))

    async def _has_taken_over(self, consumer: KafkaConsumer, stop: asyncio.Event) -> bool:
        """Begin anew with the partitions that there are now; False if brokers do not answer."""
        try:
            await self._take_over(consumer)
        except (KafkaError, UnavailableError) as error:
            _log.info("timekeeper.postponed", reason=str(error))
            await wait_until_set(stop, _AGAIN_AFTER_S)
            return False
        return True

    async def _take_over(self, consumer: KafkaConsumer) -> None:
        """Begin anew with the partitions that there are now, from their schedules' rows."""
        partitions = [
            one for one in consumer.assignment() if one.topic == self._topics.occasions
        ]
        self._owned = frozenset(one.partition for one in partitions)
        total = await self._publisher.partitions(self._topics.occasions)
        self._keeper, self._applied = ScheduleKeeper(), None
        latest: dict[str, ScheduleState] = {}
        async for record in read_topic(self._settings, self._topics.timekeeper):
            self._read_row(record, latest, total)
        self._keeper.load(latest.values())
        after = self._keeper.resume_after()
        for partition in partitions:
            position = await consumer.position(partition)
            if after is not None and after + 1 < position:
                first = (await consumer.beginning_offsets([partition]))[partition]
                position = max(first, after + 1)
            consumer.seek(partition, position)
        _log.info("timekeeper.assigned", partitions=sorted(self._owned), schedules=len(latest))

    def _read_row(
        self, record: ConsumedRecord, latest: dict[str, ScheduleState], total: int
    ) -> None:
        schedule_id = (record.key or b"").decode(errors="replace")
        if partition_of(schedule_id.encode(), total) not in self._owned:
            return
        latest.pop(schedule_id, None)
        if record.value is None:
            return
        try:
            latest[schedule_id] = decode_schedule_state(checked_value(record))
        except UnreadableRecordError as error:
            skip_unreadable(record, error)

    async def _take_up_definitions(self) -> None:
        schedules = self._definitions.current.schedules
        if schedules is self._applied:
            return
        total = await self._publisher.partitions(self._topics.occasions)
        mine = {
            one.id: one
            for one in schedules.values()
            if partition_of(one.id.encode(), total) in self._owned
        }
        for firing in self._keeper.define(mine, self._clock.now()):
            await self._publish(firing)
        self._applied = schedules

    async def _apply(self, records: Sequence[ConsumedRecord]) -> None:
        firings: list[Firing] = []
        for record in records:
            try:
                event = decode_occasion(checked_value(record))
            except UnreadableRecordError as error:
                skip_unreadable(record, error)
            else:
                firings.append(self._keeper.apply(event, record.offset))
        await self._publish(merged(firings))

    async def _fire(self) -> None:
        """Fire all that is due by now, a slice at a time, so that others get their turn."""
        now = self._clock.now()
        while firing := self._keeper.fire(now):
            await self._publish(firing)
            self._log_lateness(firing, now)

    def _log_lateness(self, firing: Firing, now: datetime) -> None:
        if firing.occurrences:
            late_s = max((now - one.nominal).total_seconds() for one in firing.occurrences)
            _log.info(
                "schedules.fired", occurrences=len(firing.occurrences), late_s=round(late_s, 3)
            )

    async def _publish(self, firing: Firing) -> None:
        if not firing:
            return
        records = await self._records.of(firing, self._clock.now())
        await publish_until_acknowledged(self._publisher, records)
        reported = await decision_records(
            self._publisher, self._topics.schedule_events, firing, self._clock.now()
        )
        await publish_until_acknowledged(self._publisher, reported)
        # After them: a crash in between fires and tells again, and loses nothing.
        rows = [self._row(name, state) for name, state in firing.rows.items()]
        await publish_until_acknowledged(self._publisher, rows)

    def _row(self, schedule_id: str, state: ScheduleState | None) -> Record:
        value = None if state is None else encode(state)
        return Record(self._topics.timekeeper, schedule_id.encode(), value)


async def decision_records(
    publisher: Publisher, topic: str, firing: Firing, now: datetime
) -> list[Record]:
    """What was decided about occurrences, in frames; those of a schedule in their order.

    Args:
        publisher: Knows the partitions.
        topic: `pop.schedule-events`, with its prefix.
        firing: The decisions.
        now: When they were made.
    """
    partitions = await publisher.partitions(topic)
    by_partition: dict[int, list[ScheduleEvent]] = {}
    for event in _reported(firing, now):
        partition = partition_of(event.schedule_id.encode(), partitions)
        by_partition.setdefault(partition, []).append(event)
    return [
        Record(topic, some[0].schedule_id.encode(), encode(some), partition)
        for partition, events in by_partition.items()
        for start in range(0, len(events), _FRAME_EVENTS)
        for some in (events[start : start + _FRAME_EVENTS],)
    ]


def _reported(firing: Firing, now: datetime) -> Iterator[ScheduleEvent]:
    for schedule, passed in firing.passed_over:
        agenda_id = Occurrence(schedule, passed.nominal, None, None).agenda_id
        buffered = OccurrenceBuffered(
            schedule_id=schedule.id, agenda_id=agenda_id, nominal=passed.nominal, at=now
        )
        if passed.reason is None:
            yield buffered
        else:
            yield OccurrenceSkipped(**asdict(buffered), reason=passed.reason)
    for one in firing.occurrences:
        yield OccurrenceFired(
            schedule_id=one.schedule.id, agenda_id=one.agenda_id, nominal=one.nominal, at=now
        )


class _Assignment(RebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Notes that the partitions may have changed; the loop looks which they are.

    Attributes:
        changed: Since somebody has reset it.
    """

    def __init__(self) -> None:
        self.changed = False

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Nothing is given back: whoever is next reads the rows."""

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """The loop takes over before it handles another record."""
        self.changed = True
