"""Lists of agendas over HTTP, and what is wanted of them, one by one and in bulk."""

import json
from datetime import timedelta

import msgspec
import pytest
import pytest_asyncio
from api_fakes import AT, open_api, summary
from msgspec.structs import replace

from pop_stream.model.events.base import AppendedOperation, OperationProgress
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary


@pytest_asyncio.fixture
async def api():
    async with open_api() as opened:
        opened.summaries.put(summary("run", customer_id="acme"))
        opened.summaries.put(summary("wait", state=State.READY, link_id="night"))
        opened.summaries.put(summary("held", state=State.HELD, customer_id="bolt"))
        done = {"fetch": OperationProgress(name="fetch", state="succeeded")}
        opened.summaries.put(summary("broke", state=State.FAILED, operations=done))
        opened.summaries.put(summary("gone", state=State.CANCELLED))
        opened.summaries.put(Summary(agenda_id="refused", state=State.REFUSED))
        yield opened


def published(api):
    """The lifecycle events that were published, whatever frames they are in."""
    events = []
    for one in api.published:
        events += one if isinstance(one, list) else [one]
    return events


@pytest.mark.parametrize(
    ("agenda_id", "action"),
    [("run", "cancel"), ("wait", "cancel"), ("wait", "hold"), ("held", "release")],
)
async def test_a_command_is_sent_to_the_scheduler(api, agenda_id, action):
    status, answer = await api.post(f"/v1/agendas/{agenda_id}/{action}", {"reason": "late"})
    assert status == 202
    assert (answer["id"], answer["action"], answer["done"]) == (agenda_id, action, False)
    (event,) = published(api)
    assert event == {
        "type": "agenda.commanded",
        "agenda_id": agenda_id,
        "at": "2026-01-01T00:00:00Z",
        "insight_id": "files",
        "action": action,
        "by": "anyone",
        "reason": "late",
        "attempt": 1,
    }
    (record,) = api.publisher.records
    assert (record.topic, record.key) == ("pop.agenda-events", agenda_id.encode())


async def test_a_command_needs_no_body(api):
    assert (await api.post("/v1/agendas/run/cancel"))[0] == 202


async def test_what_is_so_already_is_not_sent_again(api):
    status, answer = await api.post("/v1/agendas/gone/cancel")
    assert (status, answer["done"]) == (200, True)
    assert not published(api)


@pytest.mark.parametrize(
    ("agenda_id", "action"), [("held", "hold"), ("wait", "release"), ("run", "release")]
)
async def test_what_may_revert_a_command_in_flight_is_sent_though_it_seems_done(
    api, agenda_id, action
):
    status, answer = await api.post(f"/v1/agendas/{agenda_id}/{action}")
    assert (status, answer["done"]) == (200, True)
    assert [one["action"] for one in published(api)] == [action]


@pytest.mark.parametrize(
    ("agenda_id", "action"),
    [("broke", "cancel"), ("run", "hold"), ("gone", "release"), ("run", "rerun")],
)
async def test_a_state_that_forbids_it_is_a_conflict_that_names_the_right_ones(
    api, agenda_id, action
):
    status, problem = await api.post(f"/v1/agendas/{agenda_id}/{action}")
    assert (status, problem["code"]) == (409, "wrong_state")
    assert f"{action} needs one that is" in problem["detail"]
    assert not published(api)


async def test_an_agenda_that_is_not_there_is_not_found(api):
    for action in ("cancel", "rerun"):
        assert (await api.post(f"/v1/agendas/nobody/{action}"))[0] == 404
    assert (await api.delete("/v1/agendas/nobody"))[0] == 404


async def test_a_new_priority_is_sent_along(api):
    await api.post("/v1/agendas/wait/reprioritise", {"priority": 1})
    (event,) = published(api)
    assert event["priority"] == 1
    assert "rank" not in event


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "priority"),
        ({"priority": 0}, "priority"),
        ({"priority": 10}, "priority"),
        ({"rank": -1}, "rank"),
        ({"priority": 1, "color": "red"}, "color"),
        ([], "body"),
    ],
)
async def test_a_body_that_is_wrong_names_the_field(api, body, field):
    status, problem = await api.post("/v1/agendas/wait/reprioritise", body)
    assert (status, problem["code"]) == (422, "invalid")
    assert problem["issues"][0]["field"] == field
    assert not published(api)


