"""Definitions are made, changed and deleted in the console; nothing before it was shown."""

import json
import re
from dataclasses import replace
from html import unescape

import pytest
from api_fakes import agenda, open_api
from attack_world import TIMED, open_world
from console_viewer import console

from pop_stream.console.pages.definitions import KINDS
from pop_stream.model.definitions import Insight, VersionedTemplate
from pop_stream.model.identity import Role
from pop_stream.model.revisions import parse_definition
from pop_stream.model.template import AgendaTemplate

EVIL = "<script>alert(1)</script>{{ 7*7 }}'\"--><svg onload=x>"
PAGE = "/ui/definitions/insights/files"
EDIT = f"{PAGE}/edit"
CHANGED = {
    "id": "files",
    "title": EVIL,
    "mappers": {"operation_types": ["http", "sql"]},
    "max_in_flight": 7,
}


@pytest.fixture
async def api():
    async with open_api() as opened:
        yield opened


def hidden(text, action):
    """What the form that goes to an address has in it already."""
    form = re.search(rf'action="{re.escape(action)}".*?</form>', text, re.S)[0]
    found = re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', form)
    return {name: unescape(value) for name, value in found}


def lines(text, change):
    """The lines of a difference, by what becomes of them."""
    tag = {"removed": "del", "added": "ins"}[change]
    found = re.findall(rf"<{tag}><code>(.*?)</code></{tag}>", text, re.S)
    return [unescape(one).strip() for one in found]


def in_force(api, **more):
    """Add definitions to those that the API routes by."""
    known = api.definitions.current
    merged = {name: {**getattr(known, name), **added} for name, added in more.items()}
    api.definitions.current = replace(known, **merged)


async def stored(api, kind="insight", object_id="files"):
    return await api.store.get(kind, object_id)


# ---- change ----


async def test_the_form_has_what_is_said_now_without_defaults(browser):
    status, text = await browser.get(EDIT)
    content = json.loads(unescape(re.search(r"<textarea[^>]*>(.*?)</textarea>", text, re.S)[1]))
    assert (status, content) == (
        200,
        {"id": "files", "mappers": {"operation_types": ["http", "sql"]}},
    )
    assert hidden(text, EDIT)["version"] == "1"


async def test_a_change_is_shown_before_it_is_saved(api, browser):
    content = json.dumps(CHANGED)
    status, text = await browser.submit(EDIT, EDIT, content=content, do="preview")
    assert status == 200
    assert lines(text, "added")[-1] == '"max_in_flight": 7'
    assert (await stored(api)).version == 1
    assert "<script>alert" not in text
    status, text = await browser.post(
        EDIT, **hidden(text, EDIT), do="save", reason=f"Night shift {EVIL}"
    )
    assert (status, "Saved; in force" in text) == (200, True)
    assert (await stored(api)).definition.max_in_flight == 7
    assert api.store.authors[-1].reason == f"Night shift {EVIL}"
    assert browser.answered_at == f"{PAGE}?did=saved"


async def test_what_was_shown_can_be_edited_further(browser):
    _, text = await browser.submit(EDIT, EDIT, content=json.dumps(CHANGED), do="preview")
    _, text = await browser.post(EDIT, **hidden(text, EDIT), do="edit", reason=EVIL)
    assert hidden(text, EDIT)["reason"] == EVIL
    typed = re.search(r"<textarea[^>]*>(.*?)</textarea>", text, re.S)[1]
    assert json.loads(unescape(typed)) == CHANGED


async def test_a_change_that_changes_nothing_cannot_be_saved(browser):
    content = json.dumps(CHANGED | {"title": "", "max_in_flight": None})
    _, text = await browser.submit(EDIT, EDIT, content=content, do="preview")
    assert "Nothing changes" in text
    assert 'value="save"' not in text


@pytest.mark.parametrize(
    ("content", "field", "says"),
    [
        ("{", "content", "is no JSON"),
        ("[" * 50_000, "content", "is no JSON"),
        ('"\\ud800"', "content", "is no JSON"),
        ("[1]", "content", "must be a JSON object"),
        ('{"id": "other"}', "id", "the path says"),
        ('{"max_in_flight": -1}', "max_in_flight", "greater than or equal to 1"),
        ('{"max_in_flight": "7"}', "max_in_flight", ""),
        ('{"wishes": 1}', "wishes", ""),
        ('{"title": "a\\u0000b"}', "", "NUL"),
        ('{"pool": "none"}', "pool", ""),
    ],
)
async def test_what_is_refused_names_field_and_remedy_and_keeps_what_was_typed(
    api, browser, content, field, says
):
    status, text = await browser.submit(EDIT, EDIT, content=content, do="save")
    assert (status, "Not saved" in text, (await stored(api)).version) == (422, True, 1)
    assert field in text
    assert says in unescape(text)
    typed = re.search(r"<textarea[^>]*>(.*?)</textarea>", text, re.S)[1]
    assert unescape(typed) == content


