"""A scheduler on in-memory ports, and what it published."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import msgspec
from backlogs import START, placed, settled
from fakes import FixedDefinitions, FixedLags, ManualClock, MemoryPublisher, MemoryReadyTable
from msgspec import Raw
from prometheus_client import CollectorRegistry

from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions, Insight
from pop_stream.model.events.codec import decode_emitted, encode
from pop_stream.model.events.scheduling import (
    Claim,
    InsightAgendasRouted,
    InsightAttemptsReported,
    Origin,
    RoundDecided,
)
from pop_stream.model.partitioning import partition_of
from pop_stream.policy.backlog.checkpoint import RoundCheckpoint
from pop_stream.scheduler.event_handler import ReadyEventHandler
from pop_stream.scheduler.faust.worker import Scheduler, SchedulerPorts
from pop_stream.scheduler.insight_registry import PartitionOwnership
from pop_stream.scheduler.metrics import RoundMetrics
from pop_stream.scheduler.round_writer import RecordPosition
from pop_stream.settings import Settings

TOPICS = Topics("t.")


PARTITIONS = 4


MEDIA = Insight(id="media", target=10, low_water=10)


class FailingTable(MemoryReadyTable):
    """Rows that can be lost before the last event's journal, as in a crash."""

    def __init__(self):
        super().__init__()
        self.saved = {}

    def save(self):
        self.saved = dict(self.data)

    def crash(self):
        self.data = dict(self.saved)


class SchedulerWorld:
    """A scheduler's rounds on in-memory ports."""

    def __init__(self, *insights):
        known = {one.id: one for one in insights}
        self.definitions = FixedDefinitions(Definitions(insights=known, version=1))
        self.publisher = MemoryPublisher(partition_count=PARTITIONS)
        self.table = FailingTable()
        self.clock = ManualClock(START)
        self.topics_made = []
        self.topic_failures = []
        self.not_owned = set()
        self.offset = 0
        self.handler = self.new_handler()

    def new_handler(self):
        self.registry = CollectorRegistry()
        return ReadyEventHandler(
            table=self.table,
            publisher=self.publisher,
            definitions=self.definitions,
            clock=self.clock,
            topics=TOPICS,
            create_topic=self.create_topic,
            partitions=PARTITIONS,
            owns=lambda partition: partition not in self.not_owned,
            read_newest=self.publisher.read_newest,
            metrics=RoundMetrics(self.registry),
        )

    async def create_topic(self, insight):
        if self.topic_failures:
            raise self.topic_failures.pop(0)
        self.topics_made.append(insight.id)

    def home(self, insight_id):
        return partition_of(self.definitions.current.routing_key(insight_id), PARTITIONS)

    def define(self, *insights, customers=()):
        current = self.definitions.current
        self.definitions.current = replace(
            current,
            insights={**current.insights, **{one.id: one for one in insights}},
            customers={**current.customers, **{one.id: one for one in customers}},
            version=current.version + 1,
        )

    async def handle(self, *ready_events, partition=None, has_next=False):
        self.offset += 1
        at = self.home(ready_events[0].insight_id) if partition is None else partition
        value = encode(ready_events[0] if len(ready_events) == 1 else list(ready_events))
        await self.handler.handle(RecordPosition(at, self.offset), value, has_next=has_next)

    def page(self, names, insight_id="media", offset=None):
        self.offset += offset is None
        agendas = [placed(name, name.split("-")[0]) for name in names]
        base = self.offset if offset is None else offset
        return InsightAgendasRouted(
            insight_id=insight_id,
            agendas=tuple(Raw(encode(agenda)) for agenda in agendas),
            origins=tuple(
                Origin(partition=0, offset=base, index=n) for n in range(len(agendas))
            ),
        )

    async def place(self, customer, count, first=0, insight_id="media"):
        names = [f"{customer}-{n}" for n in range(first, first + count)]
        await self.handle(self.page(names, insight_id))

    async def end(self, *names, insight_id="media"):
        await self.handle(
            InsightAttemptsReported(
                insight_id=insight_id,
                claims=tuple(Claim(agenda_id=one, attempt=1) for one in names),
                settlements=tuple(settled(one, cut=1.0) for one in names),
            )
        )

    def emitted(self, insight_id="media"):
        return [
            decode_emitted(one.value) for one in self.publisher.on(TOPICS.insight(insight_id))
        ]

    def emitted_ids(self, insight_id="media"):
        return [one.agenda_id for one in self.emitted(insight_id)]

    def published_rounds(self):
        """Decisions, and parts of checkpoints."""
        return [
            msgspec.json.decode(one.value, type=RoundDecided | RoundCheckpoint)
            for one in self.publisher.on(TOPICS.decisions)
        ]

    def decisions(self):
        return [one for one in self.published_rounds() if isinstance(one, RoundDecided)]

    def insight(self, insight_id="media"):
        return next(one for one in self.handler.insights() if one.insight_id == insight_id)


async def no_more_rows(starts):
    """The rows are in the world's table already."""
    for one, start in starts.items():
        yield one.partition, (), start


def scheduler_on(world, *skipped):
    """A scheduler beside whose stream these records can be read, as (offset, value)."""

    async def read_skipped(partition, start, end):
        for offset, value in skipped:
            if start <= offset < end:
                yield SimpleNamespace(
                    topic="t.ready",
                    partition=partition,
                    offset=offset,
                    key=None,
                    value=value,
                    headers=(),
                )

    ports = SchedulerPorts(
        publisher=world.publisher,
        definitions=world.definitions,
        probe=FixedLags(),
        clock=world.clock,
        create_topic=world.create_topic,
        read_skipped=read_skipped,
        read_newest=world.publisher.read_newest,
        read_to_end=no_more_rows,
        partitions=PARTITIONS,
        ownership=PartitionOwnership(timedelta(seconds=6)),
    )
    scheduler = Scheduler(Settings(topic_prefix="t."), ports)
    scheduler._processor._handler = scheduler._handler = world.handler
    scheduler._ownership.assign(set(range(PARTITIONS)))
    return scheduler
