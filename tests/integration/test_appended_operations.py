"""Operations that an agenda was given while it ran, whatever becomes of its puller."""

import asyncio
import signal
from collections import Counter

import pytest
import pytest_asyncio
from aiohttp import ClientSession
from deadlines import scaled, within
from ledger_world import running_ledger_world
from part_processes import process
from parts_in_process import all_but_pullers

from pop_stream.model.definitions import Insight, Mappers
from pop_stream.policy.lifecycle.states import State

PATIENCE_S = 60
PULLER = """
import asyncio
from pathlib import Path
from pop_stream.puller import Puller

ran = Path({ran!r})
puller = Puller("media")

def note(call):
    with ran.open("a") as file:
        file.write(call.name + "\\n")

@puller.handler("grow")
async def grow(call):
    note(call)
    last = {{"name": "last", "type": "last", "payload": "@<first.out::/made>"}}
    await call.append([{{"name": "first", "type": "first"}}, last])

@puller.handler("first")
async def first(call):
    note(call)
    return {{"made": call.attempt}}

@puller.handler("last")
async def last(call):
    note(call)
    if call.attempt == 1:
        await asyncio.Event().wait()  # until it is killed
    return call.payload

puller.run()
"""
AGENDA = {"id": "one", "customer_id": "anna", "operations": [{"name": "grow", "type": "grow"}]}


@pytest_asyncio.fixture
async def world(settings, tmp_path):
    lease_ms = int(scaled(3.0) * 1000)
    insight = Insight(
        id="media", mappers=Mappers(operation_types=("grow",)), partitions=1, lease_ms=lease_ms
    )
    async with running_ledger_world(settings, tmp_path, insight) as world:
        yield world


async def operations_of(session):
    answer = await session.get("/v1/agendas/one/progress")
    if answer.status == 404:
        return {}
    return {one["name"]: one for one in (await answer.json())["operations"]}


async def until_state(session, name, state):
    while (await operations_of(session)).get(name, {}).get("state") != state:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


@pytest.mark.timeout(240)
async def test_a_killed_puller_s_appended_operations_go_on_where_they_were(world, tmp_path):
    ran = tmp_path / "ran"
    program = PULLER.format(ran=str(ran))
    async with (
        all_but_pullers(world.settings, within_s=4 * PATIENCE_S) as url,
        ClientSession(url) as session,
    ):
        assert (await session.post("/v1/agendas", json=[AGENDA])).status == 202
        async with (
            process("puller", world.settings, program, POP_API_URL=url) as killed,
            within(PATIENCE_S),
        ):
            await until_state(session, "first", "succeeded")
            await until_state(session, "last", "running")
            killed.send_signal(signal.SIGKILL)
            await killed.wait()
        async with process("puller", world.settings, program, POP_API_URL=url):
            await world.until_known("one", states={State.SUCCEEDED})
            operations = await operations_of(session)
            assert Counter(ran.read_text().split()) == {"grow": 1, "first": 1, "last": 2}
            assert {name: one["result"] for name, one in operations.items()} == {
                "grow": None,
                "first": {"made": 1},
                "last": 1,
            }
            rerun = {"operations": ["last"]}
            answer = await session.post("/v1/agendas/one/rerun", json=rerun)
            assert answer.status == 202, await answer.text()
            async with within(PATIENCE_S):
                while Counter(ran.read_text().split())["last"] < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await world.until_known("one", states={State.SUCCEEDED})
    assert Counter(ran.read_text().split()) == {"grow": 1, "first": 1, "last": 3}
