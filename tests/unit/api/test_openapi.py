"""The document and what is served say the same."""

import re
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from aiohttp import web
from api_fakes import agenda, open_api, ports, summary
from jsonschema import Draft202012Validator, FormatChecker
from openapi_spec_validator import validate
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from pop_stream.api.app import create_app
from pop_stream.model.identity import ANYONE
from pop_stream.model.revisions import Author, put
from pop_stream.model.schedule import Schedule
from pop_stream.model.template import AgendaTemplate
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.settings import Settings


@pytest_asyncio.fixture
async def api():
    async with open_api(max_agenda_bytes=2_000) as opened:
        opened.summaries.put(summary("a1", link_id="l1"))
        opened.summaries.put(summary("done", state=State.SUCCEEDED))
        opened.summaries.put(Summary(agenda_id="refused", state=State.REFUSED))
        template = AgendaTemplate(id="fetch", agenda=agenda(customer_id="beta"))
        schedule = Schedule.model_validate(
            {"id": "x", "trigger": {"every_s": 60}, "submission": agenda(customer_id="beta")}
        )
        await opened.store.change(
            [put(template), put(schedule)], Author(principal=ANYONE, request_id="fixture")
        )
        yield opened


async def test_the_document_is_valid_openapi(api):
    _, document = await api.get("/openapi.json")
    validate(document)
    assert document["openapi"].startswith("3.1")


async def test_every_route_is_documented_and_every_path_is_routed(api):
    _, document = await api.get("/openapi.json")
    documented = {
        (method.upper(), path) for path, item in document["paths"].items() for method in item
    }
    app = create_app(ports(), Settings())
    routed = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.method != "HEAD" and isinstance(route, web.ResourceRoute)
    }
    assert documented == routed


async def test_operation_ids_are_unique(api):
    _, document = await api.get("/openapi.json")
    names = [one["operationId"] for item in document["paths"].values() for one in item.values()]
    assert len(names) == len(set(names))


TWO = agenda(operations=[{"name": "a", "type": "http"}, {"name": "a", "type": "http"}])

CUSTOMER = "/v1/customers/{customer_id}"
TEMPLATE = "/v1/agenda-templates/{template_id}"

CALLS = [
    ("POST", "/v1/agendas", "/v1/agendas", agenda(), 202),
    ("POST", "/v1/agendas", "/v1/agendas", [agenda(), TWO, {}], 202),
    ("POST", "/v1/agendas", "/v1/agendas", TWO, 422),
    ("POST", "/v1/agendas", "/v1/agendas", [TWO], 422),
    ("POST", "/v1/agendas", "/v1/agendas", agenda(title="x" * 3_000), 413),
    ("POST", "/v1/agendas", "/v1/agendas", None, 415),
    ("GET", "/v1/agendas/{agenda_id}", "/v1/agendas/a1", None, 200),
    ("GET", "/v1/agendas/{agenda_id}", "/v1/agendas/refused", None, 200),
    ("GET", "/v1/agendas/{agenda_id}", "/v1/agendas/none", None, 404),
    ("GET", "/v1/agendas/{agenda_id}/progress", "/v1/agendas/a1/progress", None, 200),
    ("GET", "/v1/agendas/{agenda_id}/progress", "/v1/agendas/none/progress", None, 404),
    ("GET", "/v1/agendas/{agenda_id}/callbacks", "/v1/agendas/a1/callbacks", None, 200),
    ("GET", "/v1/agendas/{agenda_id}/callbacks", "/v1/agendas/none/callbacks", None, 404),
    ("GET", "/v1/agendas/{agenda_id}/events", "/v1/agendas/done/events", None, 200),
    ("GET", "/v1/agendas/{agenda_id}/events", "/v1/agendas/none/events", None, 404),
    ("GET", "/v1/links/{link_id}/summary", "/v1/links/l1/summary", None, 200),
    ("GET", "/v1/links/{link_id}/summary", "/v1/links/none/summary", None, 404),
    ("GET", "/v1/links/{link_id}/events", "/v1/links/none/events", None, 404),
    ("GET", "/v1/insights", "/v1/insights", None, 200),
    ("GET", "/v1/insights", "/v1/insights?fields=id,title&sort=-id", None, 200),
    ("GET", "/v1/insights", "/v1/insights?nothing=1", None, 422),
    ("GET", "/v1/customers", "/v1/customers?weight=2", None, 200),
    ("GET", "/v1/pools", "/v1/pools", None, 200),
    ("GET", "/v1/agenda-templates", "/v1/agenda-templates", None, 200),
    ("POST", f"{TEMPLATE}/run", "/v1/agenda-templates/fetch/run", {}, 202),
    ("POST", f"{TEMPLATE}/run", "/v1/agenda-templates/none/run", {}, 404),
    ("POST", f"{TEMPLATE}/run", "/v1/agenda-templates/fetch/run", {"x": 1}, 422),
    ("POST", f"{TEMPLATE}/preview", "/v1/agenda-templates/fetch/preview", {}, 200),
    ("GET", "/v1/agendas/{agenda_id}/explain", "/v1/agendas/a1/explain", None, 200),
    ("POST", "/v1/placement/explain", "/v1/placement/explain", agenda(), 200),
    ("POST", "/v1/placement/explain", "/v1/placement/explain", {}, 422),
    ("POST", "/v1/resubmissions", "/v1/resubmissions", {}, 202),
    ("POST", "/v1/resubmissions", "/v1/resubmissions", {"dry_run": True}, 200),
    ("POST", "/v1/customers", "/v1/customers", {"id": "new"}, 201),
    ("POST", "/v1/customers", "/v1/customers", {"id": "acme"}, 409),
    ("POST", "/v1/customers", "/v1/customers", {"id": "new", "weight": 0}, 422),
    ("POST", "/v1/pools", "/v1/pools", {"id": "gpu", "max_in_flight": 1}, 201),
    ("POST", "/v1/agenda-templates", "/v1/agenda-templates", {"id": "t", "agenda": {}}, 201),
    ("GET", CUSTOMER, "/v1/customers/acme", None, 200),
    ("GET", CUSTOMER, "/v1/customers/none", None, 404),
    ("PUT", CUSTOMER, "/v1/customers/acme", {"weight": 3}, 200),
    ("PUT", CUSTOMER, "/v1/customers/new", {}, 201),
    ("PATCH", CUSTOMER, "/v1/customers/acme", {"weight": None}, 200),
    ("PATCH", CUSTOMER, "/v1/customers/none", {}, 404),
    ("PATCH", CUSTOMER, "/v1/customers/acme", None, 415),
    ("DELETE", CUSTOMER, "/v1/customers/acme", None, 204),
    ("DELETE", CUSTOMER, "/v1/customers/none", None, 404),
    ("GET", f"{CUSTOMER}/versions/{{version}}", "/v1/customers/acme/versions/1", None, 200),
    ("GET", f"{CUSTOMER}/versions/{{version}}", "/v1/customers/acme/versions/2", None, 404),
    ("GET", f"{CUSTOMER}/versions/{{version}}", "/v1/customers/acme/versions/x", None, 404),
    ("GET", "/healthz", "/healthz", None, 200),
    ("GET", "/readyz", "/readyz", None, 200),
    ("GET", "/metrics", "/metrics", None, 200),
    ("GET", "/openapi.json", "/openapi.json", None, 200),
]


