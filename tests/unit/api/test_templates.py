"""Templates run and previewed over HTTP, and placement explained."""

import json

import pytest
import pytest_asyncio
from api_fakes import agenda, open_api, summary

from pop_stream.model.definitions import (
    Customer,
    Insight,
    Mappers,
    ResourcePool,
    decode_definition,
)
from pop_stream.policy.lifecycle.states import State

TEMPLATE = {
    "id": "scan",
    "title": "Scans",
    "params": {"depth": {"type": "integer", "default": 1}},
    "agenda": {
        "customer_id": "acme",
        "params": {"depth": "@<depth>"},
        "operations": [
            {"name": "fetch", "type": "http", "payload": {"url": "@<pop.payload::/url>"}},
            {"name": "store", "type": "sql", "payload": "@<fetch.out::/rows>"},
        ],
    },
}
RUN = "/v1/agenda-templates/scan/run"
PREVIEW = "/v1/agenda-templates/scan/preview"


@pytest_asyncio.fixture
async def api():
    async with open_api() as opened:
        assert (await opened.call("POST", "/v1/agenda-templates", TEMPLATE))[0] == 201
        yield opened


def take_up(api):
    """Let what follows Kafka see what the store holds, as the outbox would."""
    for row in api.store.outbox:
        one = decode_definition(row.key, row.body)
        api.definitions.current = api.definitions.current.updated(
            row.key, one, version=row.version
        )


async def test_a_run_submits_the_expanded_agenda_at_once(api):
    body = {"payload": {"url": "http://x"}, "params": {"depth": 3}, "id": "a1", "priority": 1}
    status, answer, headers = await api.call("POST", RUN, body)
    assert (status, answer["id"], answer["insight_id"]) == (202, "a1", "files")
    assert headers["Location"] == "/v1/agendas/a1"
    [published] = api.published
    assert published["template"] == {"id": "scan", "version": 1}
    assert (published["title"], published["priority"]) == ("Scans", 1)
    assert published["params"] == {"depth": 3}
    assert [one["payload"] for one in published["operations"]] == [
        {"url": "http://x"},
        "@<fetch.out::/rows>",
    ]


async def test_the_version_that_ran_is_remembered(api):
    await api.call("PATCH", "/v1/agenda-templates/scan", {"title": "New"})
    await api.call("POST", RUN, {"payload": {"url": "u"}})
    [published] = api.published
    assert (published["title"], published["template"]["version"]) == ("New", 2)
    _, old, _ = await api.call("GET", "/v1/agenda-templates/scan/versions/1")
    assert old["title"] == "Scans"


async def test_a_preview_submits_nothing(api):
    status, answer, _ = await api.call("POST", PREVIEW, {"payload": {"url": "u"}})
    assert (status, answer["insight_id"], answer["issues"]) == (200, "files", [])
    assert answer["agenda"]["operations"][0]["payload"] == {"url": "u"}
    assert api.published == []


async def test_a_preview_shows_what_fits_nowhere(api):
    await api.call(
        "PATCH",
        "/v1/agenda-templates/scan",
        {"agenda": {"operations": [{"name": "a", "type": "unknown"}]}},
    )
    status, answer, _ = await api.call("POST", PREVIEW, {})
    assert (status, answer["insight_id"]) == (200, None)
    assert "no insight takes" in answer["issues"][0]["message"]
    assert (await api.call("POST", RUN, {}))[0] == 422


@pytest.mark.parametrize("path", [RUN, PREVIEW])
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "agenda.operations[0].payload.url"),
        ({"payload": {"url": "u"}, "params": {"depth": "deep"}}, "params.depth"),
        ({"payload": {"url": "u"}, "params": {"wide": 1}}, "params.wide"),
        ({"payload": {"url": "u"}, "priority": 10}, "priority"),
        ({"payload": {"url": "u"}, "operations": []}, "operations"),
        ({"payload": {"url": "\0"}}, "run"),
        ([], "run"),
    ],
)
async def test_a_run_that_cannot_be_is_refused_with_the_reason(api, path, body, field):
    status, problem, _ = await api.call("POST", path, body)
    assert (status, problem["issues"][0]["field"]) == (422, field)
    assert api.published == []


async def test_an_unknown_template_is_404(api):
    assert (await api.call("POST", "/v1/agenda-templates/none/run", {}))[0] == 404


async def test_templates_run_in_lists_of_agendas_too(api):
    take_up(api)
    status, answer = await api.submit(
        [
            {"template_id": "scan", "payload": {"url": "u"}},
            agenda(),
            {"template_id": "none"},
            {"template_id": "scan"},
            agenda(params={"template_id": "scan"}),
        ]
    )
    assert status == 202
    assert [one["status"] for one in answer["results"]] == [202, 202, 422, 422, 202]
    assert answer["results"][2]["issues"][0]["field"] == "template_id"
    assert [one.get("template") for one in api.published] == [
        {"id": "scan", "version": 1},
        None,
        None,
    ]


