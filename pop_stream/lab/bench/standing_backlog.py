"""A backlog of constant size in the real scheduler; plays all other parts.

Pages are written to `pop.ready` as ingest writes them, claims and settlements as the relay
does. What the scheduler emits is read as pullers read it.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Final

from msgspec import Raw

from pop_stream.clock import WallClock
from pop_stream.kafka.clients import KafkaAdmin, KafkaConsumer
from pop_stream.kafka.lifecycle_reader import ready_record
from pop_stream.kafka.topics import Topics
from pop_stream.lab.bench.load import NoopWorkload
from pop_stream.model.definitions import Definitions
from pop_stream.model.events.codec import decode_emitted, encode
from pop_stream.model.events.scheduling import (
    Claim,
    InsightAgendasRouted,
    InsightAttemptsReported,
    Origin,
    ReadyEvent,
    RoutedAgenda,
    Settlement,
)
from pop_stream.operations.errors import CommandError
from pop_stream.policy.backlog.agenda_index import PAGE_SLOTS
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.records import TopicPartition

SCHEDULER: Final = "scheduler"

_NOWHERE: Final = Origin(partition=-1, offset=0)
_PAGES_AT_ONCE: Final = 64
_STALLED_S: Final = 120.0

AttemptKey = tuple[str, int]
"""An agenda and its attempt."""


@dataclass(frozen=True, slots=True)
class SchedulerClients:
    """Connected clients, and what they need to know."""

    topics: Topics
    definitions: Definitions
    publisher: Publisher
    consumer: KafkaConsumer
    admin: KafkaAdmin


class StandingBacklog:
    """The backlog of some insights, seen from outside.

    Attributes:
        out: By insight, what is emitted and not settled.
        emitted: How many different attempts were ever emitted.
    """

    def __init__(self, kafka_clients: SchedulerClients, work: NoopWorkload) -> None:
        self._kafka_clients = kafka_clients
        self._work = work
        self._placed = 0
        self._seen: set[AttemptKey] = set()
        self.out: dict[str, list[AttemptKey]] = {one: [] for one in work.insights}

    @property
    def emitted(self) -> int:
        """How many attempts were emitted, repeats left out."""
        return len(self._seen)

    async def fill(self, count: int) -> None:
        """Place so many agendas, and wait until the scheduler has taken them in."""
        pages = self._pages(count)
        while chunk := [*islice(pages, _PAGES_AT_ONCE)]:
            await self.publish(chunk)
        await self._until_committed()

    async def pick_one(self, insight_id: str) -> None:
        """Claim and settle one agenda that is out, and wait for the one that follows it."""
        await self.publish([self.note(insight_id, 1)])
        await self.gather(1)

    async def pick_all(self) -> int:
        """Claim and settle all that is out, replace it, and wait for as many; how many."""
        count = sum(map(len, self.out.values()))
        notes = [self.note(one, len(out)) for one, out in self.out.items() if out]
        await self.publish([*self._pages(count), *notes])
        await self.gather(count)
        return count

    def note(self, insight_id: str, count: int) -> InsightAttemptsReported:
        """That so many of those out were claimed, and succeeded."""
        out = self.out[insight_id]
        ended, self.out[insight_id] = out[:count], out[count:]
        return InsightAttemptsReported(
            insight_id=insight_id,
            claims=tuple(Claim(agenda_id=one, attempt=attempt) for one, attempt in ended),
            settlements=tuple(
                Settlement(agenda_id=one, attempt=attempt, outcome="succeeded")
                for one, attempt in ended
            ),
        )

    async def publish(self, ready_events: Sequence[ReadyEvent]) -> None:
        """Write to `pop.ready`; returns when it is acknowledged."""
        kafka_clients = self._kafka_clients
        partitions = await kafka_clients.publisher.partitions(kafka_clients.topics.ready)
        await kafka_clients.publisher.publish(
            [
                ready_record(
                    kafka_clients.topics, kafka_clients.definitions, one, partitions=partitions
                )
                for one in ready_events
            ]
        )

    async def gather(self, count: int) -> None:
        """Read until so many more were emitted.

        Raises:
            CommandError: If that takes minutes.
        """
        bench_options = self.emitted + count
        try:
            async with asyncio.timeout(_STALLED_S):
                while self.emitted < bench_options:
                    fetched = await self._kafka_clients.consumer.getmany(timeout_ms=250)
                    for records in fetched.values():
                        for record in records:
                            self._take(record.value)
        except TimeoutError:
            missing = bench_options - self.emitted
            msg = f"the scheduler emitted {missing} of {count} too few in {_STALLED_S:g} s"
            raise CommandError(msg) from None

    def _take(self, value: bytes | None) -> None:
        emitted = decode_emitted(value)
        one = (emitted.agenda_id, emitted.attempt)
        if one not in self._seen:
            self._seen.add(one)
            self.out[emitted.insight_id].append(one)

    def _pages(self, count: int) -> Iterator[InsightAgendasRouted]:
        """Full pages of each insight in turn, as ingest makes them under load."""
        insights = self._work.insights
        first, self._placed = self._placed, self._placed + count
        for start in range(first, first + count, PAGE_SLOTS * len(insights)):
            end = min(start + PAGE_SLOTS * len(insights), first + count)
            for offset in range(min(len(insights), end - start)):
                yield self._page(range(start + offset, end, len(insights)))

    def _page(self, numbers: Sequence[int]) -> InsightAgendasRouted:
        now = WallClock().now()
        placed = [
            RoutedAgenda(
                agenda_id=self._work.agenda_id(number),
                customer_id=self._work.customer_id(number),
                accepted_at=now,
                agenda=Raw(self._work.body(number)),
                operation_types=(self._work.operation_type,),
            )
            for number in numbers
        ]
        return InsightAgendasRouted(
            insight_id=self._work.insight_id(numbers[0]),
            agendas=tuple(Raw(encode(one)) for one in placed),
            origins=(_NOWHERE,) * len(placed),
        )

    async def _until_committed(self) -> None:
        """Wait until the scheduler has committed all of `pop.ready`."""
        kafka_clients = self._kafka_clients
        group, topic = kafka_clients.topics.group(SCHEDULER), kafka_clients.topics.ready
        partitions = await kafka_clients.publisher.partitions(topic)
        places = [TopicPartition(topic, number) for number in range(partitions)]
        begin = monotonic()
        while monotonic() - begin < _STALLED_S:
            ends: Mapping[TopicPartition, int] = await kafka_clients.consumer.end_offsets(
                places
            )
            committed = await kafka_clients.admin.list_consumer_group_offsets(group)
            if _has_committed(ends, {tp: one.offset for tp, one in committed.items()}):
                return
            await asyncio.sleep(0.2)
        msg = f"the scheduler did not take the backlog in within {_STALLED_S:g} s"
        raise CommandError(msg)


def _has_committed(
    ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]
) -> bool:
    return all(not end or committed.get(tp, 0) >= end for tp, end in ends.items())


def insight_topics(topics: Topics, insights: Iterable[str]) -> list[TopicPartition]:
    """Every insight's one partition."""
    return [TopicPartition(topics.insight(one), 0) for one in insights]
