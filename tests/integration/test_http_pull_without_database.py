"""Workers over HTTP while Postgres is away, and who handed their agendas out was killed."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
from deadlines import within
from http_pull_parts import WITHIN_S, api_process, parts_running
from http_worker import HttpWorker
from pydantic import SecretStr
from tcp_proxy import TcpProxy


@pytest.fixture
async def gate(settings):
    """Between all parts and Postgres."""
    async with TcpProxy(settings.postgres_dsn.get_secret_value()).listening() as gate:
        yield gate


@pytest.fixture
async def parts(gate, settings, tmp_path):
    settings = settings.model_copy(update={"postgres_dsn": SecretStr(gate.dsn)})
    async with parts_running(settings, tmp_path) as known, aiohttp.ClientSession() as session:
        yield known, session


async def test_a_new_process_without_the_database_ends_no_lease_but_of_who_is_silent(
    gate, parts
):
    """It has not seen the attempt being handed out; the worker's token says all it needs."""
    settings, session = parts
    async with AsyncExitStack() as stack:
        doomed, url = await stack.enter_async_context(api_process(settings))
        for name in ("held", "silent"):
            await submit(session, url, name)
        held = await pulled_both(HttpWorker(session, url))
        doomed.kill()
        await doomed.wait()
        gate.close()
        _, url = await stack.enter_async_context(api_process(settings))
        worker = HttpWorker(session, url)
        async with within(WITHIN_S):
            async with staying_alive(worker, held) as answers:
                again = await pulled_up_to(HttpWorker(session, url, "w2"), attempt=3)
            assert set(again) == {"silent"}
            assert {*answers} == {200}
            status, _ = await worker.report(held, "complete", outcome="succeeded")
            assert status == 200
            gate.open()
            summary = await settled(session, url, "held")
    assert (summary["state"], summary["attempt"], summary["history"]) == ("succeeded", 1, [])


async def submit(session, url, name):
    operations = [{"name": "o", "type": "work"}]
    body = {"id": name, "customer_id": "acme", "operations": operations}
    async with session.post(f"{url}/v1/agendas", json=body) as response:
        assert response.status == 202


async def pulled_both(worker):
    """The attempt that is held from here on, of the two that were pulled."""
    pulled = {}
    async with within(WITHIN_S):
        while set(pulled) != {"held", "silent"}:
            pulled |= {one["agenda_id"]: one for one in await worker.pull(wait_s=1)}
            for one in pulled.values():
                await worker.report(one, "heartbeat")
    assert {one["attempt"] for one in pulled.values()} == {1}
    return pulled["held"]


async def pulled_up_to(worker, *, attempt):
    """Ids of what is pulled until one is pulled in this attempt; none is kept alive."""
    names = []
    while True:
        for one in await worker.pull(wait_s=10):
            names.append(one["agenda_id"])
            if one["attempt"] >= attempt:
                return names


@asynccontextmanager
async def staying_alive(worker, one):
    """Heartbeats during the block, and all answers to them."""
    answers = []

    async def beat():
        while True:
            answers.append((await worker.report(one, "heartbeat"))[0])
            await asyncio.sleep(0.3)

    beating = asyncio.create_task(beat())
    try:
        yield answers
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)


async def settled(session, url, name):
    """The summary, once the agenda has ended."""
    while True:
        async with session.get(f"{url}/v1/agendas/{name}") as response:
            summary = await response.json()
        if summary.get("state") in ("succeeded", "failed"):
            return summary
