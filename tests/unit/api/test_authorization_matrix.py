"""Every role on every route, with own, allowed, global, foreign and unknown objects.

The routes come from the application's own table, so one that is added is attacked as well;
what is expected comes from the table in docs/reference/security.md, repeated here.
"""

import base64
import json
import re
from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest
import pytest_asyncio
import structlog
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from api_fakes import AGENDA, QUICK, agenda, ports, summary
from attack_world import (
    EXPECTED_OF_OTHERS,
    GUARDED,
    OBJECTS,
    ON_NOTHING,
    ON_OBJECTS,
    OPERATE,
    READ,
    ROUTES,
    RULES_OF,
    id_of,
    ids_on,
    names,
    names_of,
    open_world,
)
from bearer_tokens import OTHER_RSA, token
from yarl import URL

from pop_stream.api.app import create_app
from pop_stream.api.http.route import Route
from pop_stream.auth.keys import ApiKeyCache, make_key
from pop_stream.auth.tokens import CredentialVerifier
from pop_stream.model.events.occasions import OpenOccurrence, ScheduleState
from pop_stream.model.identity import ANYONE, Role
from pop_stream.model.revisions import Author, put
from pop_stream.model.schedule import Schedule
from pop_stream.policy.lifecycle.states import State
from pop_stream.settings import Settings

SOUND = {"operations": AGENDA["operations"]}


@pytest_asyncio.fixture
async def world():
    async with open_world() as opened:
        yield opened


def role_for(route, customer):
    rule = RULES_OF[route.name]
    return rule.operator_role if customer is None else rule.role


def may_at_all(route, customer, role):
    """Whether the caller may do this to anything."""
    needed = role_for(route, customer)
    if customer is None:
        return role in {needed, Role.ADMIN}
    return role is needed and RULES_OF[route.name].deed != "operators"


def expected(route, customer, role, whose):
    """What this caller must be answered on this object."""
    may = may_at_all(route, customer, role)
    deed = RULES_OF[route.name].deed
    if deed in {"judges", "operators"} and not may:
        return 403  # the guard asks for the role alone; whose it is, the handler judges
    if customer is None:  # to an operator every object is its own
        return expected_of_operator(deed, whose, may=may)
    if deed == "judges":
        return judged(route, whose)
    if not may:
        return 403 if whose == "own" else 404
    return EXPECTED_OF_OTHERS[whose, deed == "changes"]


def expected_of_operator(deed, whose, *, may):
    if deed in {"judges", "operators"}:
        return "granted" if whose == "own" else "judged"
    if whose == "unknown":
        return "refused" if may else 404
    return "granted" if may else 403


def judged(route, whose):
    """What a customer with the role must be answered by the handler."""
    if route.name.endswith("Version"):
        return EXPECTED_OF_OTHERS[whose, False]
    if route.method == "PUT" and whose in {"foreign", "unknown"}:
        return 201  # its own of that name, whatever others have
    return EXPECTED_OF_OTHERS[whose, True]


def others(world):
    """All that belongs to others, and what was published about it."""
    definitions = {
        key: one
        for key, one in world.definition_store.rows.items()
        if key[1] not in {"t-own", "s-own"}
    }
    answer = [one for one in world.publisher.records if b'-foreign"' in (one.value or b"")]
    return (
        {key: one for key, one in definitions.items() if not key[1].endswith("@acme")},
        world.summaries.agendas["a-foreign"],
        world.keys_stored[world.keys["foreign"]],
        answer,
    )


def test_every_route_has_a_rule():
    assert sorted(RULES_OF) == sorted(route.name for route in ROUTES)
    for route in ROUTES:
        assert (route.access.role is None) == (RULES_OF[route.name].deed == "public")


def test_every_object_that_a_path_names_is_guarded():
    for route in ON_OBJECTS:
        parameters = re.findall(r"{(\w+)}", route.path)
        assert parameters[0] in OBJECTS, f"give {parameters[0]} objects in this test's world"
        if route.access.path_object:
            assert route.access.path_object.parameter in parameters


