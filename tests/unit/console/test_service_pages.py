"""Dead letters, keys, the audit log and the doctor in the console, on in-memory ports."""

import json
import re
from dataclasses import replace
from html import unescape

import pytest
from api_fakes import AT, open_api, summary
from attack_world import open_world
from console_viewer import console
from memory_dead_letters import dead_letter

from pop_stream.model.events.base import RefusedIssue
from pop_stream.model.identity import Role
from pop_stream.policy.lifecycle.states import State
from pop_stream.ports.pullers import SeenPuller
from pop_stream.ports.summaries import Callback

A, B, C, D = ("a" * 20, "b" * 20, "c" * 20, "d" * 20)
EVIL = "<script>alert(1)</script>{{ 7*7 }}\N{RIGHT-TO-LEFT OVERRIDE}'\"--><svg onload=x>"
ISSUE = RefusedIssue(field=EVIL, value=EVIL, message=EVIL)
REFUSED = dead_letter(
    B, kind="refused", code="submission_refused", part="ingest", reason=EVIL * 100,
    issues=(ISSUE,), value=json.dumps({"id": EVIL}).encode(), agenda_id=None,
    topic="pop.submissions", partition=2, offset=7,
)  # fmt: skip
UNREADABLE = dead_letter(
    D, kind="unreadable", code="unreadable_record", customer_id=None, value=b"\xff\xfe" * 9_000
)


@pytest.fixture
async def api():
    async with open_api() as opened:
        webhook = dead_letter(C, kind="webhook", code="undelivered", webhook_id="w1")
        await opened.letters.add([dead_letter(), REFUSED, webhook, UNREADABLE])
        opened.summaries.put(summary(state=State.FAILED, attempt=3, ended_at=AT))
        yield opened


# ---- dead letters ----


async def test_letters_are_shown_by_reason_and_one_by_one(browser):
    status, text = await browser.get("/ui/dead-letters")
    assert status == 200
    for code in (
        "attempts_exhausted",
        "submission_refused",
        "undelivered",
        "unreadable_record",
    ):
        assert f">{code}</a>" in text
    assert text.count("/ui/dead-letters/") >= 4


async def test_the_filter_is_the_address(browser):
    _, text = await browser.get("/ui/dead-letters?kind=webhook&kind=refused")
    assert C in text
    assert A not in text
    status, text = await browser.get("/ui/dead-letters?kind=lost")
    assert (status, "kind" in text, "refused" in text) == (422, True, True)


async def test_what_is_in_a_letter_is_never_markup(browser):
    for path in ("/ui/dead-letters", f"/ui/dead-letters/{B}", f"/ui/dead-letters/{D}", "/ui/"):
        status, text = await browser.get(path)
        assert status == 200
        assert "<script>alert" not in text
        assert "<svg onload" not in text


async def test_a_letter_is_redriven_from_its_page(api, browser):
    path = f"/ui/dead-letters/{A}"
    status, text = await browser.submit(path, f"{path}/redrive", reason="mended")
    assert (status, "It is redriven" in text) == (200, True)
    assert [one["type"] for one in api.published] == ["agenda.restarted"]
    _, text = await browser.get(path)
    assert 'action="/ui/dead-letters/' not in text, "nothing is left to be done"


async def test_what_could_not_be_redriven_says_why_on_its_page(browser):
    path = f"/ui/dead-letters/{B}"
    status, text = await browser.submit(path, f"{path}/redrive")
    assert (status, "It was not done" in text, "operations" in text) == (409, True, True)


async def test_what_cannot_be_redriven_offers_to_be_discarded_alone(api, browser):
    path = f"/ui/dead-letters/{D}"
    _, text = await browser.get(path)
    assert f"{path}/redrive" not in text
    status, text = await browser.submit(path, f"{path}/discard", reason="theirs")
    assert (status, "It is discarded" in text) == (200, True)
    assert (await api.letters.find(D)).settled_reason == "theirs"


