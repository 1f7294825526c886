"""What a puller reads of earlier attempts, and what it does while it cannot."""

from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from deadlines import within
from msgspec.structs import replace
from puller_fakes import emitted

from pop_stream.policy.lifecycle.summary import appended_name
from pop_stream.puller.execution.prior_results import PriorResultsReader
from pop_stream.settings import Settings


@pytest.fixture(autouse=True)
async def bounded():
    async with within(20):
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
    assert [appended_name(operation) for operation in earlier.appended] == ["m"]
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


async def test_the_end_of_an_earlier_run_is_waited_past():
    for run_from in (3, 0):  # of an earlier version's scheduler it is not known
        ended, again = progress(2, state="succeeded"), progress(3, DONE)
        async with prior_results_reader(ended, again) as (one, asked):
            rerun = replace(emitted(attempt=3), run_from=run_from)
            earlier = await one.read(rerun, [].append)
        assert (len(asked), earlier.final_state, set(earlier.succeeded)) == (2, "", {"fetch"})
