"""A whole system of processes under load, for tests that take something away from it.

What came of it is counted where it is: in Kafka, in Postgres, and in the file in which handlers
note their starts.
"""

import asyncio
import json
import secrets
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import asyncpg
import psutil
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from deadlines import scaled, within

from pop_stream.devserver.folder import PORTS, is_free_port
from pop_stream.devserver.plan import StackPlan
from pop_stream.devserver.stack import Stack
from pop_stream.devserver.supervisor import RestartPolicy
from pop_stream.kafka import clients, connections
from pop_stream.kafka.topic_reader import read_topic
from pop_stream.kafka.topics import Topics
from pop_stream.lab.chaos.handlers import STARTS, WORK, Start, read_starts
from pop_stream.model.errors import UnavailableError
from pop_stream.ports.publisher import Record

WITHIN_S = 100  # far above what is promised: a loaded machine
LOOK_S = 0.05
LEASE_S = 4.0
SESSION_S = 4.0
DEFINITIONS = """
[insights.work]
mappers = { operation_types = ["chaos.work", "test.fail-once"] }
partitions = 4
lease_ms = LEASE
max_attempts = 20
backoff = { first_s = 0.2, most_s = 1.0 }
"""


@dataclass
class SystemLoad:
    """What is submitted, and what of it was acknowledged: by a 202, or by Kafka."""

    run: str
    acknowledged: set[str] = field(default_factory=set)
    task: asyncio.Task[None] | None = None


