"""A client's fetcher asks again, whatever else happens just as it is answered."""

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.cluster import ClusterMetadata
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import KafkaConnectionError, NotLeaderForPartitionError
from aiokafka.protocol.fetch import FetchRequest
from deadlines import within
from fakes import ManualClock

from pop_stream.kafka.hardening.fetcher import harden_fetcher, use_adaptive_fetch_wait

SOON_S = 1.0
"""Less than the idle timeout of the fetcher."""

BROKERS = (1, 2)
ONE, OTHER = TopicPartition("topic", 0), TopicPartition("topic", 1)
NOTHING = SimpleNamespace(API_VERSION=4, topics=[])


class Connection:
    def __init__(self):
        self._requests = deque()

    def close(self):
        for _, _, answer in self._requests:
            answer.set_exception(KafkaConnectionError())


@dataclass
class Asked:
    """What a broker was asked for, and its answer, which is to come."""

    node_id: int
    partitions: set[int]
    answer: Any
    request: FetchRequest


class Client:
    """Of a cluster whose brokers answer when the test says so."""

    _metadata_max_age_ms = 30_000
    _md_update_fut = None

    def __init__(self):
        self._loop = asyncio.get_running_loop()
        self._conns = {}
        self.cluster = ClusterMetadata()
        self.lead({ONE: 1, OTHER: 2})
        self.asked = asyncio.Queue()
        self.metadata_requests = asyncio.Queue()
        self.connecting = asyncio.Queue()
        self.connected = asyncio.Event()
        self.connected.set()

    def lead(self, leaders):
        """Have these brokers lead these partitions, and the client know it."""
        led = [(0, tp.partition, leader, [], []) for tp, leader in leaders.items()]
        brokers = [(one, "host", one, None) for one in BROKERS]
        topics = [(0, "topic", False, led)]
        metadata = SimpleNamespace(
            API_VERSION=1, brokers=brokers, controller_id=1, topics=topics
        )
        self.cluster.update_metadata(metadata)

    def force_metadata_update(self):
        """Answered at once, and as before, unless an update is under way."""
        self.metadata_requests.put_nowait(None)
        if self._md_update_fut is not None:
            return asyncio.shield(self._md_update_fut)
        answer = self._loop.create_future()
        answer.set_result(True)
        return answer

    async def ready(self, node_id, *, group):
        self.connecting.put_nowait(node_id)
        await self.connected.wait()
        self._conns.setdefault((node_id, group), Connection())
        return True

    async def send(self, node_id, request, *, group):
        connection = self._conns[node_id, group]
        partitions = {number for _, found in request.topics for number, *_ in found}
        answer = self._loop.create_future()
        pending = (0, request, answer)
        connection._requests.append(pending)
        self.asked.put_nowait(Asked(node_id, partitions, answer, request))
        try:
            return await answer
        finally:
            connection._requests.remove(pending)


@asynccontextmanager
async def fetching(client, *partitions, now=monotonic):
    subscription = SubscriptionState()
    fetcher = Fetcher(client, subscription)
    consumer = SimpleNamespace(_fetcher=fetcher, _client=client)
    harden_fetcher(consumer)
    use_adaptive_fetch_wait(consumer, now=now)
    try:
        subscription.assign_from_user(partitions)
        for one in partitions:
            fetcher.seek_to(one, 0)
        yield fetcher
    finally:
        await fetcher.close()


@pytest.mark.parametrize("steps", range(4))
async def test_broker_is_asked_again_though_the_answer_came_with_another_event(steps):
    """At one of so many steps of the loop, the fetcher wakes before it is free to ask."""
    client = Client()
    async with fetching(client, ONE) as fetcher, within(SOON_S):
        for _ in range(2):
            asked = await client.asked.get()
            fetcher.seek_to(ONE, 0)
            for _ in range(steps):
                await asyncio.sleep(0)
            asked.answer.set_result(NOTHING)
        await client.asked.get()


async def held(client):
    """The fetches that both brokers hold, by broker."""
    both = [await client.asked.get() for _ in BROKERS]
    return {one.node_id: one for one in both}


async def test_a_broker_that_holds_a_fetch_is_asked_at_once_for_a_partition_it_has_won():
    client = Client()
    async with fetching(client, ONE, OTHER), within(SOON_S):
        fetches = await held(client)
        client.lead({ONE: 1, OTHER: 1})
        asked = await client.asked.get()
        assert (asked.node_id, asked.partitions) == (1, {0, 1})
        assert not fetches[2].answer.done(), "who leads less than before may hold its fetch"


async def test_a_broker_that_wins_a_partition_while_it_is_connected_to_is_asked_for_all():
    client = Client()
    client.connected.clear()
    async with fetching(client, ONE, OTHER), within(SOON_S):
        for _ in BROKERS:
            await client.connecting.get()
        client.lead({ONE: 1, OTHER: 1})
        client.connected.set()
        asked = [await client.asked.get() for _ in BROKERS]
        assert (1, {0, 1}) in [(one.node_id, one.partitions) for one in asked]


@pytest.mark.parametrize(
    "leaders",
    [
        pytest.param({ONE: 1, OTHER: 2}, id="nothing changes"),
        pytest.param({ONE: 1, OTHER: -1}, id="a leader is gone"),
        pytest.param({}, id="nothing is known"),
    ],
)
async def test_fetches_are_held_on_where_no_broker_has_won_a_partition(leaders):
    client = Client()
    async with fetching(client, ONE, OTHER), within(SOON_S):
        fetches = await held(client)
        client.lead(leaders)
        client.lead({ONE: 1, OTHER: 2})
        assert not any(one.answer.done() for one in fetches.values())


async def test_metadata_of_a_partition_without_leader_is_asked_for_again_after_a_moment():
    """Left to itself, the client would ask as soon as it is answered."""
    client, clock = Client(), ManualClock()
    client.lead({ONE: 1, OTHER: -1})
    async with (
        fetching(client, ONE, OTHER, now=lambda: clock.now().timestamp()) as fetcher,
        within(SOON_S),
    ):
        for _ in range(2):
            await client.metadata_requests.get()
            for _ in range(3):
                fetcher.seek_to(OTHER, 0)  # has the fetcher look again
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            assert client.metadata_requests.empty()
            clock.move(timedelta(seconds=1))


async def test_fetches_are_of_a_version_that_followers_do_not_answer():
    """They do from version 11 on, and say nothing of their being leaders no more."""
    client = Client()
    async with fetching(client, ONE), within(SOON_S):
        asked = await client.asked.get()
        sent = asked.request.prepare({FetchRequest.API_KEY: (4, 17)})
        assert sent.API_VERSION == 10
        sent = asked.request.prepare({FetchRequest.API_KEY: (4, 9)})
        assert sent.API_VERSION == 9


async def test_after_a_refusal_the_next_fetch_waits_for_the_new_leader():
    client = Client()
    async with fetching(client, ONE), within(SOON_S):
        asked = await client.asked.get()
        known = client._md_update_fut = asyncio.get_running_loop().create_future()
        refused = (ONE.partition, NotLeaderForPartitionError.errno, -1, -1, [], b"")
        asked.answer.set_result(SimpleNamespace(API_VERSION=4, topics=[("topic", [refused])]))
        for _ in range(2):  # the client itself wants to know, and then it is waited for
            await client.metadata_requests.get()
        assert client.asked.empty()
        client.lead({ONE: 2, OTHER: 2})
        client._md_update_fut = None
        known.set_result(True)
        assert (await client.asked.get()).node_id == 2
