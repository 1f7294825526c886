"""The console in front of a real API on in-memory ports, as two customers and an operator."""

import json
import re
from datetime import timedelta
from html import unescape

import pytest
from api_fakes import AT, agenda, open_api, summary
from attack_world import open_world
from console_viewer import console

from pop_stream.model.events.scheduling import CustomerShare, QueueDescribed
from pop_stream.model.identity import Role
from pop_stream.policy.lifecycle.states import State

EVIL = (
    "<script>alert(1)</script>{{ 7*7 }}{% raw %}\N{RIGHT-TO-LEFT OVERRIDE}'\"--><svg onload=x>"
)
PAGES = ("/", "/insights/{insight}", "/agendas", "/agendas/{agenda}")


@pytest.fixture
async def api():
    async with open_api() as opened:
        yield opened


@pytest.fixture
async def browser(api):
    async with console(api, signs_in=False) as one:
        yield one


def described(**changes) -> QueueDescribed:
    known = {
        "insight_id": "files", "query_id": "q", "at": AT, "algorithm": "weighted_fair",
        "ready": 12, "lag": 1, "in_flight": 3, "slots": 0, "target": 8, "rate_per_s": 1.5,
        "customers": (CustomerShare("acme", 0, 9, 3, 2.0), CustomerShare("beta", 0, 3, 0, 1.0)),
        "others": 0,
    }  # fmt: skip
    return QueueDescribed(**(known | changes))


# ---- pages ----


async def test_the_root_leads_to_the_overview(browser):
    status, text = await browser.get("/")
    assert (status, "<h1>Overview</h1>" in text) == (200, True)


async def test_an_insight_that_does_not_answer_needs_attention(browser):
    _, text = await browser.get("/ui/")
    assert "files: its scheduler does not answer" in text


async def test_shares_stand_beside_what_each_is_entitled_to(api, browser):
    api.questions.by_question["files", ""] = described()
    _, text = await browser.get("/ui/insights/files")
    assert "66.7 %" in text, "acme, by weight 2 of 3"
    assert "33.3 %" in text
    assert 'aria-label="acme has 67 % and is entitled to 67 %"' in text


async def test_an_agenda_shows_its_operations_as_picture_and_table(api, browser):
    api.summaries.put(summary())
    status, text = await browser.get("/ui/agendas/a1")
    assert status == 200
    assert text.count(">fetch<") >= 1
    assert '<svg class="graph"' in text
    assert "Cancel" in text
    assert "Rerun" not in text, "it runs"


async def test_what_is_not_there_says_so(browser):
    for path in ("/ui/agendas/none", "/ui/insights/none"):
        status, text = await browser.get(path)
        assert (status, "Not found" in text) == (404, True)


@pytest.mark.parametrize(
    ("query", "field", "allowed"),
    [
        ("state=lost", "state", "one of accepted, ready"),
        ("accepted_from=yesterday", "accepted_from", "an instant with an offset"),
    ],
)
async def test_a_wrong_filter_says_which_field_and_what_is_allowed(
    browser, query, field, allowed
):
    status, text = await browser.get(f"/ui/agendas?{query}")
    assert (status, field in text, allowed in unescape(text)) == (422, True, True)


async def test_a_filter_is_the_address_of_its_view(api, browser):
    api.summaries.put(summary("a1"))
    api.summaries.put(summary("a2", state=State.SUCCEEDED))
    _, text = await browser.get("/ui/agendas?state=succeeded")
    assert "a2" in text
    assert "/ui/agendas/a1" not in text


