"""Every role on every route, with own, allowed, global, foreign and unknown objects.

The routes come from the application's own table, so one that is added is attacked as well;
what is expected comes from the table in docs/reference/security.md, told here once more.
"""

import asyncio
import json
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import product

import pytest
import pytest_asyncio
import structlog
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from api_fakes import AGENDA, QUICK, agenda, ports, summary
from memory_definitions import MemoryDefinitions

from pop_stream.api.app import create_app
from pop_stream.api.route import Route
from pop_stream.core.definitions import (
    Customer,
    Definitions,
    Insight,
    Mappers,
    ResourcePool,
    VersionedTemplate,
)
from pop_stream.core.identity import Role
from pop_stream.core.template import AgendaTemplate
from pop_stream.identity.credentials import Credentials
from pop_stream.identity.key_book import KeyBook
from pop_stream.identity.minting import mint
from pop_stream.settings import Settings


def _routes() -> list[Route]:
    """The table that the application was made from."""
    captured: list[Route] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "pop_stream.api.app.register", lambda _, table, __: captured.extend(table)
        )
        create_app(ports(), Settings())
    return captured


ROUTES = _routes()
GUARDED = [route for route in ROUTES if route.access.role is not None]
ON_OBJECTS = [route for route in GUARDED if "{" in route.path]
ON_NOTHING = [route for route in GUARDED if "{" not in route.path]

OBJECTS = {
    "agenda_id": {"own": "a-own", "foreign": "a-foreign"},
    "link_id": {"own": "l-own", "foreign": "l-foreign"},
    "insight_id": {
        "own": "i-own",
        "allowed": "i-allowed",
        "global": "i-global",
        "foreign": "i-foreign",
    },
    "pool_id": {"foreign": "p-operators"},
    "template_id": {
        "own": "t-own",
        "allowed": "t-allowed",
        "global": "t-global",
        "foreign": "t-foreign",
    },
    "customer_id": {"own": "acme", "foreign": "beta"},
    "key_id": {"own": "own", "foreign": "foreign"},  # ids are made with the world
}
"""Ids of each kind of object, by whose it is to customer acme; `unknown` is there for all."""

EXPECTED_OF_OTHERS = {
    # whose, changes: what a caller with the role may expect
    ("own", False): "granted",
    ("own", True): "granted",
    ("allowed", False): "granted",
    ("allowed", True): 404,
    ("global", False): "granted",
    ("global", True): 404,
    ("foreign", False): 404,
    ("foreign", True): 404,
    ("unknown", False): 404,
    ("unknown", True): 404,
}


@dataclass
class World:
    client: TestClient
    tokens: dict[tuple[str | None, Role], str]
    keys: dict[str, str]
    publisher: object
    summaries: object
    definition_store: object
    desk: object

    def token(self, customer, role):
        return self.tokens[customer, role]

    async def call(self, route, token, **ids):
        path = re.sub(r"{(\w+)}", lambda name: ids[name[1]], route.path)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with asyncio.timeout(10):
            response = await self.client.request(
                route.method, path, headers=headers, json={} if route.takes else None
            )
            if route.is_stream and response.ok:
                response.close()
                return response, b""
            return response, await response.read()


