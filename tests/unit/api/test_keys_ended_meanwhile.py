"""Callers whose key ends while a request of theirs goes on."""

from dataclasses import replace
from datetime import timedelta

import pytest
import pytest_asyncio
from aiohttp import ClientTimeout
from api_fakes import QUICK, summary
from api_pulls import WHO, emitted
from attack_world import PULL, READ, open_world
from event_chunks import chunk
from fakes import MemoryDeliveries
from memory_keys import MemoryKeys

from pop_stream.auth.keys import FRESH_FOR, STALE_FOR

A_MOMENT = timedelta(seconds=1)
RESTLESS = replace(QUICK, heartbeat=timedelta(milliseconds=20))


@pytest_asyncio.fixture
async def world():
    async with open_world() as opened:
        yield opened


def revoke(world, customer, role):
    """As another process has it: this one looks it up once what it knows is old."""
    key_id = world.token(customer, role).split("_")[1]
    now = world.clock.now()
    ended = world.keys_stored[key_id].model_copy(update={"revoked_at": now})
    world.keys_stored[key_id] = ended
    world.clock.move(FRESH_FOR + A_MOMENT)


def follow(world, path="/v1/agendas/a-own/events"):
    headers = {"Authorization": f"Bearer {world.token('acme', READ)}"}
    return world.client.get(path, headers=headers, timeout=ClientTimeout(total=20))


@pytest.mark.parametrize("path", ["/v1/agendas/a-own/events", "/v1/links/l-own/events"])
async def test_a_stream_sends_nothing_to_a_key_that_was_revoked_meanwhile(world, path):
    async with follow(world, path) as stream:
        assert "data: " in await chunk(stream)
        revoke(world, "acme", READ)
        changed = {"customer_id": "acme", "link_id": "l-own", "insight_id": "i-own"}
        world.summaries.put(summary("a-own", title="changed since", **changed))
        assert await stream.content.read() == b""


async def test_a_silent_stream_of_a_revoked_key_ends_by_itself():
    async with open_world(timing=RESTLESS) as world, follow(world) as stream:
        await chunk(stream)
        revoke(world, "acme", READ)
        assert b"data: " not in await stream.content.read()


async def test_a_stream_goes_on_while_nobody_can_say_whether_the_key_has_ended():
    keys = MemoryKeys()
    async with open_world(timing=RESTLESS, keys=keys) as world, follow(world) as stream:
        await chunk(stream)
        keys.is_away = True
        world.clock.move(STALE_FOR + A_MOMENT)
        assert await chunk(stream) == ":"
        assert await chunk(stream) == ":"


class PatientDeliveries(MemoryDeliveries):
    """Lets something happen while a caller waits."""

    meanwhile = staticmethod(lambda: None)

    async def poll(self, *wanted, **reply):
        self.meanwhile()
        return await super().poll(*wanted, **reply)


async def test_what_was_waited_for_goes_to_the_next_caller_if_the_key_has_ended():
    deliveries = PatientDeliveries()
    async with open_world(deliveries=deliveries) as world:
        deliveries.by_insight["i-own"] = [emitted(insight_id="i-own")]
        deliveries.meanwhile = lambda: revoke(world, "acme", PULL)
        headers = {"Authorization": f"Bearer {world.token('acme', PULL)}"}
        async with world.client.post(
            "/v1/insights/i-own/pull", json=WHO, headers=headers
        ) as answer:
            assert answer.status == 401
            assert b'"agendas"' not in await answer.read()
        assert [one.agenda_id for one in deliveries.returned] == ["a1"]
        assert world.publisher.records == []
