"""Workers over HTTP learn that their attempt is over, and why, whoever has ended it."""

from contextlib import AsyncExitStack

import aiohttp
import pytest
from deadlines import within
from http_pull_parts import WITHIN_S, api_process, parts_running
from http_worker import HttpWorker

NAMES = ("done", "failed", "cancelled", "again")


class Caller:
    """A worker that is not the only one, and a person, at one process of the API."""

    def __init__(self, session, url):
        self._session = session
        self._url = url
        self.worker = HttpWorker(session, url)
        self.other = HttpWorker(session, url, "w2")

    async def post(self, path, **body):
        async with self._session.post(f"{self._url}/v1/{path}", json=body) as response:
            assert response.status == 202, await response.text()

    async def state(self, name):
        async with self._session.get(f"{self._url}/v1/agendas/{name}") as response:
            found = await response.json()
        return found.get("state"), found.get("attempt")

    async def until(self, name, state, attempt=1):
        while await self.state(name) != (state, attempt):
            pass

    async def refused(self, one):
        """The problem that a renewal is answered with at last."""
        while (answer := await self.worker.report(one, "heartbeat"))[0] == 200:
            pass
        assert answer[0] == 409
        return answer[1]


@pytest.fixture
async def settings_with_parts(settings, tmp_path):
    async with parts_running(settings, tmp_path) as known:
        yield known


async def pulled(worker):
    """Attempts of all, which no worker ends by its silence."""
    held = {}
    while set(held) != set(NAMES):
        held |= {one["agenda_id"]: one for one in await worker.pull(count=4, wait_s=1)}
        for one in held.values():
            await worker.report(one, "heartbeat")
    assert {one["attempt"] for one in held.values()} == {1}
    return held


async def end_all(caller, held):
    """By another worker with the same attempts, as after an answer that both have got."""
    for name, end in (
        ("done", {"outcome": "succeeded"}),
        ("failed", {"outcome": "failed", "message": "no", "retryable": False}),
        ("again", {"outcome": "succeeded"}),
    ):
        assert (await caller.other.report(held[name], "complete", **end))[0] == 200
    await caller.post("agendas/cancelled/cancel")
    while (await caller.other.report(held["cancelled"], "heartbeat"))[1]["stop"] is None:
        pass
    await caller.other.report(held["cancelled"], "complete", outcome="stopped")
    await caller.until("again", "succeeded")
    await caller.post("agendas/again/rerun")
    for name, state in (("done", "succeeded"), ("failed", "failed")):
        await caller.until(name, state)
    await caller.until("cancelled", "cancelled")


@pytest.mark.parametrize("is_restarted", [False, True], ids=["same-process", "new-process"])
async def test_a_heartbeat_is_answered_with_the_end_of_its_attempt_by_others(
    settings_with_parts, is_restarted
):
    async with AsyncExitStack() as stack, within(WITHIN_S):
        session = await stack.enter_async_context(aiohttp.ClientSession())
        process, url = await stack.enter_async_context(api_process(settings_with_parts))
        caller = Caller(session, url)
        for name in NAMES:
            operations = [{"name": "o", "type": "work"}]
            await caller.post("agendas", id=name, customer_id="acme", operations=operations)
        held = await pulled(caller.worker)
        await end_all(caller, held)
        if is_restarted:
            process.kill()
            await process.wait()
            _, url = await stack.enter_async_context(api_process(settings_with_parts))
            caller = Caller(session, url)
        while (await caller.state("again"))[1] != 2:
            pass
        reported = {name: await caller.refused(held[name]) for name in NAMES}
        assert {one["code"] for one in reported.values()} == {"lease_lost"}
        assert {name: (one["reason"], one.get("state")) for name, one in reported.items()} == {
            "done": ("ended", "succeeded"),
            "failed": ("ended", "failed"),
            "cancelled": ("ended", "cancelled"),
            "again": ("followed", None),
        }
        for one in held.values():
            status, problem = await caller.worker.report(one, "complete", outcome="succeeded")
            assert (status, problem["code"]) == (409, "lease_lost")
        states = {name: await caller.state(name) for name in ("done", "failed", "cancelled")}
    assert states == {
        "done": ("succeeded", 1),
        "failed": ("failed", 1),
        "cancelled": ("cancelled", 1),
    }
