"""A world of two customers and the operators, for those who attack the API."""

import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import product

import pytest
from aiohttp.test_utils import TestClient, TestServer
from api_fakes import AGENDA, QUICK, ports, summary
from api_pulls import emitted, holder
from bearer_tokens import RSA, RULES, Issuer, jwk
from deadlines import within
from memory_dead_letters import dead_letter
from memory_definitions import MemoryDefinitions

from pop_stream.api.app import create_app
from pop_stream.api.http.route import Route
from pop_stream.auth.jwks import Jwks
from pop_stream.auth.keys import ApiKeyCache, make_key
from pop_stream.auth.tokens import CredentialVerifier, TokenVerifier
from pop_stream.model.definitions import (
    Customer,
    Definitions,
    Insight,
    Mappers,
    ResourcePool,
    VersionedTemplate,
)
from pop_stream.model.identity import Role
from pop_stream.model.rule import Rule as ListeningRule
from pop_stream.model.schedule import Schedule
from pop_stream.model.template import AgendaTemplate
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


SETTINGS = Settings(auth="required", signing_secrets=("s" * 32,))
ROUTES = _routes()
GUARDED = [route for route in ROUTES if route.access.role is not None]
NAMES_ONLY = {"giveSignal"}
"""Routes whose path has a name that the caller makes up, and no object."""

ON_OBJECTS = [route for route in GUARDED if "{" in route.path and route.name not in NAMES_ONLY]
ON_NOTHING = [route for route in GUARDED if "{" not in route.path or route.name in NAMES_ONLY]

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
    "schedule_id": {
        "own": "s-own",
        "allowed": "s-allowed",
        "global": "s-global",
        "foreign": "s-foreign",
    },
    "rule_id": {"own": "r-own", "foreign": "r-foreign"},
    "customer_id": {"own": "acme", "foreign": "beta"},
    "key_id": {"own": "own", "foreign": "foreign"},  # ids are made with the world
    "letter_id": {"own": "0" * 20, "foreign": "f" * 20},
    "name": {"own": "paid"},
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
class AttackWorld:
    client: TestClient
    tokens: dict[tuple[str | None, Role], str]
    keys: dict[str, str]
    publisher: object
    summaries: object
    definition_store: object
    deliveries: object
    keys_stored: dict[str, object]
    clock: object

    def token(self, customer, role):
        return self.tokens[customer, role]

    async def call(self, route, token, besides=None, /, **ids):
        path = re.sub(r"{(\w+)}", lambda name: ids[name[1]], route.path)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        headers |= besides or {}
        async with within(10):
            response = await self.client.request(
                route.method,
                path,
                headers=headers,
                json=_body(route, ids) if route.body_models else None,
            )
            if route.is_stream and response.ok:
                response.close()
                return response, b""
            return response, await response.read()


