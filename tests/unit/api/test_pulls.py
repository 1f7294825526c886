"""Pulling and reporting over HTTP, on in-memory ports."""

import json
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer
from api_fakes import AT, QUICK, agenda, open_api, ports, summary
from api_pulls import WHO, emitted, fold_when_asked, holder
from fakes import ManualClock

from pop_stream.api.app import create_app
from pop_stream.model.definitions import Definitions, Insight
from pop_stream.model.events.base import AppendedOperation, OperationProgress, PriorProgress
from pop_stream.model.events.scheduling import AttemptStop
from pop_stream.model.identity import Principal, Role
from pop_stream.model.ids import InsightId
from pop_stream.policy.lifecycle.states import State
from pop_stream.settings import Settings

ATTEMPT = "/v1/agendas/a1/attempts/2"
HOLDER = holder()
DONE = [{"name": name, "state": "succeeded"} for name in ("fetch", "store")]


@pytest.fixture
async def api():
    async with open_api() as opened:
        yield opened


@pytest.fixture
async def held(api):
    """An API of which the caller has pulled attempt 2 of a1."""
    api.summaries.put(summary(attempt=2))
    api.deliveries.by_insight["files"] = [emitted()]
    status, body = await api.post("/v1/insights/files/pull", WHO)
    assert status == 200
    assert body["agendas"][0]["lease_token"] == HOLDER["lease_token"]
    api.publisher.records.clear()
    fold_when_asked(api)
    return api


def events(api):
    reported = [json.loads(record.value) for record in api.publisher.records]
    return [one for some in reported for one in (some if isinstance(some, list) else [some])]


async def test_pulled_agenda_comes_whole_and_its_lease_begins_for_the_caller(api):
    api.deliveries.by_insight["files"] = [emitted("a1", 1), emitted("a2", 1)]
    status, body = await api.post("/v1/insights/files/pull", {**WHO, "count": 5})
    assert status == 200
    first, second = body["agendas"]
    assert (first["agenda_id"], second["agenda_id"]) == ("a1", "a2")
    assert [one["name"] for one in first["agenda"]["operations"]] == ["fetch", "store"]
    assert (first["lease_ms"], first["progress"]) == (60_000, None)
    assert first["accepted_at"] == first["emitted_at"] == "2026-01-01T12:00:00Z"
    assert [(one["type"], one["puller_id"]) for one in events(api)] == [
        ("agenda.heartbeat", "w1"),
        ("agenda.heartbeat", "w1"),
    ]


async def test_a_hundred_are_handed_out_at_once(api):
    """POP's queues gave no more than ten."""
    names = [f"a{number}" for number in range(100)]
    api.deliveries.by_insight["files"] = [emitted(name, 1) for name in names]
    status, body = await api.post("/v1/insights/files/pull", {**WHO, "count": 100})
    assert (status, [one["agenda_id"] for one in body["agendas"]]) == (200, names)


async def test_retried_agenda_comes_with_what_earlier_attempts_left(api):
    prior = PriorProgress(attempt=1, state="running", percent=70)
    operations = {
        "fetch": OperationProgress(name="fetch", state="succeeded", result=msgspec.Raw(b"7")),
        "store": OperationProgress(name="store", state="waiting", prior=prior),
    }
    api.summaries.put(summary(attempt=2, operations=operations))
    api.deliveries.by_insight["files"] = [emitted()]
    _, body = await api.post("/v1/insights/files/pull", WHO)
    fetch, store = body["agendas"][0]["progress"]["operations"]
    assert (fetch["state"], fetch["result"]) == ("succeeded", 7)
    assert store["prior"]["percent"] == 70


async def test_retried_agenda_comes_without_it_while_the_database_is_away(api):
    api.summaries.is_away = True
    api.deliveries.by_insight["files"] = [emitted()]
    _, body = await api.post("/v1/insights/files/pull", WHO)
    (one,) = body["agendas"]
    assert (one["attempt"], one["progress"]) == (2, None)


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({}, "puller_id"),
        ({**WHO, "count": 101}, "count"),
        ({**WHO, "count": 0}, "count"),
        ({**WHO, "wait_s": 61}, "wait_s"),
        ({**WHO, "extra": 1}, "extra"),
        ({"puller_id": "a b"}, "puller_id"),
    ],
)
async def test_wish_that_is_not_sound_is_refused_with_its_field(api, wish, field):
    status, problem = await api.post("/v1/insights/files/pull", wish)
    assert (status, problem["code"]) == (422, "invalid")
    assert [issue["field"] for issue in problem["issues"]] == [field]