async def test_a_change_of_what_was_changed_meanwhile_shows_both(api, browser):
    _, text = await browser.submit(EDIT, EDIT, content=json.dumps(CHANGED), do="preview")
    form = hidden(text, EDIT)
    await api.call("PATCH", "/v1/insights/files", {"precedence": 5})
    status, text = await browser.post(EDIT, **form, do="save")
    assert (status, "Not saved: it was changed meanwhile" in text) == (409, True)
    theirs, yours = text.split('id="yours"')
    assert '"precedence": 5' in " ".join(lines(theirs, "added"))
    assert '"precedence": 5' in " ".join(lines(yours, "removed"))
    assert (await stored(api)).definition.max_in_flight is None
    status, text = await browser.post(EDIT, **hidden(text, EDIT), do="save")
    assert (status, (await stored(api)).definition.max_in_flight) == (200, 7)


async def test_a_change_of_what_was_deleted_meanwhile_is_not_lost(api, browser):
    page = "/ui/definitions/customers/acme/edit"
    _, text = await browser.get(page)
    form = hidden(text, page) | {"content": '{"id": "acme", "weight": 9}'}
    await api.call("DELETE", "/v1/customers/acme")
    status, text = await browser.post(page, **form)
    assert (status, "A new customer" in text, '"weight": 9' in unescape(text)) == (
        404,
        True,
        True,
    )


# ---- new ----


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_a_new_one_begins_as_is_sound_but_for_its_customer(kind):
    content = json.loads(json.dumps({"id": "new", **kind.sample}).replace('""', '"acme"'))
    assert parse_definition(kind.kind, "new", content).id == "new"


async def test_a_new_one_is_shown_and_then_defined(api, browser):
    page = "/ui/define/schedules"
    content = json.dumps({"id": "hourly", **TIMED})
    _, text = await browser.submit(page, page, content=content, do="preview")
    assert '"every_s": 60' in lines(text, "added")
    assert await stored(api, "schedule", "hourly") is None
    status, text = await browser.post(page, **hidden(text, page), do="save")
    assert (status, "Defined; in force" in text) == (200, True)
    assert browser.answered_at == "/ui/definitions/schedules/hourly?did=defined"


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [
        ({"max_in_flight": 1}, 422, "an id is a text"),
        ({"id": "p"}, 422, "max_in_flight"),
        ({"id": "taken", "max_in_flight": 1}, 409, "taken"),
    ],
)
async def test_a_new_one_that_is_refused_says_why(api, browser, content, status, says):
    await api.call("POST", "/v1/pools", {"id": "taken", "max_in_flight": 1})
    page = "/ui/define/pools"
    answer = await browser.submit(page, page, content=json.dumps(content), do="save")
    assert (answer[0], says in unescape(answer[1])) == (status, True)


async def test_what_a_customer_defines_is_its_own():
    async with open_world() as world, console(world, signs_in=True) as browser:
        await browser.sign_in_as(world, "acme", Role.READ, Role.OPERATE)
        page = "/ui/define/templates"
        content = json.dumps({"id": "mine", "agenda": agenda()})
        _, text = await browser.submit(page, page, content=content, do="preview")
        assert '"owner": "acme"' in " ".join(lines(text, "added"))
        status, _ = await browser.post(page, **hidden(text, page), do="save")
        assert (status, browser.answered_at) == (
            200,
            "/ui/definitions/templates/mine?did=defined",
        )
        edit = "/ui/definitions/templates/mine/edit"
        content = json.dumps({"agenda": agenda(), "title": "Mine"})
        _, text = await browser.submit(edit, edit, content=content, do="save")
        assert "Saved" in text
        assert "<h1>Mine" in text


# ---- delete ----


async def test_a_definition_is_deleted_after_it_was_shown(api, browser):
    page = "/ui/definitions/customers/acme/delete"
    status, text = await browser.submit(page, page, reason="It has moved away")
    assert (status, "Deleted." in text) == (200, True)
    assert await stored(api, "customer", "acme") is None
    assert api.store.authors[-1].reason == "It has moved away"