@pytest.mark.parametrize(
    ("wish", "reset"),
    [
        (None, None),
        ({"operations": "failed"}, None),
        ({"operations": "all"}, "all"),
        ({"operations": ["fetch"]}, ["fetch", "more"]),
        ({"operations": ["store"]}, ["store"]),
        ({"operations": ["more"]}, ["more"]),
    ],
)
async def test_what_failed_runs_again_as_the_next_attempt(api, wish, reset):
    raw = msgspec.Raw(b'{"name": "more", "type": "sql"}')
    new = (AppendedOperation(by="fetch", at=AT, operation=raw),)
    api.summaries.put(replace(api.summaries.agendas["broke"], appended=new))
    status, _ = await api.post("/v1/agendas/broke/rerun", wish)
    assert status == 202
    (event,) = published(api)
    assert (event["type"], event["attempt"], event.get("reset")) == (
        "agenda.restarted", 2, reset,
    )  # fmt: skip
    assert event["routed"]["agenda"]["id"] == "broke"
    assert event["routed"]["attempt"] == 2


async def test_a_reset_waits_until_it_is_released(api):
    await api.post("/v1/agendas/broke/rerun", {"hold": True})
    assert published(api)[0]["routed"]["held"] is True


async def test_an_operation_that_is_not_there_is_refused(api):
    status, problem = await api.post("/v1/agendas/broke/rerun", {"operations": ["fetsch"]})
    assert status == 422
    assert problem["issues"][0]["value"] == "fetsch"
    assert "fetch, store" in problem["issues"][0]["message"]


async def test_only_what_has_ended_is_deleted(api):
    assert (await api.delete("/v1/agendas/broke"))[0] == 204
    assert (await api.get("/v1/agendas/broke"))[0] == 404
    status, problem = await api.delete("/v1/agendas/run")
    assert (status, problem["code"]) == (409, "wrong_state")


async def test_a_list_is_cut_into_pages_and_says_how_many_there_are(api):
    for number in range(5):
        at = AT + timedelta(minutes=number)
        api.summaries.put(summary(f"n{number}", customer_id="many", accepted_at=at))
    path = "/v1/agendas?customer_id=many&limit=2"
    status, page = await api.get(path)
    assert (status, page["total"]) == (200, 5)
    found = [one["id"] for one in page["agendas"]]
    while page["next"]:
        _, page = await api.get(f"{path}&cursor={page['next']}")
        found += [one["id"] for one in page["agendas"]]
    assert found == ["n4", "n3", "n2", "n1", "n0"]


async def test_a_list_is_narrowed_by_every_field(api):
    _, page = await api.get("/v1/agendas?state=ready&state=held&order=oldest")
    assert [one["id"] for one in page["agendas"]] == ["held", "wait"]
    _, page = await api.get("/v1/agendas?link_id=night&insight_id=files&ids=wait&ids=run")
    assert [one["id"] for one in page["agendas"]] == ["wait"]
    api.summaries.put(summary("named", title="Cut & copy"))
    _, page = await api.get("/v1/agendas?title=Cut%20%26%20copy&title=other")
    assert [one["id"] for one in page["agendas"]] == ["named"]
    _, page = await api.get("/v1/agendas?title=Cut")
    assert page["total"] == 0
    body = {"params": {"externalId": "T 9"}, "trace": {"correlation_id": "ticket-77"}}
    api.summaries.put(summary("known", body=json.dumps(body).encode()))
    for query in ("external_id=T%209&external_id=x", "correlation_id=ticket-77"):
        _, page = await api.get(f"/v1/agendas?{query}")
        [one] = page["agendas"]
        assert (one["id"], one["external_id"], one["correlation_id"]) == (
            "known",
            "T 9",
            "ticket-77",
        )
    _, page = await api.get("/v1/agendas?external_id=T%209&correlation_id=x")
    assert page["total"] == 0
    for query in ("priority=1", "attempt=7", "puller_id=%3Cscript%3E", "waiting_for=retry"):
        _, page = await api.get(f"/v1/agendas?{query}")
        assert page["total"] == 0
    made = {"template": {"id": "nightly@acme", "version": 1}}
    whole = summary("made", customer_id="acme", puller_id="p7", body=json.dumps(made).encode())
    api.summaries.put(whole)
    for query in ("template_id=nightly@acme", "puller_id=p7", "puller_id=p7&attempt=1"):
        _, page = await api.get(f"/v1/agendas?{query}")
        [one] = page["agendas"]
        assert (one["template_id"], one["puller_id"]) == ("nightly@acme", "p7")
    _, page = await api.get("/v1/agendas?accepted_from=2027-01-01T00:00:00Z")
    assert (page["total"], page["agendas"], page["next"]) == (0, [], None)