async def test_attempt_that_another_has_replaced_on_its_way_is_given_to_nobody(api):
    api.deliveries.stops["a1"] = AttemptStop(
        agenda_id="a1", insight_id="files", attempt=2, reason="outdated"
    )
    api.deliveries.by_insight["files"] = [emitted(), emitted("a2", 1)]
    status, body = await api.post("/v1/insights/files/pull", {**WHO, "count": 2})
    assert (status, [one["agenda_id"] for one in body["agendas"]]) == (200, ["a2"])
    assert [one["agenda_id"] for one in events(api)] == ["a2"]


async def test_insight_that_does_not_exist_is_not_found(api):
    status, problem = await api.post("/v1/insights/gone/pull", WHO)
    assert (status, problem["code"]) == (404, "not_found")


async def test_heartbeat_renews_the_lease_and_needs_no_database(held):
    held.summaries.is_away = True
    status, answer = await held.post(f"{ATTEMPT}/heartbeat", HOLDER)
    assert (status, answer["stop"], answer["lease_ms"]) == (200, None, 60_000)
    (renewed,) = events(held)
    assert (renewed["type"], renewed["attempt"], renewed["insight_id"]) == (
        "agenda.heartbeat",
        2,
        "files",
    )


async def test_progress_is_reported_with_its_operations_and_what_was_appended(held):
    reports = [
        {"name": "fetch", "state": "succeeded", "result": {"size": 12}},
        {"name": "more", "state": "running", "percent": 10},
    ]
    new = [{"name": "more", "type": "sql", "payload": "@<fetch.out::/size>"}]
    body = {**HOLDER, "operations": reports, "append": {"by": "fetch", "operations": new}}
    status, answer = await held.post(f"{ATTEMPT}/progress", body)
    assert (status, answer["appended"]) == (200, ["more"])
    _, progressed = events(held)
    assert progressed["operations"][0]["result"] == {"size": 12}
    (appended,) = progressed["appended"]
    assert (appended["by"], appended["operation"]["name"]) == ("fetch", "more")


async def test_what_the_agenda_has_already_is_not_appended_again(held):
    new = [{"name": "store", "type": "sql"}]
    body = {**HOLDER, "append": {"by": "fetch", "operations": new}}
    status, answer = await held.post(f"{ATTEMPT}/progress", body)
    assert (status, answer["appended"]) == (200, [])
    assert [one["type"] for one in events(held)] == ["agenda.heartbeat"]


@pytest.mark.parametrize(
    ("report", "field"),
    [
        ({"operations": [{"name": "gone", "state": "running"}]}, "operations[0].name"),
        ({"operations": [{"name": "fetch", "state": "done"}]}, "operations[0].state"),
        (
            {"operations": [{"name": "fetch", "state": "succeeded", "result": "x" * 262_144}]},
            "operations[0].result",
        ),
        (
            {"operations": [{"name": "fetch", "state": "running", "type": "x"}]},
            "operations[0].type",
        ),
        ({"customer_id": "beta"}, "customer_id"),
        ({"append": {"by": "gone", "operations": [{}]}}, "append.by"),
        ({"append": {"by": "fetch", "operations": []}}, "append.operations"),
        ({"append": {"by": "fetch", "operations": [{"name": "x"}]}}, "operations[0].type"),
    ],
)
async def test_an_invalid_report_is_refused_and_publishes_nothing(held, report, field):
    status, problem = await held.post(f"{ATTEMPT}/progress", {**HOLDER, **report})
    assert status == 422
    assert [issue["field"] for issue in problem["issues"]] == [field]
    assert events(held) == []


async def post_text(held, what, text):
    headers = {"Content-Type": "application/json"}
    path = f"{ATTEMPT}/{what}"
    async with held.client.post(path, data=text.encode(), headers=headers) as response:
        return response.status, await response.json(content_type=None)


@pytest.mark.parametrize("what", ["progress", "complete"])
async def test_a_report_that_no_event_can_hold_is_413_and_publishes_nothing(held, what):
    detail = {"message": "m", "detail": "GROWS"}
    report = {"name": "fetch", "state": "failed", "diagnostics": [detail]}
    end = {"outcome": "failed"} if what == "complete" else {}
    body = json.dumps({**HOLDER, **end, "operations": [report]})
    grows = ",".join(["1e15"] * 60_000)  # each is written out in eighteen bytes
    status, problem = await post_text(held, what, body.replace('"GROWS"', f"[{grows}]"))
    assert (status, problem["code"], problem["limit"]) == (413, "too_large", 900_000)
    assert events(held) == []


