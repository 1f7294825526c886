"""Operations that wait give their runner back, and go on where they were."""

from collections import Counter

import pytest
import pytest_asyncio
from http_worker import HttpWorker
from one_process import one_process

from pop_stream.model.definitions import Insight, Mappers
from pop_stream.puller import Handlers, NotYet

MEDIA = Insight(
    id="media", mappers=Mappers(operation_types=("fetch", "prepare")), max_attempts=1
)


class Files:
    """A source of files, some of which are there."""

    def __init__(self):
        self.there = set()
        self.calls = Counter()

    def handlers(self):
        handlers = Handlers()

        @handlers.handler("prepare")
        async def prepare(operation):
            self.calls["prepare"] += 1
            return {"folder": "inbox"}

        @handlers.handler("fetch")
        async def fetch(operation):
            self.calls["fetch"] += 1
            name = operation.payload["file"]
            if name not in self.there:
                raise NotYet(1, f"{name} is not there")
            return {"size": 12}

        return handlers


@pytest.fixture
def files():
    return Files()


@pytest_asyncio.fixture
async def system(settings, tmp_path, files):
    async with one_process(
        settings, tmp_path, [MEDIA], files.handlers(), concurrency=1
    ) as opened:
        yield opened


def fetch(file, **more):
    return {"name": "fetch", "type": "fetch", "payload": {"file": file}, **more}


async def test_a_check_that_fails_for_now_is_made_again_and_nothing_else_is(system, files):
    prepare = {"name": "prepare", "type": "prepare"}
    last = {"name": "last", "type": "prepare", "depends_on": ["fetch"]}
    await system.submit("a1", prepare, fetch("data.csv", depends_on=["prepare"]), last)
    waiting = await system.until(
        "/v1/agendas/a1",
        lambda one: (one["state"], one["waiting_for"]) == ("waiting", "not_yet"),
    )
    assert "data.csv is not there" in waiting["message"]
    why = await system.until("/v1/agendas/a1/why", lambda one: "looks again" in one["why"])
    assert "data.csv is not there" in why["why"]
    # The only runner is free meanwhile.
    await system.submit("a2", {"name": "only", "type": "prepare"})
    await system.state("a2", "succeeded")
    operation = (await system.operations("a1"))["fetch"]
    assert operation["state"] in {"waiting", "running"}
    assert operation["wait"]["kind"] == "check"
    files.there.add("data.csv")
    ended = await system.state("a1", "succeeded", "failed")
    assert ended["state"] == "succeeded"
    assert ended["attempt"] >= 2
    assert [one["outcome"] for one in ended["history"]] == ["deferred"]
    assert files.calls["prepare"] == 3, "once for each operation of that type"
    assert files.calls["fetch"] >= 2


async def test_a_wait_that_takes_too_long_fails_and_says_so(system):
    await system.submit("a1", fetch("never.csv", wait_within_s=2))
    ended = await system.state("a1", "failed", "succeeded")
    assert ended["state"] == "failed"
    assert "in vain: never.csv is not there" in ended["message"]
    assert ended["diagnostics"][0]["code"] == "wait_timed_out"


async def test_the_agenda_may_say_how_long_its_operations_wait(system):
    await system.submit("a1", fetch("never.csv"), wait_within_s=1)
    assert (await system.state("a1", "failed"))["state"] == "failed"


async def test_one_that_waits_can_be_cancelled(system):
    await system.submit("a1", fetch("never.csv"))
    await system.state("a1", "waiting")
    await system.post("/v1/agendas/a1/cancel", {"reason": "not needed"})
    assert (await system.state("a1", "cancelled"))["state"] == "cancelled"


async def test_a_worker_over_http_says_not_yet(settings, tmp_path):
    async with one_process(settings, tmp_path, [MEDIA]) as system:
        worker = HttpWorker(system.session, system.url)
        await system.submit("a1", fetch("data.csv", wait_within_s=600))
        (one,) = await worker.pull()
        wrong = {"name": "nobody", "recheck_s": 1}
        status, body = await worker.report(one, "complete", outcome="not_yet", waits=[wrong])
        assert (status, body["issues"][0]["field"]) == (422, "waits[0].name")
        status, body = await worker.report(one, "complete", outcome="not_yet")
        assert (status, body["issues"][0]["field"]) == (422, "waits")
        waits = [{"name": "fetch", "recheck_s": 1, "message": "no data.csv"}]
        status, _ = await worker.report(one, "complete", outcome="not_yet", waits=waits)
        assert status == 200
        waiting = await system.state("a1", "waiting")
        assert (waiting["waiting_for"], waiting["message"]) == (
            "not_yet",
            "operation 'fetch' waits: no data.csv",
        )
        (again,) = await worker.pull()
        assert again["attempt"] == 2
        assert again["progress"]["operations"][0]["wait"]["kind"] == "check"
        assert (await worker.report(again, "complete", outcome="succeeded"))[0] == 200
        assert (await system.state("a1", "succeeded"))["attempt"] == 2


async def test_a_worker_over_http_that_waits_too_long_fails(settings, tmp_path):
    async with one_process(settings, tmp_path, [MEDIA]) as system:
        worker = HttpWorker(system.session, system.url)
        await system.submit("a1", fetch("data.csv", wait_within_s=1))
        waits = [{"name": "fetch", "recheck_s": 1, "message": "no data.csv"}]
        for _ in range(2):
            (one,) = await worker.pull()
            await worker.report(one, "complete", outcome="not_yet", waits=waits)
        assert "in vain: no data.csv" in (await system.state("a1", "failed"))["message"]
