"""Whatever is sent to any page or form: refused, or shown as text, in bounded time and size.

Every route has a row of what it takes, with sound values; each of these, and each part of its
path, is replaced by hostile texts one after the other. A route without a row fails.
"""

import re
from io import BytesIO
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from api_fakes import agenda, open_api, summary
from attack_world import TIMED
from deadlines import within
from memory_dead_letters import dead_letter
from queue_answers import forecasting
from yarl import URL

import pop_stream.console.pages
from pop_stream.console.pages.agendas import FIELDS
from pop_stream.console.routes import FORMS, PAGES

LARGEST = 1_000_000
"""Bytes of an answer."""

BIDI = "\N{RIGHT-TO-LEFT OVERRIDE}"
HOSTILE = {
    "nul": b"\0",
    "surrogate": b"\xed\xa0\x80",
    "markup": f"<script>alert(1)</script>{{{{ 7*7 }}}}{BIDI}'\"--><svg onload=x>".encode(),
    "huge number": b"9" * 5_000,
    "negative": b"-1",
    "digits of others": "٣".encode(),
}
LETTER = "a" * 20
FILE = b'--x\r\nContent-Disposition: form-data; name="csrf"; filename="a"\r\n\r\n1\r\n--x--\r\n'
QUERIES = {
    "/": ("cursor", "did", "count"),
    "/insights/{insight_id}": (),
    "/insights/{insight_id}/forecast": ("customer", "weight"),
    "/insights/{insight_id}/customers/{customer_id}": ("cursor", "why"),
    "/agendas": (*(name for name, _ in FIELDS), "state", "order", "cursor"),
    "/agendas/{agenda_id}": ("did",),
    "/submit": ("template_id", "cursor"),
    "/definitions": (),
    "/definitions/{kind}": ("id", "owner", "cursor"),
    "/definitions/{kind}/{object_id}": (),
    "/definitions/{kind}/{object_id}/edit": (),
    "/definitions/{kind}/{object_id}/delete": (),
    "/definitions/{kind}/{object_id}/versions/{version}": (),
    "/define/{kind}": (),
    "/routing": ("template_id", "insight_id"),
    "/dead-letters": (
        "code", "customer_id", "insight_id", "agenda_id", "topic", "part", "kind", "state",
        "ids", "from_at", "before_at", "before",
    ),
    "/dead-letters/{letter_id}": (),
    "/pullers": ("insight_id", "after"),
    "/keys": ("customer_id", "after"),
    "/audit": ("kind", "object_id", "principal", "before"),
    "/doctor": (),
}  # fmt: skip
"""What each page reads of its address."""

RERUN = {"reason": "r", "hold": "yes", "operations": "chosen", "operation": "fetch"}
SENT = {
    "/agendas/commands": {
        "action": "reprioritise", "filter": "customer_id=acme", "priority": "3",
        "reason": "r", "confirmed": "yes",
    },
    "/agendas/{agenda_id}/{action}": {"priority": "3", **RERUN},
    "/submit": {
        "template_id": "cut", "id": "one", "params.size": "3", "payload": "{}",
        "customer_id": "acme", "title": "t", "priority": "2", "hold": "true",
    },
    "/define/{kind}": {"content": "{}", "do": "preview"},
    "/definitions/{kind}/{object_id}/edit": {"content": "{}", "version": "1", "do": "preview"},
    "/definitions/{kind}/{object_id}/delete": {"version": "9"},
    "/schedules/{object_id}/{action}": {
        "first": "2026-01-01T00:00:00Z", "last": "2026-01-01T00:01:00Z",
    },
    "/routing": {"content": "{}", "id": "a9", "do": "ask"},
    "/dead-letters/commands": {
        "action": "redrive", "filter": "kind=webhook", "reason": "r", "confirmed": "yes",
    },
    "/dead-letters/{letter_id}/{action}": {"reason": "r"},
    "/keys": {"customer_id": "acme", "title": "t", "days": "3", "role": "read"},
    "/keys/{key_id}/{action}": {"hours": "1"},
    "/customers/{customer_id}/weight": {"weight": "3", "version": "1", "insight": "files"},
    "/customers/{customer_id}/{action}": {"insight": "files", "version": "1"},
    "/insights/{insight_id}/{action}": {"version": "1"},
}  # fmt: skip
"""What each form has, beside the session's token."""

PARTS = {
    "agenda_id": "a1",
    "customer_id": "acme",
    "insight_id": "files",
    "kind": "schedules",
    "key_id": "x" * 16,
    "letter_id": LETTER,
    "object_id": "hourly",
    "version": "1",
}
ACTIONS = {
    "/agendas/{agenda_id}/{action}": ("cancel", "reprioritise", "rerun"),
    "/schedules/{object_id}/{action}": ("backfill",),
    "/dead-letters/{letter_id}/{action}": ("redrive",),
    "/keys/{key_id}/{action}": ("rotate",),
    "/customers/{customer_id}/{action}": ("pause",),
    "/insights/{insight_id}/{action}": ("pause",),
}


