"""The rollup on a real broker: rows from events, each folded once whatever happens between."""

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import asyncpg
import msgspec
import pytest
import pytest_asyncio
from aiokafka import TopicPartition
from deadlines import within
from lifecycle_events import BODY, accepted, at, claimed, emitted, operation, succeeded
from memory_summaries import MemorySummaries
from structlog.testing import capture_logs
from watched_summary_store import PATIENCE_S, FoldCounter, WatchedStore

from pop_stream.kafka import clients, topics
from pop_stream.kafka.lifecycle_reader import lifecycle_records
from pop_stream.kafka.publisher import KafkaPublisher
from pop_stream.kafka.topics import Topics, TopicSpec
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.codec import encode, frame
from pop_stream.model.events.lifecycle import LifecycleEvent
from pop_stream.model.events.scheduling import RecordRefused
from pop_stream.model.partitioning import partition_of
from pop_stream.policy.lifecycle.states import State
from pop_stream.ports.publisher import Record
from pop_stream.ports.summaries import SummaryStore
from pop_stream.postgres.migrate import migrate
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.summaries import PostgresSummaries
from pop_stream.postgres.summary_reader import PostgresSummaryReader
from pop_stream.rollup.rollup import roll_up
from pop_stream.settings import Settings

PARTITIONS = 4


class CrashError(Exception):
    """Stands for a process that is killed."""


@dataclass
class World:
    """Topics, a migrated database, and what a test does with them."""

    settings: Settings
    names: Topics
    publisher: KafkaPublisher
    postgres: PostgresSummaries
    reader: PostgresSummaryReader

    @asynccontextmanager
    async def rolling(self, store: SummaryStore) -> AsyncIterator[asyncio.Task[None]]:
        """A rollup that runs for the block, and ends in an orderly way after it."""
        stop = asyncio.Event()
        task = asyncio.create_task(
            roll_up(self.settings, store=store, publisher=self.publisher, stop=stop)
        )
        try:
            yield task
        finally:
            stop.set()
            async with within(PATIENCE_S):
                await task

    async def tell(self, *lifecycle: LifecycleEvent) -> None:
        topic = self.names.agenda_events
        await self.publisher.publish(await lifecycle_records(self.publisher, topic, lifecycle))

    async def tell_lives(self, ids: Sequence[str], parts: slice = slice(None)) -> None:
        """Tell of all agendas at once, one part of their lives after the other."""
        for events in list(zip(*map(life, ids), strict=True))[parts]:
            await self.tell(*events)

    async def write(self, value: bytes | None, key: bytes = b"a1", partition: int = 0) -> None:
        record = Record(self.names.agenda_events, key, value, partition)
        await self.publisher.publish([record])

    async def dead_letters(self, count: int) -> list[RecordRefused]:
        consumer = clients.consumer(
            self.settings, self.names.dead_letters, client_id="test", group_id=None
        )
        found: list[RecordRefused] = []
        async with consumer, within(PATIENCE_S):
            while len(found) < count:
                fetched = await consumer.getmany(timeout_ms=250)
                for record in (one for many in fetched.values() for one in many):
                    found.append(msgspec.json.decode(record.value, type=RecordRefused))
        return found


@pytest_asyncio.fixture
async def world(settings: Settings) -> AsyncIterator[World]:
    names = Topics(settings.topic_prefix)
    await migrate(settings.postgres_dsn.get_secret_value())
    admin = clients.admin(settings, client_id="test")
    await admin.start()
    specs = [TopicSpec(names.agenda_events, PARTITIONS), TopicSpec(names.dead_letters, 1)]
    await topics.ensure(admin, specs, replication_factor=1)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(admin.close)
        producer = clients.producer(settings, client_id="test")
        publisher = KafkaPublisher(producer, acknowledge_timeout=settings.publish_timeout)
        await stack.enter_async_context(publisher)
        pool = await stack.enter_async_context(open_pool(settings))
        postgres, reader = PostgresSummaries(pool), PostgresSummaryReader(pool)
        yield World(settings, names, publisher, postgres, reader)