@asynccontextmanager
async def open_world(*, customers=("acme",)):
    behind = ports()
    insights = [
        Insight(id="i-own", owner="acme", mappers=Mappers(operation_types=("own",))),
        Insight(
            id="i-allowed", owner="beta", visibility="allowed", allowed=("acme",),
            mappers=Mappers(operation_types=("allowed",)),
        ),
        Insight(id="i-global", mappers=Mappers(operation_types=("http",))),
        Insight(id="i-foreign", owner="beta", mappers=Mappers(operation_types=("foreign",))),
    ]  # fmt: skip
    work = {"customer_id": "@<pop.payload::/for?acme>", "operations": AGENDA["operations"]}
    templates = [
        AgendaTemplate(id="t-own", owner="acme", agenda=work),
        AgendaTemplate(
            id="t-allowed", owner="beta", visibility="allowed", allowed=("acme",), agenda=work
        ),
        AgendaTemplate(id="t-global", agenda=work),
        AgendaTemplate(id="t-foreign", owner="beta", agenda=work),
    ]
    known = Definitions(
        customers={one: Customer(id=one) for one in ("acme", "beta")},
        insights={one.id: one for one in insights},
        pools={"p-operators": ResourcePool(id="p-operators", max_in_flight=1)},
        templates={one.id: VersionedTemplate(one, 1) for one in templates},
    )
    behind.definitions.current = known
    behind = replace(behind, definition_store=MemoryDefinitions(*known.all()))
    for whose, customer in (("own", "acme"), ("foreign", "beta")):
        one = summary(
            f"a-{whose}", customer_id=customer, link_id=f"l-{whose}", insight_id=f"i-{whose}"
        )
        behind.summaries.put(one)
    now = behind.clock.now()
    tokens, ids = {}, {}
    for customer, role in product((*customers, None), Role):
        key, token = mint(
            customer_id=customer, roles=frozenset({role}), now=now, created_by="t"
        )
        behind.keys.stored[key.id] = key
        tokens[customer, role] = token
    for whose, customer in (("own", "acme"), ("foreign", "beta")):
        # A role the callers do not have would be refused for that, not for whose it is.
        roles = frozenset({Role.OPERATE})
        key, _ = mint(customer_id=customer, roles=roles, now=now, created_by="t")
        behind.keys.stored[key.id] = key
        ids[whose] = key.id
    credentials = Credentials(KeyBook(behind.keys, behind.clock))
    app = create_app(
        replace(behind, authenticator=credentials), Settings(auth="required"), pace=QUICK
    )
    async with TestClient(TestServer(app)) as client:
        yield World(
            client,
            tokens,
            ids,
            behind.publisher,
            behind.summaries,
            behind.definition_store,
            behind.desk,
        )


@pytest_asyncio.fixture
async def world():
    async with open_world() as opened:
        yield opened


def id_of(world, parameter, whose):
    if whose == "unknown":
        return "x" * 16
    return world.keys[whose] if parameter == "key_id" else OBJECTS[parameter][whose]


def names(route):
    return f"{route.method} {route.path}"


def role_for(route, customer):
    if customer is None and route.access.operator_role is not None:
        return route.access.operator_role
    return route.access.role


def may_at_all(route, customer, role):
    """Whether the caller may do this to anything."""
    needed = role_for(route, customer)
    if customer is None:
        return role in {needed, Role.ADMIN}
    return role is needed and role is not Role.ADMIN and not route.access.operators_only


def expected(route, customer, role, whose):
    """What this caller must be answered on this object."""
    may = may_at_all(route, customer, role)
    if route.access.subject is None or route.access.operators_only:
        # The guard asks for the role alone; whose it is, is the handler's to judge.
        if not may:
            return 403
        return "granted" if whose == "own" else "judged"
    if customer is None:  # to an operator every object is its own
        if whose == "unknown":
            return "refused" if may else 404
        return "granted" if may else 403
    if not may:
        return 403 if whose == "own" else 404
    return EXPECTED_OF_OTHERS[whose, route.access.changes]


def names_of(route):
    return re.findall(r"{(\w+)}", route.path)


def ids_on(world, route, whose=None):
    """Ids for the path: of what is whose it is told; versions and attempts are the first."""
    parameter, *_ = names = names_of(route) or [""]
    if not parameter:
        return {}
    whose = whose or next(iter(OBJECTS[parameter]))
    others = dict.fromkeys(names, "1") | {"operation": "fetch"}
    return others | {parameter: id_of(world, parameter, whose)}


def test_every_route_says_what_it_asks_of_its_caller():
    named = {names(route) for route in ROUTES if route.access.role is None}
    assert named == {"GET /healthz", "GET /readyz", "GET /openapi.json"}


def test_every_object_that_a_path_names_is_guarded():
    for route in ON_OBJECTS:
        parameters = re.findall(r"{(\w+)}", route.path)
        assert parameters[0] in OBJECTS, f"give {parameters[0]} objects in this test's world"
        if route.access.subject:
            assert route.access.subject.parameter in parameters


@pytest.mark.parametrize("route", GUARDED, ids=names)
async def test_without_a_key_nothing_is_told(world, route):
    answers = set()
    for token in (None, "pop_aaaaaaaaaaaaaaaa_" + "A" * 43, "nonsense", "a.b.c"):
        response, _ = await world.call(route, token, **ids_on(world, route))
        answers.add((response.status, response.headers.get("WWW-Authenticate")))
    assert answers == {(401, 'Bearer realm="pop_stream"')}


