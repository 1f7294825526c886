"""An agenda is stopped while it runs, and removed; its id is used anew, and that one runs."""

import asyncio

import pytest
import pytest_asyncio
from aiohttp import ClientSession
from ledger_world import agenda, running_ledger_world
from parts_in_process import all_but_pullers
from puller_world import serving

from pop_stream.clock import WallClock
from pop_stream.model.definitions import Insight, Mappers
from pop_stream.model.events.lifecycle import AgendaHeartbeat, AgendaProgressed, AgendaStopped
from pop_stream.policy.lifecycle.retention import Retention
from pop_stream.policy.lifecycle.states import TERMINAL, State
from pop_stream.postgres.agendas import PostgresRetention
from pop_stream.puller import Puller
from pop_stream.rollup.retention import remove_expired

PATIENCE_S = 60
MEDIA = Insight(id="media", mappers=Mappers(operation_types=("noop",)), partitions=1)


@pytest_asyncio.fixture
async def world(settings, tmp_path):
    async with running_ledger_world(settings, tmp_path, MEDIA) as world:
        yield world


async def by_deletion(world, session):
    while (await session.delete("/v1/agendas/one")).status >= 400:  # noqa: ASYNC110
        await asyncio.sleep(0.1)


async def by_retention(world, _):
    now = WallClock().now()
    await remove_expired(PostgresRetention(world.pool), Retention(*[now - now] * 4), now)


async def until_gone(world):
    while await world.ledger.states(["one"]):  # noqa: ASYNC110  # the rollup tells
        await asyncio.sleep(0.05)


def late_events(at):
    """What the puller that was stopped may still tell of its attempt."""
    facts = {"agenda_id": "one", "at": at, "insight_id": "media", "attempt": 1}
    return [
        AgendaHeartbeat(**facts, puller_id="gone", lease_ms=60_000),
        AgendaProgressed(**facts, operations=()),
        AgendaStopped(**facts),
    ]


async def over_kafka(world, _):
    await world.submit("one")


async def over_http(_, session):
    """The very same, to the process that accepted it before."""
    assert (await session.post("/v1/agendas", json=[agenda("one")])).status == 202


@pytest.mark.parametrize("anew", [over_kafka, over_http])
@pytest.mark.parametrize("remove", [by_deletion, by_retention])
async def test_an_id_of_a_stopped_agenda_that_is_used_anew_runs_and_succeeds(
    world, remove, anew
):
    begun, free, runs = asyncio.Queue(), asyncio.Event(), []
    puller = Puller("media", settings=world.settings)

    @puller.handler("noop")
    async def noop(call):
        runs.append(call.attempt)
        begun.put_nowait(call.agenda_id)
        await free.wait()

    async with (
        all_but_pullers(world.settings, within_s=PATIENCE_S) as url,
        ClientSession(url) as session,
        serving(puller),
    ):
        assert (await session.post("/v1/agendas", json=[agenda("one")])).status == 202
        await begun.get()
        await world.until_known("one", states={State.RUNNING})
        at = WallClock().now()
        assert (await session.post("/v1/agendas/one/cancel", json={})).status == 202
        await world.until_known("one", states=TERMINAL)
        entry = (await world.ledger.states(["one"]))["one"]
        assert entry.state is State.CANCELLED
        await remove(world, session)
        await until_gone(world)
        await anew(world, session)
        await begun.get()
        free.set()
        await world.until_known("one", states=TERMINAL)
        await world.tell(*late_events(at))
        assert (await session.post("/v1/agendas", json=[agenda("then")])).status == 202
        await world.until_known("then", states=TERMINAL)
        entries = await world.ledger.states(["one", "then"])
    assert {one.state for one in entries.values()} == {State.SUCCEEDED}
    assert runs == [1, 1, 1]