class WholeSystem:
    """The processes, and hands to submit, to look and to count.

    Attributes:
        lease_s: Of the insight; as long as the machine needed it when it started.
        session_s: Of the groups, likewise.
    """

    def __init__(self, stack: Stack, starts: Path, *, lease_s: float, session_s: float) -> None:
        self.lease_s, self.session_s = lease_s, session_s
        self.stack = stack
        self.settings = stack.settings
        self.supervisor = stack.supervisor
        self.names = Topics(stack.settings.topic_prefix)
        self._starts = starts

    # ---- what is done ----

    @asynccontextmanager
    async def load(
        self, run: str, *, lots: int = 10_000, each: int = 5, **changes: Any
    ) -> AsyncIterator[SystemLoad]:
        """Agendas eight times a second until the block is left, then all acknowledged."""
        load, stop = SystemLoad(f"{run}-{secrets.token_hex(3)}"), asyncio.Event()
        async with (
            aiohttp.ClientSession(self.settings.api_url) as session,
            connections.publisher(self.settings, client_id="test") as publisher,
            asyncio.TaskGroup() as tasks,
        ):

            async def submit() -> None:
                for number in range(lots):
                    if stop.is_set():
                        return
                    lot = [
                        agenda(f"{load.run}-{each * number + one}", **changes)
                        for one in range(each)
                    ]
                    way = (
                        self._by_kafka(publisher, lot) if number % 2 else by_http(session, lot)
                    )
                    tasks.create_task(self._acknowledged(load, lot, way))
                    await asyncio.sleep(1 / 8)

            tasks.create_task(submit())
            try:
                yield load
            finally:
                stop.set()

    async def submit(self, *agendas: Mapping[str, Any]) -> None:
        """Over HTTP, as often as it takes."""
        async with aiohttp.ClientSession(self.settings.api_url) as session:
            await by_http(session, agendas)

    async def get(self, path: str) -> tuple[int, Mapping[str, str], Any]:
        """Status, headers and JSON of an answer of the API."""
        async with (
            aiohttp.ClientSession(self.settings.api_url) as session,
            session.get(path) as response,
        ):
            return response.status, response.headers, await response.json(content_type=None)

    def send(self, part: str, number: signal.Signals) -> int:
        """Send a signal to a part; its pid."""
        pid = self.supervisor.kill(part, number)
        assert pid is not None, f"{part} is not running"
        return pid

    async def restart(self, part: str, *command: str, **variables: str) -> None:
        """Stop a part in order, and start it with another command or other variables."""
        known = self.supervisor._supervised[part].part
        await self.supervisor.stop(part)
        environment = {**known.environment, **variables}
        await self.supervisor.start(
            replace(known, command=command or known.command, environment=environment)
        )

    # ---- what is looked at ----

    async def until(self, seen: Callable[[], Any]) -> Any:
        async with within(WITHIN_S):
            while not (found := seen()):  # noqa: ASYNC110  # other processes tell
                await asyncio.sleep(LOOK_S)
            return found

    def starts(self, run: str) -> Sequence[Start]:
        """Of agendas whose id begins so, in order of time."""
        found = [one for one in read_starts(self._starts) if one.agenda_id.startswith(run)]
        return sorted(found, key=lambda one: one.at)

    async def more_started(self, run: str, count: int) -> None:
        """Until so many agendas were started that had been accepted by nobody before."""
        begun = {one.agenda_id for one in self.starts(run)}
        await self.until(
            lambda: len({one.agenda_id for one in self.starts(run)} - begun) >= count
        )

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[asyncpg.Record]:
        connection = await asyncpg.connect(self.settings.postgres_dsn.get_secret_value())
        try:
            return await connection.fetch(sql, *arguments)
        finally:
            await connection.close()

    async def rows(self, run: str) -> Mapping[str, asyncpg.Record]:
        """The summaries of agendas whose id begins so, as Postgres has them."""
        found = await self.fetch(
            "select * from agendas where starts_with(agenda_id, $1) order by agenda_id", run
        )
        return {row["agenda_id"]: row for row in found}

    async def ended(self, run: str, wanted: Collection[str]) -> Mapping[str, asyncpg.Record]:
        """The rows, once all of these have ended."""
        async with within(WITHIN_S):
            while True:
                rows = await self.rows(run)
                open_ = [one for one in wanted if one not in rows or not rows[one]["ended_at"]]
                if not open_:
                    return rows
                await asyncio.sleep(4 * LOOK_S)

    async def events(self, run: str) -> Sequence[Mapping[str, Any]]:
        """The lifecycle of agendas whose id begins so, as Kafka has it."""
        values = [
            one.value async for one in read_topic(self.settings, self.names.agenda_events)
        ]
        events = [one for value in values for one in listed(json.loads(value))]
        return [one for one in events if one["agenda_id"].startswith(run)]

    async def kept(
        self, load: SystemLoad, *, attempts: int = 1, by_each_puller: bool = False
    ) -> None:
        """Nothing was lost, tried again, or done twice: all ended well at once.

        Args:
            load: Ended.
            attempts: The most that any may have needed.
            by_each_puller: Two pullers may have started the same attempt, but each once.
        """
        rows = await self.ended(load.run, load.acknowledged)
        assert {*rows} == load.acknowledged
        assert {row["state"] for row in rows.values()} == {"succeeded"}
        again = {one: row["attempt"] for one, row in rows.items() if row["attempt"] > attempts}
        assert again == {}, [rows[one]["history"] for one in again]
        events = await self.events(load.run)
        for kind in ("accepted", "succeeded"):
            ids = {one["agenda_id"] for one in events if one["type"] == f"agenda.{kind}"}
            assert ids == load.acknowledged
        claims = {
            (e["agenda_id"], e["attempt"]) for e in events if e["type"] == "agenda.claimed"
        }
        starts = self.starts(load.run)
        assert {(one.agenda_id, one.attempt) for one in starts} <= claims
        started = Counter(
            (one.agenda_id, one.attempt, one.pid * by_each_puller) for one in starts
        )
        assert {one for one, times in started.items() if times > 1} == set()

    async def caught_up(self, places: Collection[TopicPartition]) -> None:
        """Until every group has read, and dealt with, all there is in these partitions."""
        names = self.names
        readers = {
            names.agenda_events: (names.group("rollup"), names.group("relay")),
            names.ready: (names.group("scheduler"),),
            names.insight("work"): (names.puller_group("work"),),
        }
        async with (
            connections.admin_client(self.settings) as admin,
            clients.consumer(self.settings, client_id="look", group_id=None) as looking,
            within(WITHIN_S),
        ):
            ends = await looking.end_offsets(places)
            for place, end in ends.items():
                for group in readers[place.topic]:
                    while not await is_committed(admin, group, place, end):  # noqa: ASYNC110
                        await asyncio.sleep(4 * LOOK_S)

    async def deliver_again(self, run: str, *topics: str) -> Counter[TopicPartition]:
        """Write all records about a run again, in any order; how many, and where."""
        again = [
            Record(topic, one.key, one.value, one.partition)
            for topic in topics
            async for one in read_topic(self.settings, topic)
            if run.encode() in one.value
        ]
        Random(7).shuffle(again)
        async with connections.publisher(self.settings, client_id="again") as publisher:
            await publisher.publish(again)
        return Counter(TopicPartition(one.topic, one.partition) for one in again)

    # ---- inside ----

    async def _by_kafka(self, publisher: Any, lot: Sequence[Mapping[str, Any]]) -> None:
        records = [
            Record(self.names.submissions, None, json.dumps(one).encode()) for one in lot
        ]
        async with within(WITHIN_S):
            while True:
                try:
                    await publisher.publish(records)
                except UnavailableError:
                    await asyncio.sleep(LOOK_S)
                else:
                    return

    async def _acknowledged(
        self, load: SystemLoad, lot: Sequence[Mapping[str, Any]], way: Any
    ) -> None:
        await way
        load.acknowledged |= {one["id"] for one in lot}