def life(agenda_id: str) -> list[LifecycleEvent]:
    """Four events, each a change."""
    return [
        accepted(agenda_id=agenda_id, operations=("fetch",)),
        emitted(1, agenda_id=agenda_id),
        claimed(2, agenda_id=agenda_id),
        succeeded(3, operation("fetch", "succeeded"), agenda_id=agenda_id),
    ]


def spread(count: int, tag: str = "a") -> list[str]:
    """Ids of agendas, as many in each partition."""
    by_partition: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}
    number = 0
    while min(map(len, by_partition.values())) < count // PARTITIONS:
        agenda_id = f"{tag}{number}"
        by_partition[partition_of(agenda_id.encode(), PARTITIONS)].append(agenda_id)
        number += 1
    return [one for ids in by_partition.values() for one in ids[: count // PARTITIONS]]


async def test_events_become_rows(world):
    store = WatchedStore(world.postgres)
    ids = spread(40)
    async with world.rolling(store):
        await world.tell_lives(ids)
        await store.ledger.until_folded(4, ids)
    for agenda_id in ids:
        summary = await world.reader.agenda(agenda_id)
        assert (summary.state, summary.percent) == (State.SUCCEEDED, 100)
        assert summary.body == BODY


async def test_kafka_shows_how_far_the_rollup_is(world):
    store = WatchedStore(world.postgres)
    async with world.rolling(store):
        await world.tell(*life("a1"))
        await store.ledger.until_folded(4, ["a1"])
    admin = clients.admin(world.settings, client_id="test")
    await admin.start()
    try:
        committed = await admin.list_consumer_group_offsets(world.names.group("rollup"))
    finally:
        await admin.close()
    partition = partition_of(b"a1", PARTITIONS)
    topic = world.names.agenda_events
    stored = await world.postgres.next_offsets(topic)
    assert committed[TopicPartition(topic, partition)].offset == stored[partition] > 0


async def test_a_crash_between_fold_and_commit_folds_nothing_twice(world):
    async def crash() -> None:
        raise CrashError

    ids, ledger = spread(20), FoldCounter()
    crashing = WatchedStore(world.postgres, ledger, after=crash)
    await world.tell_lives(ids, slice(0, 2))
    with pytest.raises(CrashError):
        async with within(PATIENCE_S), world.rolling(crashing) as task:
            await asyncio.wait([task])
    assert crashing.batches

    async with world.rolling(WatchedStore(world.postgres, ledger)):
        await world.tell_lives(ids, slice(2, 4))
        await ledger.until_folded(4, ids)
    assert ledger.folded_counts == Counter(dict.fromkeys(ids, 4))
    for agenda_id in ids:
        assert (await world.reader.agenda(agenda_id)).state is State.SUCCEEDED


async def test_what_cannot_be_used_goes_to_the_dead_letters_and_the_rest_goes_on(world):
    store = WatchedStore(world.postgres)
    first, second, third, last = life("a1")
    unstorable = claimed(2, attempt=2**40)
    poisoned = frame(map(encode, [third, unstorable, last]))
    async with world.rolling(store):
        await world.write(encode(first))
        await world.write(b"garbage", key=b"k")
        await world.write(None)
        await world.write(frame([encode(second), b'{"type":"agenda.emitted"}']))
        await world.write(poisoned)
        await store.ledger.until(lambda: store.consumed == 5)
    summary = await world.reader.agenda("a1")
    assert summary.state is State.SUCCEEDED
    assert (summary.emitted_at, summary.started_at) == (at(1), at(2))
    letters = await world.dead_letters(4)
    found = {(one.offset, one.code, base64.b64decode(one.value_base64)) for one in letters}
    assert found == {
        (1, "unreadable_record", b"garbage"),
        (2, "unreadable_record", b""),
        (3, "unreadable_record", b'{"type":"agenda.emitted"}'),
        (4, "unreadable_record", encode(unstorable)),
    }
    assert {(one.part, one.topic) for one in letters} == {("rollup", world.names.agenda_events)}


async def test_members_that_come_and_go_fold_everything_once(world):
    ledger = FoldCounter()
    first, second = WatchedStore(world.postgres, ledger), WatchedStore(world.postgres, ledger)
    alone, shared, again = (spread(40, tag) for tag in "abc")
    async with world.rolling(first):
        await world.tell_lives(alone)
        await ledger.until_folded(4, alone)
        async with world.rolling(second):
            probes = await _until_both_fold(world, ledger, second)
            await world.tell_lives(shared)
            await ledger.until_folded(4, shared)
        await world.tell_lives(again)
        await ledger.until_folded(4, again)
    ids = [*alone, *probes, *shared, *again]
    assert ledger.folded_counts == Counter(dict.fromkeys(ids, 4))
    for agenda_id in ids:
        assert (await world.reader.agenda(agenda_id)).state is State.SUCCEEDED


async def _until_both_fold(
    world: World, ledger: FoldCounter, second: WatchedStore
) -> list[str]:
    """Tell of further agendas until the second member has folded some; their ids."""
    folded_counts: list[str] = []
    while not second.batches:
        probes = spread(PARTITIONS, f"probe{len(folded_counts)}-")
        await world.tell_lives(probes)
        await ledger.until_folded(4, probes)
        folded_counts += probes
    return folded_counts


async def test_an_outage_of_the_database_is_waited_out(world):
    memory = MemorySummaries()
    store = WatchedStore(memory)

    async def go_away() -> None:
        store.before = None
        memory.failures += [UnavailableError("away"), UnavailableError("still away")]

    store.before = go_away
    with capture_logs() as logs:
        async with world.rolling(store):
            await world.tell(*life("a1"))
            await store.ledger.until_folded(4, ["a1"])
    noted = [log["event"] for log in logs if log["event"].startswith("rollup.")]
    assert noted.count("rollup.waiting") == 1
    assert noted.count("rollup.resumed") == 1
    assert memory.agendas["a1"].state is State.SUCCEEDED


async def test_connections_that_the_server_cuts_are_made_anew(world):
    store = WatchedStore(world.postgres)
    async with world.rolling(store):
        await world.tell(*life("a1")[:2])
        await store.ledger.until_folded(2, ["a1"])
        connection = await asyncpg.connect(world.settings.postgres_dsn.get_secret_value())
        await connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        await connection.close()
        await world.tell(*life("a1")[2:])
        await store.ledger.until_folded(4, ["a1"])
    assert (await world.reader.agenda("a1")).state is State.SUCCEEDED


async def test_offsets_moved_by_another_process_are_asked_for_anew(world):
    memory = MemorySummaries()
    store = WatchedStore(memory)
    topic = world.names.agenda_events
    first, *others = life("a1")

    async def overtake() -> None:
        store.before = None
        await memory.fold(topic, {0: (0, 1)}, [first])

    store.before = overtake
    await world.write(encode(first))
    await world.write(frame(map(encode, others)))
    async with world.rolling(store):
        await store.ledger.until_folded(3, ["a1"])
    assert store.batches == [{0: (1, 2)}]
    assert memory.agendas["a1"].state is State.SUCCEEDED


async def test_stop_is_heeded_while_the_database_is_away(world):
    waiting, away = asyncio.Event(), UnavailableError("away")

    class AwayStore(WatchedStore):
        async def next_offsets(self, topic: str) -> Mapping[int, int]:
            waiting.set()
            raise away

    async with world.rolling(AwayStore(MemorySummaries())), within(PATIENCE_S):
        await waiting.wait()
