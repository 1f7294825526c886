"""The whole way of agendas that are pulled over HTTP, with processes of the API killed."""

import asyncio
import signal
from contextlib import AsyncExitStack
from datetime import datetime

import aiohttp
import pytest
from deadlines import within
from http_pull_parts import WITHIN_S, api_process, parts_running
from http_worker import HttpWorker

from pop_stream.policy.lease_token import LeaseClaims, LeaseTokens


@pytest.fixture
async def settings_with_parts(settings, tmp_path):
    async with parts_running(settings, tmp_path) as known:
        yield known


@pytest.mark.parametrize("place", ["api.pulled", "puller.committed"])
async def test_agenda_on_its_way_to_a_caller_comes_back_when_the_process_is_killed(
    settings_with_parts, place
):
    settings = settings_with_parts
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        doomed, doomed_url = await stack.enter_async_context(
            api_process(settings, crash_point=place)
        )
        worker = HttpWorker(session, doomed_url)
        waits = asyncio.create_task(worker.pull(wait_s=50))
        body = {
            "id": "a1",
            "customer_id": "acme",
            "operations": [{"name": "o", "type": "work"}],
        }
        async with session.post(f"{doomed_url}/v1/agendas", json=body) as response:
            assert response.status == 202
        async with within(WITHIN_S):
            with pytest.raises(aiohttp.ClientError):
                await waits
            await doomed.wait()
        assert doomed.returncode == -signal.SIGKILL
        _, url = await stack.enter_async_context(api_process(settings))
        worker = HttpWorker(session, url, "w2")
        async with within(WITHIN_S):
            while not (pulled := await worker.pull(wait_s=10)):
                pass
            (one,) = pulled
            assert (one["agenda_id"], one["attempt"]) == ("a1", 2)
            late = earlier_attempt(one, settings)
            status, problem = await worker.report(late, "complete", outcome="succeeded")
            assert (status, problem["code"]) == (409, "lease_lost")
            done = [{"name": "o", "state": "succeeded", "result": 7}]
            status, _ = await worker.report(
                one, "complete", outcome="succeeded", operations=done
            )
            assert status == 200
            while True:
                async with session.get(f"{url}/v1/agendas/a1") as response:
                    summary = await response.json()
                if summary.get("state") == "succeeded":
                    break
        assert (summary["attempt"], summary["puller_id"]) == (2, "w2")
        assert [past["outcome"] for past in summary["history"]] == ["lost"]


def earlier_attempt(one, settings):
    """As whoever was to get the first attempt would hold it."""
    claims = LeaseClaims(
        one["agenda_id"],
        one["insight_id"],
        1,
        datetime.fromisoformat(one["accepted_at"]),
        one["lease_ms"],
        0,
    )
    token = LeaseTokens(settings.lease_signing_keys).sign(claims)
    return {**one, "attempt": 1, "lease_token": token}


async def test_worker_that_falls_silent_loses_its_lease_and_prior_progress_goes_on(
    settings_with_parts,
):
    settings = settings_with_parts
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        urls = [(await stack.enter_async_context(api_process(settings)))[1] for _ in range(2)]
        first, second = (
            HttpWorker(session, url, f"w{i}") for i, url in enumerate(urls, start=1)
        )
        body = {
            "id": "a1",
            "customer_id": "acme",
            "operations": [
                {"name": "fetch", "type": "work"},
                {"name": "store", "type": "work", "payload": "@<fetch.out>"},
            ],
        }
        async with session.post(f"{urls[0]}/v1/agendas", json=body) as response:
            assert response.status == 202
        async with within(WITHIN_S):
            while not (pulled := await first.pull(wait_s=10)):
                pass
            reports = [
                {"name": "fetch", "state": "succeeded", "result": {"size": 12}},
                {"name": "store", "state": "running", "percent": 70, "message": "on it"},
            ]
            status, _ = await first.report(pulled[0], "progress", operations=reports)
            assert status == 200
            while not (again := await second.pull(wait_s=10)):
                pass
            (one,) = again
            assert one["attempt"] == 2
            known = {
                operation["name"]: operation for operation in one["progress"]["operations"]
            }
            assert known["fetch"]["result"] == {"size": 12}
            assert known["store"]["prior"]["percent"] == 70
            while (await first.report(pulled[0], "heartbeat"))[0] != 409:
                pass
            status, _ = await second.report(one, "complete", outcome="succeeded")
            assert status == 200