async def test_a_list_has_the_fields_that_are_asked_for(api):
    _, whole = await api.get("/v1/agendas?limit=2")
    status, page = await api.get("/v1/agendas?limit=2&fields=state,id")
    assert status == 200
    assert page["agendas"] == [{"state": o["state"], "id": o["id"]} for o in whole["agendas"]]
    assert (page["total"], page["next"]) == (whole["total"], whole["next"])
    every = ",".join(whole["agendas"][0])
    assert (await api.get(f"/v1/agendas?limit=2&fields={every}"))[1] == whole


@pytest.mark.parametrize("fields", ["", "id,", "body", "id,body", "id&fields=state", "id%20"])
async def test_a_field_that_no_listed_agenda_has_is_named(api, fields):
    status, problem = await api.get(f"/v1/agendas?fields={fields}")
    assert (status, [one["field"] for one in problem["issues"]]) == (422, ["fields"])
    assert "name some of id, state, attempt" in problem["issues"][0]["message"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("state=done", "state[0]"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=2&limit=3", "limit"),
        ("cursor=nonsense", "cursor"),
        ("accepted_from=yesterday", "accepted_from"),
        ("ended_before=2026-01-01", "ended_before"),
        ("priority=0", "priority[0]"),
        ("priority=1&priority=high", "priority[1]"),
        ("attempt=0", "attempt[0]"),
        ("attempt=99999999999999", "attempt[0]"),
        ("waiting_for=godot", "waiting_for[0]"),
        ("stopping=never", "stopping[0]"),
        ("template_id=' or 1=1 --", "template_id[0]"),
        ("accepted_from=2026-01-01T00:00:00", "accepted_from"),
        ("color=red", "color"),
        ("order=up", "order"),
    ],
)
async def test_a_query_that_is_wrong_names_the_parameter(api, query, field):
    status, problem = await api.get(f"/v1/agendas?{query}")
    assert (status, problem["code"]) == (422, "invalid")
    assert problem["issues"][0]["field"] == field


async def test_a_bulk_command_reaches_all_that_are_in_a_state_for_it(api):
    wish = {"action": "cancel", "filter": {"insight_id": ["files"]}, "reason": "wrong input"}
    status, result = await api.post("/v1/commands", wish)
    assert status == 202
    assert result == {
        "action": "cancel",
        "dry_run": False,
        "matched": 5,
        "commanded": 3,
        "skipped": {"failed": 1, "cancelled": 1},
        "not_possible": {},
    }
    assert {event["agenda_id"] for event in published(api)} == {"run", "wait", "held"}
    begun, done = api.audit.log
    wish = {"action": "cancel", "filter": {"insight_id": ["files"]}, "reason": "wrong input"}
    assert (begun.action, begun.kind, begun.object_id) == ("commanded", "agendas", "cancel")
    assert json.loads(begun.after) == wish
    assert done.action == "finished"
    assert json.loads(done.after) == wish | {"matched": 5, "commanded": 3}
    assert begun.request_id == done.request_id


@pytest.mark.parametrize(
    ("action", "reached", "skipped"),
    [
        ("hold", {"held", "wait"}, {"running": 1, "failed": 1, "cancelled": 1}),
        ("release", {"held", "wait", "run"}, {"failed": 1, "cancelled": 1}),
    ],
)
async def test_a_bulk_command_that_may_revert_one_in_flight_is_sent_though_it_seems_done(
    api, action, reached, skipped
):
    wish = {"action": action, "filter": {"insight_id": ["files"]}}
    _, counted = await api.post("/v1/commands", {**wish, "dry_run": True})
    assert not published(api)
    _, result = await api.post("/v1/commands", wish)
    assert (result["commanded"], result["skipped"]) == (len(reached), skipped)
    assert counted == result | {"dry_run": True}
    assert {(one["agenda_id"], one["action"]) for one in published(api)} == {
        (agenda_id, action) for agenda_id in reached
    }


async def test_a_hold_that_does_not_show_yet_is_taken_back_in_bulk(api):
    assert (await api.post("/v1/agendas/wait/hold"))[0] == 202
    await api.post("/v1/commands", {"action": "release", "filter": {"ids": ["wait"]}})
    assert [one["action"] for one in published(api)] == ["hold", "release"]


