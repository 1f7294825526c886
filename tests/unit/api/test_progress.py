"""What is read: agendas, their progress, links, definitions."""

import json

import pytest
import pytest_asyncio
from api_fakes import AT, agenda, open_api, summary
from msgspec import Raw

from pop_stream.model.events.base import (
    AppendedOperation,
    Diagnostic,
    OperationProgress,
    PriorProgress,
    RefusedIssue,
)
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary


@pytest_asyncio.fixture
async def api():
    async with open_api() as opened:
        yield opened


async def test_an_agenda_is_shown_with_the_submission_itself(api):
    api.summaries.put(summary("a1", title="nightly", link_id="l1", priority=2))
    status, body = await api.get("/v1/agendas/a1")
    assert status == 200
    assert body["agenda"]["operations"][1] == {"name": "store", "type": "sql"}
    assert {key: body[key] for key in body if key not in {"agenda"}} == {
        "id": "a1",
        "state": "running",
        "attempt": 1,
        "insight_id": "files",
        "customer_id": "acme",
        "title": "nightly",
        "link_id": "l1",
        "priority": 2,
        "percent": 25.0,
        "message": "",
        "puller_id": "p1",
        "accepted_at": "2026-01-01T12:00:00Z",
        "emitted_at": "2026-01-01T12:00:00Z",
        "started_at": "2026-01-01T12:00:00Z",
        "ended_at": None,
        "lease_until": None,
        "waiting_until": None,
        "waiting_for": None,
        "stopping": None,
        "duplicate_of": None,
        "history": [],
        "issues": [],
        "diagnostics": [],
    }


async def test_a_refused_agenda_shows_why(api):
    issue = RefusedIssue(field="operations", value="[]", message="name one")
    api.summaries.put(
        Summary(agenda_id="a1", state=State.REFUSED, issues=(issue,), ended_at=AT)
    )
    _, body = await api.get("/v1/agendas/a1")
    assert body["state"] == "refused"
    assert body["issues"] == [{"field": "operations", "value": "[]", "message": "name one"}]
    assert (body["agenda"], body["customer_id"], body["insight_id"]) == (None, None, None)


async def test_operations_never_reported_are_waiting_and_keep_their_order(api):
    api.summaries.put(summary("a1"))
    _, body = await api.get("/v1/agendas/a1/progress")
    assert [(one["name"], one["type"], one["state"]) for one in body["operations"]] == [
        ("fetch", "http", "running"),
        ("store", "sql", "waiting"),
    ]
    assert (body["state"], body["percent"]) == ("running", 25.0)


async def test_results_and_diagnostics_are_shown_as_reported(api):
    note = Diagnostic(message="slow", at=AT, code="slow", detail={"ms": 5})
    done = OperationProgress(
        name="fetch",
        state="succeeded",
        percent=100,
        started_at=AT,
        ended_at=AT,
        result=Raw(b'{"size":\n[1, 2]}'),
        diagnostics=(note,),
    )
    api.summaries.put(summary("a1", operations={"fetch": done}, diagnostics=(note,)))
    _, body = await api.get("/v1/agendas/a1/progress")
    shown = {
        "message": "slow",
        "at": "2026-01-01T12:00:00Z",
        "code": "slow",
        "detail": {"ms": 5},
    }
    assert body["diagnostics"] == [shown]
    first, second = body["operations"]
    assert (first["result"], first["diagnostics"]) == ({"size": [1, 2]}, [shown])
    assert (second["result"], second["diagnostics"]) == (None, [])


async def test_operations_reported_before_the_agenda_was_are_shown(api):
    api.summaries.put(summary("a1", body=b"", operation_names=()))
    _, body = await api.get("/v1/agendas/a1/progress")
    assert [(one["name"], one["type"]) for one in body["operations"]] == [("fetch", None)]


async def test_a_percent_out_of_bounds_is_brought_back(api):
    odd = OperationProgress(name="fetch", state="running", percent=1000 / 3)
    api.summaries.put(summary("a1", operations={"fetch": odd}))
    _, body = await api.get("/v1/agendas/a1/progress")
    assert (body["operations"][0]["percent"], body["percent"]) == (100.0, 50.0)