@pytest.mark.parametrize(("method", "path", "url", "body", "status"), CALLS)
async def test_answers_are_as_documented(api, method, path, url, body, status):
    _, document = await api.get("/openapi.json")
    async with api.client.request(method, url, json=body) as response:
        assert response.status == status
        await expect_documented(document, document["paths"][path][method.lower()], response)


@pytest.mark.parametrize("path", ["/v1/agendas/{agenda_id}", "/readyz"])
async def test_unavailability_is_as_documented(api, path):
    _, document = await api.get("/openapi.json")
    api.summaries.is_away = True
    async with api.client.get(path.replace("{agenda_id}", "a1")) as response:
        assert response.status == 503
        await expect_documented(document, document["paths"][path]["get"], response)


async def test_a_link_stream_is_as_documented(api):
    _, document = await api.get("/openapi.json")
    async with api.client.get("/v1/links/l1/events") as response:
        documented = document["paths"]["/v1/links/{link_id}/events"]["get"]["responses"]["200"]
        assert [*documented["content"]] == [response.content_type]


async def test_what_the_document_allows_is_accepted(api):
    _, document = await api.get("/openapi.json")
    checker = validator(document, {"$ref": "#/components/schemas/Agenda"})
    assert checker.is_valid(agenda(id="a1"))
    assert not checker.is_valid(agenda(unknown=1))
    assert (await api.submit(agenda(unknown=1)))[0] == 422


async def expect_documented(document, operation, response):
    documented = operation["responses"][str(response.status)]
    for name in documented.get("headers", {}):
        assert name in response.headers or name == "Location"
    if "content" not in documented:
        assert await response.read() == b""
        return
    content = documented["content"][response.content_type]
    if "json" in response.content_type:
        shown = await response.json(content_type=None)
        validator(document, content["schema"]).validate(shown)


def validator(document, schema):
    resource = Resource(contents=document, specification=DRAFT202012)
    registry = Registry().with_resource("urn:document", resource)
    absolute = _absolute(schema)
    return Draft202012Validator(absolute, registry=registry, format_checker=FormatChecker())


def _absolute(schema):
    if isinstance(schema, dict):
        return {
            key: f"urn:document{value}" if key == "$ref" else _absolute(value)
            for key, value in schema.items()
        }
    return [_absolute(one) for one in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize(("auth", "asked"), [("required", [{"bearer": []}]), ("off", [])])
async def test_the_document_asks_for_a_token_only_where_the_api_does(auth, asked):
    async with open_api(auth=auth, signing_secrets=("s" * 32,)) as api:
        _, document = await api.get("/openapi.json")
    validate(document)
    assert document["security"] == asked


LETTER_ID = "0" * 20
SAMPLES = {"string": "x", "integer": "1", "number": "1", "boolean": "true"}


def sample_of(name, items):
    """A value of a list in a query, as short as there is one."""
    items = items.get("anyOf", [items])[0]
    if "enum" in items:
        return items["enum"][0]
    if items.get("format") == "date-time":
        return "2026-01-01T00:00:00Z"
    odd = {"payload": "x=1", "ids": LETTER_ID, "group": "hour"}
    return odd.get(name) or SAMPLES[items["type"]]


async def test_every_list_in_a_query_states_its_limit_and_is_held_to_it(api):
    _, document = await api.get("/openapi.json")
    tried = 0
    for path, item in document["paths"].items():
        for method, operation in item.items():
            for one in operation["parameters"]:
                if one["schema"].get("type") != "array":
                    continue
                name, most = one["name"], one["schema"].get("maxItems")
                assert method == "get", (path, name)
                assert most, f"{path}: {name} has no maxItems"
                value = sample_of(name, one["schema"]["items"])
                url = re.sub(r"{\w+}", "x", path)
                for times, is_refused in ((most, False), (most + 1, True)):
                    _, said = await api.get(f"{url}?{urlencode([(name, value)] * times)}")
                    refused = [issue["field"] for issue in said.get("issues", ())]
                    assert refused == [name] * is_refused, (path, name, times, said)
                tried += 1
    assert tried > 100
