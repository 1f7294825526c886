"""Operations that are completed from outside, by the token that their handler handed over."""

import asyncio
from collections import defaultdict

import pytest
import pytest_asyncio
from http_worker import HttpWorker
from one_process import one_process

from pop_stream.model.definitions import Insight, Mappers
from pop_stream.model.retry import Backoff
from pop_stream.puller import CompletedElsewhere, Handlers

MEDIA = Insight(
    id="media",
    mappers=Mappers(operation_types=("call", "note")),
    max_attempts=3,
    backoff=Backoff(first_s=0.1),
)
CALL = {"name": "call", "type": "call"}


class Cloud:
    """Functions elsewhere: they have the tokens, and answer when a test says so."""

    def __init__(self):
        self.tokens = defaultdict(list)
        self.is_stuck = False

    def handlers(self):
        handlers = Handlers()

        @handlers.handler("call")
        async def call(operation):
            within_s = (operation.payload or {}).get("within_s", 600)
            token = await operation.completion_token(within_s=within_s)
            self.tokens[operation.agenda_id].append(token)
            if self.is_stuck:
                await asyncio.Event().wait()
            raise CompletedElsewhere(token, "the cloud function")

        @handlers.handler("note")
        async def note(operation):
            return operation.payload

        return handlers


@pytest.fixture
def cloud():
    return Cloud()


@pytest_asyncio.fixture
async def system(settings, tmp_path, cloud):
    async with one_process(
        settings, tmp_path, [MEDIA], cloud.handlers(), concurrency=1
    ) as opened:
        yield opened


async def complete(system, token, status=202, **outcome):
    return await system.post("/v1/completions", {"token": token, **outcome}, status=status)


async def test_what_was_handed_over_is_completed_by_its_token(system, cloud):
    after = {"name": "after", "type": "note", "payload": "@<call.out::/size>"}
    await system.submit("a1", CALL, after)
    waiting = await system.state("a1", "waiting")
    assert "operation 'call' waits: the cloud function" in waiting["message"]
    # The only runner is free meanwhile.
    await system.submit("a2", {"name": "n", "type": "note"})
    await system.state("a2", "succeeded")
    [token] = cloud.tokens["a1"]
    first = await complete(system, token, result={"size": 12})
    assert await complete(system, token, result={"size": 12}) == first
    other = await complete(system, token, result={"size": 13}, status=409)
    assert other["code"] == "completion_refused"
    ended = await system.state("a1", "succeeded", "failed")
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2)
    operations = await system.operations("a1")
    assert operations["call"]["result"] == {"size": 12}
    assert operations["after"]["result"] == 12
    assert len(cloud.tokens["a1"]) == 1, "its handler is not called again"
    assert await complete(system, token, result={"size": 12}) == first


async def test_a_failure_outside_is_retried_with_another_token_unless_it_is_final(
    system, cloud
):
    await system.submit("a1", CALL)
    await system.state("a1", "waiting")
    await complete(system, cloud.tokens["a1"][0], error={"message": "it crashed"})
    await system.until("/v1/agendas/a1", lambda _: len(cloud.tokens["a1"]) == 2)
    await system.until("/v1/agendas/a1", lambda one: one["waiting_for"] == "not_yet")
    older = await complete(system, cloud.tokens["a1"][0], result=1, status=409)
    assert older["code"] == "completion_refused"
    final = {"message": "no such file", "retryable": False}
    await complete(system, cloud.tokens["a1"][1], error=final)
    ended = await system.state("a1", "failed", "succeeded")
    assert "no such file" in ended["message"]
    assert ended["diagnostics"][0]["code"] == "operation_final"


async def test_what_nobody_completes_in_time_is_handed_over_anew(system, cloud):
    await system.submit("a1", {**CALL, "payload": {"within_s": 1}})
    await system.until("/v1/agendas/a1", lambda _: len(cloud.tokens["a1"]) == 3)
    ended = await system.state("a1", "failed", "succeeded")
    assert ended["state"] == "failed"
    assert "it was handed over, and nobody completed it within" in ended["message"]
    late = await complete(system, cloud.tokens["a1"][2], result=1, status=410)
    assert late["code"] == "completion_late"


async def test_one_whose_agenda_was_cancelled_meanwhile_completes_nothing(system, cloud):
    await system.submit("a1", CALL)
    await system.state("a1", "waiting")
    await system.post("/v1/agendas/a1/cancel", {})
    await system.state("a1", "cancelled")
    gone = await complete(system, cloud.tokens["a1"][0], result=1, status=410)
    assert "its agenda has ended: cancelled" in gone["detail"]
    assert (await system.state("a1", "cancelled"))["state"] == "cancelled"


async def test_one_of_an_attempt_that_was_lost_before_its_report_is_refused(system, cloud):
    cloud.is_stuck = True
    await system.submit("a1", CALL)
    await system.until("/v1/agendas/a1", lambda _: cloud.tokens["a1"])
    [lost] = cloud.tokens["a1"]
    # Of an attempt that runs: kept for a hand-over that never comes.
    await complete(system, lost, result="of the first")
    await system.post("/v1/agendas/a1/cancel", {})
    await system.state("a1", "cancelled")
    cloud.is_stuck = False
    await system.post("/v1/agendas/a1/rerun", {})
    await system.until("/v1/agendas/a1", lambda one: one["waiting_for"] == "not_yet")
    assert len(cloud.tokens["a1"]) == 2
    await complete(system, cloud.tokens["a1"][1], result="of the second")
    await system.state("a1", "succeeded")
    assert (await system.operations("a1"))["call"]["result"] == "of the second"
    await complete(system, lost, result="of the first", status=410)


async def test_a_worker_over_http_hands_over(settings, tmp_path):
    async with one_process(settings, tmp_path, [MEDIA]) as system:
        worker = HttpWorker(system.session, system.url)
        await system.submit("a1", CALL)
        (one,) = await worker.pull()
        wanted = {"lease_token": one["lease_token"], "operation": "call"}
        made = await system.post("/v1/completion-tokens", wanted, status=200)
        waits = [{"name": "call", "kind": "completion", "completion_token": made["token"]}]
        assert (await worker.report(one, "complete", outcome="not_yet", waits=waits))[0] == 200
        await system.state("a1", "waiting")
        await complete(system, made["token"], result=7)
        (again,) = await worker.pull()
        assert again["progress"]["operations"][0]["result"] == 7
        assert (await worker.report(again, "complete", outcome="succeeded"))[0] == 200
        await system.state("a1", "succeeded")
