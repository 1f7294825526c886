"""Completing from outside, on in-memory ports: by a token alone, once, in time."""

import json
from datetime import timedelta

import pytest
from api_fakes import AT, open_api, summary
from api_pulls import WHO, emitted, fold_when_asked, holder
from fakes import ManualClock
from msgspec import structs

from pop_stream.model.events.base import OperationProgress
from pop_stream.policy.completion_token import completion_claims, hand_over
from pop_stream.policy.lifecycle.states import State

WANTED = {
    "operation": "fetch",
    "within_s": 100,
    "agenda_id": "a1",
    "insight_id": "files",
    "attempt": 1,
    "accepted_at": "2026-01-01T12:00:00Z",
}


@pytest.fixture
async def api():
    async with open_api() as opened:
        yield opened


async def token_of(api, **changes):
    status, body = await api.post("/v1/completion-tokens", WANTED | changes)
    assert status == 200
    return body["token"]


def put_waiting(api, token, **changes):
    """The agenda waits in attempt 2, with an operation that was handed over in attempt 1."""
    wait = hand_over(token, completion_claims(token), AT)
    one = OperationProgress(name="fetch", state="waiting", ended_at=AT, wait=wait)
    waiting = summary(state=State.WAITING, attempt=2, operations={"fetch": one})
    api.summaries.put(structs.replace(waiting, **changes))


@pytest.fixture
async def token(api):
    made = await token_of(api)
    put_waiting(api, made)
    return made


async def complete(api, token, **body):
    return await api.post("/v1/completions", {"token": token, **body})


async def test_a_result_is_kept_and_the_same_again_is_answered_alike(api, token):
    first = await complete(api, token, result={"size": 12})
    assert first[0] == 202
    assert (first[1]["operation"], first[1]["outcome"]) == ("fetch", "succeeded")
    assert await complete(api, token, result={"size": 12}) == first
    put_waiting(api, token, state=State.SUCCEEDED)
    assert await complete(api, token, result={"size": 12}) == first, "also once it has ended"


@pytest.mark.parametrize(
    "other", [{"result": 13}, {}, {"error": {"message": "no"}}], ids=["result", "none", "error"]
)
async def test_another_result_is_refused(api, token, other):
    await complete(api, token, result=12)
    status, body = await complete(api, token, **other)
    assert (status, body["code"]) == (409, "completion_refused")
    assert "used before, with another result" in body["detail"]


async def test_a_failure_says_whether_another_attempt_may_help(api, token):
    error = {"message": "the function crashed", "retryable": False}
    status, body = await complete(api, token, error=error)
    assert (status, body["outcome"]) == (202, "failed")
    assert (await complete(api, token, error={"message": "the function crashed"}))[0] == 409


async def test_what_is_no_token_is_refused(api, token):
    for wrong in ("", "v1.x.y", token[:-2] + "zz", holder()["lease_token"]):
        status, body = await complete(api, wrong)
        assert (status, body["issues"][0]["field"]) == (422, "token")


async def test_a_result_and_an_error_exclude_each_other(api, token):
    status, body = await complete(api, token, result=1, error={"message": "no"})
    assert (status, body["issues"][0]["field"]) == (422, "error")


async def test_a_result_is_bounded_and_so_is_the_whole_request(api, token):
    status, body = await complete(api, token, result="x" * 65_536)
    assert (status, body["issues"][0]["field"]) == (422, "result")
    status, body = await complete(api, token, result="x" * 200_000)
    assert (status, body["code"]) == (413, "too_large")
    assert (await complete(api, token, result="x" * 65_000))[0] == 202


async def test_one_of_an_agenda_that_was_cancelled_meanwhile_is_gone(api, token):
    put_waiting(api, token, state=State.CANCELLED)
    status, body = await complete(api, token, result=1)
    assert (status, body["code"]) == (410, "completion_late")
    assert "its agenda has ended: cancelled" in body["detail"]


async def test_one_that_comes_too_late_is_gone(monkeypatch):
    clock = ManualClock(AT)
    monkeypatch.setattr("api_fakes.ManualClock", lambda: clock)
    async with open_api() as api:
        token = await token_of(api)
        put_waiting(api, token)
        clock.move(timedelta(seconds=100))
        status, body = await complete(api, token, result=1)
        assert (status, body["code"]) == (410, "completion_late")
        assert "its time was over at 2026-01-01T12:01:40" in body["detail"]


async def test_one_of_an_older_attempt_is_refused(api, token):
    again = await token_of(api, attempt=3)
    put_waiting(api, again, attempt=4)
    status, body = await complete(api, token, result=1)
    assert (status, body["code"]) == (409, "completion_refused")
    assert "handed over again, with another token" in body["detail"]
    assert (await complete(api, again, result=1))[0] == 202
    assert (await complete(api, token, result=1))[0] == 409


async def test_one_that_comes_before_the_hand_over_is_reported_is_kept(api):
    token = await token_of(api)
    api.summaries.put(summary(attempt=1))
    assert (await complete(api, token, result=1))[0] == 202


async def test_before_anything_is_known_of_its_agenda_it_may_be_sent_again(api):
    status, body = await complete(api, await token_of(api), result=1)
    assert (status, body["code"]) == (503, "unserved")
    assert "send the same again" in body["detail"]


async def test_what_a_token_is_for_must_be_said(api):
    status, body = await api.post("/v1/completion-tokens", {"operation": "fetch"})
    assert status == 422
    fields = [one["field"] for one in body["issues"]]
    assert fields == ["agenda_id", "insight_id", "attempt", "accepted_at"]
    lost = {"operation": "fetch", "lease_token": "nothing"}
    status, body = await api.post("/v1/completion-tokens", lost)
    assert (status, body["issues"][0]["field"]) == (422, "lease_token")
    wrong = WANTED | {"insight_id": "nowhere"}
    assert (await api.post("/v1/completion-tokens", wrong))[0] == 404


async def test_a_worker_over_http_hands_over_by_its_lease_token(api):
    api.summaries.put(summary(attempt=2))
    api.deliveries.by_insight["files"] = [emitted()]
    await api.post("/v1/insights/files/pull", WHO)
    fold_when_asked(api)
    lease = holder()
    wanted = {"operation": "fetch", "lease_token": lease["lease_token"]}
    status, made = await api.post("/v1/completion-tokens", wanted)
    assert status == 200
    wait = {"name": "fetch", "kind": "completion"}
    end = {**lease, "outcome": "not_yet"}
    path = "/v1/agendas/a1/attempts/2/complete"
    status, body = await api.post(path, {**end, "waits": [wait]})
    assert (status, body["issues"][0]["field"]) == (422, "waits[0].completion_token")
    other = {**wait, "name": "store", "completion_token": made["token"]}
    assert (await api.post(path, {**end, "waits": [other]}))[0] == 422
    wait["completion_token"] = made["token"]
    status, body = await api.post(path, {**end, "waits": [{**wait, "kind": "check"}]})
    assert (status, body["issues"][0]["field"]) == (422, "waits[0].completion_token")
    api.publisher.records.clear()
    assert (await api.post(path, {**end, "waits": [wait]}))[0] == 200
    reported = json.loads(api.publisher.records[-1].value)
    [waiting] = reported["operations"]
    assert waiting["wait"]["kind"] == "completion"
    assert waiting["wait"]["gives_up_at"] == made["expires_at"]