def unfit_tokens(world):
    """Whatever does not tell who calls, by what is wrong with it."""
    now, kept = world.clock.now(), world.keys_stored

    def key(**changes):
        made, shown = make_key(
            customer_id="acme", roles=frozenset(Role) - {Role.ADMIN}, now=now, created_by="t"
        )
        kept[made.id] = made.model_copy(update=changes)
        return shown

    good = key()
    return {
        "none": None,
        "noise": "nonsense",
        "no token of an issuer": "a.b.c",
        "an unknown key": "pop_aaaaaaaaaaaaaaaa_" + "A" * 43,
        "a key with another secret": f"{good[:21]}{'A' * 43}",
        "a revoked key": key(revoked_at=now),
        "an expired key": key(expires_at=now),
        "a key of tomorrow's form": good.replace("pop_", "pop2_"),
        "an expired token": token(exp=-timedelta(minutes=1)),
        "a token for another audience": token(aud="other"),
        "a token of another issuer": token(iss="https://other.test"),
        "a forged token": token(OTHER_RSA),
        "an unsigned token": token(None, "none"),
        "a token of nobody's": token(customer_id=None),
    }


@pytest_asyncio.fixture(scope="module")
async def still_world():
    """One for all who are refused: nothing must move in it."""
    async with open_world() as opened:
        yield opened, unfit_tokens(opened)


@pytest.mark.parametrize("route", GUARDED, ids=names)
async def test_without_a_valid_key_or_token_nothing_is_shown_or_done(still_world, route):
    world, unfit_ones = still_world
    before, published = others(world), list(world.publisher.records)
    answers = {}
    for what, unfit in unfit_ones.items():
        response, body = await world.call(route, unfit, **ids_on(world, route))
        assert response.status == 401, what
        assert response.headers["WWW-Authenticate"] == 'Bearer realm="pop_stream"', what
        answers[what] = _without(body, "") if "key" in what else None
    assert (others(world), list(world.publisher.records)) == (before, published)
    of_keys = {one for what, one in answers.items() if what.startswith(("a key with", "an ex"))}
    assert answers["a revoked key"] == answers["an unknown key"]
    assert answers["a revoked key"] in of_keys


@pytest.mark.parametrize("route", ON_OBJECTS, ids=names)
async def test_every_role_on_every_kind_of_object(world, route):
    parameter, *_ = names_of(route)
    is_used_up = route.method == "DELETE" or route.name in {"revokeKey", "rotateKey"}
    before, last = others(world), []
    for customer in ("acme", None):
        for role, whose in product(Role, (*OBJECTS[parameter], "unknown")):
            case = customer, role, whose
            if is_used_up and expected(route, *case) == "granted":
                last.append(case)  # then the object is no longer what it was
            else:
                await attack(world, route, *case)
        if customer is not None:
            assert others(world) == before
    for case in last[:1]:
        await attack(world, route, *case)


async def attack(world, route, customer, role, whose):
    ids, wanted = ids_on(world, route, whose), expected(route, customer, role, whose)
    response, _ = await world.call(route, world.token(customer, role), **ids)
    case = f"{names(route)} as {customer or 'operator'} {role} on {whose}"
    if wanted == "granted":
        assert response.status not in {401, 403, 404}, case
    elif wanted == "refused":  # as unknown, or before that for what the body lacks
        assert response.status in {404, 422}, case
    elif wanted == "judged":
        assert response.status != 401, case
    elif wanted == 201:
        assert response.status in {200, 201}, case  # the second time it is there
    else:
        assert response.status == wanted, case


@pytest.mark.parametrize("route", ON_NOTHING, ids=names)
async def test_every_role_on_what_is_no_object(world, route):
    for customer, role in product(("acme", None), Role):
        response, _ = await world.call(
            route, world.token(customer, role), **ids_on(world, route)
        )
        may = may_at_all(route, customer, role)
        case = f"{names(route)} as {customer or 'operator'} {role}"
        assert (response.status == 403) is not may, case


HEADERS = (
    {},
    {"If-Match": '"1"', "Last-Event-ID": "1"},
    {"If-Match": "*"},
    {"If-None-Match": '"1"'},
)
"""What is asked besides; each must be judged only after whose it is."""