@pytest.mark.parametrize("route", ON_OBJECTS, ids=names)
async def test_every_role_on_every_kind_of_object(world, route):
    parameter, *_ = names_of(route)
    for customer, role in product(("acme", None), Role):
        for whose in (*OBJECTS[parameter], "unknown"):
            ids = ids_on(world, route, whose)
            response, _ = await world.call(route, world.token(customer, role), **ids)
            wanted = expected(route, customer, role, whose)
            case = f"{names(route)} as {customer or 'operator'} {role} on {whose}"
            if wanted == "granted":
                assert response.status not in {401, 403, 404}, case
            elif wanted == "refused":  # as unknown, or before that for what the body lacks
                assert response.status in {404, 422}, case
            elif wanted == "judged":
                assert response.status != 401, case
            else:
                assert response.status == wanted, case
            is_used_up = route.method == "DELETE" or route.name in {"revokeKey", "rotateKey"}
            if is_used_up and wanted == "granted":
                return  # the object is no longer what it was


@pytest.mark.parametrize("route", ON_NOTHING, ids=names)
async def test_every_role_on_what_is_no_object(world, route):
    for customer, role in product(("acme", None), Role):
        response, _ = await world.call(route, world.token(customer, role))
        may = may_at_all(route, customer, role)
        case = f"{names(route)} as {customer or 'operator'} {role}"
        assert (response.status == 403) is not may, case


@pytest.mark.parametrize("route", ON_OBJECTS, ids=names)
async def test_what_is_anothers_is_answered_as_what_is_not_there(world, route):
    parameter, *_ = names_of(route)
    for role in Role:
        told = []
        for whose in ("foreign", "unknown"):
            named = id_of(world, parameter, whose)
            ids = ids_on(world, route, whose)
            response, body = await world.call(route, world.token("acme", role), **ids)
            headers = {
                name: value
                for name, value in response.headers.items()
                if name.lower() not in {"x-correlation-id", "content-length", "date"}
            }
            told.append((response.status, headers, _without(body, named)))
        assert told[0] == told[1]


async def test_lists_hold_what_the_caller_sees_and_nothing_else(world):
    seen = {}
    for route in ON_NOTHING:
        if route.method != "GET":
            continue
        token = world.token("acme", role_for(route, "acme"))
        _, body = await world.call(route, token)
        seen[names(route)] = body.decode()
    for name, body in seen.items():
        for foreign in ("a-foreign", "l-foreign", "i-foreign", world.keys["foreign"]):
            assert foreign not in body, name
        assert not re.search(r'"(id|customer_id)":"beta"', body), name
    assert "i-allowed" in seen["GET /v1/insights"]
    assert "i-global" in seen["GET /v1/insights"]
    assert "i-own" in seen["GET /v1/insights"]


@pytest.mark.parametrize("customer", ["beta", "nobody-at-all"])
async def test_nobody_submits_for_another_known_or_not(world, customer):
    token = world.token("acme", Role.SUBMIT)
    foreign = agenda(customer_id=customer)
    one = await _submit(world, token, foreign)
    assert (one[0], one[1]["code"]) == (403, "forbidden")
    assert customer not in one[1]["detail"]
    status, several = await _submit(world, token, [agenda(), foreign])
    assert status == 202
    assert [item["status"] for item in several["results"]] == [202, 403]
    assert [json.loads(one.value)["customer_id"] for one in world.publisher.records] == ["acme"]


async def test_an_operator_submits_for_anyone(world):
    token = world.token(None, Role.SUBMIT)
    assert (await _submit(world, token, agenda(customer_id="gamma")))[0] == 202


@pytest.mark.parametrize(
    ("kind", "status"),
    [("own", 202), ("allowed", 202), ("http", 202), ("foreign", 422), ("none", 422)],
)
async def test_an_agenda_fits_only_insights_that_serve_its_customer(world, kind, status):
    token = world.token("acme", Role.SUBMIT)
    wanted = agenda(
        operations=[{"name": "fetch", "type": kind}], params={"defaultInsight": "i-foreign"}
    )
    answered, body = await _submit(world, token, wanted)
    assert answered == status
    assert "i-foreign" not in json.dumps(body)


