"""The console in front of a real API on in-memory ports, as two customers and an operator."""

import json
import re
from datetime import UTC, datetime, timedelta
from html import unescape

import pytest
from api_fakes import AT, agenda, open_api, summary
from attack_world import open_world
from console_viewer import console
from queue_answers import described, forecasting

from pop_stream.api_models.queues import CustomerQueueView, QueueView
from pop_stream.console.pictures import MAX_NODES
from pop_stream.console.viewing import SERVICE_POINTS, ServiceHistory
from pop_stream.model.events.scheduling import CustomerShare, QueuedAgendaStatus
from pop_stream.model.identity import Role
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import PastAttempt
from pop_stream.ports.agendas import MAX_COUNTED, AgendaCount

EVIL = (
    "<script>alert(1)</script>{{ 7*7 }}{% raw %}\N{RIGHT-TO-LEFT OVERRIDE}'\"--><svg onload=x>"
)
PAGES = ("/", "/insights/{insight}", "/agendas", "/agendas/{agenda}")


@pytest.fixture
async def api():
    async with open_api() as opened:
        yield opened


# ---- pages ----


async def test_the_root_leads_to_the_overview(browser):
    status, text = await browser.get("/")
    assert (status, "<h1>Overview</h1>" in text) == (200, True)


async def test_an_insight_that_does_not_answer_needs_attention(browser):
    _, text = await browser.get("/ui/")
    assert "files: its scheduler does not answer" in text


@pytest.mark.parametrize(
    ("limited_by", "says"),
    [
        ("paused", "files: nothing is emitted while it is paused"),
        ("health", "files: its health lets fewer agendas run"),
        ("max_in_flight", None),
        ("pool", None),
    ],
)
async def test_an_insight_needs_attention_only_for_what_somebody_can_end(
    api, browser, limited_by, says
):
    api.questions.by_question["files", ""] = described(limited_by=limited_by)
    _, text = await browser.get("/ui/")
    assert re.findall(r"files: [^<]*", text) == ([says] if says else [])


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
        ("ended_before=1", "ended_before", "an instant with an offset"),
        ("priority=12", "priority", "a whole number from 1 to 9"),
        ("stopping=soon", "stopping", "one of cancelled, expired"),
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


