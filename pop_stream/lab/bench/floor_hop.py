"""One process of the floor: a bare relay from topic to topic, or the sink in Postgres.

Nothing of pop_stream runs in it but the settings of its Kafka clients, which are those that
all our parts use: idempotent producer, acks=all, lz4. It is written to be as fast as this
client library lets a relay be: whole fetches, batches built at once, offsets committed a
fetch at a time while the next is under way, all rows of a fetch in one statement on each of
two connections.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Final

import asyncpg
import uvloop
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from pop_stream.kafka import clients
from pop_stream.lab.bench.load import send_batches
from pop_stream.lab.bench.results import QUERIES
from pop_stream.operations.environment import load_settings
from pop_stream.settings import Settings

CONNECTIONS: Final = 2
_MAX_RECORDS: Final = 5_000
FetchedRecords = Mapping[TopicPartition, Sequence[ConsumerRecord]]
NextOffsets = dict[TopicPartition, int]

_UPSERT: Final = QUERIES["upsert_floor"]


@dataclass(frozen=True, slots=True)
class Hop:
    """What one process of the floor does.

    Attributes:
        source: Topic that is read, with a group of its own.
        target: Topic that is written; empty for the sink.
        rows: That the sink writes for each record.
    """

    source: str
    target: str = ""
    rows: int = 1

    @property
    def command(self) -> tuple[str, ...]:
        """The command line of the process."""
        own = json.dumps(asdict(self))
        return (sys.executable, "-m", "pop_stream.lab.bench.floor_hop", own)


async def relay(settings: Settings, consumer: AIOKafkaConsumer, target: str) -> None:
    """Write everything that is read to the target, until killed."""
    async with clients.producer(settings, client_id="bench-floor") as producer:

        async def settle(
            waiting: Sequence[asyncio.Future[object]], places: NextOffsets
        ) -> None:
            await asyncio.gather(*waiting)
            await consumer.commit(places)

        behind = asyncio.create_task(asyncio.sleep(0))
        async for fetched in _fetches(consumer):
            waiting = [
                future
                for tp, records in fetched.items()
                for future in await send_batches(
                    producer, target, tp.partition, [(one.key, one.value) for one in records]
                )
            ]
            await behind
            behind = asyncio.create_task(settle(waiting, _next_offsets(fetched)))


async def sink(settings: Settings, consumer: AIOKafkaConsumer, rows: int) -> None:
    """Write everything that is read to the table and print how many rows, until killed."""
    dsn = settings.postgres_dsn.get_secret_value()
    total = 0
    async with asyncpg.create_pool(dsn, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:

        async def settle(records: Sequence[ConsumerRecord], places: NextOffsets) -> None:
            nonlocal total
            await _upsert(pool, rows, records)
            total += len(records)
            _print_json({"at": monotonic(), "ended": total})
            await consumer.commit(places)

        behind = asyncio.create_task(asyncio.sleep(0))
        async for fetched in _fetches(consumer):
            records = [one for many in fetched.values() for one in many]
            await behind
            behind = asyncio.create_task(settle(records, _next_offsets(fetched)))


async def _fetches(consumer: AIOKafkaConsumer) -> AsyncIterator[FetchedRecords]:
    """All records of one fetch, as soon as there are any."""
    while True:
        fetched = await consumer.getmany(timeout_ms=250, max_records=_MAX_RECORDS)
        if fetched:
            yield fetched


def _next_offsets(fetched: FetchedRecords) -> NextOffsets:
    return {tp: records[-1].offset + 1 for tp, records in fetched.items()}


async def _upsert(
    pool: "asyncpg.Pool[asyncpg.Record]", rows: int, records: Sequence[ConsumerRecord]
) -> None:
    ids = [_row_id(one.key, row) for one in records for row in range(rows)]
    bodies = [one.value.decode() for one in records for _ in range(rows)]
    part = -(-len(ids) // CONNECTIONS)
    await asyncio.gather(
        *(
            pool.execute(_UPSERT, ids[start : start + part], bodies[start : start + part])
            for start in range(0, len(ids), part)
        )
    )


def _row_id(key: bytes, row: int) -> str:
    return f"{key.decode()}/{row}" if row else key.decode()


def _print_json(report: dict[str, float]) -> None:
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


async def _run(hop: Hop) -> None:
    settings = load_settings()
    consumer = clients.consumer(
        settings, hop.source, client_id="bench-floor", group_id=f"{hop.source}.floor"
    )
    async with consumer:
        # The group is joined once: what is counted begins when everybody is ready.
        while not consumer.assignment():  # noqa: ASYNC110  # aiokafka has no event for it
            await asyncio.sleep(0.01)
        _print_json({"at": monotonic(), "ended": 0})
        if hop.target:
            await relay(settings, consumer, hop.target)
        else:
            await sink(settings, consumer, hop.rows)


if __name__ == "__main__":
    uvloop.run(_run(Hop(**json.loads(sys.argv[1]))))
