"""The port `BacklogTable`: rows of a dict, and rows of a Faust table on a real Kafka."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio
from deadlines import within
from fakes import MemoryReadyTable

from pop_stream.kafka import connections
from pop_stream.kafka.publisher import KafkaPublisher
from pop_stream.kafka.topic_reader import read_to_end
from pop_stream.kafka.topics import Topics
from pop_stream.operations import provisioning
from pop_stream.ports.publisher import Record
from pop_stream.ports.ready_table import BacklogTable
from pop_stream.scheduler.faust.app import faust_app
from pop_stream.scheduler.faust.table import FaustReadyTable
from pop_stream.scheduler.faust.worker import TABLE
from pop_stream.settings import Settings

PATIENCE_S = 60
AGAIN_S = 5
PARTITIONS = 8


Jobs = dict[bytes, tuple[Callable[[BacklogTable], Any], asyncio.Future[Any]]]


class TableOwner(Protocol):
    """A table, and the moments in which it may be written."""

    async def during(self, partition: int, act: Callable[[BacklogTable], Any]) -> Any:
        """What `act` gives while an event of the partition is being handled."""

    async def restart(self) -> None:
        """The process ends and another takes its place."""


class MemoryTableOwner:
    def __init__(self) -> None:
        self._table = MemoryReadyTable()

    async def during(self, partition: int, act: Callable[[BacklogTable], Any]) -> Any:
        del partition
        return act(self._table)

    async def restart(self) -> None:
        pass


class FaustTableOwner:
    """A Faust application whose agent does what the test says, one event each.

    Attributes:
        mine: Partitions of its table, as the group settled last.
    """

    def __init__(self, settings: Settings, publisher: KafkaPublisher) -> None:
        self._settings = settings
        self._publisher = publisher
        self._topic = Topics(settings.topic_prefix).ready
        self._jobs: Jobs = {}
        self._app: Any = None
        self._settled = asyncio.Condition()
        self.mine: frozenset[int] = frozenset()
        self.table: FaustReadyTable

    async def start(self) -> None:
        app = self._app = faust_app(self._settings)
        rows = app.Table(TABLE, partitions=PARTITIONS, key_type=bytes, value_type=bytes)
        self.table = FaustReadyTable(
            rows, self._publisher, partial(read_to_end, self._settings)
        )

        async def work(stream: Any) -> None:
            async for event in stream.events():
                # Else a rebalance has brought it again, or begins just now.
                if event.value in self._jobs and await self.table.recover():
                    act, done = self._jobs.pop(event.value)
                    done.set_result(act(self.table))

        ready = app.topic(self._topic, key_type=bytes, value_type=bytes)
        app.agent(ready, name="work", concurrency=1)(work)
        app.on_partitions_assigned.connect(self._on_assigned)
        app.on_partitions_revoked.connect(self._on_revoked)
        app.finalize()
        await app.start()

    async def until(self, seen: Callable[[frozenset[int]], bool]) -> None:
        async with within(PATIENCE_S), self._settled:
            await self._settled.wait_for(lambda: seen(self.mine))

    async def _on_assigned(self, _: object, assigned: set[Any], **__: object) -> None:
        self.mine = frozenset(tp.partition for tp in assigned if tp.topic == self._topic)
        self.table.assign(self.mine)
        async with self._settled:
            self._settled.notify_all()

    async def _on_revoked(self, *_: object, **__: object) -> None:
        await self.table.wait_durable()

    async def stop(self) -> None:
        await self.table.wait_durable()
        await self._app.stop()

    async def during(self, partition: int, act: Callable[[BacklogTable], Any]) -> Any:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        job = secrets.token_bytes(8)
        self._jobs[job] = (act, done)
        async with within(PATIENCE_S):
            while not done.done():  # Faust may pass over what it was to hand on in a rebalance
                await self._publisher.publish([Record(self._topic, None, job, partition)])
                await asyncio.wait({done}, timeout=AGAIN_S)
        return done.result()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    @asynccontextmanager
    async def joined(self, folder: Path) -> AsyncIterator["FaustTableOwner"]:
        """Another process of the group, which takes over some of the partitions and jobs."""
        known = self._settings.model_copy(update={"scheduler_data": folder})
        other = FaustTableOwner(known, self._publisher)
        other._jobs = self._jobs
        await other.start()
        try:
            yield other
        finally:
            await other.stop()


@pytest.fixture
def memory_owner() -> TableOwner:
    return MemoryTableOwner()


@asynccontextmanager
async def faust_owner_on(settings: Settings) -> AsyncIterator[FaustTableOwner]:
    await provisioning.ensure_topics(settings)
    async with connections.publisher(settings, client_id="table") as publisher:
        owner = FaustTableOwner(settings, publisher)
        await owner.start()
        try:
            yield owner
        finally:
            await owner.stop()


@pytest_asyncio.fixture
async def faust_owner(settings: Settings, tmp_path: Path) -> AsyncIterator[TableOwner]:
    known = settings.model_copy(update={"scheduler_data": tmp_path})
    async with faust_owner_on(known) as owner:
        yield owner


@pytest.fixture(params=["memory_owner", "faust_owner"])
def owner(request: pytest.FixtureRequest) -> TableOwner:
    return request.getfixturevalue(request.param)


def rows_of(partition: int) -> Callable[[BacklogTable], dict[str, bytes]]:
    return lambda table: dict(table.rows(partition))


async def test_rows_are_what_was_last_written(owner):
    def write(table: BacklogTable) -> list[bytes | None]:
        found = [table.get("3/media/head")]
        table.put("3/media/head", b"one")
        found.append(table.get("3/media/head"))
        table.put("3/media/head", b"two")
        found.append(table.get("3/media/head"))
        table.delete("3/media/head")
        table.delete("3/media/head")
        table.delete("3/media/never")
        return [*found, table.get("3/media/head")]

    assert await owner.during(3, write) == [None, b"one", b"two", None]
    assert await owner.during(3, rows_of(3)) == {}


async def test_rows_are_separated_by_partition_and_survive_a_restart(owner):
    odd = bytes(range(256))
    wait_durable = {
        "3/media/page/0": odd,
        "3/media/page/12": b'["\xc3\xbc"]',
        "3/a-b.c/head": b"0",
    }

    def write(table: BacklogTable) -> None:
        for key, value in wait_durable.items():
            table.put(key, value)
        table.put("3/media/page/1", b"to be deleted")
        table.delete("3/media/page/1")
        table.put("3/media/head", b"first")
        table.put("3/media/head", b"last")

    await owner.during(3, write)
    await owner.during(5, lambda table: table.put("5/media/head", b"other"))
    expected = {**wait_durable, "3/media/head": b"last"}
    for _ in range(2):
        assert await owner.during(3, rows_of(3)) == expected
        assert await owner.during(5, rows_of(5)) == {"5/media/head": b"other"}
        assert await owner.during(5, rows_of(1)) == {}
        await owner.restart()


async def test_rows_are_still_there_after_every_rebalance(faust_owner, tmp_path):
    """What moves is read whole, with what was changed elsewhere, and what stays is kept."""
    wanted: dict[int, dict[str, bytes]] = {number: {} for number in range(PARTITIONS)}

    async def write(name: str) -> None:
        for number in wanted:
            row = f"{number}/media/{name}", name.encode()
            await faust_owner.during(number, lambda table, row=row: table.put(*row))
            wanted[number] |= [row]

    async def check() -> None:
        found = {number: await faust_owner.during(number, rows_of(number)) for number in wanted}
        assert found == wanted

    await write("before")
    await faust_owner.restart()
    await write("since")
    async with faust_owner.joined(tmp_path / "other") as other:
        await faust_owner.until(lambda mine: 0 < len(mine) < PARTITIONS)
        assert other.mine
        await check()
        for number, rows in wanted.items():
            gone = f"{number}/media/before"
            await faust_owner.during(number, lambda table, gone=gone: table.delete(gone))
            del rows[gone]
        await write("shared")
    await faust_owner.until(lambda mine: len(mine) == PARTITIONS)
    await check()
