"""What a puller reads of earlier attempts, and what it does while it cannot."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from msgspec.structs import replace
from puller_fakes import emitted

from pop_stream.puller.execution import prior_results as module
from pop_stream.puller.execution.prior_results import PriorResultsReader
from pop_stream.settings import Settings


@pytest.fixture(autouse=True)
async def bounded():
    async with asyncio.timeout(20):
        yield


@asynccontextmanager
async def prior_results_reader(*answers, token=None):
    """A puller's, and what was asked; the last answer stands."""
    left, asked = [*answers], []

    async def get(request):
        asked.append((request.path, request.headers.get("Authorization")))
        status, body = left.pop(0) if len(left) > 1 else left[0]
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_get("/v1/agendas/{id}/progress", get)
    async with TestServer(app) as server:
        one = PriorResultsReader(Settings(api_url=str(server.make_url("/")), api_token=token))
        try:
            yield one, asked
        finally:
            await one.close()


def progress(attempt, *operations, appended=(), state="running"):
    reported = {"attempt": attempt, "state": state}
    return 200, reported | {"operations": operations, "appended": appended}


DONE = {"name": "fetch", "state": "succeeded", "result": {"size": 12}}
EMPTY = {"name": "check", "state": "succeeded", "result": None}
LEFT = {
    "name": "store",
    "state": "waiting",
    "result": None,
    "prior": {"attempt": 1, "state": "running", "percent": 70},
}
NEW = {"by": "fetch", "at": "2026-01-01T00:00:00Z", "operation": {"name": "m", "type": "work"}}


async def test_results_prior_progress_and_appended_operations_are_read():
    whole = progress(2, DONE, EMPTY, LEFT, appended=[NEW])
    async with prior_results_reader(whole, token="k1") as (one, asked):  # noqa: S106  # no secret
        earlier = await one.read(emitted(attempt=2), pytest.fail)
    assert dict(earlier.succeeded) == {"fetch": b'{"size": 12}', "check": b""}
    assert earlier.unfinished["store"].percent == 70
    assert [operation.name for operation in earlier.appended] == ["m"]
    assert asked == [("/v1/agendas/a1/progress", "Bearer k1")]


async def test_summary_that_is_behind_and_an_api_that_is_away_are_waited_for():
    reported = []
    answers = (503, {}), (401, {}), (200, "nonsense"), progress(1), progress(1), progress(2)
    async with prior_results_reader(*answers) as (one, asked):
        await one.read(emitted(attempt=2), reported.append)
    assert len(asked) == 6
    assert reported[0].endswith("the database is away")
    assert "POP_API_TOKEN" in reported[1]
    assert "cannot be read" in reported[2]
    assert "the summary is at attempt 1" in reported[3]
    assert len(reported) == 4  # what is the same is reported once


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "expired"])
async def test_an_agenda_that_ended_earlier_in_its_run_is_not_waited_for(state):
    """Its summary will never come to this attempt."""
    ended = progress(2, state=state)
    async with prior_results_reader(ended) as (one, _):
        for run_from in (1, 2):
            third = replace(emitted(attempt=3), run_from=run_from)
            assert (await one.read(third, pytest.fail)).final_state == state
            assert (await one.read_if_soon(third)).final_state == state


async def test_the_end_of_an_earlier_run_is_waited_past():
    for run_from in (3, 0):  # of an earlier version's scheduler it is not known
        ended, again = progress(2, state="succeeded"), progress(3, DONE)
        async with prior_results_reader(ended, again) as (one, asked):
            rerun = replace(emitted(attempt=3), run_from=run_from)
            earlier = await one.read(rerun, [].append)
        assert (len(asked), earlier.final_state, set(earlier.succeeded)) == (2, "", {"fetch"})


async def test_glance_waits_for_the_summary_but_not_for_an_api_that_is_away():
    async with prior_results_reader(progress(1), progress(2, DONE)) as (one, _):
        earlier = await one.read_if_soon(emitted(attempt=2))
        assert earlier is not None
        assert set(earlier.succeeded) == {"fetch"}
    async with prior_results_reader((503, {})) as (one, asked):
        assert await one.read_if_soon(emitted(attempt=2)) is None
        assert len(asked) == 1
    nobody = PriorResultsReader(Settings(api_url="http://127.0.0.1:9"))
    assert await nobody.read_if_soon(emitted(attempt=2)) is None
    await nobody.close()


async def test_glance_ends_though_the_summary_stays_behind(monkeypatch):
    monkeypatch.setattr(module, "SHORT_READ_S", 0.3)
    async with prior_results_reader(progress(1)) as (one, _):
        assert await one.read_if_soon(emitted(attempt=2)) is None