async def test_all_that_fit_are_counted_before_they_are_settled(api, browser):
    page, action = "/ui/dead-letters?kind=webhook&kind=exhausted", "/ui/dead-letters/commands"
    status, text = await browser.submit(page, action, action="redrive", reason="r")
    assert (status, "Redrive: 2 of 2" in text, api.letters.webhooks) == (200, True, [])
    form = dict(re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', text))
    form = {name: unescape(value) for name, value in form.items()}
    status, text = await browser.post(action, **form)
    assert (status, "done for 2 of 2" in text, api.letters.webhooks) == (200, True, ["w1"])


async def test_an_agenda_shows_the_callbacks_that_came_to_nothing(api, browser):
    async def section():
        _, text = await browser.get("/ui/agendas/a1")
        found = re.search(r'<section aria-labelledby="callback">.*?</section>', text, re.S)
        return found[0] if found else ""

    url = f"https://example.com/{EVIL}"
    body = json.dumps({"callback_url": url, "operations": []}).encode()
    api.summaries.put(summary(state=State.RUNNING, body=body))
    assert "once it has ended" in await section()
    api.summaries.put(summary(state=State.FAILED, body=body, ended_at=AT))
    shown = await section()
    assert f'href="/ui/dead-letters/{C}">w1</a>' in shown
    assert "given up" in shown
    assert "<script>" not in shown
    await browser.submit(f"/ui/dead-letters/{C}", f"/ui/dead-letters/{C}/redrive")
    assert "redriven" in await section()
    api.summaries.put(summary("a2", state=State.SUCCEEDED, body=body, ended_at=AT))
    _, text = await browser.get("/ui/agendas/a2")
    assert "Table of callbacks" not in text


async def test_an_agenda_shows_what_became_of_each_callback(api, browser):
    reports = [
        Callback(
            "w3", f"https://example.com/{EVIL}", "waiting", 2, AT, AT, None, f"got 503 {EVIL}"
        ),
        Callback("w2", "https://example.com/", "delivered", 1, AT, None, AT, ""),
        Callback(
            "w1", "https://example.com/", "exhausted", 10, AT, None, AT, "answered with 500"
        ),
    ]
    api.summaries.reported["a1"] = reports
    _, text = await browser.get("/ui/agendas/a1")
    rows = re.findall(r'<tr data-row="(w\d)">(.*?)</tr>', text, re.S)
    assert [name for name, _ in rows] == ["w3", "w2", "w1"]
    for (_, row), says in zip(rows, ("waiting", "delivered", "given up"), strict=True):
        assert says in row
    assert f'href="/ui/dead-letters/{C}">w1</a>' in rows[2][1]
    assert "answered with 500" in rows[2][1]
    assert "<script>alert" not in text
    assert "data-live" in text  # one is still tried


async def test_open_letters_need_attention(browser):
    _, text = await browser.get("/ui/")
    assert "1 dead letters: webhooks that could not be delivered" in text


async def test_a_command_that_is_none_is_not_found(browser):
    _, text = await browser.get(f"/ui/dead-letters/{A}")
    csrf = re.search(r'name="csrf" value="([^"]*)"', text)[1]
    status, _ = await browser.post(f"/ui/dead-letters/{A}/burn", csrf=csrf)
    assert status == 404


# ---- keys, audit, doctor ----


async def test_a_key_is_made_shown_once_rotated_and_revoked(api, browser):
    status, text = await browser.submit(
        "/ui/keys", "/ui/keys", customer_id="acme", title=EVIL, role="read", days="30"
    )
    assert (status, "only time" in text) == (200, True)
    token = re.search(r">(pop_[a-z0-9]+_[^<]*)<", text)[1]
    [key] = api.audit.stored.values()
    assert (key.customer_id, key.roles) == ("acme", frozenset({Role.READ}))
    _, listed = await browser.get("/ui/keys")
    assert key.id in listed
    assert token not in listed
    assert "<script>alert" not in listed
    _, text = await browser.submit("/ui/keys", f"/ui/keys/{key.id}/rotate", hours="0")
    assert f"In place of</dt><dd>{key.id}" in text
    newer = next(one for one in api.audit.stored if one != key.id)
    status, text = await browser.submit("/ui/keys", f"/ui/keys/{newer}/revoke")
    assert (status, "The key is revoked" in text) == (200, True)
    assert api.audit.stored[newer].revoked_at is not None


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"days": "0"}, "days"), ({"role": "king"}, "role"), ({"customer_id": "<b>"}, "customer")],
)
async def test_a_wrong_field_of_a_key_is_named(browser, fields, field):
    status, text = await browser.submit("/ui/keys", "/ui/keys", **({"role": "read"} | fields))
    assert (status, field in text) == (422, True)


