"""Whatever text stands in whichever place of a request, the answer is never a fault of ours."""

import asyncio
import base64
import json
from itertools import product
from urllib.parse import quote

import aiohttp
import pytest
from deadlines import within
from real_api import DEFINITIONS, fill, real_api
from yarl import URL

from pop_stream.client import Client

pytestmark = pytest.mark.timeout(290)

FULL = "9" * 4400
"""More digits than Python reads as one number."""

IN_URLS = [
    "",
    "%00",
    "a%00b",
    "%ED%A0%80",  # a lone surrogate, as UTF-8 would have it
    "%FF%FE",
    "%C0%80",
    "%F4%90%80%80",  # beyond Unicode
    "%E2%80%AE%0A%0D",
    FULL,
    "-1",
    "1" + "0" * 19,  # no bigint
    "1e400",
    "NaN",
    "%D9%A3",  # a digit, elsewhere
    "0001-01-01T00:00:00%2B23:59",
    "9999-12-31T23:59:59-23:59",
    "9999-12-31T23:59:60Z",
    "0000-00-00T00:00:00Z",
    "a" * 7000,
    "%27%3B--",
    "..%2F..",
    *(
        base64.urlsafe_b64encode(json.dumps(keys).encode()).decode()
        for keys in (
            ["id", "a\0"],
            ["id", "\ud800"],
            ["created_at,id", 1e300, "a"],
            ["created_at,id", 10**400, "a"],
            ["9999-12-31T23:59:59-23:59", "a"],
            ["0001-01-01T00:00:00+23:59", "a"],
            ["2026-01-01T00:00:00Z", "\0"],
            [None, "\ud800"],
        )
    ),
]

IN_BODIES = [
    '"\\u0000"',
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"' + "a" * 5000 + '"',
    FULL,
    "1e400",
    "-1",
    "1" + "0" * 30,
    "0.1",
    '"0001-01-01T00:00:00+23:59"',
    '"9999-12-31T23:59:59-23:59"',
    '"9999-12-31T23:59:59.9999999Z"',
    "[" * 2000 + "]" * 2000,
    '{"\\u0000": "\\ud800"}',
    '["\\u0000"]',
    "null",
]

IN_HEADERS = ["\xe9\xff", "a" * 7000, FULL, '"' + FULL + '"', "W/", ",,,"]

KNOWN = {
    "agenda_id": "runs",
    "attempt": "1",
    "customer_id": "acme",
    "insight_id": "files",
    "link_id": "l1",
    "operation": "fetch",
    "pool_id": "shared",
    "template_id": "scan",
    "rule_id": "listens",
    "schedule_id": "daily",
    "name": "paid",
    "letter_id": "0" * 20,
    "version": "1",
    "key_id": "a" * 16,
}


@pytest.fixture
async def api(settings, tmp_path):
    file = tmp_path / "definitions.toml"
    file.write_text(DEFINITIONS)
    async with real_api(settings.model_copy(update={"definitions_file": file})) as api:
        await fill(api)
        yield api


class Attacker:
    """Sends requests, and keeps those that were answered with a fault of ours."""

    def __init__(self, url, session):
        self.url, self.session = url, session
        self.sent, self.faults = 0, []

    async def send(self, method, target, *, body=None, headers=None, kind="application/json"):
        headers = dict(headers or {})
        if body is not None:
            patch = method == "PATCH"
            kind = "application/merge-patch+json" if patch else kind
            headers["Content-Type"] = kind
        self.sent += 1
        try:
            async with (
                within(30),
                self.session.request(
                    method, URL(self.url + target, encoded=True), data=body, headers=headers
                ) as response,
            ):
                if response.content_type != "text/event-stream":
                    said = await response.read()
                if response.status >= 500:
                    self.faults.append((response.status, method, target[:200], body, said))
        except aiohttp.ClientError as error:
            self.faults.append((repr(error), method, target[:200], body, headers))


def path_of(path, **changed):
    for name, value in {**KNOWN, **changed}.items():
        path = path.replace("{" + name + "}", value)
    assert "{" not in path, f"say in KNOWN what {path} is tried with"
    return path


def properties_of(schema, document):
    """Names of fields that a body may have, as far down as models go, with where they are."""
    seen, waiting, found = set(), [((), schema)], []
    while waiting:
        at, one = waiting.pop()
        if "$ref" in one:
            name = one["$ref"].rsplit("/", 1)[1]
            if (at, name) in seen or len(at) > 3:
                continue
            seen.add((at, name))
            waiting.append((at, document["components"]["schemas"][name]))
        for kind in ("anyOf", "oneOf", "allOf"):
            waiting += [(at, part) for part in one.get(kind, ())]
        if isinstance(one.get("items"), dict):
            waiting.append(((*at, 0), one["items"]))
        for name, part in one.get("properties", {}).items():
            found.append((*at, name))
            waiting.append(((*at, name), part))
    return sorted(set(found), key=str)


def body_with(base, at, hostile):
    """The base with the hostile text where the path says, and what leads there."""
    mark = "@@here@@"

    def put(node, path):
        if not path:
            return mark
        if path[0] == 0:
            first = node[0] if isinstance(node, list) and node else {}
            return [put(first, path[1:])]
        node = dict(node) if isinstance(node, dict) else {}
        node[path[0]] = put(node.get(path[0], {}), path[1:])
        return node

    return json.dumps(put(base, at)).replace(json.dumps(mark), hostile)