async def test_what_customers_write_is_never_markup(api, browser):
    operations = [{"name": EVIL[:60], "type": EVIL[:60]}]
    diagnostics = ()
    api.summaries.put(
        summary(
            "a1", title=EVIL, message=EVIL * 1000, customer_id=EVIL, link_id=EVIL,
            puller_id=EVIL, diagnostics=diagnostics, operation_names=(EVIL[:60],),
            operations={}, body=json.dumps(agenda(operations=operations)).encode(),
        )
    )  # fmt: skip
    api.questions.by_question["files", ""] = described(
        customers=(CustomerShare(EVIL, 0, 9, 3, 2.0),), algorithm=EVIL, limited_by=""
    )
    for path in ("/ui/agendas", "/ui/agendas/a1", "/ui/insights/files", "/ui/"):
        status, text = await browser.get(path)
        assert status == 200
        assert "<script>alert" not in text
        assert "<svg onload" not in text
        assert "49" not in re.findall(r"<h1>(.*?)</h1>", text, re.S)[0]


async def test_nothing_of_others_and_nothing_inline_is_let_in(browser):
    async with browser.client.get("/ui/") as response:
        policy = response.headers["Content-Security-Policy"]
        text = await response.text()
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert " style=" not in text
    assert not re.search(r" on[a-z]+=", text)


# ---- deeds ----


async def test_a_command_reaches_the_api(api, browser):
    api.summaries.put(summary())
    status, text = await browser.submit("/ui/agendas/a1", "/ui/agendas/a1/cancel", reason="why")
    assert (status, "Cancel is on its way" in text) == (200, True)
    [published] = api.published
    assert published["action"] == "cancel"


async def test_a_command_that_comes_too_late_says_the_present_state(api, browser):
    api.summaries.put(summary())
    _, text = await browser.get("/ui/agendas/a1")
    csrf = re.search(r'name="csrf" value="([^"]*)"', text)[1]
    api.summaries.put(summary(state=State.SUCCEEDED))
    status, text = await browser.post("/ui/agendas/a1/hold", csrf=csrf)
    assert (status, "succeeded" in text) == (409, True)