@asynccontextmanager
async def open_world(*, customers=("acme",), timing=QUICK, **changes):
    """Two customers' world; `changes` are ports of the API that are not the usual ones."""
    behind = replace(ports(), **changes)
    insights = [
        Insight(id="i-own", owner="acme", mappers=Mappers(operation_types=("own",))),
        Insight(
            id="i-allowed", owner="beta", visibility="allowed", allowed=("acme", "gamma"),
            mappers=Mappers(operation_types=("allowed",)),
        ),
        Insight(id="i-global", mappers=Mappers(operation_types=("http",))),
        Insight(id="i-foreign", owner="beta", mappers=Mappers(operation_types=("foreign",))),
    ]  # fmt: skip
    work = {"customer_id": "@<pop.payload::/for?acme>", "operations": AGENDA["operations"]}
    templates = [
        AgendaTemplate(id="t-own", owner="acme", agenda=work),
        AgendaTemplate(
            id="t-allowed",
            owner="beta",
            visibility="allowed",
            allowed=("acme", "gamma"),
            agenda=work,
        ),
        AgendaTemplate(id="t-global", agenda=work),
        AgendaTemplate(id="t-foreign", owner="beta", agenda=work),
    ]
    schedules = [
        Schedule.model_validate({"trigger": {"every_s": 60}, **one})
        for one in (
            {"id": "s-own", "owner": "acme", "submission": WORK},
            {
                "id": "s-allowed", "visibility": "allowed",
                "allowed": ("acme", "gamma"), "submission": WORK,
            },
            {"id": "s-global", "submission": WORK},
            {
                "id": "s-foreign", "owner": "beta",
                "submission": {**WORK, "customer_id": "beta"},
            },
        )
    ]  # fmt: skip
    rules = [
        ListeningRule.model_validate({"topic": "files", **one})
        for one in (
            {"id": "r-own", "owner": "acme", "submission": WORK},
            {"id": "r-foreign", "owner": "beta", "submission": {**WORK, "customer_id": "beta"}},
        )
    ]
    known = Definitions(
        customers={one: Customer(id=one) for one in ("acme", "beta")},
        insights={one.id: one for one in insights},
        pools={"p-operators": ResourcePool(id="p-operators", max_in_flight=1)},
        templates={one.id: VersionedTemplate(one, 1) for one in templates},
        schedules={one.id: one for one in schedules},
        rules={one.id: one for one in rules},
    )
    behind.definitions.current = known
    behind = replace(behind, definition_store=MemoryDefinitions(*known.all()))
    for whose, customer in (("own", "acme"), ("foreign", "beta")):
        one = summary(
            f"a-{whose}", customer_id=customer, link_id=f"l-{whose}", insight_id=f"i-{whose}"
        )
        behind.summaries.put(one)
        letter_id = OBJECTS["letter_id"][whose]
        await behind.dead_letters.add([dead_letter(letter_id, customer_id=customer)])
    now = behind.clock.now()
    tokens, ids = {}, {}
    for customer, role in product((*customers, None), Role):
        key, token = make_key(
            customer_id=customer, roles=frozenset({role}), now=now, created_by="t"
        )
        behind.keys.stored[key.id] = key
        tokens[customer, role] = token
    for whose, customer in (("own", "acme"), ("foreign", "beta")):
        # A role the callers do not have would be refused for that, not for whose it is.
        roles = frozenset({Role.OPERATE})
        key, _ = make_key(customer_id=customer, roles=roles, now=now, created_by="t")
        behind.keys.stored[key.id] = key
        ids[whose] = key.id
    verifier = TokenVerifier(RULES, Jwks(Issuer(jwk(RSA, "k1")), behind.clock))
    credentials = CredentialVerifier(ApiKeyCache(behind.keys, behind.clock), verifier)
    app = create_app(replace(behind, authenticator=credentials), SETTINGS, timing=timing)
    async with TestClient(TestServer(app)) as client:
        yield AttackWorld(
            client,
            tokens,
            ids,
            behind.publisher,
            behind.summaries,
            behind.definition_store,
            behind.deliveries,
            behind.keys.stored,
            behind.clock,
        )


READ, SUBMIT, OPERATE, PULL, ADMIN = Role.READ, Role.SUBMIT, Role.OPERATE, Role.PULL, Role.ADMIN


@dataclass(frozen=True)
class Rule:
    """What a route must ask of its callers, as docs/reference/security.md has it.

    Attributes:
        deed: `sees` or `changes` the object in the path; `judges` what the body or the list
            holds; for `operators` alone; `public`.
        role: Of a customer; None where none is asked for.
        operator_role: Of an operator.
    """

    deed: str
    role: Role | None = None
    operator_role: Role | None = None


def _rules(deed, role, *route_names, operator_role=None):
    return {name: Rule(deed, role, operator_role or role) for name in route_names}


RULES_OF = {
    **_rules("public", None, "getHealth", "getReadiness", "getDocument", "completeOperation"),
    **_rules(
        "sees", READ, "getAgenda", "getAgendaProgress", "getAgendaCallbacks",
        "getOperationProgress",
        "followAgenda", "explainAgenda", "explainPlacement", "getLinkSummary", "followLink",
        "getCustomer", "getInsight", "getInsightQueue", "getPool", "getTemplate",
        "previewTemplate", "previewSplit", "getDeadLetter",
        "getSchedule", "getScheduleNext", "getScheduleProgress", "listOccurrences",
        "getRule", "getRuleProgress",
    ),
    **_rules("sees", SUBMIT, "runTemplate"),
    **_rules(
        "changes", OPERATE, "cancelAgenda", "holdAgenda", "releaseAgenda",
        "reprioritiseAgenda", "rerunAgenda", "deleteAgenda", "redriveDeadLetter",
        "discardDeadLetter", "putInsightHealth", "approveOperation", "rejectOperation",
        "triggerSchedule", "resumeSchedule", "backfillSchedule",
    ),
    **_rules("changes", PULL, "pullAgendas"),
    **_rules(
        "judges", PULL, "renewAttempt", "reportProgress", "completeAttempt",
        "makeCompletionToken",
    ),
    **_rules(
        "changes", OPERATE, "getKey", "rotateKey", "revokeKey", operator_role=ADMIN
    ),
    **_rules("judges", SUBMIT, "submitAgendas", "giveSignal"),
    **_rules(
        "judges", READ, "listAgendas", "listCustomers", "listInsights", "listPools",
        "listTemplates", "listSchedules", "getScheduleVersion", "listRules", "getRuleVersion",
        "getCustomerVersion", "getInsightVersion", "getPoolVersion",
        "getTemplateVersion", "explainPlacementOf", "getCaller", "listDeadLetters",
        "countDeadLetters", "getStats", "getUsage", "listSignals",
    ),
    **_rules(
        "judges", OPERATE, "commandAgendas", "commandDeadLetters", "resubmitAgendas",
        "createTemplate", "createSchedule",
        "putTemplate", "patchTemplate", "deleteTemplate",
        "putSchedule", "patchSchedule", "deleteSchedule",
    ),
    **_rules("judges", OPERATE, "listKeys", "createKey", operator_role=ADMIN),
    **_rules("operators", READ, "getMetrics", "listPullers", "forecastWeights", "testRule"),
    **_rules(
        "operators", ADMIN, "listAudit", "examine", "createCustomer", "putCustomer",
        "patchCustomer",
        "deleteCustomer", "createInsight", "putInsight", "patchInsight", "deleteInsight",
        "createPool", "putPool", "patchPool", "deletePool",
        "createRule", "putRule", "patchRule", "deleteRule",
    ),
}  # fmt: skip
"""By operation; a route that is not in here fails `test_every_route_has_a_rule`."""

