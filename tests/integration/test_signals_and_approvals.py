"""Signals and people end the waits of operations, which hold no runner meanwhile."""

import pytest_asyncio
from http_worker import HttpWorker
from one_process import one_process

from pop_stream.model.definitions import Insight, Mappers
from pop_stream.puller import Handlers

TYPES = ("note", "await-signal", "approval", "sleep")
MEDIA = Insight(id="media", mappers=Mappers(operation_types=TYPES), max_attempts=1)


def noting():
    handlers = Handlers()

    @handlers.handler("note")
    async def note(operation):
        return operation.payload

    return handlers


@pytest_asyncio.fixture
async def system(settings, tmp_path):
    async with one_process(settings, tmp_path, [MEDIA], noting(), concurrency=1) as opened:
        yield opened


def waits(signal="paid", **more):
    return {"name": "waits", "type": "await-signal", "payload": {"signal": signal}, **more}


def asks(**more):
    payload = {"question": "Send 4,000 letters?"}
    return {"name": "asks", "type": "approval", "payload": payload, **more}


AFTER = {"name": "after", "type": "note", "payload": "@<waits.out::/amount>"}


async def test_a_signal_ends_the_wait_and_its_payload_is_the_result(system):
    await system.submit("a1", waits(), AFTER)
    waiting = await system.state("a1", "waiting")
    assert "signal 'paid' has not been given" in waiting["message"]
    # Another customer's signal of that name is another signal.
    await system.post("/v1/signals/paid", {"customer_id": "other"}, status=200)
    await system.post("/v1/signals/late", {"customer_id": "acme"}, status=200)
    body = {"customer_id": "acme", "payload": {"amount": 12}}
    given = await system.post("/v1/signals/paid", body, status=200)
    assert (given["name"], given["payload"]) == ("paid", {"amount": 12})
    ended = await system.state("a1", "succeeded", "failed")
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2)
    operations = await system.operations("a1")
    assert operations["waits"]["result"] == {"amount": 12}
    assert operations["after"]["result"] == 12


async def test_a_signal_that_comes_before_the_wait_is_not_lost(system):
    await system.post("/v1/signals/paid", {"customer_id": "acme"}, status=200)
    listed = await system.get("/v1/signals?customer_id=acme")
    assert [one["name"] for one in listed["signals"]] == ["paid"]
    await system.submit("a1", waits())
    assert (await system.state("a1", "succeeded", "failed"))["state"] == "succeeded"


async def test_a_signal_that_is_kept_no_more_ends_nothing(system):
    body = {"customer_id": "acme", "keep_s": 0}
    await system.post("/v1/signals/paid", body, status=200)
    await system.submit("a1", waits(wait_within_s=2))
    ended = await system.state("a1", "failed", "succeeded")
    assert ended["state"] == "failed"
    assert "in vain: signal 'paid' has not been given" in ended["message"]


async def test_a_person_approves(system):
    await system.submit("a1", asks(), {"name": "after", "type": "note", "depends_on": ["asks"]})
    waiting = await system.state("a1", "waiting")
    assert "nobody has decided yet: Send 4,000 letters?" in waiting["message"]
    path = "/v1/agendas/a1/operations"
    await system.post(f"{path}/nobody/approve", {}, status=404)
    wrong = await system.post(f"{path}/after/approve", {}, status=409)
    assert wrong["code"] == "wrong_state"
    decided = await system.post(f"{path}/asks/approve", {"reason": "checked twice"})
    assert decided["decision"] == "approved"
    await system.state("a1", "succeeded")
    asked = (await system.operations("a1"))["asks"]
    assert asked["result"]["reason"] == "checked twice"
    assert "approved by" in asked["message"]
    audit = await system.get("/v1/audit?kind=operation")
    assert audit["entries"][0]["action"] == "approved"
    assert audit["entries"][0]["after"] == {"operation": "asks", "reason": "checked twice"}
    await system.post(f"{path}/asks/approve", {}, status=409)


async def test_a_person_rejects(system):
    await system.submit("a1", asks(max_attempts=3))
    await system.state("a1", "waiting")
    await system.post("/v1/agendas/a1/operations/asks/reject", {"reason": "too many"})
    ended = await system.state("a1", "failed", "succeeded")
    assert ended["state"] == "failed"
    assert "too many" in ended["message"]
    assert ended["diagnostics"][0]["code"] == "rejected"


async def test_a_long_sleep_gives_its_runner_back(system, monkeypatch):
    monkeypatch.setattr("pop_stream.puller.handlers.waiting.HELD_S", 0.5)
    await system.submit("a1", {"name": "s", "type": "sleep", "payload": {"seconds": 3}})
    waiting = await system.state("a1", "waiting")
    assert "sleeps until" in waiting["message"]
    await system.submit("a2", {"name": "n", "type": "note"})
    await system.state("a2", "succeeded")
    assert (await system.state("a1", "succeeded"))["attempt"] == 2


async def test_a_signal_wakes_what_a_worker_over_http_left(settings, tmp_path):
    async with one_process(settings, tmp_path, [MEDIA]) as system:
        worker = HttpWorker(system.session, system.url)
        await system.submit("a1", waits())
        (one,) = await worker.pull()
        wait = {"name": "waits", "recheck_s": 3600, "kind": "signal"}
        status, body = await worker.report(one, "complete", outcome="not_yet", waits=[wait])
        assert (status, body["issues"][0]["field"]) == (422, "waits[0].signal")
        wait["signal"] = "paid"
        assert (await worker.report(one, "complete", outcome="not_yet", waits=[wait]))[0] == 200
        await system.post("/v1/signals/paid", {"customer_id": "acme", "payload": 7}, status=200)
        (again,) = await worker.pull()
        assert again["progress"]["operations"][0]["state"] == "succeeded"
        assert again["progress"]["operations"][0]["result"] == 7
        assert (await worker.report(again, "complete", outcome="succeeded"))[0] == 200
        await system.state("a1", "succeeded")


async def test_what_cannot_be_a_signal_is_refused(system):
    answer = await system.post("/v1/signals/paid", {}, status=422)
    assert answer["issues"][0]["field"] == "customer_id"
    huge = {"customer_id": "acme", "payload": "x" * 70_000}
    assert (await system.post("/v1/signals/paid", huge, status=422))["issues"][0]["field"] == (
        "payload"
    )
    answer = await system.post("/v1/signals/no%20name", {"customer_id": "acme"}, status=422)
    assert answer["issues"][0]["field"] == "name"