async def test_an_explanation_has_the_outcome_of_every_insight(api):
    current = api.definitions.current
    for one in (
        Insight(id="urgent", mappers=takes(("http",)), precedence=5, pool="gpu"),
        Insight(id="other", mappers=takes(("x",))),
        Insight(id="secret", mappers=takes(("http",)), owner="beta"),
    ):
        current = current.updated(f"insight/{one.id}", one)
    api.definitions.current = current
    status, answer = await api.post("/v1/placement/explain", agenda())
    assert (status, answer["insight_id"], answer["went_to"]) == (200, "urgent", None)
    assert [(one["insight_id"], one["outcome"]) for one in answer["considered"]] == [
        ("urgent", "chosen"),
        ("files", "outranked"),
        ("other", "no_match"),
    ]
    assert answer["considered"][1]["matches"] == ["operation_types: http"]
    pool = ResourcePool(id="cpu", max_in_flight=1)
    bound = Customer(id="acme", pool="cpu", default_insight="other")
    api.definitions.current = current.updated("pool/cpu", pool).updated("customer/acme", bound)
    _, answer = await api.post("/v1/placement/explain", agenda())
    assert answer["insight_id"] == "other"
    assert {one["insight_id"]: one["outcome"] for one in answer["considered"]} == {
        "other": "chosen",
        "files": "other_pool",
        "urgent": "other_pool",
    }
    assert "default insight" in answer["considered"][0]["why"]


async def test_an_agenda_that_went_elsewhere_is_explained_by_what_holds_now(api):
    one = json.dumps(agenda(id="a1")).encode()
    api.summaries.put(summary("a1", body=one, insight_id="gone"))
    status, answer = await api.get("/v1/agendas/a1/explain")
    assert (status, answer["went_to"], answer["insight_id"]) == (200, "gone", "files")
    assert (await api.get("/v1/agendas/none/explain"))[0] == 404


async def test_what_fits_nowhere_is_explained_too(api):
    nowhere = agenda(operations=[{"name": "a", "type": "unknown"}])
    status, answer = await api.post("/v1/placement/explain", nowhere)
    assert (status, answer["insight_id"]) == (200, None)
    assert answer["issues"][0]["value"] == "unknown"
    assert [one["outcome"] for one in answer["considered"]] == ["no_match"]


def takes(types):
    return Mappers(operation_types=types)


async def test_a_customer_must_be_defined_whichever_way_its_agenda_comes_where_that_is_set():
    new = {**agenda(customer_id="new"), "id": "r1"}
    async with open_api(defined_customers_only=True) as strict:
        assert (await strict.call("POST", "/v1/agenda-templates", TEMPLATE))[0] == 201
        refused = summary(
            "r1", state=State.REFUSED, customer_id="new", body=json.dumps(new).encode()
        )
        strict.summaries.put(refused)
        body = {"customer_id": "new", "payload": {"url": "x"}}
        for path, sent in (("/v1/agendas", new), ("/v1/agendas", [new]), (RUN, body)):
            status, answer, _ = await strict.call("POST", path, sent)
            assert status == 422, path
            assert "define the customer" in json.dumps(answer)
        for path, sent in ((PREVIEW, body), ("/v1/placement/explain", new)):
            status, answer, _ = await strict.call("POST", path, sent)
            assert (status, answer["insight_id"]) == (200, None)
            assert answer["issues"][0]["field"] == "customer_id"
        _, answer, _ = await strict.call("POST", "/v1/resubmissions")
        assert (answer["resubmitted"], answer["still_refused"]) == (0, 1)
        assert strict.published == []
        body["customer_id"] = "acme"
        assert (await strict.call("POST", RUN, body))[0] == 202


SPLIT = {
    "id": "reports",
    "agenda": {
        "customer_id": "acme",
        "operations": [{"name": "a", "type": "http", "payload": "@<pop.payload::/stores>"}],
    },
    "split": {"attributes": ["store"], "params": {"default_insight": "splits"}},
}
STORES = {"stores": [1, 2, 3, 4, 5], "isolate_stores": True}


async def test_a_split_preview_counts_and_submits_nothing(api):
    await api.call("POST", "/v1/agenda-templates", SPLIT)
    path = "/v1/agenda-templates/reports/split-preview"
    status, answer, _ = await api.call("POST", path, {"payload": STORES})
    assert (status, answer["children"]) == (200, 5)
    assert answer["first"] == [{"stores": [1]}, {"stores": [2]}, {"stores": [3]}]
    assert answer["last"] == {"stores": [5]}
    assert answer["agenda"]["operations"][0]["payload"] == [1]
    assert (answer["insight_id"], answer["parent_insight_id"]) == ("files", None)
    assert "no insight takes" in answer["issues"][0]["message"]
    assert api.published == []


async def test_a_split_that_cannot_be_is_refused_with_the_reason(api):
    await api.call("POST", "/v1/agenda-templates", SPLIT)
    path = "/v1/agenda-templates/reports/split-preview"
    for body, field in (
        ({"payload": [1]}, "payload"),
        ({"payload": {**STORES, "isolate_shops": True}}, "payload.isolate_shops"),
        ({"payload": {"period": "soon", "nominal": "2026-01-01"}}, "payload.period"),
    ):
        for one in (path, "/v1/agenda-templates/reports/run"):
            status, problem, _ = await api.call("POST", one, body)
            assert (status, problem["issues"][0]["field"]) == (422, field)
    status, problem, _ = await api.call("POST", "/v1/agenda-templates/scan/split-preview", {})
    assert (status, problem["issues"][0]["field"]) == (422, "split")


async def test_a_run_that_is_divided_submits_one_agenda(api):
    known = Insight(id="splits", mappers=Mappers(operation_types=("split",)))
    api.definitions.current = api.definitions.current.updated("insight/splits", known)
    await api.call("POST", "/v1/agenda-templates", SPLIT)
    path = "/v1/agenda-templates/reports/run"
    status, answer, _ = await api.call("POST", path, {"payload": STORES, "id": "r1"})
    assert (status, answer["insight_id"]) == (202, "splits")
    [published] = api.published
    assert [one["type"] for one in published["operations"]] == ["split"]
    assert published["operations"][0]["payload"]["payload"] == STORES