async def test_the_audit_log_is_filtered_by_its_address(browser):
    await browser.submit(f"/ui/dead-letters/{D}", f"/ui/dead-letters/{D}/discard", reason=EVIL)
    _, text = await browser.get("/ui/audit?kind=dead-letters")
    assert text.count("<tr data-row") == 2
    assert D in text
    assert "<script>alert" not in text
    _, text = await browser.get("/ui/audit?kind=key")
    assert "Nothing was changed that fits" in text


async def test_the_doctor_says_that_all_is_well(browser):
    _, text = await browser.get("/ui/doctor")
    assert "All is well" in text


# ---- pullers ----


async def test_pullers_are_shown_with_their_last_sign_and_who_is_missing(api, browser):
    _, text = await browser.get("/ui/pullers")
    assert "Nobody was seen to pull" in text
    seen = SeenPuller(
        insight_id="files", puller_id=EVIL, first_seen_at=AT, last_sign_at=AT,
        last_claim_at=None, idle=None, last_agenda_id="a1",
    )  # fmt: skip
    api.pullers.seen = [seen, *(replace(seen, puller_id=f"p{n}") for n in range(300))]
    _, text = await browser.get("/ui/pullers?insight_id=files")
    assert "silent" in text
    assert "over HTTP" in text
    assert "<script>alert" not in text
    following = re.search(r'href="(\?after=[^"]*)" data-key="n"', text)[1]
    _, text = await browser.get(f"/ui/pullers{unescape(following)}")
    assert text.count("<tr data-row") == 101
    assert (await browser.get("/ui/pullers?insight_id=<b>"))[0] == 422


# ---- who looks ----


async def test_each_viewer_is_led_to_the_pages_that_are_for_it():
    everybodys, operators = {"/dead-letters"}, {"/dead-letters", "/pullers"}
    admins = {*operators, "/keys", "/audit", "/doctor"}
    viewers = {
        ("acme", Role.READ): everybodys,
        (None, Role.READ): operators,
        (None, Role.ADMIN): admins,
    }
    async with open_world() as world, console(world, signs_in=True) as browser:
        for (customer, role), pages in viewers.items():
            await browser.sign_in(world.tokens[customer, role])
            _, text = await browser.get("/ui/")
            for page in admins:
                assert (f'href="/ui{page}" data-key' in text) == (page in pages), page
                status, _ = await browser.get(f"/ui{page}")
                assert status == (200 if page in pages else 403), (customer, role, page)


async def test_a_customer_sees_no_letter_of_another():
    async with (
        open_world(customers=("acme", "beta")) as world,
        console(world, signs_in=True) as browser,
    ):
        await browser.sign_in(world.tokens["acme", Role.READ])
        _, text = await browser.get("/ui/dead-letters")
        assert "0" * 20 in text
        assert "f" * 20 not in text
        for letter_id, status in (("0" * 20, 200), ("f" * 20, 404), ("e" * 20, 404)):
            assert (await browser.get(f"/ui/dead-letters/{letter_id}"))[0] == status
        _, text = await browser.get(f"/ui/dead-letters/{'0' * 20}")
        assert "Redrive" not in text, "it may only read"
