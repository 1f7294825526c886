"""Three brokers that replicate, and a system under load that is left with two of them."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from aiokafka.admin import NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from deadlines import within
from whole_system import LOOK_S, WITHIN_S, WholeSystem, family, running

from pop_stream.kafka import clients, connections
from pop_stream.kafka.hardening import fetcher
from pop_stream.ports.publisher import Record

pytestmark = pytest.mark.timeout(250)

WITHOUT_A_WORD_S = 25
"""Longer than the others take to elect, to give it up and to be found, on a loaded machine;
less than a client takes that knows of no silence."""

KNOWS_OF_NO_SILENCE_S = 38
"""Of these it takes 40 s, its request timeout."""

SOON_S = 30
"""Far more than it takes a broker to hand over what it leads; less than fetches are held."""

HELD_S = 300

SHARED = """
[insights.shared]
mappers = { params = ["via=share"] }
precedence = 1
group_type = "share"
partitions = 1
lease_ms = LEASE
max_attempts = 20
"""


@pytest_asyncio.fixture(scope="module")
async def system() -> AsyncIterator[WholeSystem]:
    with pytest.MonkeyPatch.context() as patch:
        async with running(patch, brokers=3, lease_s=20, definitions=SHARED) as system:
            yield system


async def all_in_sync(system):
    """Wait until each of the three brokers has all there is."""
    async with connections.admin_client(system.settings) as admin, within(WITHIN_S):
        while True:
            topics = await admin.describe_topics()
            copies = {len(one["isr"]) for topic in topics for one in topic["partitions"]}
            if copies == {3}:
                return
            await asyncio.sleep(4 * LOOK_S)


async def started_once(system, load, *, attempts=1):
    """Nothing was lost, or started in more than one attempt.

    Of a commit or an acceptance whose answer died with its broker nobody knows in time what
    came of it: its claims are given up and start nothing, and come back with their leases, as
    attempt 2.
    """
    await system.kept(load, attempts=attempts)
    started = Counter(one.agenda_id for one in system.starts(load.run))
    assert {one for one, times in started.items() if times > 1} == set()


async def test_two_brokers_must_have_what_is_acknowledged(system):
    async with connections.admin_client(system.settings) as admin:
        names = [one for one in await admin.list_topics() if one.startswith("pop.")]
        topics = [
            ConfigResource(ConfigResourceType.TOPIC, one, {"min.insync.replicas": ""})
            for one in names
        ]
        answers = await admin.describe_configs(topics)
    found = {
        (name, entry[1])
        for one in answers
        for *_, name, entries in one.resources
        for entry in entries
    }
    assert found == {(name, "2") for name in names}


@asynccontextmanager
async def without(system, broker):
    """A block in which a broker is killed; others find all three whatever came of it."""
    await system.stack.servers.take_down(broker)
    try:
        yield
    finally:
        await system.stack.servers.bring_back(broker)
        await all_in_sync(system)


@asynccontextmanager
async def resting_reader(settings, topic):
    """A member of a group whose every fetch is held by its broker, with all partitions."""
    async with clients.consumer(settings, topic, client_id="rests", group_id="rests") as reader:
        async with within(WITHIN_S):
            while sum(bool(one._requests) for one in fetched_over(reader)) < 3:
                await reader.getmany(timeout_ms=100)
        yield reader


def fetched_over(reader):
    connections = reader._client._conns.items()
    return [one for (_, group), one in connections if group == fetcher._FETCHES]


async def test_what_a_broker_leads_is_read_on_at_once_when_it_hands_over_and_goes(
    system, monkeypatch
):
    """The others hold fetches that were asked for before, without these partitions."""
    monkeypatch.setattr(fetcher, "fetch_wait_s", lambda _: HELD_S)
    topic = f"{system.settings.topic_prefix}handed-over"
    async with connections.admin_client(system.settings) as admin:
        await admin.create_topics([NewTopic(topic, 6, 3)])
    await all_in_sync(system)
    async with (
        resting_reader(system.settings, topic) as reader,
        connections.publisher(system.settings, client_id="test") as publisher,
    ):
        led = reader._client.cluster.partitions_for_broker(1) & reader.assignment()
        assert led
        await system.stack.servers.take_down("kafka-1", orderly=True)
        records = [Record(topic, b"k", b"%d" % one, one) for _, one in led]
        await publisher.publish(records)
        missing = {one.value for one in records}
        async with within(SOON_S, at_most_s=HELD_S / 2):
            while missing:
                fetched = await reader.getmany(timeout_ms=1_000)
                missing -= {one.value for some in fetched.values() for one in some}
    await system.stack.servers.bring_back("kafka-1")
    await all_in_sync(system)


async def test_of_three_brokers_one_may_be_killed_under_load_and_nothing_is_lost(system):
    async with (
        system.load("brokers") as load,
        system.load("shared", each=1, params={"via": "share"}) as shared,
    ):
        await system.more_started(load.run, 20)
        await system.more_started(shared.run, 4)
        for broker in ("kafka-1", "kafka-2"):  # one after the other, so any may lead anything
            async with without(system, broker):
                await system.more_started(load.run, 60)
                await system.more_started(shared.run, 12)
    await started_once(system, load, attempts=2)
    await started_once(system, shared, attempts=2)


async def test_of_three_brokers_one_may_be_frozen_under_load_and_work_goes_on_meanwhile(system):
    async with system.load("frozen") as load:
        await system.more_started(load.run, 20)
        # Of three of which two were killed it leads most, the group of controllers too.
        frozen = family(system.stack.servers.processes["kafka-3"])
        for one in frozen:
            one.send_signal(signal.SIGSTOP)
        try:
            async with within(WITHOUT_A_WORD_S, at_most_s=KNOWS_OF_NO_SILENCE_S):
                await system.more_started(load.run, 60)
        finally:
            for one in frozen:
                one.send_signal(signal.SIGCONT)
        await all_in_sync(system)
        await system.more_started(load.run, 60)
    await started_once(system, load)