async def test_a_link_shows_each_customer_its_own_part(world):
    token = world.token("acme", Role.READ)
    route = next(one for one in ROUTES if one.name == "getLinkSummary")
    response, body = await world.call(route, token, link_id="l-own")
    assert response.status == 200
    assert json.loads(body)["total"] == 1


async def test_a_customer_makes_keys_for_itself_and_no_others(world):
    token = world.token("acme", Role.OPERATE)
    for wish, status in (
        ({"roles": ["operate"]}, 201),
        ({"roles": ["operate"], "customer_id": "acme"}, 201),
        ({"roles": ["operate"], "customer_id": "beta"}, 403),
        ({"roles": ["submit"]}, 403),
        ({"roles": ["admin"]}, 422),
        ({"roles": []}, 422),
        ({"roles": ["king"]}, 422),
    ):
        async with world.client.post(
            "/v1/keys", json=wish, headers={"Authorization": f"Bearer {token}"}
        ) as response:
            assert response.status == status, wish
            told = await response.json(content_type=None)
            if status == 201:
                assert told["customer_id"] == "acme"
                assert response.headers["Cache-Control"] == "no-store"
                assert response.headers["Location"] == f"/v1/keys/{told['id']}"


async def test_a_key_that_was_made_works_until_it_is_revoked(world):
    admin = {"Authorization": f"Bearer {world.token(None, Role.ADMIN)}"}
    wish = {"customer_id": "acme", "roles": ["read"]}
    async with world.client.post("/v1/keys", json=wish, headers=admin) as response:
        made = await response.json()
    new = {"Authorization": f"Bearer {made['token']}"}
    async with world.client.post(f"/v1/keys/{made['id']}/revoke", headers=admin) as response:
        assert (await response.json())["state"] == "revoked"
    async with world.client.get("/v1/agendas/a-own", headers=new) as response:
        assert response.status == 401
    async with world.client.get("/v1/audit?kind=key&limit=1", headers=admin) as response:
        page = await response.json()
    assert (page["entries"][0]["action"], page["next"]) == ("revoked", page["entries"][0]["id"])
    assert page["entries"][0]["object_id"] == made["id"]


async def test_no_secret_is_logged_or_answered(world, caplog):
    secrets = {token.split("_", 2)[2] for token in world.tokens.values()}
    with structlog.testing.capture_logs() as logs, caplog.at_level("DEBUG"):
        for route in GUARDED:
            for token in (*world.tokens.values(), "pop_aaaaaaaaaaaaaaaa_" + "B" * 43):
                _, body = await world.call(route, token, **ids_on(world, route))
                assert not any(secret.encode() in body for secret in secrets)
    text = repr(logs) + caplog.text
    assert logs
    assert not any(secret in text for secret in secrets)
    assert "B" * 43 not in text


async def test_while_postgres_is_away_a_stranger_is_not_called_wrong():
    behind = ports()
    behind.keys.is_away = True
    credentials = Credentials(KeyBook(behind.keys, behind.clock))
    app = create_app(replace(behind, authenticator=credentials), Settings(), pace=QUICK)
    headers = {"Authorization": "Bearer pop_aaaaaaaaaaaaaaaa_" + "A" * 43}
    async with (
        TestClient(TestServer(app)) as client,
        client.get("/v1/agendas/a1", headers=headers) as response,
    ):
        assert response.status == 503
        assert "Retry-After" in response.headers
        assert b"secret" not in await response.read()


async def _submit(world, token, body):
    headers = {"Authorization": f"Bearer {token}"}
    async with world.client.post("/v1/agendas", json=body, headers=headers) as response:
        return response.status, await response.json(content_type=None)


def _without(body, named):
    """A problem without what must differ: the id that was asked for, and the request's own."""
    told = json.loads(body)
    told.pop("correlation_id")
    return json.dumps(told).replace(named, "<id>")


def test_a_route_cannot_be_made_without_its_access():
    async def handler(_):
        return web.Response()

    with pytest.raises(TypeError, match="access"):
        Route("GET", "/x", handler, "x", "X", ())