@pytest.mark.parametrize(
    ("field", "fits", "fits_not"),
    [
        ("priority", "5", "9"),
        ("attempt", "1", "7"),
        ("puller_id", "w1", "w9"),
        ("ended_before", "2026-03-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("template_id", "", "none"),
        ("stopping", "", "cancelled"),
        ("waiting_for", "", "retry"),
    ],
)
async def test_agendas_are_found_by_every_field_of_a_summary(
    api, browser, field, fits, fits_not
):
    ended = {"state": State.FAILED, "ended_at": datetime(2026, 2, 1, tzinfo=UTC)}
    api.summaries.put(summary("a7", priority=5, puller_id="w1", **ended))
    _, text = await browser.get(f"/ui/agendas?ids=a7&{field}={fits}")
    assert '<tr data-row="a7">' in text
    _, text = await browser.get(f"/ui/agendas?ids=a7&{field}={fits_not}")
    assert '<tr data-row="a7">' not in text
    is_rare = field not in {"puller_id", "template_id"}
    assert ('<details class="more" open>' in text) == is_rare


async def test_a_count_that_is_capped_says_so(api, browser, monkeypatch):
    capped = AgendaCount(MAX_COUNTED, is_capped=True)

    async def count(_):
        return capped

    monkeypatch.setattr(api.summaries, "count", count)
    _, text = await browser.get("/ui/agendas")
    assert "or more</strong> agendas fit." in text


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
    assert (status, "Not done:" in text) == (409, True)
    assert "</span> succeeded" in text, "the present state"


async def test_operations_that_are_ticked_run_again(api, browser):
    api.summaries.put(summary(state=State.FAILED))
    page, action = "/ui/agendas/a1", "/ui/agendas/a1/rerun"
    status, text = await browser.submit(page, action, operations="chosen")
    assert (status, "tick at least one" in text, api.published) == (422, True, [])
    status, _ = await browser.submit(
        page, action, operations="chosen", operation="fetch", hold="yes"
    )
    assert status == 200
    [published] = api.published
    assert "fetch" in str(published)


async def test_attempts_stand_on_a_time_line_and_in_a_table(api, browser):
    past = PastAttempt(
        1, "lost", "w1", AT, AT + timedelta(seconds=2), AT + timedelta(seconds=9), "silent"
    )
    api.summaries.put(
        summary(attempt=2, history=(past,), started_at=AT + timedelta(seconds=20))
    )
    _, text = await browser.get("/ui/agendas/a1")
    assert text.count("<title>attempt ") == 2
    assert "silent" in text


async def test_many_operations_are_counted_by_type(api, browser):
    names = tuple(f"part-{one}" for one in range(MAX_NODES + 1))
    operations = [{"name": one, "type": "noop"} for one in names]
    body = json.dumps(agenda(operations=operations)).encode()
    api.summaries.put(summary(operation_names=names, operations={}, body=body))
    _, text = await browser.get("/ui/agendas/a1")
    assert '<svg class="graph"' not in text
    assert f'<th scope="row">noop</th><td class="num">{MAX_NODES + 1}</td>' in text


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
    status, answer = await browser.get(
        f"/ui/insights/files/forecast?customer=acme&weight={text}"
    )
    assert (status, "must be a number" in answer) == (422, True)


async def test_a_weight_is_tried_before_it_is_saved(api, browser):
    api.questions.by_question["files", ""] = forecasting()
    page = "/ui/insights/files/forecast?customer=acme&weight=3,5"
    status, text = await browser.get(page)
    assert (status, "25 s sooner" in text, text.count('<svg class="chart"')) == (200, True, 2)
    assert api.questions.asked_weights[-1] == {"acme": 3.5}
    status, text = await browser.submit(page, "/ui/customers/acme/weight")
    assert (status, "The weight is saved" in text) == (200, True)
    stored = await api.store.get("customer", "acme")
    assert stored.definition.weight == 3.5


async def test_a_weight_that_was_changed_meanwhile_is_not_overwritten(api, browser):
    api.questions.by_question["files", ""] = forecasting()
    page = "/ui/insights/files/forecast?customer=acme&weight=3.5"
    await browser.submit(page, "/ui/customers/acme/weight")
    _, text = await browser.get(page)
    fields = dict(re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', text))
    await browser.submit(f"{page[:-3]}7", "/ui/customers/acme/weight")
    status, _ = await browser.post("/ui/customers/acme/weight", **fields)
    assert status in {409, 412}
    assert (await api.store.get("customer", "acme")).definition.weight == 7


async def test_a_customer_and_an_insight_are_paused_and_resumed(api, browser):
    page = "/ui/insights/files"
    api.questions.by_question["files", ""] = described()
    _, text = await browser.submit(page, "/ui/customers/acme/pause")
    assert "Paused" in text
    assert (await api.store.get("customer", "acme")).definition.paused
    paused = CustomerShare("acme", 0, 9, 3, 2.0, held_by="paused")
    api.questions.by_question["files", ""] = described(customers=(paused,))
    await browser.submit("/ui/insights/files?again", "/ui/insights/files/pause")
    assert (await api.store.get("insight", "files")).definition.paused
    _, text = await browser.submit(page, "/ui/insights/files/resume")
    assert "Resumed" in text
    assert not (await api.store.get("insight", "files")).definition.paused


async def test_the_queue_of_a_customer_says_why_any_of_it_waits(api, browser):
    api.questions.by_question["files", ""] = described()
    place = QueuedAgendaStatus(agenda_id="a2", state="ready", position=7, own_ahead=2)
    api.questions.by_question["files", "a2"] = described(agenda=place)
    for agenda_id in ("a1", "a2"):
        api.summaries.put(summary(agenda_id, state=State.READY))
    status, text = await browser.get("/ui/insights/files/customers/acme?why=a2")
    assert (status, "Why a2 waits" in text) == (200, True)
    assert "position 7" in text
    assert "A more urgent priority" in text
    assert text.count("Why?") == 2


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


# ---- service over time ----


def seen(at_s: float, **delivered_s: float) -> QueueView:
    customers = [
        CustomerQueueView(
            customer_id=name, ready=1, in_flight=0, weight=1.0, share=1.0, wait_s=0.0,
            held_by=None, delivered_s=given,
        )
        for name, given in delivered_s.items()
    ]  # fmt: skip
    fields = dict.fromkeys(QueueView.__struct_fields__, 0)
    return QueueView(**fields | {"at": AT + timedelta(seconds=at_s), "customers": customers})


def test_service_counts_on_when_the_scheduler_begins_again():
    history = ServiceHistory()
    for at_s, given in enumerate((100.0, 104.0, 3.0, 5.0)):
        history.note(seen(at_s, acme=given))
    assert [one.delivered_s["acme"] for one in history.points] == [0.0, 4.0, 7.0, 9.0]


def test_service_of_any_time_fits():
    history = ServiceHistory()
    for at_s in range(10 * SERVICE_POINTS):
        history.note(seen(at_s, acme=float(at_s)))
    points = history.points
    assert SERVICE_POINTS / 3 < len(points) <= SERVICE_POINTS
    assert (points[0].at, points[-1].at) == (AT, AT + timedelta(seconds=at_s))
    assert points[-1].delivered_s["acme"] == at_s


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