@pytest.mark.parametrize("route", ON_OBJECTS, ids=names)
async def test_what_is_anothers_is_answered_as_what_is_not_there(world, route):
    parameter, *_ = names_of(route)
    for role, besides in product(Role, HEADERS):
        answer = []
        for whose in ("foreign", "unknown"):
            named = id_of(world, parameter, whose)
            ids = ids_on(world, route, whose)
            world.summaries.asked.clear()
            token = world.token("acme", role)
            response, body = await world.call(route, token, besides, **ids)
            asked = {question for question, *_ in world.summaries.asked}  # what takes time
            headers = {
                name: value
                for name, value in response.headers.items()
                if name.lower() not in {"x-correlation-id", "content-length", "date"}
            }
            headers = {name: value.replace(named, "<id>") for name, value in headers.items()}
            answer.append((response.status, headers, _without(body, named), asked))
        assert answer[0] == answer[1], (role, besides)


ODD_IDS = (
    "a-own%2F..%2Fa-foreign", "..%2Fa-foreign", "a-foreign%00", "a-foreign%0A", "%20a-foreign",
    "a-foreign@beta", "a-foreign@", "@beta", "a-foreign@acme@beta", "A-FOREIGN", "a-foreign;",
    "x" * 300,
)  # fmt: skip


async def test_no_way_of_writing_an_id_leads_to_anothers(world):
    for odd, (method, role) in product(
        ODD_IDS, (("GET", READ), ("HEAD", READ), ("DELETE", OPERATE))
    ):
        headers = {"Authorization": f"Bearer {world.token('acme', role)}"}
        url = URL(f"/v1/agendas/{odd}", encoded=True)
        async with world.client.request(method, url, headers=headers) as response:
            assert response.status == 404, (method, odd)
    assert "a-foreign" in world.summaries.agendas


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


@pytest.mark.parametrize(
    ("path", "shared"), [("/v1/insights", "i-allowed"), ("/v1/agenda-templates", "t-allowed")]
)
async def test_nobody_learns_with_whom_else_something_is_shared(world, path, shared):
    """Gamma is allowed too, which is for the owner and for operators to know."""
    queries = ("", "?fields=id,allowed", "?sort=allowed&limit=1", "?allowed=gamma")
    asked = [f"{path}{one}" for one in (*queries, f"/{shared}", f"/{shared}/versions/1")]
    for one, (customer, is_counted) in product(asked, (("acme", False), (None, True))):
        headers = {"Authorization": f"Bearer {world.token(customer, READ)}"}
        async with world.client.get(one, headers=headers) as response:
            assert response.status == 200, one
            answer = await response.text()
            page = json.loads(answer)
            if page.get("next"):
                answer += base64.urlsafe_b64decode(page["next"] + "===").decode()
        if "fields=" in one:
            assert shared in answer
        if one.endswith("allowed=gamma"):
            assert page["total"] == is_counted
        assert ("gamma" in answer) is (is_counted and "sort" not in one), one


@pytest.mark.parametrize("owner", [None, "beta", "nobody-at-all"])
async def test_nobody_gives_a_template_away(world, owner):
    headers = {"Authorization": f"Bearer {world.token('acme', OPERATE)}"}
    before, whole = others(world), {"owner": owner, "agenda": {}}
    answer = []
    for method, path, body in (
        ("POST", "", {**whole, "id": "new"}),
        ("PUT", "/new", whole),
        *(("PATCH", f"/{name}", {"owner": owner}) for name in ("t-own", "t-foreign", "t-none")),
    ):
        url = f"/v1/agenda-templates{path}"
        async with world.client.request(method, url, json=body, headers=headers) as response:
            answer.append((response.status, (await response.json())["issues"][0]["field"]))
    assert answer == [(422, "owner")] * 5
    assert others(world) == before


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


@pytest.mark.parametrize("caller", ["acme", None])
@pytest.mark.parametrize(
    "run",
    [
        {"template_id": "t-foreign"},
        {"template_id": "t-global", "customer_id": "beta"},
        {"customer_id": "beta", **SOUND},
    ],
)
async def test_what_was_refused_gains_nothing_by_being_tried_again(world, caller, run):
    """As a record of acme's leaves it that named a template before there was one."""
    world.summaries.put(
        summary(
            "r1@acme",
            state=State.REFUSED,
            customer_id="acme",
            body=json.dumps(run).encode(),
            accepted_at=None,
        )
    )
    headers = {"Authorization": f"Bearer {world.token(caller, OPERATE)}"}
    wish = {"filter": {"customer_id": ["acme"]}}
    async with world.client.post("/v1/resubmissions", json=wish, headers=headers) as response:
        answer = await response.json()
    assert (response.status, answer["resubmitted"], answer["still_refused"]) == (202, 0, 1)
    assert world.publisher.records == []