async def by_http(session: aiohttp.ClientSession, lot: Sequence[Mapping[str, Any]]) -> None:
    """As a client does that wants to be sure: again with the same ids until there is a 202."""
    async with within(WITHIN_S):
        while True:
            with suppress(aiohttp.ClientError):
                async with session.post("/v1/agendas", json=list(lot)) as response:
                    body = await response.json(content_type=None)
                    if response.status == 202:
                        assert body["accepted"] == len(lot), body
                        return
                    assert response.status == 503, body
                    assert int(response.headers["Retry-After"]) > 0
            await asyncio.sleep(4 * LOOK_S)


def agenda(agenda_id: str, **changes: Any) -> dict[str, Any]:
    """An agenda of one operation that takes 20 ms."""
    operation = {"name": "only", "type": WORK, "payload": 0.02}
    return {"id": agenda_id, "customer_id": "anna", "operations": [operation], **changes}


async def is_committed(
    admin: AIOKafkaAdminClient, group: str, place: TopicPartition, end: int
) -> bool:
    committed = await admin.list_consumer_group_offsets(group, partitions=[place])
    return place in committed and committed[place].offset >= end


def listed(document: Any) -> list[Any]:
    return document if isinstance(document, list) else [document]


def family(pid: int) -> list[psutil.Process]:
    """A process and all below it."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


@asynccontextmanager
async def running(
    monkeypatch: Any,
    *,
    folder: Path | None = None,
    lease_s: float | None = None,
    definitions: str = "",
    **plan: Any,
) -> Any:
    """The system, warmed up: every part has done its work once.

    Args:
        monkeypatch: Takes servers of other tests out of sight.
        folder: Of all data; a new one if none is given.
        lease_s: Of the insight, on a quiet machine.
        definitions: What is defined besides, as TOML.
        plan: What the stack's plan has besides.
    """
    lease_s, session_s = scaled(lease_s or LEASE_S), scaled(SESSION_S)
    for name in ("POP_KAFKA_BOOTSTRAP", "POP_POSTGRES_DSN"):
        monkeypatch.delenv(name, raising=False)
    # Not below pytest's own folder, which other users, such as Postgres', may not pass.
    with tempfile.TemporaryDirectory(
        prefix="pop-stream-faults-", ignore_cleanup_errors=True
    ) as made:
        starts, defined = Path(made) / "starts", Path(made) / "definitions.toml"
        defined.write_text(
            (DEFINITIONS + definitions).replace("LEASE", f"{lease_s * 1000:.0f}")
        )
        plan_ = StackPlan(
            folder=folder or Path(made) / "data",
            definitions=defined,
            port=next(one for _ in PORTS if is_free_port(one := secrets.choice(PORTS))),
            handlers=("pop_stream.lab.chaos.handlers:handlers", "recording_handlers:handlers"),
            restart=RestartPolicy(longest_pause=timedelta(milliseconds=500)),
            **{
                "pullers": 2,
                "overrides": {
                    "heartbeat": timedelta(seconds=1),
                    "session_timeout": timedelta(seconds=session_s),
                },
                **plan,
            },
            environment={STARTS: str(starts), "PYTHONPATH": str(Path(__file__).parent)},
        )
        async with Stack(plan_, lambda _: None) as stack:
            system = WholeSystem(stack, starts, lease_s=lease_s, session_s=session_s)
            async with system.load("warm", lots=2) as load:
                pass
            await system.ended(load.run, load.acknowledged)
            yield system
