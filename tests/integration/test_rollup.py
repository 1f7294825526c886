"""The rollup on a real broker: rows from events, each folded once whatever happens between."""

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
import pytest_asyncio
from aiokafka import TopicPartition
from memory_summaries import MemorySummaries
from structlog.testing import capture_logs

from pop_stream.bus import clients, topics
from pop_stream.bus.publisher import KafkaPublisher, lifecycle_records
from pop_stream.bus.topics import Topics, TopicSpec
from pop_stream.core.errors import UnavailableError
from pop_stream.core.events import (
    AgendaAccepted,
    AgendaClaimed,
    AgendaEmitted,
    AgendaSucceeded,
    LifecycleEvent,
    OperationProgress,
    RecordRefused,
    encode,
    frame,
)
from pop_stream.core.lifecycle import State
from pop_stream.core.partitioning import partition_of
from pop_stream.ports import FoldedBatch, Record, SummaryStore
from pop_stream.rollup.rollup import roll_up
from pop_stream.settings import Settings
from pop_stream.store.migrate import migrate
from pop_stream.store.pool import open_pool
from pop_stream.store.reader import PostgresSummaryReader
from pop_stream.store.summaries import PostgresSummaries

START = datetime(2026, 1, 1, tzinfo=UTC)
PARTITIONS = 4
PATIENCE_S = 30


class CrashError(Exception):
    """Stands for a process that is killed."""


@dataclass
class WatchedStore:
    """A store that tells of its folds, and lets a test act around them."""

    inner: SummaryStore
    told: Counter[str] = field(default_factory=Counter)
    batches: list[Mapping[int, tuple[int, int]]] = field(default_factory=list)
    before: Callable[[], Awaitable[None]] | None = None
    after: Callable[[], Awaitable[None]] | None = None
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def next_offsets(self, topic: str) -> Mapping[int, int]:
        return await self.inner.next_offsets(topic)

    async def fold(
        self,
        topic: str,
        spans: Mapping[int, tuple[int, int]],
        lifecycle: Sequence[LifecycleEvent],
    ) -> FoldedBatch:
        if self.before:
            await self.before()
        folded = await self.inner.fold(topic, spans, lifecycle)
        async with self.changed:
            self.told.update(event.agenda_id for event in lifecycle)
            self.batches.append(spans)
            self.changed.notify_all()
        if self.after:
            await self.after()
        return folded

    async def until_told(self, events: int, *agenda_ids: str) -> None:
        """Wait until so many events of each of the agendas were folded."""

        def enough() -> bool:
            return all(self.told[agenda_id] >= events for agenda_id in agenda_ids)

        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(enough)

    async def until_consumed(self, offsets: int) -> None:
        """Wait until so many offsets were consumed, over all partitions."""

        def enough() -> bool:
            return sum(end - start for one in self.batches for start, end in one.values()) >= (
                offsets
            )

        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(enough)


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
            async with asyncio.timeout(PATIENCE_S):
                await task

    async def tell(self, *lifecycle: LifecycleEvent) -> None:
        topic = self.names.agenda_events
        await self.publisher.publish(await lifecycle_records(self.publisher, topic, lifecycle))

    async def write(self, value: bytes | None, key: bytes = b"a1", partition: int = 0) -> None:
        record = Record(self.names.agenda_events, key, value, partition)
        await self.publisher.publish([record])

    async def dead_letters(self, count: int) -> list[RecordRefused]:
        consumer = clients.consumer(
            self.settings, self.names.dead_letters, client_id="test", group_id=None
        )
        found: list[RecordRefused] = []
        async with consumer, asyncio.timeout(PATIENCE_S):
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
        give_up_after = timedelta(seconds=10)
        publisher = KafkaPublisher(producer, give_up_after=give_up_after)
        await stack.enter_async_context(publisher)
        pool = await stack.enter_async_context(open_pool(settings))
        postgres, reader = PostgresSummaries(pool), PostgresSummaryReader(pool)
        yield World(settings, names, publisher, postgres, reader)


