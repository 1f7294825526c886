"""A client's fetcher asks again, whatever else happens just as it is answered."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import SubscriptionState

from pop_stream.bus.clients import wait_for_consumption
from pop_stream.bus.patience import hold_while_quiet

SOON_S = 1.0
"""Less than until the fetcher looks by the clock."""

PARTITION = TopicPartition("topic", 0)
NOTHING = SimpleNamespace(API_VERSION=4, topics=[])


class Client:
    """Of a cluster of one broker, which answers when it is told to."""

    _metadata_max_age_ms = 30_000

    def __init__(self):
        self._loop = asyncio.get_running_loop()
        self._conns = {}
        self.cluster = SimpleNamespace(leader_for_partition=lambda _: 1)
        self.asked = asyncio.Queue()

    async def send(self, node_id, request, **_):
        answer = self._loop.create_future()
        self.asked.put_nowait(answer)
        return await answer


@asynccontextmanager
async def fetching(client):
    subscription = SubscriptionState()
    fetcher = Fetcher(client, subscription)
    consumer = SimpleNamespace(_fetcher=fetcher, _client=client)
    wait_for_consumption(consumer)
    hold_while_quiet(consumer)
    try:
        subscription.assign_from_user([PARTITION])
        fetcher.seek_to(PARTITION, 0)
        yield fetcher
    finally:
        await fetcher.close()


@pytest.mark.parametrize("steps", range(4))
async def test_broker_is_asked_again_though_the_answer_came_with_another_event(steps):
    """At one of so many steps of the loop, the fetcher wakes before it is free to ask."""
    client = Client()
    async with fetching(client) as fetcher, asyncio.timeout(SOON_S):
        for _ in range(2):
            answer = await client.asked.get()
            fetcher.seek_to(PARTITION, 0)
            for _ in range(steps):
                await asyncio.sleep(0)
            answer.set_result(NOTHING)
        await client.asked.get()