@pytest.fixture
async def api():
    async with open_api() as opened:
        await opened.letters.add([dead_letter(LETTER)])
        opened.summaries.put(summary())
        opened.questions.by_question["files", ""] = forecasting()
        await opened.call("POST", "/v1/schedules", {"id": "hourly", **TIMED})
        params = {"size": {"type": "integer"}}
        template = {"id": "cut", "params": params, "agenda": agenda()}
        await opened.call("POST", "/v1/agenda-templates", template)
        yield opened


def test_every_route_has_a_row():
    assert {path for path, _ in PAGES} == QUERIES.keys()
    assert {path for path, _ in FORMS} == SENT.keys()


def test_every_name_that_a_page_reads_is_in_a_row():
    rows = {name for names in (*QUERIES.values(), *SENT.values()) for name in names}
    folder = Path(pop_stream.console.pages.__file__).parent
    reads = re.compile(r'(?:query|form)(?:\.get|\.getall|\[|, )\(?"(\w+)"')
    read = {name for file in folder.glob("*.py") for name in reads.findall(file.read_text())}
    assert read - rows == set()
    assert len(read) > 20


def address_of(path, **parts):
    known = {name: quote(text) for name, text in PARTS.items()} | parts
    return "/ui" + re.sub(r"{(\w+)}", lambda found: known[found[1]], path)


async def fault_of(browser, method, address, form=None):
    """What is wrong with the answer; None if nothing is."""
    asked = browser.client.request(
        method,
        URL(address, encoded=True),
        data=None if form is None else urlencode(form).encode(),
        headers={"Content-Type": "application/x-www-form-urlencoded"},
        allow_redirects=False,
    )
    async with within(10), asked as answer:
        text = await answer.text()
    wrong = {
        f"answered {answer.status}": answer.status >= 500,
        f"has {len(text)} characters": len(text) > LARGEST,
        "has markup": "<script>alert" in text or "<svg onload" in text,
        "turns the text": BIDI in text,
    }
    return next((says for says, is_so in wrong.items() if is_so), None)


async def test_no_parameter_of_a_page_breaks_it(browser):
    faults = {}
    for path, names in QUERIES.items():
        for name in names:
            for what, text in HOSTILE.items():
                query = urlencode({"customer": "acme", "weight": "2", name: text})
                fault = await fault_of(browser, "GET", f"{address_of(path)}?{query}")
                if fault:
                    faults[path, name, what] = fault
    assert faults == {}


async def test_no_field_of_a_form_breaks_it(browser):
    await browser.get("/ui/definitions")
    faults = {}
    for path, fields in SENT.items():
        for action in ACTIONS.get(path, ("",)):
            address = address_of(path, action=action)
            for name in fields:
                for what, text in HOSTILE.items():
                    form = {"csrf": browser.csrf, **fields, name: text}
                    fault = await fault_of(browser, "POST", address, form)
                    if fault:
                        faults[address, name, what] = fault
    assert faults == {}


async def test_no_part_of_a_path_breaks_it(browser):
    faults = {}
    await browser.get("/ui/definitions")
    for method, table in (("GET", PAGES), ("POST", FORMS)):
        for path, _ in table:
            action = ACTIONS.get(path, ("",))[0]
            for name in re.findall(r"{(\w+)}", path):
                for what, text in HOSTILE.items():
                    address = address_of(path, **{"action": action, name: quote(text, safe="")})
                    form = {"csrf": browser.csrf, **SENT[path]} if method == "POST" else None
                    fault = await fault_of(browser, method, address, form)
                    if fault:
                        faults[method, path, name, what] = fault
    assert faults == {}


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"content=" + b"x" * 1_100_000, "application/x-www-form-urlencoded", 422),
        (b"content=\xff\xfe", "application/x-www-form-urlencoded", 422),
        (b"content=1", "application/x-www-form-urlencoded; charset=none", 422),
        (b"a&" * 100_000, "application/x-www-form-urlencoded", 422),
        (b"nothing of it", "multipart/form-data; boundary=x", 422),
        (b"nothing of it", "multipart/form-data", 422),
        (FILE, "multipart/form-data; boundary=x", 403),
        (b"{}", "application/json", 403),
    ],
)  # fmt: skip
async def test_a_form_that_is_none_is_refused(browser, body, kind, status):
    headers = {"Content-Type": kind}
    async with browser.client.post(
        "/ui/routing", data=BytesIO(body), headers=headers
    ) as answer:
        text = await answer.text()
    assert (answer.status, len(text) < LARGEST) == (status, True)


async def test_an_address_that_is_too_long_is_refused(browser):
    async with browser.client.get(f"/ui/agendas?title={'x' * 1_000_000}") as answer:
        assert answer.status == 400