def life(agenda_id: str) -> list[LifecycleEvent]:
    """Four events, each of which changes the summary."""
    attempt = {"agenda_id": agenda_id, "at": START, "insight_id": "files", "attempt": 1}
    done = OperationProgress(name="fetch", state="succeeded", percent=100)
    return [
        AgendaAccepted(
            agenda_id=agenda_id,
            at=START,
            insight_id="files",
            customer_id="acme",
            operations=("fetch",),
            agenda=msgspec.Raw(b'{"id": 1}'),
        ),
        AgendaEmitted(**attempt),
        AgendaClaimed(**attempt, puller_id="p1", lease_ms=60_000),
        AgendaSucceeded(**attempt, operations=(done,)),
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
        for part in range(4):
            await world.tell(*(life(agenda_id)[part] for agenda_id in ids))
        await store.until_told(4, *ids)
    for agenda_id in ids:
        summary = await world.reader.agenda(agenda_id)
        assert (summary.state, summary.percent) == (State.SUCCEEDED, 100)
        assert summary.body == b'{"id": 1}'


async def test_kafka_shows_how_far_the_rollup_is(world):
    store = WatchedStore(world.postgres)
    async with world.rolling(store):
        await world.tell(*life("a1"))
        await store.until_told(4, "a1")
    admin = clients.admin(world.settings, client_id="test")
    await admin.start()
    try:
        committed = await admin.list_consumer_group_offsets(world.names.group("rollup"))
    finally:
        await admin.close()
    partition = partition_of(b"a1", PARTITIONS)
    known = committed[TopicPartition(world.names.agenda_events, partition)]
    stored = await world.postgres.next_offsets(world.names.agenda_events)
    assert known.offset == stored[partition] > 0


async def test_a_crash_between_fold_and_commit_folds_nothing_twice(world):
    ids = spread(20)

    async def crash() -> None:
        raise CrashError

    crashing = WatchedStore(world.postgres, after=crash)
    for part in range(2):
        await world.tell(*(life(agenda_id)[part] for agenda_id in ids))
    with pytest.raises(CrashError):
        async with asyncio.timeout(PATIENCE_S), world.rolling(crashing) as task:
            await asyncio.wait([task])
    assert crashing.told.total() > 0

    store = WatchedStore(world.postgres)
    async with world.rolling(store):
        for part in range(2, 4):
            await world.tell(*(life(agenda_id)[part] for agenda_id in ids))
        await store.until_told(1, *ids)
        await _until(store, lambda: (store.told + crashing.told).total() >= 4 * len(ids))
    assert store.told + crashing.told == Counter(dict.fromkeys(ids, 4))
    for agenda_id in ids:
        assert (await world.reader.agenda(agenda_id)).state is State.SUCCEEDED


async def test_what_cannot_be_used_goes_to_the_dead_letters_and_the_rest_goes_on(world):
    store = WatchedStore(world.postgres)
    accepted, emitted, claimed, succeeded = life("a1")
    unstorable = msgspec.structs.replace(claimed, attempt=2**40)
    poisoned = frame(map(encode, [claimed, unstorable, succeeded]))
    async with world.rolling(store):
        await world.write(encode(accepted))
        await world.write(b"garbage", key=b"k")
        await world.write(None)
        await world.write(frame([encode(emitted), b'{"type":"agenda.emitted"}']))
        await world.write(poisoned)
        await store.until_consumed(5)
    summary = await world.reader.agenda("a1")
    assert (summary.state, summary.emitted_at, summary.started_at) == (
        State.SUCCEEDED,
        START,
        START,
    )
    letters = await world.dead_letters(4)
    found = {(one.offset, one.code, base64.b64decode(one.value_base64)) for one in letters}
    assert found == {
        (1, "unreadable_record", b"garbage"),
        (2, "unreadable_record", b""),
        (3, "unreadable_record", b'{"type":"agenda.emitted"}'),
        (4, "unstorable", encode(unstorable)),
    }
    assert {(one.part, one.topic) for one in letters} == {("rollup", world.names.agenda_events)}


async def test_members_that_come_and_go_fold_everything_once(world):
    first, second = WatchedStore(world.postgres), WatchedStore(world.postgres)
    rounds = [spread(40, tag) for tag in "abcd"]
    async with world.rolling(first):
        await _tell_lives(world, rounds[0])
        await first.until_told(4, *rounds[0])
        async with world.rolling(second):
            await _tell_lives(world, rounds[1])
            await _until_shared(world, first, second)
            await _tell_lives(world, rounds[2])
            await _until(second, lambda: _both(first, second, rounds[2]), other=first)
        await _tell_lives(world, rounds[3])
        await first.until_told(4, *rounds[3])
    ids = [agenda_id for one in rounds for agenda_id in one]
    told = first.told + second.told
    assert {agenda_id: told[agenda_id] for agenda_id in ids} == dict.fromkeys(ids, 4)
    for agenda_id in ids:
        assert (await world.reader.agenda(agenda_id)).state is State.SUCCEEDED


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
            await store.until_told(4, "a1")
    noted = [log["event"] for log in logs if log["event"].startswith("rollup.")]
    assert noted.count("rollup.waiting") == 1
    assert noted.count("rollup.resumed") == 1
    assert memory.agendas["a1"].state is State.SUCCEEDED


async def test_offsets_moved_by_another_process_are_asked_for_anew(world):
    memory = MemorySummaries()
    store = WatchedStore(memory)
    topic = world.names.agenda_events
    accepted, *others = life("a1")

    async def overtake() -> None:
        store.before = None
        await memory.fold(topic, {0: (0, 1)}, [accepted])

    store.before = overtake
    await world.write(encode(accepted))
    await world.write(frame(map(encode, others)))
    async with world.rolling(store):
        await store.until_told(3, "a1")
    assert store.batches == [{0: (1, 2)}]
    assert memory.agendas["a1"].state is State.SUCCEEDED


async def test_stop_is_heeded_while_the_database_is_away(world):
    memory = MemorySummaries()
    waiting = asyncio.Event()

    class AwayStore(WatchedStore):
        async def next_offsets(self, topic: str) -> Mapping[int, int]:
            waiting.set()
            raise UnavailableError("away")

    async with world.rolling(AwayStore(memory)), asyncio.timeout(PATIENCE_S):
        await waiting.wait()


async def _tell_lives(world: World, ids: Sequence[str]) -> None:
    for part in range(4):
        await world.tell(*(life(agenda_id)[part] for agenda_id in ids))


def _both(first: WatchedStore, second: WatchedStore, ids: Sequence[str]) -> bool:
    return all(first.told[one] + second.told[one] >= 4 for one in ids)


async def _until(
    store: WatchedStore, enough: Callable[[], bool], other: WatchedStore | None = None
) -> None:
    """Wait on the folds of one store, or of either of two."""
    async with asyncio.timeout(PATIENCE_S):
        while not enough():
            waits = [asyncio.create_task(_changed(one)) for one in (store, other) if one]
            done, pending = await asyncio.wait(
                waits, timeout=0.5, return_when=asyncio.FIRST_COMPLETED
            )
            for task in pending:
                task.cancel()
            await asyncio.gather(*done, *pending, return_exceptions=True)


async def _changed(store: WatchedStore) -> None:
    async with store.changed:
        await store.changed.wait()


async def _until_shared(world: World, first: WatchedStore, second: WatchedStore) -> None:
    """Tell of further agendas until both members have folded some."""
    number = 0
    async with asyncio.timeout(PATIENCE_S):
        while not second.told:
            await _tell_lives(world, spread(4, f"probe{number}-"))
            number += 1
            await _until(first, lambda: True)
            async with second.changed:
                try:
                    await asyncio.wait_for(second.changed.wait(), 0.2)
                except TimeoutError:
                    continue
