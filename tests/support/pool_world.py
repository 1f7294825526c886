"""A scheduler of a resource pool on in-memory ports."""

from dataclasses import replace

from backlogs import START, placed, settled
from fakes import FixedDefinitions, ManualClock, MemoryPublisher, MemoryReadyTable
from msgspec import Raw

from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Customer, Definitions, Insight, ResourcePool
from pop_stream.model.events.codec import decode_emitted, encode
from pop_stream.model.events.scheduling import (
    Claim,
    InsightAgendasRouted,
    InsightAttemptsReported,
    Origin,
)
from pop_stream.model.ids import InsightId
from pop_stream.model.partitioning import partition_of
from pop_stream.scheduler.event_handler import ReadyEventHandler
from pop_stream.scheduler.round_writer import RecordPosition

TOPICS = Topics("t.")


PARTITIONS = 4


class PoolWorld:
    """A scheduler on in-memory ports, and what it emitted."""

    def __init__(self, *insights: Insight, capacity: int = 10, **pool) -> None:
        known = {InsightId(one.id): one for one in insights}
        pools = {"gpu": ResourcePool(id="gpu", max_in_flight=capacity, **pool)}
        self.definitions = FixedDefinitions(Definitions(insights=known, pools=pools, version=1))
        self.publisher = MemoryPublisher(partition_count=PARTITIONS)
        self.clock = ManualClock(START)
        self.offset = 0
        self.out: dict[str, list[str]] = {one.id: [] for one in insights}
        self.customers: dict[str, str] = {}
        self.ended: list[str] = []
        self.handler = ReadyEventHandler(
            table=MemoryReadyTable(),
            publisher=self.publisher,
            definitions=self.definitions,
            clock=self.clock,
            topics=TOPICS,
            create_topic=self._create,
            partitions=PARTITIONS,
            owns=lambda _: True,
            read_newest=self.publisher.read_newest,
        )

    async def _create(self, insight: Insight) -> None:
        pass

    def home(self, insight_id: str) -> int:
        return partition_of(self.definitions.current.routing_key(insight_id), PARTITIONS)

    async def handle(self, event, partition: int | None = None) -> None:
        self.offset += 1
        at = self.home(event.insight_id) if partition is None else partition
        await self.handler.handle(RecordPosition(at, self.offset), encode(event))
        for insight_id, emitted in self.out.items():
            for record in self.publisher.on(TOPICS.insight(insight_id))[len(emitted) :]:
                emitted.append(decode_emitted(record.value).agenda_id)

    def customer(self, customer: Customer) -> None:
        current = self.definitions.current
        self.definitions.current = replace(
            current, customers={customer.id: customer}, version=current.version + 1
        )

    async def place(self, insight_id: str, count: int, customer: str = "acme") -> None:
        self.offset += 1
        placed_before = sum(one.startswith(f"{insight_id}-") for one in self.customers)
        ids = [f"{insight_id}-{placed_before + number}" for number in range(count)]
        self.customers |= dict.fromkeys(ids, customer)
        bodies = [Raw(encode(placed(one, customer))) for one in ids]
        origins = [Origin(partition=0, offset=self.offset, index=one) for one in range(count)]
        await self.handle(
            InsightAgendasRouted(
                insight_id=insight_id, agendas=tuple(bodies), origins=tuple(origins)
            )
        )

    async def end(self, insight_id: str, *agenda_ids: str, **spent_s: float) -> None:
        claims = tuple(Claim(agenda_id=one, attempt=1) for one in agenda_ids)
        ends = tuple(settled(one, **spent_s) for one in agenda_ids)
        self.ended += agenda_ids
        await self.handle(
            InsightAttemptsReported(insight_id=insight_id, claims=claims, settlements=ends)
        )

    def waiting(self, insight_id: str) -> list[str]:
        """What was emitted and did not end, in order."""
        return [one for one in self.out[insight_id] if one not in self.ended]
