"""Every page and form of the console before every kind of viewer: who is answered what.

A row a route; a route without a row, or a row without a route, fails.
"""

import json
import re
from urllib.parse import urlencode

from attack_world import TIMED, open_world
from console_viewer import console

from pop_stream.console.routes import FORMS, PAGES
from pop_stream.model.identity import Role

READ, SUBMIT, PULL, OPERATE, ADMIN = (
    Role.READ, Role.SUBMIT, Role.PULL, Role.OPERATE, Role.ADMIN,
)  # fmt: skip
ALL = (READ, SUBMIT, PULL, OPERATE, ADMIN)
VIEWERS = {
    "nobody": None,
    "acme reads": ("acme", READ),
    "acme submits": ("acme", READ, SUBMIT),
    "acme pulls": ("acme", READ, PULL),
    "acme operates": ("acme", READ, OPERATE),
    "acme administers": ("acme", READ, ADMIN),
    "beta": ("beta", *ALL),
    "operators read": (None, READ),
    "operators submit": (None, READ, SUBMIT),
    "operators pull": (None, READ, PULL),
    "operators operate": (None, READ, OPERATE),
    "operators administer": (None, ADMIN),
}
"""Whom each speaks for, and its roles. Everybody reads: no other may sign in."""

EXPECTED = {
    # nobody, acme five times, beta, operators five times: in the order of VIEWERS
    "GET /": "? +++++ + +++++",
    "GET /insights/{insight_id}": "? +++++ - +++++",
    "GET /insights/{insight_id}/forecast": "? xxxxx x +++++",
    "GET /insights/{insight_id}/customers/{customer_id}": "? +++++ - +++++",
    "GET /agendas": "? +++++ + +++++",
    "GET /agendas/{agenda_id}": "? +++++ - +++++",
    "GET /submit": "? x+xxx - x+xx+",
    "GET /definitions": "? +++++ + +++++",
    "GET /definitions/{kind}": "? +++++ + +++++",
    "GET /definitions/{kind}/{object_id}": "? +++++ - +++++",
    "GET /definitions/{kind}/{object_id}/edit": "? xxx+x - xxx++",
    "GET /definitions/{kind}/{object_id}/delete": "? xxx+x - xxx++",
    "GET /definitions/{kind}/{object_id}/versions/{version}": "? +++++ - +++++",
    "GET /define/{kind}": "? xxx+x + xxx++",
    "GET /routing": "? +++++ - +++++",
    "GET /dead-letters": "? +++++ + +++++",
    "GET /dead-letters/{letter_id}": "? +++++ - +++++",
    "GET /pullers": "? xxxxx x +++++",
    "GET /keys": "? xxx+x + xxxx+",
    "GET /audit": "? xxxxx x xxxx+",
    "GET /doctor": "? xxxxx x xxxx+",
    "POST /agendas/commands": "? xxx+x + xxx++",
    "POST /agendas/{agenda_id}/{action}": "? xxx+x - xxx++",
    "POST /submit": "? x+xxx - x+xx+",
    "POST /define/{kind}": "? xxx+x ! xxx++",
    "POST /definitions/{kind}/{object_id}/edit": "? xxx+x - xxx++",
    "POST /definitions/{kind}/{object_id}/delete": "? xxx+x - xxx++",
    "POST /routing": "? +++++ ! +++++",
    "POST /schedules/{object_id}/{action}": "? xxx+x - xxx++",
    "POST /dead-letters/commands": "? xxx+x + xxx++",
    "POST /dead-letters/{letter_id}/{action}": "? xxx+x - xxx++",
    "POST /keys": "? xxx+x + xxxx+",
    "POST /keys/{key_id}/{action}": "? xxx+x - xxxx+",
    "POST /customers/{customer_id}/weight": "? xxxxx x xxxx+",
    "POST /customers/{customer_id}/{action}": "? xxxxx x xxxx+",
    "POST /insights/{insight_id}/{action}": "? xxxxx x xxxx+",
}
"""What each viewer is answered: `?` to sign in, `x` 403, `-` 404, `+` what was asked for,
`!` 422, as what is sent names an object that the viewer does not see.

What was asked for may be answered by 409 or 503: whoever asks, it is not refused for that.
"""

PARTS = {
    "agenda_id": "a-own",
    "customer_id": "acme",
    "insight_id": "i-own",
    "kind": "schedules",
    "letter_id": "0" * 20,
    "object_id": "s-own",
    "version": "1",
}
"""What the paths name: objects of acme's."""

SENT = {
    "/agendas/commands": {"action": "hold", "filter": "ids=a-own"},
    "/agendas/{agenda_id}/{action}": {"action": "hold"},
    "/customers/{customer_id}/weight": {"weight": "3", "version": "1", "insight": "i-own"},
    "/customers/{customer_id}/{action}": {"action": "pause", "insight": "i-own"},
    "/dead-letters/commands": {"action": "discard", "filter": "kind=exhausted"},
    "/dead-letters/{letter_id}/{action}": {"action": "discard"},
    "/define/{kind}": {"content": json.dumps({"id": "s-new", **TIMED})},
    "/definitions/{kind}/{object_id}/edit": {
        "content": json.dumps(TIMED),
        "version": "1",
        "do": "save",
    },
    "/definitions/{kind}/{object_id}/delete": {"version": "9"},
    "/routing": {"template_id": "t-own", "content": json.dumps({"template_id": "t-own"})},
    "/insights/{insight_id}/{action}": {"action": "pause", "version": "1"},
    "/insights/{insight_id}/forecast": {"customer": "acme", "weight": "2"},
    "/keys": {"role": "read"},
    "/keys/{key_id}/{action}": {"action": "revoke"},
    "/schedules/{object_id}/{action}": {"action": "pause"},
    "/submit": {"template_id": "t-own"},
}
"""What makes each a sound request, so that what is refused is refused for who asks."""


def test_every_route_has_a_row():
    routes = {f"GET {path}" for path, _ in PAGES} | {f"POST {path}" for path, _ in FORMS}
    assert routes == EXPECTED.keys()
    assert {len(row.replace(" ", "")) for row in EXPECTED.values()} == {len(VIEWERS)}


async def answer(browser, method, address, sent):
    """What a viewer is answered, as the table has it."""
    if method == "GET":
        status, text = await browser.get(f"{address}?{urlencode(sent)}")
    else:
        status, text = await browser.post(address, csrf=browser.csrf, **sent)
    if "<h1>Sign in</h1>" in text:
        return "?"
    return {200: "+", 409: "+", 503: "+", 403: "x", 404: "-", 422: "!"}.get(status, status)


async def test_each_viewer_is_answered_what_the_table_says():
    found = dict.fromkeys(EXPECTED, "")
    async with (
        open_world(customers=("acme", "beta")) as world,
        console(world, signs_in=True) as browser,
    ):
        for viewer in VIEWERS.values():
            browser.cookie = browser.csrf = ""
            if viewer:
                await browser.sign_in_as(world, *viewer)
            for route in EXPECTED:
                method, path = route.split(" ")
                sent = SENT.get(path, {})
                parts = PARTS | {"key_id": world.keys["own"]} | sent
                address = "/ui" + re.sub(r"{(\w+)}", lambda one: parts[one[1]], path)  # noqa: B023
                found[route] += str(await answer(browser, method, address, sent))
    expected = {route: row.replace(" ", "") for route, row in EXPECTED.items()}
    assert {route: row for route, row in found.items() if row != expected[route]} == {}
