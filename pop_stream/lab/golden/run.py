"""One golden run: `pop-stream dev` is started, given its work, and read to its very end."""

import asyncio
import base64
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

import aiohttp
import asyncpg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from pop_stream.lab.golden.workload import DEFINITIONS, work_through
from pop_stream.lab.golden.world import WITHIN_S, GoldenWorld, Json, until

PREFIX: Final = "pop."
QUIET_S: Final = 4.0
LATE: Final = 5
"""Records of a partition, ticks at most, that may have come since it was read."""


@dataclass(frozen=True, slots=True)
class GoldenNames:
    """What a run must know of the code by name.

    Attributes:
        submissions: The topic, without the prefix of all.
        settings: Environment variables of the parts.
        is_work: Whether an event of a topic comes of work, and not of time that passes.
    """

    submissions: str
    settings: Mapping[str, str]
    is_work: Callable[[str, Json], bool]


def run(names: GoldenNames) -> Json:
    """One run in a folder that is gone afterwards, unless it fails; all that was read."""
    folder = Path(tempfile.mkdtemp(prefix="pop-stream-golden-"))
    try:
        raw = asyncio.run(gather(folder, names))
    except Exception as error:
        error.add_note(f"the definitions, data and logs of the run are in {folder}")
        raise
    shutil.rmtree(folder)
    return raw


@asynccontextmanager
async def running(
    folder: Path, settings: Mapping[str, str]
) -> AsyncIterator[tuple[str, Mapping[str, int]]]:
    """`pop-stream dev` in a folder, while the block runs; the API's address, and all ports."""
    definitions, log = folder / "definitions.toml", folder / "dev.log"
    definitions.write_text(DEFINITIONS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POP_")}
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pop_stream", "dev", "--folder", str(folder / "data")),
            *("--port", str(port), "--definitions", str(definitions)),
            stdout=out,
            stderr=out,
            env={**kept, **settings},
        )
    url = f"http://127.0.0.1:{port}"
    try:
        async with aiohttp.ClientSession(url) as http:
            await until(f"the API; see {log}", lambda: is_ready(http, process))
        yield url, json.loads((folder / "data" / "ports.json").read_text())
    finally:
        await end(process)


async def is_ready(http: aiohttp.ClientSession, process: asyncio.subprocess.Process) -> bool:
    """Whether the API serves.

    Raises:
        RuntimeError: If what was started has ended.
    """
    if process.returncode is not None:
        msg = f"it ended with {process.returncode}"
        raise RuntimeError(msg)
    with suppress(aiohttp.ClientError):
        async with http.get("/readyz") as answer:
            return answer.ok
    return False


async def end(process: asyncio.subprocess.Process) -> None:
    """As Ctrl-C does; killed if that takes too long, and whatever it started ends by itself."""
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
    try:
        async with asyncio.timeout(WITHIN_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def gather(folder: Path, names: GoldenNames) -> Json:
    """Run everything once; what was read, as it was."""
    async with AsyncExitStack() as open_:
        url, ports = await open_.enter_async_context(running(folder, names.settings))
        bootstrap = f"127.0.0.1:{ports['kafka-1']}"
        http = await open_.enter_async_context(aiohttp.ClientSession(url))
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
        await open_.enter_async_context(producer)
        world = GoldenWorld(http, producer, PREFIX + names.submissions)
        await open_.enter_async_context(world.peer.serving())
        await work_through(world)
        records = await read_topics(bootstrap, names.is_work)
        ended: dict[str, Json] = {}
        for one in sorted(world.agendas):
            summary, progress = f"agendas/{one}", f"agendas/{one}/progress"
            ended[one] = [await world.get(summary), await world.get(progress)]
        password = (folder / "data" / "postgres" / "password").read_text()
        tables = await read_tables(ports["postgres"], password)
    return {"topics": records, "answers": world.answers, "agendas": ended, "tables": tables}


async def read_topics(
    bootstrap: str, is_work: Callable[[str, Json], bool]
) -> dict[str, list[Json]]:
    """All records of all topics, once nothing comes any more but what time alone brings."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    async with consumer:
        places = await partitions(bootstrap)
        consumer.assign(places)
        found: dict[str, list[Json]] = {plain(one.topic): [] for one in places}
        changed = monotonic()

        async def is_quiet() -> bool:
            nonlocal changed
            for place, records in (await consumer.getmany(timeout_ms=200)).items():
                name = plain(place.topic)
                found[name] += map(as_read, records)
                values = (decoded(one.value) for one in records)
                if any(is_work(name, event) for value in values for event in events_of(value)):
                    changed = monotonic()
            ends = await consumer.end_offsets(places)
            missing = [one for one in places if await consumer.position(one) < ends[one] - LATE]
            return not missing and monotonic() - changed > QUIET_S

        await until("topics to be quiet", is_quiet)
    return found


async def partitions(bootstrap: str) -> list[TopicPartition]:
    """All partitions of all topics of the system."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        return [
            TopicPartition(topic["topic"], partition["partition"])
            for topic in await admin.describe_topics()
            if topic["topic"].startswith(PREFIX)
            for partition in topic["partitions"]
        ]
    finally:
        await admin.close()


def plain(topic: str) -> str:
    """A topic's name without the prefix of all."""
    return topic.removeprefix(PREFIX)


def as_read(record: ConsumerRecord) -> Json:
    """A record with what is in it decoded."""
    return {
        "partition": record.partition,
        "key": None if record.key is None else record.key.decode(errors="replace"),
        "value": decoded(record.value),
        "headers": {name: value.decode(errors="replace") for name, value in record.headers},
    }


def decoded(value: bytes | None) -> Json:
    """JSON, or what it is if it is none."""
    try:
        return json.loads(value or b"null")
    except ValueError:
        return {"no JSON": base64.b64encode(value or b"").decode()}


async def read_tables(port: int, password: str) -> Json:
    """Of each table its columns, and those of them that any row has a value in."""
    connection = await asyncpg.connect(
        host="127.0.0.1",
        port=port,
        user="postgres",
        password=password,
        database="postgres",
        ssl=False,
    )
    tables: dict[str, Json] = {}
    try:
        columns = await connection.fetch(
            "select table_name, column_name, data_type, is_nullable "
            "from information_schema.columns where table_schema = 'public'"
        )
        for table, column, kind, nullable in columns:
            any_value = f'select exists (select from "{table}" where "{column}" is not null)'  # noqa: S608
            is_filled = await connection.fetchval(any_value)
            words = [kind, "or null" * (nullable == "YES"), "in use" * is_filled]
            tables.setdefault(table, {})[column] = ", ".join(filter(None, words))
    finally:
        await connection.close()
    return tables


def events_of(value: Json) -> list[Json]:
    """A frame's events, or the only one; none of a deletion."""
    return value if isinstance(value, list) else [] if value is None else [value]
