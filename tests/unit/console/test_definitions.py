"""Definitions in the console: lists, one page each, and what a schedule has beside its own."""

import re
from html import unescape

import pytest
from api_fakes import agenda, open_api, summary
from attack_world import open_world
from console_viewer import console

from pop_stream.console.pages.definitions import KINDS, PAGE, trigger_text
from pop_stream.model.definitions import KINDS as MODELS
from pop_stream.model.identity import Role

EVIL = "<script>alert(1)</script>{{ 7*7 }}'\"--><svg onload=x>"
NIGHTLY = {
    "id": "nightly",
    "title": EVIL,
    "timezone": "Europe/Berlin",
    "trigger": {"cron": "30 2 * * *"},
    "submission": agenda(title=EVIL),
}
SCHEDULE = "/ui/definitions/schedules/nightly"


@pytest.fixture
async def api():
    async with open_api() as opened:
        status, answer, _ = await opened.call("POST", "/v1/schedules", NIGHTLY)
        assert status == 201, answer
        yield opened


def test_every_kind_that_can_be_defined_has_a_page():
    assert {one.kind for one in KINDS.values()} == set(MODELS)
    for path, one in KINDS.items():
        assert path == one.path
        assert set(one.columns) <= set(MODELS[one.kind].model_fields)


# ---- lists ----


async def test_the_kinds_lead_to_their_lists(browser):
    _, text = await browser.get("/ui/definitions")
    for path in KINDS:
        assert f'href="/ui/definitions/{path}"' in text
        assert (await browser.get(f"/ui/definitions/{path}"))[0] == 200
    assert (await browser.get("/ui/definitions/wishes"))[0] == 404


async def test_a_list_leads_to_each_and_is_filtered_by_its_address(browser):
    _, text = await browser.get("/ui/definitions/schedules")
    assert f'href="{SCHEDULE}"' in text
    assert "cron 30 2 * * *" in text
    assert "Europe/Berlin" in text
    assert "</span> scheduled" in text
    assert "<script>alert" not in text
    _, text = await browser.get("/ui/definitions/schedules?id=none")
    assert "No schedule fits." in text


async def test_a_list_has_pages(api, browser):
    for number in range(PAGE):
        await api.call("POST", "/v1/customers", {"id": f"c-{number:02}"})
    _, text = await browser.get("/ui/definitions/customers")
    assert text.count("<tr data-row") == PAGE
    following = unescape(re.search(r'href="(\?cursor=[^"]*)" data-key="n"', text)[1])
    _, text = await browser.get(f"/ui/definitions/customers{following}")
    assert text.count("<tr data-row") == 1


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        ({"cron": "0 6 * * *"}, "cron 0 6 * * *"),
        ({"every_s": 300}, "every 5 min"),
        ({"rrule": "FREQ=DAILY"}, "rrule FREQ=DAILY"),
        ({"at": ["2026-12-25T08:00:00Z"]}, "at 2026-12-25T08:00:00Z"),
        ({"at": ["2026-12-25T08:00:00Z", "2026-12-26T08:00:00Z"]}, "at 2 instants"),
    ],
)
def test_a_trigger_is_said_in_a_few_words(trigger, text):
    assert trigger_text(trigger) == text


# ---- one ----


async def test_what_a_definition_says_stands_apart_from_its_defaults(browser):
    status, text = await browser.get("/ui/definitions/insights/files")
    assert status == 200
    said, _, defaults = text.partition("are left at their defaults")
    assert '<tr data-row="mappers">' in said
    assert '<tr data-row="algorithm">' in defaults
    assert '<tr data-row="algorithm">' not in said
    assert "Of several insights that fit, the highest wins." in defaults


async def test_what_is_defined_is_never_markup(browser):
    status, text = await browser.get(SCHEDULE)
    assert status == 200
    assert "<script>alert" not in text
    assert "<svg onload" not in text


async def test_a_definition_that_is_not_there_is_not_found(browser):
    for path in ("insights/none", "wishes/files"):
        assert (await browser.get(f"/ui/definitions/{path}"))[0] == 404


# ---- schedules ----


async def test_a_schedule_shows_its_next_instants_on_both_clocks_and_its_occurrences(
    api, browser
):
    api.summaries.put(summary("nightly.20260101T013000Z", link_id="nightly"))
    _, text = await browser.get(SCHEDULE)
    instants = text.split("Table of next instants", 1)[1].split("</table>", 1)[0]
    assert instants.count("<tr data-row") == 10
    assert "2026-01-02 01:30:00 UTC" in instants
    assert "2026-01-02T02:30:00+01:00" in instants
    occurrences = text.split("Table of occurrences", 1)[1].split("</table>", 1)[0]
    assert 'href="/ui/agendas/nightly.20260101T013000Z"' in occurrences


async def test_a_schedule_is_paused_and_resumed(api, browser):
    _, text = await browser.submit(SCHEDULE, "/ui/schedules/nightly/pause")
    assert "Paused: occurrences are skipped" in text
    assert "</span> paused" in text
    assert 'action="/ui/schedules/nightly/pause"' not in text
    assert (await api.store.get("schedule", "nightly")).definition.paused
    _, text = await browser.submit(SCHEDULE, "/ui/schedules/nightly/resume")
    assert "Resumed" in text
    assert not (await api.store.get("schedule", "nightly")).definition.paused


async def test_a_schedule_is_triggered_and_its_range_backfilled(api, browser):
    _, text = await browser.submit(SCHEDULE, "/ui/schedules/nightly/trigger")
    assert "an occurrence for now is on its way" in text
    span = {"first": "2025-12-01T00:00:00Z", "last": "2025-12-04T00:00:00Z"}
    _, text = await browser.submit(SCHEDULE, "/ui/schedules/nightly/backfill", **span)
    assert "3 occurrences are on their way" in text
    assert [one["action"] for one in api.published] == ["trigger", "backfill"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"first": "yesterday", "last": ""}, "must be an instant with an offset"),
        (
            {"first": "2025-12-01T00:00:00Z", "last": "2025-12-01T00:00:01Z"},
            "has no occurrences; give a range",
        ),
    ],
)
async def test_a_range_that_has_no_occurrence_is_refused(api, browser, fields, says):
    action = "/ui/schedules/nightly/backfill"
    status, text = await browser.submit(SCHEDULE, action, **fields)
    assert (status, says in unescape(text), api.published) == (422, True, [])


async def test_a_command_of_a_schedule_that_is_none_is_not_found(browser):
    _, text = await browser.get(SCHEDULE)
    csrf = re.search(r'name="csrf" value="([^"]*)"', text)[1]
    assert (await browser.post("/ui/schedules/nightly/burn", csrf=csrf))[0] == 404


async def test_whoever_may_not_command_a_schedule_is_offered_no_command():
    async with open_world() as world, console(world, signs_in=True) as browser:
        for role, schedule, may in (
            (Role.READ, "s-own", False),
            (Role.OPERATE, "s-own", True),
            (Role.OPERATE, "s-global", False),
        ):
            await browser.sign_in_as(world, "acme", Role.READ, role)
            status, text = await browser.get(f"/ui/definitions/schedules/{schedule}")
            assert status == 200
            assert ("/trigger" in text) is may, (role, schedule)
