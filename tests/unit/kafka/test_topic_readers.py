"""What is followed for as long as a part runs is followed on after an error of the client's."""

import asyncio

import pytest
from aiokafka.errors import KafkaError
from consumer_records import record
from deadlines import within
from real_api import IdleScheduler

from pop_stream.kafka import clients
from pop_stream.kafka.definitions import DefinitionFollower
from pop_stream.kafka.queries import KafkaQueueQueries
from pop_stream.model.definitions import Customer, definition_key, encode_definition
from pop_stream.model.events.codec import encode
from pop_stream.settings import Settings


class Consumer:
    """Of a client that fails once, and then has one record."""

    def __init__(self, value, key=None):
        self._results = [KafkaError("disturbed"), [record(value, key=key)]]

    async def getmany(self, timeout_ms):
        if not self._results:
            await asyncio.Event().wait()
        result = self._results.pop(0)
        if isinstance(result, Exception):
            raise result
        return {0: result}


@pytest.fixture
def reading(monkeypatch):
    """Has clients made that read so."""
    monkeypatch.setattr(clients, "_RETRY_AFTER_S", 0)

    def reads(value, key=None):
        monkeypatch.setattr(clients, "consumer", lambda *_, **__: Consumer(value, key))

    return reads


async def test_definitions_are_followed_on(reading):
    acme = Customer(id="acme", weight=3)
    reading(encode_definition(acme), definition_key(acme).encode())
    follower = DefinitionFollower(Settings(), client_id="test")
    following = asyncio.create_task(follower._follow())
    try:
        async with within(5):
            while follower.current.customer("acme").weight != 3:  # noqa: ASYNC110  # no event
                await asyncio.sleep(0)
    finally:
        following.cancel()


async def test_query_replies_are_followed_on(reading):
    reading(encode(await IdleScheduler().ask("web")))
    asking = KafkaQueueQueries(Settings(), None, None)
    answered = asyncio.get_running_loop().create_future()
    asking._pending["q"] = answered
    listening = asyncio.create_task(asking._read())
    try:
        async with within(5):
            assert (await answered).insight_id == "web"
    finally:
        listening.cancel()
