"""The embedded servers as they are: real processes, started, stopped, killed and restarted."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import asyncpg
import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from deadlines import within

from pop_stream.devserver.errors import FolderLockedError
from pop_stream.devserver.servers import DevServers

PROJECT = Path(__file__).parents[2]
TOPIC = TopicPartition("kept", 0)
READY_S = 40
GONE_S = 10


async def write(servers):
    admin = AIOKafkaAdminClient(bootstrap_servers=servers.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(TOPIC.topic, 1, 1)])
    finally:
        await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=servers.bootstrap, acks="all") as producer:
        await producer.send_and_wait(TOPIC.topic, b"record")
    connection = await asyncpg.connect(servers.dsn)
    await connection.execute("CREATE TABLE kept AS SELECT 'row' AS it")
    await connection.close()


async def read(servers):
    consumer = AIOKafkaConsumer(bootstrap_servers=servers.bootstrap)
    async with consumer, within(READY_S):
        consumer.assign([TOPIC])
        await consumer.seek_to_beginning(TOPIC)
        record = await consumer.getone()
    connection = await asyncpg.connect(servers.dsn)
    row = await connection.fetchval("SELECT it FROM kept")
    await connection.close()
    return record.value, row


async def ask_major_version(dsn):
    connection = await asyncpg.connect(dsn)
    version = connection.get_server_version()
    await connection.close()
    return version.major


@contextlib.asynccontextmanager
async def owner(folder):
    """The command `pop_stream.devserver` in a process, ready; killed if it is still there."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pop_stream.devserver", "--folder", folder),
        stdout=asyncio.subprocess.PIPE,
        cwd=PROJECT,
    )
    try:
        async with within(READY_S):
            ready = json.loads(await process.stdout.readline())
        yield process, ready
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def below(pid):
    return fact(lambda: psutil.Process(pid).children(recursive=True)) or []


def reapers():
    return set(psutil.Process().children())


def begun_since(before):
    begun = reapers() - before
    return [*begun, *(process for parent_watch in begun for process in below(parent_watch.pid))]


def named(processes, name):
    return [process for process in processes if fact(process.name) == name]


def fact(ask):
    """What a process says of itself; PostgreSQL's short-lived workers may be gone by then."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return ask()


async def still_there(processes):
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, GONE_S)
    return [p for p in alive if fact(p.status) not in {None, psutil.STATUS_ZOMBIE}]


async def test_data_and_addresses_survive_a_restart(tmp_path):
    folder = tmp_path / "dáta, ünd mehr"
    before = reapers()
    async with DevServers(folder) as first:
        await write(first)
        assert await read(first) == (b"record", "row")
        with pytest.raises(FolderLockedError) as refused:
            await DevServers(folder).__aenter__()
        assert refused.value.holder == os.getpid()
        begun = begun_since(before)
        (broker,) = named(begun, "java")
        # Java reads no cache of classes that does not fit, and does not tell.
        assert any(one.path.endswith(".aot") for one in broker.memory_maps())
        assert named(begun, "postgres")
    assert await still_there(begun) == []

    async with DevServers(folder) as second:
        assert (second.bootstrap, second.dsn) == (first.bootstrap, first.dsn)
        assert await read(second) == (b"record", "row")


async def test_a_group_joins_with_a_session_of_three_seconds(tmp_path):
    async with DevServers(tmp_path) as servers:
        await write(servers)
        consumer = AIOKafkaConsumer(
            TOPIC.topic,
            bootstrap_servers=servers.bootstrap,
            group_id="short",
            session_timeout_ms=3_000,
            heartbeat_interval_ms=1_000,
            auto_offset_reset="earliest",
        )
        async with consumer, within(READY_S):
            assert (await consumer.getone()).value == b"record"


async def test_no_server_outlives_an_owner_killed_outright(tmp_path):
    async with owner(tmp_path) as (process, _):
        children = below(process.pid)
        assert named(children, "java")
        assert named(children, "postgres")

        process.kill()
        await process.wait()

        assert await still_there(children) == []


async def test_servers_orphaned_with_their_reapers_end_at_the_next_start(tmp_path):
    async with owner(tmp_path) as (process, before):
        owned = psutil.Process(process.pid).children()
        servers = [server for parent_watch in owned for server in parent_watch.children()]
        for victim in (*owned, psutil.Process(process.pid)):
            victim.kill()
        await process.wait()
        assert sorted(server.name() for server in servers) == ["java", "postgres"]

    async with owner(tmp_path) as (process, after):
        assert await still_there(servers) == []
        assert after == before
        assert await ask_major_version(after["dsn"]) == 18


async def test_a_terminated_owner_stops_both_and_exits_with_zero(tmp_path):
    async with owner(tmp_path) as (process, _):
        children = below(process.pid)
        process.send_signal(signal.SIGTERM)

        assert await process.wait() == 0
        assert await still_there(children) == []


async def test_a_cancelled_start_leaves_nothing_behind(tmp_path):
    before = reapers()
    starting = asyncio.create_task(DevServers(tmp_path).__aenter__())
    async with within(READY_S):
        while not (begun := begun_since(before)):
            await asyncio.wait([starting], timeout=0.02)

    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting

    assert await still_there(begun) == []
    assert reapers() == before
    async with DevServers(tmp_path) as servers:
        assert await ask_major_version(servers.dsn) == 18


async def test_a_server_that_dies_is_reported_with_its_name(tmp_path):
    before = reapers()
    async with DevServers(tmp_path) as servers:
        [broker] = named(begun_since(before), "java")
        broker.kill()

        async with within(GONE_S):
            failure = await servers.failed()

        assert failure.server == "kafka-1"
        assert "exit code 137" in failure.reason


async def test_a_broker_that_was_killed_is_soon_let_in_again(tmp_path):
    """It knocks every two seconds, in vain until its own session of before is over."""
    async with DevServers(tmp_path) as servers:
        await servers.take_down("kafka")
        await servers.bring_back("kafka")
        log = (tmp_path / "kafka" / "logs" / "server-1.log").read_text()
    assert log.count("Unable to register broker 1") <= 3