async def test_operations_that_make_an_agenda_too_large_cannot_be_appended(held):
    new = [{"name": f"n{n}", "type": "sql", "payload": "GROWS"} for n in range(4)]
    body = json.dumps({**HOLDER, "append": {"by": "fetch", "operations": new}})
    grows = ",".join(["1e15"] * 13_000)  # each is written out in eighteen bytes
    status, problem = await post_text(held, "progress", body.replace('"GROWS"', f"[{grows}]"))
    assert status == 422
    assert [issue["field"] for issue in problem["issues"]] == ["operations"]
    assert events(held) == []


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (
            {"outcome": "succeeded", "spent_s": {"http": 1.5}, "operations": DONE},
            "agenda.succeeded",
        ),
        ({"outcome": "stopped"}, "agenda.stopped"),
        ({"outcome": "failed", "message": "no", "retryable": False}, "agenda.failed"),
    ],
)
async def test_completion_is_reported_as_its_outcome(held, end, kind):
    status, _ = await held.post(f"{ATTEMPT}/complete", {**HOLDER, **end})
    assert status == 200
    (reported,) = events(held)
    assert (reported["type"], reported["attempt"]) == (kind, 2)
    assert reported.get("spent_s", {}) == end.get("spent_s", {})
    assert reported.get("message") == end.get("message")


@pytest.mark.parametrize("what", ["heartbeat", "progress", "complete"])
async def test_wanted_stop_is_reported_and_an_outdated_attempt_refused(held, what):
    body = {**HOLDER, **({"outcome": "stopped"} if what == "complete" else {})}
    stop = AttemptStop(agenda_id="a1", insight_id="files", attempt=2, reason="expired")
    held.deliveries.stops["a1"] = stop
    status, answer = await held.post(f"{ATTEMPT}/{what}", body)
    assert (status, answer["stop"]) == (200, "expired")
    held.deliveries.stops["a1"] = msgspec.structs.replace(stop, reason="outdated")
    status, problem = await held.post(f"{ATTEMPT}/{what}", body)
    assert (status, problem["code"]) == (409, "lease_lost")


REPORTS = pytest.mark.parametrize("what", ["heartbeat", "progress", "complete"])


def report_of(what):
    end = {"outcome": "succeeded", "operations": DONE} if what == "complete" else {}
    return {**HOLDER, **end}


@REPORTS
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"attempt": 3}, ("followed", None)),
        ({"attempt": 3, "state": State.SUCCEEDED}, ("followed", None)),
        ({"attempt": 2, "state": State.SUCCEEDED}, ("ended", "succeeded")),
        ({"attempt": 2, "state": State.CANCELLED}, ("ended", "cancelled")),
        ({"attempt": 2, "state": State.EXPIRED}, ("ended", "expired")),
        ({"attempt": 2, "state": State.RETRYING}, ("ended", "retrying")),
    ],
)
async def test_whoever_reports_on_an_attempt_that_is_over_learns_why(held, changes, why, what):
    """Ended by others, and no stop was published, or none is remembered."""
    held.summaries.put(summary(**changes))
    status, problem = await held.post(f"{ATTEMPT}/{what}", report_of(what))
    assert (status, problem["code"]) == (409, "lease_lost")
    assert (problem["reason"], problem.get("state")) == why
    assert events(held) == []


@REPORTS
@pytest.mark.parametrize(
    "known",
    [
        None,
        {"attempt": 1, "state": State.RETRYING},
        {"attempt": 1, "state": State.CANCELLED},
        {"attempt": 2, "state": State.READY},
        {"attempt": 2, "state": State.REFUSED},
    ],
    ids=["nothing", "earlier", "an earlier run's end", "behind", "refused before"],
)
async def test_an_attempt_is_not_over_because_the_summary_is_behind(held, known, what):
    del held.summaries.agendas["a1"]
    if known is not None:
        held.summaries.put(summary(**known))
    assert (await held.post(f"{ATTEMPT}/{what}", report_of(what)))[0] == 200


@REPORTS
@pytest.mark.parametrize(("days", "status"), [(29, 200), (31, 409)])
async def test_what_is_kept_no_more_has_ended(api, days, status, what):
    """Its summary would have shown it for thirty days."""
    accepted_at = ManualClock().now() - timedelta(days=days)
    report = report_of(what) | holder(emitted(accepted_at=accepted_at))
    found, problem = await api.post(f"{ATTEMPT}/{what}", report)
    assert (found, problem.get("reason")) == (status, "ended" if status == 409 else None)