async def test_a_link_is_the_sum_of_its_agendas(api):
    for agenda_id in ("a1", "a2"):
        api.summaries.put(
            summary(agenda_id, link_id="l1", state=State.SUCCEEDED, operations={})
        )
    api.summaries.put(summary("a3", link_id="l1", operations={}))
    assert await api.get("/v1/links/l1/summary") == (
        200,
        {
            "link_id": "l1",
            "state": "running",
            "percent": 66.67,
            "total": 3,
            "counts": {"succeeded": 2, "running": 1},
        },
    )


@pytest.mark.parametrize(
    "path", ["/v1/agendas/none", "/v1/agendas/none/progress", "/v1/links/none/summary"]
)
async def test_the_unknown_is_404_and_may_yet_appear(api, path):
    status, body = await api.get(path)
    assert (status, body["code"], body["instance"]) == (404, "not_found", path)
    assert "moment" in body["detail"]


@pytest.mark.parametrize("odd", ["%00", "a%0A", "%2e%2e%2fx", "a%20b", "%ff", "a" * 129, "é"])
async def test_an_id_that_nothing_can_have_is_404_without_a_look(api, odd):
    status, body = await api.get(f"/v1/agendas/{odd}")
    assert (status, body["code"]) == (404, "not_found")
    assert not api.summaries.asked


@pytest.mark.parametrize(
    "path", ["/v1/agendas/a1", "/v1/agendas/a1/progress", "/v1/links/l1/summary"]
)
async def test_reads_are_503_while_the_database_is_away(api, path):
    api.summaries.is_away = True
    async with api.client.get(path) as response:
        assert response.status == 503
        assert "Retry-After" in response.headers
        text = await response.text()
    assert "secret" not in text


@pytest.mark.parametrize(("name", "path"), [("store", "store"), ("a/b ä", "a%2Fb%20%C3%A4")])
async def test_one_operation_is_shown_by_its_name(api, name, path):
    done = OperationProgress(name=name, state="succeeded", result=Raw(b"[1, 2]"))
    api.summaries.put(summary("a1", operation_names=(name,), operations={name: done}))
    status, body = await api.get(f"/v1/agendas/a1/operations/{path}")
    assert (status, body["name"], body["result"]) == (200, name, [1, 2])
    status, problem = await api.get("/v1/agendas/a1/operations/gone")
    assert (status, problem["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("params", "external_id"),
    [
        ({"external_id": "x7"}, "x7"),
        ({"externalId": "x8"}, "x8"),
        ({"external_id": 7}, None),
        ({}, None),
    ],
)
async def test_progress_names_the_id_that_the_submitter_has_for_it(api, params, external_id):
    body = json.dumps(agenda(id="a1", params=params)).encode()
    api.summaries.put(summary("a1", body=body, link_id="l1"))
    _, shown = await api.get("/v1/agendas/a1/progress")
    assert (shown["external_id"], shown["link_id"]) == (external_id, "l1")
    assert (shown["started_at"], shown["ended_at"]) == ("2026-01-01T12:00:00Z", None)


async def test_appended_operations_are_shown_with_what_appended_them(api):
    new = AppendedOperation(by="fetch", at=AT, operation=Raw(b'{"name":"more","type":"sql"}'))
    prior = PriorProgress(attempt=1, state="failed", percent=30, message="disk full")
    waits = OperationProgress(name="more", state="waiting", prior=prior)
    api.summaries.put(summary("a1", appended=(new,), operations={"more": waits}))
    _, body = await api.get("/v1/agendas/a1/progress")
    *_, more = body["operations"]
    assert (more["name"], more["type"], more["appended_by"]) == ("more", "sql", "fetch")
    assert (more["prior"]["percent"], more["tries"]) == (30, 1)
    assert body["appended"][0]["operation"] == {"name": "more", "type": "sql"}