BASES = {
    "submitAgendas": {
        "customer_id": "acme",
        "operations": [{"name": "fetch", "type": "http"}],
    },
    "pullAgendas": {"puller_id": "w", "wait_s": 0},
    "createKey": {"roles": ["read"]},
    "commandAgendas": {"action": "hold", "filter": {"customer_id": ["acme"]}, "dry_run": True},
}


async def attack_paths(attacker, document):
    for path, operations in document["paths"].items():
        names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        for method, operation in operations.items():
            base = BASES.get(operation["operationId"], {})
            body = json.dumps(base).encode() if "requestBody" in operation else None
            for name in names:
                for hostile in IN_URLS:
                    target = path_of(path, **{name: hostile})
                    await attacker.send(method.upper(), target, body=body)


async def attack_queries(attacker, document):
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            stated = {
                one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"
            }
            if method != "get":
                continue
            unknown = {"", "x", "%00", "%ED%A0%80", "created_at", "id.x", "params.%00.x"}
            for name in sorted(stated | unknown):
                for hostile in IN_URLS:
                    query = f"{quote(name, safe='%')}={hostile}"
                    await attacker.send("GET", f"{path_of(path)}?{query}")
                    if name == "cursor":
                        order = f"sort=created_at&{query}"
                        await attacker.send("GET", f"{path_of(path)}?{order}")


async def attack_headers(attacker, document):
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            body = b"{}" if "requestBody" in operation else None
            stated = {
                one["name"] for one in operation.get("parameters", ()) if one["in"] == "header"
            }
            for name in sorted(stated | {"Authorization", "X-Correlation-Id", "traceparent"}):
                for hostile in IN_HEADERS:
                    value = f"Bearer {hostile}" if name == "Authorization" else hostile
                    await attacker.send(
                        method.upper(), path_of(path), body=body, headers={name: value}
                    )


EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.placed"}


async def attack_events(attacker, document):
    """What comes as a CloudEvent: each attribute in headers, and in the event itself."""
    texts = [*IN_HEADERS, "%00", "%ED%A0%80", "%FF", "9999-12-31T23:59:59-23:59"]
    data = json.dumps(BASES["submitAgendas"])
    names = [*EVENT, "subject", "time", "poptemplate", "popcustomer", "datacontenttype", "x"]
    taking = [
        (path, method)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if "application/cloudevents+json" in operation.get("requestBody", {}).get("content", {})
    ]
    assert taking
    for (path, method), name in product(taking, [*names, "data", "data_base64"]):
        for text in texts if name in names else ():
            headers = {f"ce-{key}": one for key, one in {**EVENT, name: text}.items()}
            await attacker.send(method.upper(), path, body=data.encode(), headers=headers)
        for hostile, kind in product(IN_BODIES, ("cloudevents", "cloudevents-batch")):
            event = {**EVENT, "data": BASES["submitAgendas"], name: "@@here@@"}
            body = json.dumps(event if kind == "cloudevents" else [event])
            body = body.replace('"@@here@@"', hostile).encode()
            await attacker.send(
                method.upper(), path, body=body, kind=f"application/{kind}+json"
            )


async def attack_bodies(attacker, document):
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {})
            if not content:
                continue
            schema = next(iter(content.values()))["schema"]
            base = BASES.get(operation["operationId"], {})
            target = path_of(path)
            for at in properties_of(schema, document):
                for hostile in IN_BODIES:
                    if at[-1] == "wait_s":
                        continue
                    await attacker.send(
                        method.upper(), target, body=body_with(base, at, hostile).encode()
                    )
            for hostile in IN_BODIES:
                await attacker.send(method.upper(), target, body=hostile.encode())


ATTACKS = {
    "paths": attack_paths,
    "queries": attack_queries,
    "headers": attack_headers,
    "bodies": attack_bodies,
    "events": attack_events,
}


@pytest.mark.parametrize("places", ATTACKS)
async def test_no_text_in_any_place_of_a_request_is_answered_with_a_fault(api, places):
    async with Client(api.url, token=api.token) as client:
        document = await client.document()
    headers = {"Authorization": f"Bearer {api.token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        attacker = Attacker(api.url, session)
        await ATTACKS[places](attacker, document)
    assert attacker.sent > 300
    assert not attacker.faults, "\n".join(map(repr, attacker.faults[:40]))


@pytest.mark.parametrize(
    "shown",
    [
        b"Bearer \xff",
        b"Bearer pop_" + b"a" * 16 + b"_" + b"\xff" * 43,
        b"Bearer \xff.\xe9.\x80",
        b"\xff",
    ],
)
async def test_credentials_that_are_no_text_are_answered_with_401_without_any_key(api, shown):
    url = URL(api.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(
        b"GET /v1/agendas HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: %b\r\n\r\n"
        % shown
    )
    async with within(30):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 401 ")


async def test_attempt_of_thousands_of_digits_is_no_attempt(api):
    report = {"puller_id": "w", "lease_token": "x"}
    headers = {"Authorization": f"Bearer {api.token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for attempt, status in ((FULL, 404), ("\N{ARABIC-INDIC DIGIT THREE}", 404), ("1", 422)):
            url = f"{api.url}/v1/agendas/runs/attempts/{attempt}/heartbeat"
            async with session.post(url, json=report) as response:
                assert response.status == status, await response.text()