async def test_a_reason_that_is_too_long_names_field_and_limit(api, browser):
    content = json.dumps(CHANGED)
    status, text = await browser.submit(
        EDIT, EDIT, content=content, do="save", reason="x" * 501
    )
    assert (status, "<code>reason</code>" in text, "500 characters" in text) == (
        422,
        True,
        True,
    )
    assert (await stored(api)).version == 1


async def test_what_was_changed_meanwhile_is_not_deleted(api, browser):
    page = "/ui/definitions/customers/acme/delete"
    _, text = await browser.get(page)
    await api.call("PATCH", "/v1/customers/acme", {"weight": 5})
    status, text = await browser.post(page, **hidden(text, page))
    assert (status, "It is in version 2 now" in text) == (409, True)


async def test_what_is_needed_says_what_needs_it(api, browser):
    await api.call("POST", "/v1/pools", {"id": "farm", "max_in_flight": 1})
    await api.call("POST", "/v1/insights", {"id": "needs", "pool": "farm"})
    page = "/ui/definitions/pools/farm/delete"
    status, text = await browser.submit(page, page)
    assert (status, "Not deleted" in text, "needs" in text) == (409, True, True)


# ---- versions ----


async def test_versions_say_what_changed_with_each_and_since(api, browser):
    await api.call("PATCH", "/v1/customers/acme", {"weight": 5})
    await api.call("PATCH", "/v1/customers/acme", {"title": "Acme"})
    _, text = await browser.get("/ui/definitions/customers/acme")
    assert re.findall(r"versions/(\d+)", text) == ["2", "1"]
    _, text = await browser.get("/ui/definitions/customers/acme/versions/2")
    changed, since = text.split('id="since"')
    assert lines(changed, "removed") == ['"weight": 2.0']
    assert lines(changed, "added") == ['"weight": 5.0']
    assert '"title": "Acme",' in lines(since, "added")
    for version in ("9", "0", "x", "1" * 500, "٣"):
        path = f"/ui/definitions/customers/acme/versions/{version}"
        assert (await browser.get(path))[0] == 404


# ---- routing ----


async def test_a_dry_run_of_routing_says_how_each_insight_fared(api, browser):
    in_force(api, insights={"other": Insight(id="other")})
    status, text = await browser.submit(
        "/ui/routing?insight_id=files", "/ui/routing", content=json.dumps(agenda())
    )
    assert status == 200
    assert 'It goes to <a href="/ui/definitions/insights/files">' in text
    assert "chosen" in text
    assert "no match" in text
    assert api.published == []


async def test_what_was_tried_is_submitted_once_however_often_it_is_sent(api, browser):
    page = "/ui/routing"
    _, text = await browser.get(page)
    sent = hidden(text, page) | {"content": json.dumps(agenda(id=None)), "do": "submit"}
    sent["content"] = json.dumps({k: v for k, v in agenda().items() if k != "id"})
    for _ in range(2):
        status, _ = await browser.post(page, **sent)
        assert (status, browser.answered_at) == (
            200,
            f"/ui/agendas/{sent['id']}?did=submit",
        )
    assert {one.get("agenda", one)["id"] for one in api.published} == {sent["id"]}
    wrong = sent | {"content": json.dumps(agenda(priority=0))}
    status, text = await browser.post(page, **wrong)
    assert (status, "priority" in text, "would be refused" in text) == (422, True, True)


async def test_a_dry_run_begins_with_what_the_address_names(api, browser):
    template = AgendaTemplate(id="cut", agenda=agenda())
    in_force(api, templates={"cut": VersionedTemplate(template, 1)})
    await api.call("POST", "/v1/agenda-templates", template.model_dump(mode="json"))
    page = "/ui/routing?template_id=cut"
    _, text = await browser.get(page)
    assert '"template_id": "cut"' in unescape(text)
    _, text = await browser.submit(page, "/ui/routing", content='{"template_id": "cut"}')
    assert "It goes to" in text
    assert (await browser.get("/ui/routing?insight_id=none"))[0] == 404


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is no JSON"),
        ("[]", "must be a JSON object"),
        (json.dumps(agenda(priority=0)), "priority"),
        (
            json.dumps(agenda(operations=[{"name": "a", "type": "nobody's"}])),
            "No insight takes",
        ),
    ],
)
async def test_a_dry_run_says_what_is_wrong(browser, content, says):
    _, text = await browser.submit("/ui/routing", "/ui/routing", content=content)
    assert says in unescape(text)