@REPORTS
async def test_what_was_removed_has_ended_and_its_id_may_be_used_anew(held, what):
    del held.summaries.agendas["a1"]
    assert (await held.post(f"{ATTEMPT}/heartbeat", HOLDER))[0] == 200, "nothing was removed"
    held.summaries.deleted_until = AT
    held.publisher.records.clear()
    status, problem = await held.post(f"{ATTEMPT}/{what}", report_of(what))
    assert (status, problem["reason"]) == (409, "ended")
    assert events(held) == []
    younger = report_of(what) | holder(emitted(accepted_at=AT + timedelta(hours=1)))
    assert (await held.post(f"{ATTEMPT}/{what}", younger))[0] == 200


ENDED_BEFORE = pytest.mark.parametrize(
    ("state", "reported"),
    [
        (State.SUCCEEDED, ("agenda.succeeded", 2, None)),
        (State.CANCELLED, ("agenda.failed", 2, "the agenda had ended before, cancelled")),
    ],
)


@ENDED_BEFORE
async def test_what_had_ended_before_is_delivered_to_nobody_and_its_end_is_reported_again(
    api, state, reported
):
    """Its end was reported in the moment in which the scheduler took its attempt for lost."""
    api.summaries.put(summary(attempt=1, state=state))
    api.deliveries.by_insight["files"] = [emitted(run_from=1), emitted("a2", 1)]
    status, body = await api.post("/v1/insights/files/pull", {**WHO, "count": 2})
    assert (status, [one["agenda_id"] for one in body["agendas"]]) == (200, ["a2"])
    renewed, end = events(api)
    assert (renewed["type"], renewed["agenda_id"]) == ("agenda.heartbeat", "a2")
    assert (end["type"], end["attempt"], end.get("message")) == reported


@REPORTS
@ENDED_BEFORE
async def test_whoever_is_at_what_had_ended_before_learns_so(api, state, reported, what):
    api.summaries.put(summary(attempt=1, state=state))
    report = report_of(what) | holder(emitted(run_from=1))
    status, problem = await api.post(f"{ATTEMPT}/{what}", report)
    assert (status, problem["reason"], problem["state"]) == (409, "ended", state.value)
    (end,) = events(api)
    assert (end["type"], end["attempt"], end.get("message")) == reported


async def test_what_runs_again_is_handed_out_though_its_earlier_run_has_ended(api, monkeypatch):
    monkeypatch.setattr("pop_stream.api.pulls.leases._PRIOR_WITHIN_S", 0.1)
    api.summaries.put(summary(attempt=1, state=State.SUCCEEDED))
    api.deliveries.by_insight["files"] = [emitted(run_from=2)]
    _, body = await api.post("/v1/insights/files/pull", WHO)
    assert [one["attempt"] for one in body["agendas"]] == [2]


# ---- what proves that the caller holds the attempt ----


@REPORTS
async def test_a_process_that_never_saw_the_attempt_takes_reports_on_it(api, what):
    """Not even the database need be there."""
    api.summaries.is_away = True
    status, answer = await api.post(f"{ATTEMPT}/{what}", report_of(what))
    assert (status, answer["lease_ms"]) == (200, 60_000)
    *_, reported = events(api)
    assert (reported["agenda_id"], reported["insight_id"], reported["attempt"]) == (
        "a1",
        "files",
        2,
    )


async def test_names_of_operations_are_believed_while_they_cannot_be_looked_up(held):
    body = {**HOLDER, "operations": [{"name": "other", "state": "running"}]}
    assert (await held.post(f"{ATTEMPT}/progress", body))[0] == 422
    held.summaries.is_away = True
    assert (await held.post(f"{ATTEMPT}/progress", body))[0] == 200


async def test_what_is_appended_is_checked_so_it_waits_for_the_database(held):
    new = [{"name": "more", "type": "sql"}]
    held.summaries.is_away = True
    body = {**HOLDER, "append": {"by": "fetch", "operations": new}}
    status, problem = await held.post(f"{ATTEMPT}/progress", body)
    assert (status, problem["code"]) == (503, "unserved")
    assert events(held) == []


async def appends(api, *names, by="fetch"):
    new = [{"name": name, "type": "sql"} for name in names]
    body = {**HOLDER, "append": {"by": by, "operations": new}}
    return await api.post(f"{ATTEMPT}/progress", body)


