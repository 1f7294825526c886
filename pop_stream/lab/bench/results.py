"""What became of a run's agendas: read from `pop.agenda-events` once it ended, or in Postgres.

`read_lifecycle_counts` counts successes, claims and failures; `BenchStore` has the benchmarks'
own queries, past the API.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pop_stream.kafka import clients
from pop_stream.kafka.clients import KafkaConsumer
from pop_stream.kafka.topics import Topics
from pop_stream.model.events.codec import decode_lifecycle
from pop_stream.model.events.lifecycle import (
    AgendaClaimed,
    AgendaFailed,
    AgendaRefused,
    AgendaSucceeded,
    LifecycleEvent,
)
from pop_stream.model.events.schema_version import checked_value
from pop_stream.ports.records import TopicPartition
from pop_stream.postgres.pool import acquire_connection, load_queries, open_pool
from pop_stream.settings import Settings

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Pool

EndOffsets = Mapping[TopicPartition, int]

_MAX_RECORDS: Final = 5_000


@dataclass(slots=True)
class LifecycleCounts:
    """What the lifecycle of one run says.

    Attributes:
        successes: By agenda; more than one is a duplicate.
        claims: By agenda and attempt; more than one was started twice.
        failures: Attempts that failed, and agendas that were refused.
    """

    successes: Counter[str] = field(default_factory=Counter)
    claims: Counter[tuple[str, int]] = field(default_factory=Counter)
    failures: int = 0

    @property
    def duplicates(self) -> int:
        """Successes beyond each agenda's first."""
        return self.successes.total() - len(self.successes)

    @property
    def repeated_starts(self) -> int:
        """Claims of an attempt beyond its first."""
        return self.claims.total() - len(self.claims)

    def note(self, event: LifecycleEvent) -> None:
        """Take note of one event of the run."""
        match event:
            case AgendaClaimed():
                self.claims[event.agenda_id, event.attempt] += 1
            case AgendaSucceeded():
                self.successes[event.agenda_id] += 1
            case AgendaFailed() | AgendaRefused():
                self.failures += 1
            case _:
                pass


async def read_end_offsets(settings: Settings) -> EndOffsets:
    """Where `pop.agenda-events` ends now."""
    topic = Topics(settings.topic_prefix).agenda_events
    async with clients.consumer(
        settings, topic, client_id="bench-tail", group_id=None
    ) as consumer:
        found: EndOffsets = await consumer.end_offsets(list(consumer.assignment()))
    return found


async def read_lifecycle_counts(
    settings: Settings, run: str, begin: EndOffsets
) -> LifecycleCounts:
    """What is said, from a place on, of agendas whose id begins so."""
    lifecycle = LifecycleCounts()
    async for event in read_events(settings, begin):
        if event.agenda_id.startswith(run):
            lifecycle.note(event)
    return lifecycle


async def read_events(settings: Settings, begin: EndOffsets) -> AsyncIterator[LifecycleEvent]:
    """Everything on `pop.agenda-events` from a place to its present end."""
    topic = Topics(settings.topic_prefix).agenda_events
    async with clients.consumer(
        settings, topic, client_id="bench-tail", group_id=None
    ) as consumer:
        end: EndOffsets = await consumer.end_offsets(list(begin))
        for tp, offset in begin.items():
            consumer.seek(tp, offset)
        while not await _is_at(consumer, end):
            fetched = await consumer.getmany(timeout_ms=250, max_records=_MAX_RECORDS)
            for records in fetched.values():
                for record in records:
                    for event in decode_lifecycle(checked_value(record)):
                        yield event


async def _is_at(consumer: KafkaConsumer, end: EndOffsets) -> bool:
    positions = [await consumer.position(tp) for tp in end]
    return all(one >= offset for one, offset in zip(positions, end.values(), strict=True))


QUERIES: Final = load_queries("bench")


class BenchStore:
    """Named queries on a pool of its own."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    async def states(self, run: str) -> Mapping[str, int]:
        """How many agendas whose id begins so are in each state; reads all rows there are."""
        async with acquire_connection(self._pool) as connection:
            rows = await connection.fetch(QUERIES["states_of_run"], run)
        return {row["state"]: row["agendas"] for row in rows}

    async def ended_among(self, agenda_ids: Sequence[str]) -> list[str]:
        """Those whose summary says that they have ended."""
        async with acquire_connection(self._pool) as connection:
            rows = await connection.fetch(QUERIES["ended_among"], agenda_ids)
        return [row["agenda_id"] for row in rows]

    async def make_floor(self) -> None:
        """Make the floor's table anew."""
        await self.drop_floor()
        async with acquire_connection(self._pool) as connection:
            await connection.execute(QUERIES["make_floor"])

    async def drop_floor(self) -> None:
        """Forget the floor's table."""
        async with acquire_connection(self._pool) as connection:
            await connection.execute(QUERIES["drop_floor"])


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[BenchStore]:
    """The queries, for as long as the context is open."""
    async with open_pool(settings) as pool:
        yield BenchStore(pool)