@pytest.mark.parametrize("caller", ["acme", None])
async def test_what_is_run_again_is_run_for_whom_it_was_refused(world, caller):
    """The template names beta; acme ran it, before there was one, and named nobody."""
    run = json.dumps({"template_id": "t-global", "payload": {"for": "beta"}}).encode()
    refused = {"state": State.REFUSED, "customer_id": "acme", "accepted_at": None}
    world.summaries.put(summary("r1@acme", body=run, **refused))
    headers = {"Authorization": f"Bearer {world.token(caller, OPERATE)}"}
    async with world.client.post("/v1/resubmissions", json={}, headers=headers) as response:
        assert (await response.json())["resubmitted"] == 1
    [record] = world.publisher.records
    assert json.loads(record.value)["customer_id"] == "acme"


async def test_a_customer_runs_a_global_template_in_a_list_for_itself(world):
    token = world.token("acme", Role.SUBMIT)
    run = {"template_id": "t-global", "payload": {"for": "beta"}}
    assert (await _submit(world, token, run))[0] == 202
    assert (await _submit(world, token, [run, {**run, "customer_id": "beta"}]))[0] == 202
    made = [json.loads(one.value)["customer_id"] for one in world.publisher.records]
    assert made == ["acme", "acme"]


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
        ({"roles": ["operate"], "customer_id": "nobody-at-all"}, 403),
        ({"roles": ["submit"]}, 403),
        ({"roles": ["admin"]}, 422),
        ({"roles": []}, 422),
        ({"roles": ["king"]}, 422),
    ):
        async with world.client.post(
            "/v1/keys", json=wish, headers={"Authorization": f"Bearer {token}"}
        ) as response:
            assert response.status == status, wish
            answer = await response.json(content_type=None)
            if status == 201:
                assert answer["customer_id"] == "acme"
                assert response.headers["Cache-Control"] == "no-store"
                assert response.headers["Location"] == f"/v1/keys/{answer['id']}"


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


async def test_a_schedule_that_is_shared_names_no_agenda_of_anothers():
    def state_of(schedule_id):
        open_ = (OpenOccurrence(agenda_id=f"{schedule_id}.secret", position=1),)
        return ScheduleState(schedule_id=schedule_id, position=1, open=open_)

    shared = {"visibility": "global", "trigger": {"every_s": 60}}
    work = {"customer_id": "beta", "operations": AGENDA["operations"]}
    of_beta = Schedule.model_validate({"id": "s-beta", "submission": work, **shared})
    async with open_world(schedule_state=state_of) as world:
        await world.definition_store.change(
            [put(of_beta)], Author(principal=ANYONE, request_id="test")
        )
        for customer, schedule_id, is_named in (
            ("acme", "s-beta", False),
            (None, "s-beta", True),
            ("acme", "s-own", True),
        ):
            headers = {"Authorization": f"Bearer {world.token(customer, READ)}"}
            for what in ("progress", "occurrences"):
                url = f"/v1/schedules/{schedule_id}/{what}"
                async with world.client.get(url, headers=headers) as response:
                    assert response.status == 200
                    assert ("secret" in await response.text()) is (
                        is_named and what == "progress"
                    )


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
    credentials = CredentialVerifier(ApiKeyCache(behind.keys, behind.clock))
    app = create_app(replace(behind, authenticator=credentials), Settings(), timing=QUICK)
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
    answer = json.loads(body)
    answer.pop("correlation_id", None)
    return json.dumps(answer).replace(named, "<id>")


def test_a_route_cannot_be_made_without_its_access():
    async def handler(_):
        return web.Response()

    with pytest.raises(TypeError, match="access"):
        Route("GET", "/x", handler, "x", "X", ())
