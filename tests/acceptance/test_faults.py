"""One thing after another is taken away from a whole system under load, and given back."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
import pytest_asyncio
from whole_system import LEASE_S, SESSION_S, System, agenda, family, running

from pop_stream.cli.chaos.handlers import WORK

pytestmark = pytest.mark.timeout(200)

RESUMES_S = 5.0
"""Beyond the end of a dead member's session: the group settles, and the table is read."""


@pytest_asyncio.fixture(scope="module")
async def system() -> AsyncIterator[System]:
    with pytest.MonkeyPatch.context() as patch:
        async with running(patch, copies={"scheduler": 2}) as system:
            yield system


class Postgres:
    """The server, taken away in one of two ways: nobody listens, or nobody answers."""

    def __init__(self, system, how):
        self._servers = system.stack.servers
        self._how = how
        self._frozen = []

    async def __aenter__(self):
        if self._how == "stopped":
            await self._servers.take_down("postgres", orderly=True)
            return
        self._frozen = family(self._servers.processes["postgres"])
        for one in self._frozen:
            one.send_signal(signal.SIGSTOP)

    async def __aexit__(self, *_):
        for one in reversed(self._frozen):
            one.send_signal(signal.SIGCONT)
        if self._how == "stopped":
            await self._servers.bring_back("postgres")


async def reads_are_503(system, agenda_id):
    one = f"/v1/agendas/{agenda_id}"
    for answer in await asyncio.gather(
        *map(system.get, (one, f"{one}/progress", "/v1/agendas"))
    ):
        status, headers, problem = answer
        assert (status, problem["code"]) == (503, "unavailable")
        assert int(headers["Retry-After"]) > 0


@pytest.mark.parametrize("how", ["stopped", "frozen"])
async def test_without_postgres_all_but_reads_goes_on_and_summaries_catch_up_once(system, how):
    url = "http://127.0.0.1:9/is-never-called"
    async with system.load(f"pg-{how}", callback_url=url) as load:
        await system.more_started(load.run, 10)
        async with Postgres(system, how):
            # Submitted, scheduled, pulled and run, all of it after Postgres was gone.
            await system.more_started(load.run, 80)
            await reads_are_503(system, next(iter(load.acknowledged)))
            await system.more_started(load.run, 80)
    await system.kept(load)
    owed = await system.fetch(
        "select agenda_id, count(*) as times from callbacks "
        "where starts_with(agenda_id, $1) group by agenda_id",
        load.run,
    )
    assert {one["agenda_id"]: one["times"] for one in owed} == dict.fromkeys(
        load.acknowledged, 1
    )


async def test_a_puller_frozen_past_its_lease_is_replaced_and_what_it_says_is_fenced(system):
    ids = [f"frozen-{number}" for number in range(8)]
    operation = {"name": "only", "type": WORK, "payload": LEASE_S + 3}
    await system.submit(*(agenda(one, operations=[operation]) for one in ids))
    await system.until(lambda: len(system.starts("frozen-")) == len(ids))
    pid = system.send("puller-1", signal.SIGSTOP)
    try:
        taken = {one.agenda_id for one in system.starts("frozen-") if one.pid == pid}
        assert taken
        await system.until(lambda: taken <= begun(system, "frozen-", attempt=2).keys())
        before = await system.events("frozen-")
    finally:
        system.send("puller-1", signal.SIGCONT)
    rows = await system.ended("frozen-", ids)
    late = [one for one in await system.events("frozen-") if one not in before]
    assert [one for one in late if one.get("attempt") == 1 and one["agenda_id"] in taken]
    for one in ids:
        row, attempts = rows[one], 2 if one in taken else 1
        assert (row["state"], row["attempt"]) == ("succeeded", attempts)
        assert len(json.loads(row["history"] or b"[]")) == attempts - 1
        assert f".{begun(system, one, attempt=attempts)[one]}." in row["puller_id"]
    starts = [(one.agenda_id, one.attempt) for one in system.starts("frozen-")]
    assert len(starts) == len(set(starts)) == len(ids) + len(taken)


def begun(system, run, *, attempt):
    """The process that started this attempt, by agenda."""
    return {one.agenda_id: one.pid for one in system.starts(run) if one.attempt == attempt}


async def test_schedulers_come_and_go_while_saturated_without_loss_or_long_stall(system):
    async with system.load("rebalance") as load:
        await system.more_started(load.run, 10)
        for how in (signal.SIGTERM, signal.SIGKILL):
            for part in ("scheduler-2", "scheduler"):
                system.send(part, how)  # and it is started again at once
                await system.more_started(load.run, 60)
        began = system.starts(load.run)
    await system.kept(load)
    assert max(b.at - a.at for a, b in pairwise(began)) < SESSION_S + RESUMES_S