@pytest.mark.parametrize("action", ["cancel", "hold", "release", "reprioritise"])
async def test_many_and_one_are_judged_alike(api, action):
    wish = {"priority": 1} if action == "reprioritise" else {}
    one_by_one = [
        agenda_id
        for agenda_id in ("run", "wait", "held", "broke", "gone")
        if (await api.post(f"/v1/agendas/{agenda_id}/{action}", wish))[0] < 400
        and [one for one in published(api) if one["agenda_id"] == agenda_id]
    ]
    api.publisher.records.clear()
    await api.post(
        "/v1/commands", {"action": action, "filter": {"insight_id": ["files"]}, **wish}
    )
    assert sorted(one["agenda_id"] for one in published(api)) == sorted(one_by_one)


async def test_a_dry_run_only_counts(api):
    wish = {"action": "delete", "filter": {"state": ["failed", "running"]}, "dry_run": True}
    status, result = await api.post("/v1/commands", wish)
    assert (status, result["matched"], result["commanded"]) == (200, 2, 1)
    assert (await api.get("/v1/agendas/broke"))[0] == 200


async def test_many_can_be_run_again_or_deleted(api):
    everything = {"filter": {"customer_id": ["acme"]}}
    _, result = await api.post("/v1/commands", {"action": "rerun", **everything})
    assert (result["commanded"], result["skipped"]) == (2, {"running": 1, "ready": 1})
    assert result["not_possible"] == {}
    assert {event["agenda_id"] for event in published(api)} == {"broke", "gone"}
    _, result = await api.post("/v1/commands", {"action": "delete", **everything})
    assert result["commanded"] == 2
    assert (await api.get("/v1/agendas/gone"))[0] == 404


@pytest.mark.parametrize("at_once", [1, 1_000])
async def test_what_cannot_be_run_again_is_counted_and_the_rest_is(api, monkeypatch, at_once):
    """Also by a dry run, and whatever page it is in."""
    monkeypatch.setattr("pop_stream.api.agendas.commands.BATCH_AGENDAS", at_once)
    for agenda_id, body in (("b-purged", b""), ("b-garbled", b"{"), ("z-purged", b"")):
        api.summaries.put(replace(summary(agenda_id, state=State.FAILED), body=body))
    wish = {"action": "rerun", "filter": {"customer_id": ["acme"]}}
    counted = {"matched": 7, "commanded": 2, "not_possible": {"no_body": 2, "invalid": 1}}
    for dry_run in (True, False):
        status, result = await api.post("/v1/commands", wish | {"dry_run": dry_run})
        assert status == (200 if dry_run else 202)
        assert result | counted == result
        assert {one["agenda_id"] for one in published(api)} == (
            set() if dry_run else {"broke", "gone"}
        )


@pytest.mark.parametrize("chosen", [{}, {"state": []}, {"ids": []}])
async def test_a_bulk_command_never_means_everything_by_mistake(api, chosen):
    status, problem = await api.post("/v1/commands", {"action": "cancel", "filter": chosen})
    assert (status, problem["issues"][0]["field"]) == (422, "filter")


async def test_a_list_is_narrowed_by_a_payload_of_the_caller_s_own_agendas(api):
    for agenda_id, host in (("a1", "one"), ("a2", "two")):
        operations = [{"name": "fetch", "type": "http", "payload": {"to": {"host": host}}}]
        body = json.dumps({"id": agenda_id, "operations": operations}).encode()
        api.summaries.put(summary(agenda_id, body=body))

    async def listed(query):
        status, page = await api.get(f"/v1/agendas?{query}")
        assert status == 200, page
        return [one["id"] for one in page["agendas"]]

    assert await listed("payload=to.host=one") == ["a1"]
    assert {*await listed("payload=to.host=one&payload=to.host=two")} == {"a1", "a2"}
    assert await listed("payload=to.host=one&payload=to=x") == []
    assert await listed("payload=to.host=one&customer_id=other") == []


@pytest.mark.parametrize("value", ["host", "=one", "a=" + "x" * 900])
async def test_a_test_of_a_payload_names_a_path_and_a_value(api, value):
    status, problem = await api.get(f"/v1/agendas?payload={value}")
    assert (status, problem["issues"][0]["field"]) == (422, "payload[0]")