WHO = {"puller_id": "w1"}
WORK = {"customer_id": "acme", "operations": AGENDA["operations"]}
LISTENING = {"topic": "files", "submission": WORK}
TIMED = {"trigger": {"every_s": 60}, "submission": WORK}
BODIES = {
    "submitAgendas": WORK,
    "explainPlacementOf": WORK,
    "runTemplate": {},
    "previewTemplate": {},
    "previewSplit": {},
    "reprioritiseAgenda": {"priority": 1},
    "commandAgendas": {"action": "cancel", "filter": {"ids": ["a-foreign"]}},
    "commandDeadLetters": {"action": "redrive", "filter": {"ids": ["f" * 20]}},
    "createTemplate": {"id": "t-foreign", "agenda": WORK},
    "putTemplate": {"agenda": WORK},
    "putInsightHealth": {"coefficient": 0.5},
    "patchTemplate": {"title": "changed"},
    "createSchedule": {"id": "s-foreign", **TIMED},
    "putSchedule": TIMED,
    "patchSchedule": {"title": "changed"},
    "backfillSchedule": {"first": "2026-01-01T00:00:00Z", "last": "2026-01-01T00:05:00Z"},
    "createKey": {"roles": ["operate"]},
    "giveSignal": {"customer_id": "acme"},
    "pullAgendas": WHO,
    "makeCompletionToken": {
        "operation": "fetch",
        "agenda_id": "a-own",
        "insight_id": "i-own",
        "attempt": 1,
        "accepted_at": "2026-01-01T12:00:00Z",
    },
    "renewAttempt": WHO,
    "reportProgress": WHO,
    "completeAttempt": {**WHO, "outcome": "succeeded"},
    "createCustomer": {"id": "gamma"},
    "createInsight": {"id": "gamma"},
    "createPool": {"id": "gamma", "max_in_flight": 1},
    "createRule": {"id": "gamma", **LISTENING},
    "putRule": LISTENING,
    "testRule": {"value": {}},
    "putPool": {"max_in_flight": 1},
    "forecastWeights": {"weights": {"acme": 2}},
}
"""Sound bodies, so that what is refused is refused for who asks."""


def _body(route, ids):
    """With a token that is really of the attempt, be it somebody else's."""
    body = BODIES.get(route.name, {})
    if not route.path.startswith("/v1/agendas/{agenda_id}/attempts/"):
        return body
    agenda_id = ids["agenda_id"]
    insight_id = agenda_id.replace("a-", "i-")
    return body | holder(emitted(agenda_id, 1, insight_id=insight_id), SETTINGS)


def id_of(world, parameter, whose):
    if whose == "unknown":
        return "x" * 16
    return world.keys[whose] if parameter == "key_id" else OBJECTS[parameter][whose]


def names(route):
    return f"{route.method} {route.path}"


def names_of(route):
    return re.findall(r"{(\w+)}", route.path)


def ids_on(world, route, whose=None):
    """Ids for the path, of objects of the owner; versions and attempts are the first."""
    parameter, *_ = names = names_of(route) or [""]
    if not parameter:
        return {}
    whose = whose or next(iter(OBJECTS[parameter]))
    others = dict.fromkeys(names, "1") | {"operation": "fetch"}
    return others | {parameter: id_of(world, parameter, whose)}
