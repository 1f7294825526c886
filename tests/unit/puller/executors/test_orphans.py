"""Runs that nobody will go on with are ended, and old ones deleted."""

from datetime import timedelta

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from fakes import ManualClock
from memory_executor import CREATED_AT, MemoryExecutor

from pop_stream.puller.executors import orphans
from pop_stream.puller.executors.orphans import ApiAgendaStates, OrphanCollector
from pop_stream.puller.executors.port import RunIdentity
from pop_stream.settings import Settings


class Agendas:
    def __init__(self, *over):
        self.over = set(over)
        self.asked = []

    async def is_over(self, agenda_id):
        self.asked.append(agenda_id)
        return agenda_id in self.over


@pytest.fixture
def executor():
    return MemoryExecutor()


@pytest.fixture
def clock():
    return ManualClock(CREATED_AT + timedelta(minutes=5))


async def submitted(executor, agenda_id, attempt=1):
    identity = RunIdentity(agenda_id, "render", attempt)
    await executor.submit(identity, executor.read({"does": "by_hand"}))
    return executor.name(identity)


def collector(executor, agendas, clock, watched=()):
    return OrphanCollector(executor, agendas, lambda: watched, clock=clock)


async def test_a_run_whose_agenda_is_over_is_ended(executor, clock):
    over, goes_on = [await submitted(executor, one) for one in ("over", "goes on")]
    assert await collector(executor, Agendas("over"), clock).collect() == [over]
    assert executor.cancelled == [over]
    assert executor.runs[goes_on].status.state == "pending"


async def test_a_run_that_this_process_watches_is_its_handlers_business(executor, clock):
    name, agendas = await submitted(executor, "over"), Agendas("over")
    assert await collector(executor, agendas, clock, [name]).collect() == []
    assert agendas.asked == []


async def test_the_older_one_of_two_active_runs_of_an_operation_is_ended(executor, clock):
    older, newer = [await submitted(executor, "a1", one) for one in (1, 2)]
    assert await collector(executor, Agendas(), clock).collect() == [older]
    assert executor.runs[newer].status.state == "pending"


async def test_a_young_run_is_left_alone(executor):
    await submitted(executor, "over")
    young = ManualClock(CREATED_AT + timedelta(seconds=30))
    assert await collector(executor, Agendas("over"), young).collect() == []


async def test_a_run_that_ended_long_ago_is_deleted(executor, clock):
    name = await submitted(executor, "a1")
    executor.end(name)
    assert await collector(executor, Agendas(), clock).collect() == []
    clock.move(timedelta(hours=25))
    assert await collector(executor, Agendas(), clock).collect() == [name]
    assert executor.runs == {}


async def test_of_many_runs_every_one_is_asked_about_in_turn(executor, clock, monkeypatch):
    monkeypatch.setattr(orphans, "LOOKED_UP", 3)
    for one in range(7):
        await submitted(executor, f"a{one}")
    agendas = Agendas()
    looks = collector(executor, agendas, clock)
    for _ in range(3):
        await looks.collect()
    assert {*agendas.asked} == {f"a{one}" for one in range(7)}
    assert len(agendas.asked) == 9


@pytest.mark.parametrize(
    ("status", "state", "is_over"),
    [
        (200, "cancelled", True),
        (200, "succeeded", True),
        (200, "running", False),
        (404, "cancelled", False),
        (503, "cancelled", False),
    ],
)
async def test_an_agenda_is_over_once_the_api_says_so(status, state, is_over):
    async def progress(request):
        assert request.headers["Authorization"] == "Bearer key"
        return web.json_response({"state": state}, status=status)

    app = web.Application()
    app.router.add_get("/v1/agendas/a1/progress", progress)
    async with TestServer(app) as server:
        url, key = str(server.make_url("")), "key"
        agendas = ApiAgendaStates(Settings(api_url=url, api_token=key))
        assert await agendas.is_over("a1") is is_over
        await agendas.close()


async def test_while_the_api_is_away_nothing_is_over():
    url = "http://127.0.0.1:1"
    agendas = ApiAgendaStates(Settings(api_url=url))
    assert await agendas.is_over("a1") is False
    await agendas.close()