def done(*names):
    return [{"name": name, "state": "succeeded"} for name in names]


async def test_a_worker_reports_on_what_it_has_appended_in_a_request_of_its_own(held):
    """The summary lags; the answer to the first request waits for it."""
    assert (await appends(held, "more"))[1]["appended"] == ["more"]
    status, _ = await held.post(f"{ATTEMPT}/progress", {**HOLDER, "operations": done("more")})
    assert status == 200
    assert (await appends(held, "even more", by="more"))[1]["appended"] == ["even more"]
    status, _ = await held.post(
        f"{ATTEMPT}/complete",
        {**HOLDER, "outcome": "succeeded", "operations": done("fetch", "store", "even more")},
    )
    assert status == 200
    assert events(held)[-1]["type"] == "agenda.succeeded"


async def test_an_append_whose_summary_does_not_come_is_sent_again(held, monkeypatch):
    monkeypatch.setattr("pop_stream.api.pulls.leases._FOLDED_WITHIN_S", 0.3)
    folded = held.summaries.next_offsets

    async def behind(_):
        return {}

    held.summaries.next_offsets = behind
    status, problem = await appends(held, "more")
    assert (status, problem["code"]) == (503, "unserved")
    assert "send the same report again" in problem["detail"]
    held.summaries.next_offsets = folded
    assert (await appends(held, "more"))[0] == 200
    assert [one["name"] for one in await operations_of(held)] == ["fetch", "store", "more"]


async def operations_of(api):
    return (await api.get("/v1/agendas/a1/progress"))[1]["operations"]


COMPLETED = {**HOLDER, "outcome": "succeeded"}


@pytest.mark.parametrize(
    ("reports", "left"),
    [
        ([], ["fetch", "store"]),
        (done("fetch"), ["store"]),
        ([*done("fetch"), {"name": "store", "state": "running"}], ["store"]),
        ([*done("store"), {"name": "fetch", "state": "failed"}], ["fetch"]),
    ],
)
async def test_success_is_not_believed_while_an_operation_has_not_succeeded(
    held, reports, left
):
    status, problem = await held.post(
        f"{ATTEMPT}/complete", {**COMPLETED, "operations": reports}
    )
    assert (status, [one["value"] for one in problem["issues"]]) == (422, left)
    assert "complete the attempt as failed" in problem["issues"][0]["message"]
    assert {one["type"] for one in events(held)} == {"agenda.heartbeat"}


async def test_success_is_not_believed_while_an_appended_operation_has_not_succeeded(held):
    await appends(held, "more")
    body = {**COMPLETED, "operations": done("fetch", "store")}
    status, problem = await held.post(f"{ATTEMPT}/complete", body)
    assert (status, [one["value"] for one in problem["issues"]]) == (422, ["more"])


async def test_successes_that_are_on_their_way_to_the_summary_are_waited_for(held):
    for name in ("fetch", "store"):
        body = {**HOLDER, "operations": done(name)}
        assert (await held.post(f"{ATTEMPT}/progress", body))[0] == 200
    assert (await held.post(f"{ATTEMPT}/complete", COMPLETED))[0] == 200


@pytest.mark.parametrize("what", ["away", "behind"])
async def test_without_a_summary_all_that_was_open_must_be_reported_with_the_end(
    held, what, monkeypatch
):
    """As many as the token says; their names cannot be looked up."""
    monkeypatch.setattr("pop_stream.api.pulls.leases._FOLDED_WITHIN_S", 0.3)
    held.summaries.is_away = what == "away"
    if what == "behind":
        del held.summaries.agendas["a1"]
    status, problem = await held.post(
        f"{ATTEMPT}/complete", {**COMPLETED, "operations": done("fetch")}
    )
    assert (status, problem["code"]) == (503, "unserved")
    body = {**COMPLETED, "operations": done("fetch", "store")}
    assert (await held.post(f"{ATTEMPT}/complete", body))[0] == 200
    one_left = {**COMPLETED, **holder(unfinished=1), "operations": done("store")}
    assert (await held.post(f"{ATTEMPT}/complete", one_left))[0] == 200