async def test_all_that_fit_are_counted_before_they_are_commanded(api, browser):
    api.summaries.put(summary("a1"))
    api.summaries.put(summary("a2", state=State.SUCCEEDED))
    page, action = "/ui/agendas?customer_id=acme", "/ui/agendas/commands"
    status, text = await browser.submit(page, action, action="cancel", reason="r")
    assert (status, "Cancel: 1 of 2" in text, api.published) == (200, True, [])
    form = dict(re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', text))
    form = {name: unescape(value) for name, value in form.items()}
    status, text = await browser.post(action, **form)
    assert (status, "for 1 agendas" in text) == (200, True)
    assert [one["action"] for one in api.published] == ["cancel"]


@pytest.mark.parametrize("text", ["", "much", "nan", "inf"])
async def test_a_weight_that_is_no_number_is_refused(api, browser, text):
    api.questions.by_question["files", ""] = described()
    status, answer = await browser.submit(
        "/ui/insights/files", "/ui/customers/acme/weight", weight=text
    )
    assert (status, "must be a number" in answer) == (422, True)


async def test_a_weight_acts(api, browser):
    api.questions.by_question["files", ""] = described()
    status, _ = await browser.submit(
        "/ui/insights/files", "/ui/customers/acme/weight", weight="3,5"
    )
    assert status == 200
    stored = await api.store.get("customer", "acme")
    assert stored.definition.weight == 3.5


async def test_a_form_of_another_page_changes_nothing(api, browser):
    api.summaries.put(summary())
    _, text = await browser.get("/ui/agendas/a1")
    csrf = re.search(r'name="csrf" value="([^"]*)"', text)[1]
    for headers, form in (
        ({}, {}),
        ({}, {"csrf": "guess"}),
        ({"Origin": "https://evil.example"}, {"csrf": csrf}),
        ({"Sec-Fetch-Site": "cross-site"}, {"csrf": csrf}),
        ({"Host": "evil.example"}, {"csrf": csrf}),
    ):
        status, _ = await browser.post("/ui/agendas/a1/cancel", headers=headers, **form)
        assert status == 403
    assert api.published == []


async def test_nobody_is_led_elsewhere(browser):
    _, text = await browser.get("/ui/")
    csrf = re.search(r'name="csrf" value="([^"]*)"', text)[1]
    for back in ("https://evil.example/", "//evil.example", "/ui//evil.example", "/v1/agendas"):
        await browser.post("/ui/theme", csrf=csrf, theme="dark", back=back)
        assert browser.answered_at == "/ui/"


# ---- live ----


async def test_a_page_is_sent_again_when_it_has_changed(api, browser):
    api.summaries.put(summary())
    headers = {"Accept": "text/event-stream"}
    async with browser.client.get("/ui/agendas/a1", headers=headers) as stream:
        first = await _next_main(stream)
        assert "running" in first
        api.summaries.put(summary(message="nearly there"))
        while "nearly there" not in await _next_main(stream):
            pass


async def _next_main(stream) -> str:
    text = ""
    while not text.endswith("\n\n") or "event: main" not in text:
        text += (await stream.content.readline()).decode()
    return text


# ---- who looks ----


@pytest.fixture
async def world():
    async with open_world(customers=("acme", "beta")) as opened:
        yield opened


async def test_whoever_is_not_signed_in_sees_nothing(world):
    async with console(world, signs_in=True) as browser:
        for page in PAGES:
            status, text = await browser.get(
                f"/ui{page.format(insight='i-own', agenda='a-own')}"
            )
            assert (status, "<h1>Sign in</h1>" in text) == (200, True)
            assert "a-own" not in re.sub(r'name="back"[^>]*', "", text)


async def test_a_wrong_key_is_refused(world):
    async with console(world, signs_in=True) as browser:
        assert await browser.sign_in("nonsense") == 401
        assert browser.cookie == ""


@pytest.mark.parametrize("customer", ["acme", "beta", None])
async def test_a_customer_sees_its_own_and_nothing_of_others(world, customer):
    async with console(world, signs_in=True) as browser:
        assert await browser.sign_in(world.tokens[customer, Role.READ]) == 200
        seen = {}
        for whose in ("own", "foreign", "absent"):
            status, _ = await browser.get(f"/ui/agendas/a-{whose}")
            seen[whose] = status
        own = {"acme": "own", "beta": "foreign"}.get(customer)
        for whose, status in seen.items():
            sees = whose != "absent" and (customer is None or whose == own)
            assert status == (200 if sees else 404), (customer, whose)
        _, listed = await browser.get("/ui/agendas")
        assert ("a-own" in listed) == (customer in {"acme", None})
        assert ("a-foreign" in listed) == (customer in {"beta", None})


async def test_who_may_only_read_is_offered_nothing_else_and_can_do_nothing_else(world):
    async with console(world, signs_in=True) as browser:
        await browser.sign_in(world.tokens["acme", Role.READ])
        _, text = await browser.get("/ui/agendas/a-own")
        assert "Cancel" not in text
        csrf = re.search(r'name="csrf" value="([^"]*)"', text)[1]
        status, _ = await browser.post("/ui/agendas/a-own/cancel", csrf=csrf)
        assert status == 403


async def test_a_session_ends_with_its_key(world):
    async with console(world, signs_in=True) as browser:
        await browser.sign_in(world.tokens["acme", Role.READ])
        assert "a-own" in (await browser.get("/ui/agendas"))[1]
        world.keys_stored.clear()
        world.clock.move(timedelta(minutes=5))
        _, text = await browser.get("/ui/agendas")
        assert "<h1>Sign in</h1>" in text


async def test_signing_out_ends_the_session_on_the_server(world):
    async with console(world, signs_in=True) as browser:
        await browser.sign_in(world.tokens["acme", Role.READ])
        before = browser.cookie
        await browser.submit("/ui/agendas", "/ui/sign-out")
        browser.cookie = before
        assert "<h1>Sign in</h1>" in (await browser.get("/ui/agendas"))[1]


async def test_a_session_expires(world):
    async with console(world, signs_in=True, session=timedelta(0)) as browser:
        await browser.sign_in(world.tokens["acme", Role.READ])
        assert "<h1>Sign in</h1>" in (await browser.get("/ui/agendas"))[1]