async def test_an_agenda_that_came_with_one_operation_is_retried_with_its_progress(api):
    alone = agenda(id="a1", operations=[{"name": "fetch", "type": "http"}])
    one = emitted(agenda=msgspec.Raw(json.dumps(alone).encode()))
    raw = msgspec.Raw(b'{"name": "more", "type": "sql"}')
    api.summaries.put(
        summary(
            attempt=2,
            body=bytes(one.agenda),
            operation_names=("fetch",),
            operations={"fetch": OperationProgress(name="fetch", state="succeeded")},
            appended=(AppendedOperation(by="fetch", at=AT, operation=raw),),
        )
    )
    api.deliveries.by_insight["files"] = [one]
    _, body = await api.post("/v1/insights/files/pull", WHO)
    (pulled,) = body["agendas"]
    states = [(one["name"], one["state"]) for one in pulled["progress"]["operations"]]
    assert states == [("fetch", "succeeded"), ("more", "waiting")]
    api.summaries.is_away = True
    end = {**COMPLETED, "lease_token": pulled["lease_token"]}
    assert (await api.post(f"{ATTEMPT}/complete", end | {"operations": done("more")}))[0] == 200


TOKEN = HOLDER["lease_token"]
OTHER_SECRET = Settings(signing_secrets=("x" * 32,))


@REPORTS
@pytest.mark.parametrize(
    ("token", "remedy"),
    [
        (..., "is required; give it"),
        ("", "send the one that was pulled"),
        ("a töken", "send the one that was pulled"),
        ("x" * 3000, "at most 2000"),
        (f"{TOKEN[:-3]}xx=", "send the one that was pulled"),
        (TOKEN.replace("v1.", "v2."), "send the one that was pulled"),
        ("v1.e30=.e30=", "send the one that was pulled"),
        (holder(settings=OTHER_SECRET)["lease_token"], "send the one that was pulled"),
        (holder(emitted("a2"))["lease_token"], "not of attempt 2 of a1"),
        (holder(emitted(attempt=1))["lease_token"], "not of attempt 2 of a1"),
    ],
    ids=["missing", "empty", "no token", "long", "forged", "version", "noise",
         "another secret", "another agenda", "another attempt"],
)  # fmt: skip
async def test_whoever_cannot_prove_its_lease_learns_what_to_send(held, token, remedy, what):
    body = {**report_of(what), "lease_token": token}
    if token is ...:
        del body["lease_token"]
    status, problem = await held.post(f"{ATTEMPT}/{what}", body)
    assert (status, problem["code"]) == (422, "invalid")
    [issue] = problem["issues"]
    assert issue["field"] == "lease_token"
    assert remedy in issue["message"].lower()
    assert len(issue["value"]) <= 200
    assert events(held) == []


@pytest.mark.parametrize("named", ["a1/attempts/0", "a1/attempts/x", "a%20/attempts/1"])
async def test_attempt_that_never_was_is_not_found(api, named):
    status, problem = await api.post(f"/v1/agendas/{named}/heartbeat", HOLDER)
    assert (status, problem["code"]) == (404, "not_found")


class Known:
    """Takes every caller for the same one."""

    def __init__(self, principal):
        self.principal = principal

    async def identify(self, _):
        return self.principal


def shared_insights():
    """Of two customers and of the operators."""
    return {
        InsightId(name): Insight(id=name, owner=owner, visibility=visibility)
        for name, owner, visibility in (
            ("i-acme", "acme", "owner"),
            ("i-beta", "beta", "owner"),
            ("i-shown", "beta", "global"),
            ("i-all", None, "global"),
        )
    }


@pytest.mark.parametrize(
    ("caller", "taken"),
    [
        (Principal("k", "acme", frozenset({Role.PULL})), {"i-acme"}),
        (
            Principal("k", None, frozenset({Role.PULL})),
            {"i-acme", "i-beta", "i-shown", "i-all", "i-gone"},
        ),
        (Principal("k", "acme", frozenset({Role.READ, Role.SUBMIT})), set()),
    ],
    ids=["customer", "operator", "no-puller"],
)
async def test_a_token_is_of_use_to_those_alone_who_may_pull_from_its_insight(caller, taken):
    behind = ports()
    behind.definitions.current = Definitions(insights=shared_insights())
    app = create_app(replace(behind, authenticator=Known(caller)), Settings(), timing=QUICK)
    found = {}
    async with TestClient(TestServer(app)) as client:
        for insight_id in ("i-acme", "i-beta", "i-shown", "i-all", "i-gone"):
            body = holder(emitted(insight_id=insight_id))
            async with client.post(f"{ATTEMPT}/heartbeat", json=body) as response:
                found[insight_id] = response.status
    refused = 404 if caller.has_role(Role.PULL) else 403
    assert found == {one: 200 if one in taken else refused for one in found}
