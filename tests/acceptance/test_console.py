"""The console in a real browser, before the whole system, as operator and as two customers."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from console_stack import (
    ACME,
    BETA,
    HOSTILE,
    OPERATOR,
    VIEWER,
    WITHIN_S,
    ConsoleStack,
    agenda,
    console_stack,
    failing,
)
from oidc_issuer import oidc_issuer
from playwright.async_api import Page, expect
from pydantic import SecretStr

from pop_stream.composition.api import run_api
from pop_stream.console.routes import PAGES as ROUTES

pytestmark = pytest.mark.timeout(3 * WITHIN_S)

PAGES = (
    "/ui/",
    "/ui/insights/render",
    "/ui/insights/quiet",
    "/ui/insights/render/customers/acme",
    "/ui/insights/render/customers/beta?why=beta-39",
    "/ui/insights/render/forecast?customer=beta&weight=6",
    "/ui/insights/render/forecast?customer=beta&weight=much",
    "/ui/agendas",
    "/ui/agendas?customer_id=acme&state=ready",
    "/ui/agendas/done",
    "/ui/agendas/failed",
    "/ui/agendas/hostile",
    "/ui/agendas/wide",
    "/ui/agendas/acme-39",
    "/ui/agendas/held",
    "/ui/agendas/none",
    "/ui/agendas?state=lost",
    "/ui/submit",
    "/ui/submit?template_id=trailer",
    "/ui/definitions",
    "/ui/definitions/schedules",
    "/ui/definitions/schedules/yearly",
    "/ui/definitions/insights/render",
    "/ui/definitions/insights/render/edit",
    "/ui/definitions/templates/trailer",
    "/ui/definitions/pools/farm",
    "/ui/definitions/rules",
    "/ui/definitions/schedules/yearly/edit",
    "/ui/definitions/customers/acme/delete",
    "/ui/definitions/customers/acme/versions/1",
    "/ui/define/templates",
    "/ui/routing",
    "/ui/routing?template_id=trailer",
    "/ui/dead-letters",
    "/ui/dead-letters?kind=lost",
    "/ui/dead-letters/00000000000000000000",
    "/ui/pullers",
    "/ui/keys",
    "/ui/audit",
    "/ui/audit?kind=customer&object_id=acme",
    "/ui/doctor",
)
THEMES = ("light", "dark")

IS_WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


@pytest_asyncio.fixture(scope="module")
async def system() -> AsyncIterator[ConsoleStack]:
    expect.set_options(timeout=WITHIN_S * 1000)
    async with console_stack() as made:
        yield made


@pytest_asyncio.fixture
async def operator(system: ConsoleStack) -> AsyncIterator[Page]:
    async with system.viewer(OPERATOR) as page:
        yield page


# ---- every page ----


async def violations(page: Page) -> str:
    found = await Axe().run(page)
    return found.generate_report() if found.violations_count else ""


def test_every_page_is_looked_at():
    shown = [one.partition("?")[0].removeprefix("/ui") for one in PAGES]
    patterns = [re.sub(r"{\w+}", "[^/]+", path) for path, _ in ROUTES]
    assert [one for one in patterns if not any(re.fullmatch(one, path) for path in shown)] == []


async def violations_of(page: Page, *paths: str) -> dict[str, str]:
    """By page and theme: a viewer's own theme is that of the device."""
    found = {}
    for path in paths:
        await page.goto(path)
        for theme in THEMES:
            await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            found[f"{path} {theme}"] = await violations(page)
    return {place: report for place, report in found.items() if report}


async def expect_no_violations(page: Page) -> None:
    """Of the page as it is."""
    for theme in THEMES:
        await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        assert await violations(page) == "", (page.url, theme)


async def show_a_change(page: Page, content: str) -> None:
    """The page that shows what a change of a customer would change."""
    await page.goto("/ui/definitions/customers/capped/edit")
    await page.get_by_label("as JSON").fill(content)
    await page.get_by_role("button", name="Show what changes").click()


CHANGED = '{"max_in_flight": 2, "title": "Of little"}'


async def test_no_page_keeps_anybody_out_in_either_theme(system, operator):
    assert await violations_of(operator, *PAGES) == {}
    async with system.viewer(None) as page:
        await page.goto("/ui/")
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        await expect_no_violations(page)


@pytest.mark.parametrize("has_scripts", [True, False])
async def test_a_shown_change_keeps_nobody_out_with_or_without_javascript(system, has_scripts):
    async with system.viewer(OPERATOR) as page:
        if not has_scripts:  # the page's own: axe is a script too
            await page.route("**/console.js*", lambda route: route.abort())
        await show_a_change(page, CHANGED)
        await expect(page.locator("ins").first).to_be_visible()
        await expect_no_violations(page)
        await show_a_change(page, '{"max_in_flight": 0}')
        await expect(page.get_by_role("alert")).to_contain_text("max_in_flight")
        await expect_no_violations(page)
        await page.goto("/ui/define/pools")
        await page.get_by_role("button", name="Show what changes").click()
        await expect(page.get_by_role("button", name="Define it")).to_be_visible()
        await expect_no_violations(page)


async def test_pages_work_without_javascript_and_on_a_narrow_screen(system):
    async with system.viewer(
        OPERATOR, java_script_enabled=False, viewport={"width": 360, "height": 720}
    ) as page:
        for path in PAGES:
            await page.goto(path)
            assert await page.locator("h1").count() == 1, path
            assert await page.evaluate(IS_WIDER) is False, path
        await show_a_change(page, CHANGED)
        assert await page.evaluate(IS_WIDER) is False


async def test_the_navigation_fits_in_one_row(operator):
    await operator.goto("/ui/")
    top = [
        one["y"]
        for one in [await operator.locator("nav a").nth(i).bounding_box() for i in (0, -1)]
    ]
    who = await operator.locator(".who").bounding_box()
    assert top[0] == top[1]
    assert who["y"] < top[0] + 20


async def test_what_customers_write_is_text(operator):
    await operator.goto("/ui/agendas/hostile")
    named = HOSTILE.replace("\N{RIGHT-TO-LEFT OVERRIDE}", "[U+202E]")
    assert named in await operator.inner_text("main")
    assert await operator.title() != "owned"
    assert await operator.locator("main script, main svg[onload]").count() == 0


# ---- who looks ----


async def test_two_customers_see_their_own_and_nothing_of_each_other(system):
    async with system.viewer(ACME) as acme, system.viewer(BETA) as beta:
        for page, own, foreign in (
            (acme, "failed", "beta-failed"),
            (beta, "beta-failed", "failed"),
        ):
            await page.goto(f"/ui/agendas/{own}")
            await expect(page.locator("h1")).to_contain_text(own)
            answer = await page.goto(f"/ui/agendas/{foreign}")
            assert answer.status == 404
            await page.goto("/ui/agendas?state=failed")
            names = await page.locator("tbody th").all_inner_texts()
            assert own in names
            assert foreign not in names
        await beta.goto("/ui/insights/render")
        assert "acme" not in await beta.inner_text("main")
        await expect(beta.get_by_text("more customers")).to_be_visible()


async def test_whoever_may_only_read_is_offered_no_command(system):
    async with system.viewer(VIEWER) as page:
        for path in ("/ui/agendas/acme-39", "/ui/insights/render", "/ui/agendas?state=ready"):
            await page.goto(path)
            assert await page.locator("main form[method=post]").count() == 0, path


async def test_signing_out_ends_the_session_for_whoever_has_its_cookie(system):
    async with system.viewer(ACME, anew=True) as page:
        cookies = await page.context.cookies()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        await page.context.add_cookies(cookies)
        await page.goto("/ui/agendas")
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


async def test_an_expired_session_takes_the_page_away_and_leads_back_to_it(system):
    settings = system.settings.model_copy(
        update={
            "console_session": timedelta(seconds=3),
            "http_port": 0,
            "http_host": "127.0.0.1",
        }
    )
    stop, url = asyncio.Event(), asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run_api(settings, stop, url.set_result))
        try:
            async with system.viewer(ACME, url=await url) as page:
                await page.goto("/ui/agendas?state=failed")
                await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
                await page.get_by_label("API key").fill(system.tokens[ACME])
                await page.get_by_role("button", name="Sign in").click()
                await page.wait_for_url("**/ui/agendas?state=failed")
        finally:
            stop.set()


async def test_a_viewer_signs_in_at_an_issuer_of_another_site(system, unused_tcp_port):
    """The cookie is strict, and the viewer comes back from a page of the issuer's."""
    console = f"http://127.0.0.1:{unused_tcp_port}"
    async with oidc_issuer() as issuer, asyncio.TaskGroup() as tasks:
        issuer.url = issuer.url.replace("127.0.0.1", "localhost")
        issuer.redirect_url = f"{console}/ui/sign-in/callback"
        settings = system.settings.model_copy(
            update={
                "http_port": unused_tcp_port,
                "auth": "required",
                "jwt_issuer": issuer.url,
                "jwt_audience": issuer.client_id,
                "jwt_jwks": f"{issuer.url}/jwks",
                "oidc_issuer": issuer.url,
                "oidc_client_id": issuer.client_id,
                "oidc_client_secret": SecretStr(issuer.client_secret),
                "oidc_redirect_url": issuer.redirect_url,
            }
        )
        stop, url = asyncio.Event(), asyncio.get_running_loop().create_future()
        tasks.create_task(run_api(settings, stop, url.set_result))
        try:
            await url
            async with system.viewer(None, url=console) as page:
                await page.goto("/ui/agendas?state=failed")
                await page.get_by_role("link", name="Sign in at").click()
                await page.wait_for_url("**/ui/agendas?state=failed")
                names = await page.locator("tbody th").all_inner_texts()
                assert "failed" in names
                assert "beta-failed" not in names
        finally:
            stop.set()


# ---- what is done ----


async def test_an_agenda_is_held_and_released_and_cancelled(system, operator):
    await system.submit(agenda("act-1", "paused"))
    await system.in_state("act-1", "ready")
    await operator.goto("/ui/agendas/act-1")
    await operator.get_by_label("Priority").select_option("2")
    await operator.get_by_role("button", name="Reprioritise").click()
    await expect(operator.locator(".facts div", has_text="Priority")).to_contain_text("2")
    for command, after in (("Hold", "held"), ("Release", "ready"), ("Cancel", "cancelled")):
        await operator.get_by_role("button", name=command, exact=True).click()
        await expect(operator.get_by_text(f"{command} is on its way")).to_be_visible()
        await expect(operator.locator(".lead .state")).to_contain_text(after)


async def test_a_failed_agenda_is_rerun(system, operator):
    await system.submit(failing("again"))
    await system.in_state("again", "failed")
    await operator.goto("/ui/agendas/again")
    await operator.get_by_label("Run second again").check()
    await operator.get_by_label("Run again", exact=True).select_option("chosen")
    await operator.get_by_role("button", name="Rerun").click()
    attempts = operator.get_by_role("region", name="Table of the attempts")
    await expect(attempts.locator("tbody tr")).to_have_count(2)


async def test_a_command_that_comes_too_late_shows_the_present_state(system):
    await system.submit(agenda("late", "paused"))
    await system.in_state("late", "ready")
    async with system.viewer(OPERATOR, java_script_enabled=False) as page:
        await page.goto("/ui/agendas/late")
        async with system.client() as client:
            await client.cancel("late")
        await system.in_state("late", "cancelled")
        await page.get_by_role("button", name="Hold").click()
        await expect(page.get_by_role("alert")).to_contain_text("Not done")
        await expect(page.locator(".lead .state")).to_contain_text("cancelled")


async def test_all_that_fit_are_counted_and_cancelled(system, operator):
    await system.submit(*(agenda(f"many-{one}", "paused", link_id="many") for one in range(3)))
    for one in range(3):
        await system.in_state(f"many-{one}", "ready")
    await operator.goto("/ui/agendas?link_id=many")
    await operator.get_by_label("Command").select_option("cancel")
    await operator.get_by_role("button", name="Count first").click()
    await expect(operator.locator("h1")).to_contain_text("3 of 3")
    await expect_no_violations(operator)
    await operator.get_by_role("button", name="Cancel 3 agendas").click()
    await expect(operator.get_by_text("on its way for 3 agendas")).to_be_visible()
    await expect(operator.locator("td .state-cancelled")).to_have_count(3)


async def test_a_weight_is_tried_and_then_saved(system, operator):
    await operator.goto("/ui/insights/render")
    await operator.get_by_label("Another weight of beta").fill("6")
    await operator.get_by_role("button", name="Preview the weight of beta").click()
    await expect(operator.locator("h1")).to_have_text("If beta had weight 6")
    sooner = operator.locator("tr[data-row=beta]")
    await expect(sooner).to_contain_text("sooner")
    await expect(operator.locator("tr[data-row=acme]")).to_contain_text("later")
    await operator.get_by_role("button", name="Save weight 6").click()
    await expect(operator.get_by_text("The weight is saved")).to_be_visible()
    await expect(operator.locator("tr[data-row=beta] td").first).to_have_text("6")
    async with system.client() as client:
        await client.customers.patch("beta", {"weight": 1})


async def test_a_customer_and_an_insight_are_paused_and_resumed(operator):
    await operator.goto("/ui/insights/render")
    for name in ("beta", "this insight"):
        await operator.get_by_role("button", name=f"Pause {name}").click()
        await expect(operator.get_by_text("what is out goes on")).to_be_visible()
        await operator.get_by_role("button", name=f"Resume {name}").click()
        await expect(operator.get_by_text("Resumed")).to_be_visible()
        await expect(operator.get_by_role("button", name=f"Pause {name}")).to_be_visible()


async def test_the_queue_of_a_customer_leads_to_why_each_waits(operator):
    await operator.goto("/ui/insights/render")
    await operator.get_by_role("link", name="acme", exact=True).click()
    last = operator.get_by_role("link", name=re.compile(r"^Why acme-\d+ waits")).last
    asked = await last.get_attribute("aria-label")
    await last.click()
    why = operator.get_by_role("region", name="Why it waits")
    await expect(why).to_contain_text(asked)
    await expect(why).to_contain_text("position")
    await expect(why).to_contain_text("What would change it")


# ---- submit ----


async def test_a_template_is_run_by_its_form_and_what_is_wrong_is_mended_there(system):
    async with system.viewer(ACME, java_script_enabled=False) as page:
        await page.goto("/ui/submit")
        await page.get_by_role("link", name="trailer").click()
        await page.get_by_label("Reel").fill("The long voyage")
        await page.get_by_label("seconds").fill("99")
        await page.get_by_role("button", name="Submit", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text("Not submitted")
        seconds = page.get_by_label("seconds")
        assert await seconds.get_attribute("aria-invalid") == "true"
        assert await page.get_by_label("Reel").input_value() == "The long voyage"
        await seconds.fill("0")
        await page.get_by_label("kind").select_option("full")
        await page.get_by_role("button", name="Submit", exact=True).click()
        await page.wait_for_url("**/ui/agendas/*?did=submit")
        agenda_id = page.url.rpartition("/")[2].partition("?")[0]
    await system.in_state(agenda_id, "succeeded")
    async with system.client() as client:
        summary = await client.agenda(agenda_id)
    assert (summary.customer_id, summary.title) == ("acme", "Trailer of The long voyage")


# ---- definitions ----


async def test_a_definition_is_changed_and_a_schedule_paused_without_javascript(system):
    async with system.viewer(OPERATOR, java_script_enabled=False) as page:
        await page.goto("/ui/definitions/customers/capped")
        await page.get_by_role("link", name="Edit").click()
        content = page.get_by_label("as JSON")
        typed = await content.input_value()
        await content.fill(typed.replace('"capped"', '"capped",\n  "title": "Of little"'))
        await page.get_by_role("button", name="Show what changes").click()
        await expect(page.locator("ins").filter(has_text="Of little")).to_be_visible()
        await page.get_by_label("Why").fill("They asked for it")
        await page.get_by_role("button", name="Save", exact=True).click()
        await expect(page.get_by_text("Saved; in force")).to_be_visible()
        await expect(page.locator("h1")).to_contain_text("Of little")
        await page.get_by_role("link", name="Who changed it").click()
        await expect(page.get_by_role("cell", name="They asked for it")).to_be_visible()
        await page.goto("/ui/definitions/schedules/yearly")
        for command, after in (("Pause", "paused"), ("Resume", "scheduled")):
            await page.get_by_role("button", name=command, exact=True).click()
            await expect(page.locator(".lead .state")).to_contain_text(after)
        await page.get_by_role("button", name="Trigger now").click()
        await expect(page.get_by_text("Triggered: an occurrence")).to_be_visible()
        await page.get_by_text("Backfill: submit").click()
        await page.get_by_label("First instant").fill("2026-01-01T00:00:00Z")
        await page.get_by_label("Last instant").fill("2026-01-02T00:00:00Z")
        await page.get_by_role("button", name="Backfill").click()
        await expect(page.get_by_text("occurrences are on their way")).to_be_visible()


async def test_a_definition_is_made_and_deleted(operator):
    await operator.goto("/ui/define/pools")
    await operator.get_by_label("as JSON").fill('{"id": "shed", "max_in_flight": 2}')
    await operator.get_by_role("button", name="Show what changes").click()
    await operator.get_by_label("Why").fill("A new shed")
    await operator.get_by_role("button", name="Define it").click()
    await expect(operator.get_by_text("Defined; in force")).to_be_visible()
    await operator.get_by_role("link", name="Delete").click()
    await operator.get_by_label("Why").fill("It burnt down")
    await operator.get_by_role("button", name="Delete shed").click()
    await expect(operator.get_by_text("Deleted.")).to_be_visible()
    await operator.goto("/ui/audit?kind=pool&object_id=shed")
    for reason in ("A new shed", "It burnt down"):
        await expect(operator.get_by_role("cell", name=reason)).to_be_visible()


async def test_an_agenda_is_judged_while_it_is_typed_and_then_submitted(system, operator):
    await operator.goto("/ui/routing")
    content = operator.get_by_label("An agenda as JSON")
    verdict = operator.locator("#verdict")
    await content.fill('{"customer_id": "acme", "operations": []')
    await expect(verdict).to_contain_text("is no JSON")
    await content.fill('{"customer_id": "acme", "operations": [{"name": "a", "type": "noop"}]}')
    await expect(verdict).to_contain_text("It goes to probe")
    await expect_no_violations(operator)
    await operator.get_by_role("button", name="Submit it").click()
    await operator.wait_for_url("**/ui/agendas/*?did=submit")
    await system.in_state(operator.url.rpartition("/")[2].partition("?")[0], "succeeded")


# ---- live ----


async def test_a_page_changes_while_one_looks_and_keeps_what_is_typed(system, operator):
    await system.submit(agenda("watched", "paused", title="Before"))
    await system.in_state("watched", "ready")
    await operator.goto("/ui/agendas/watched")
    await expect(operator.locator("#live-state")).to_have_text("Live")
    reason = operator.get_by_label("Reason to cancel")
    await reason.fill("half a sen")
    async with system.client() as client:
        await client.hold("watched")
    await expect(operator.locator(".lead .state")).to_contain_text("held")
    assert await reason.input_value() == "half a sen"


async def test_a_dead_letter_is_found_and_redriven(system, operator):
    await system.submit(failing("act-letter"))
    await system.in_state("act-letter", "failed")
    letter = operator.get_by_role("region", name="Table of letters").get_by_role("link").first
    await operator.goto("/ui/dead-letters?agenda_id=act-letter")
    await expect(letter).to_be_visible()  # the page is live
    await letter.click()
    await expect_no_violations(operator)
    await operator.get_by_label("Reason to redrive").fill("the disk is back")
    await operator.get_by_role("button", name="Redrive").click()
    await expect(operator.get_by_text("It is redriven")).to_be_visible()
    await operator.goto("/ui/dead-letters?agenda_id=failed&state=open")
    await operator.get_by_label("Command").select_option("discard")
    await operator.get_by_role("button", name="Count first").click()
    await expect(operator.locator("h1")).to_contain_text("1 of 1")
    await expect_no_violations(operator)
    await operator.get_by_role("button", name="Discard").click()
    await expect(operator.get_by_text("done for 1 of 1")).to_be_visible()
    await operator.goto("/ui/audit?kind=dead-letters")
    await expect(operator.get_by_role("cell", name="commanded").first).to_be_visible()


async def test_a_key_is_made_shown_once_and_revoked(operator):
    await operator.goto("/ui/keys")
    await operator.get_by_label("What it is for").fill("a browser's")
    await operator.get_by_role("button", name="Make it").click()
    await expect(operator.get_by_label("Token")).to_contain_text("pop_")
    await expect_no_violations(operator)
    await operator.get_by_role("link", name="All keys").click()
    made = operator.get_by_role("row").filter(has_text="a browser's")
    await made.get_by_role("combobox").select_option("0")
    await made.get_by_role("button", name="Rotate").click()
    await expect(operator.get_by_text("In place of")).to_be_visible()
    await operator.get_by_role("link", name="All keys").click()
    row = operator.get_by_role("row").filter(has_text="a browser's", has_not_text="replaced by")
    await row.get_by_role("button", name="Revoke").click()
    await expect(operator.get_by_text("The key is revoked")).to_be_visible()
    await expect(row).to_contain_text("revoked")


async def test_keys_lead_to_pages(operator):
    await operator.goto("/ui/")
    await operator.keyboard.press("a")
    await operator.wait_for_url("**/ui/agendas")
    await operator.keyboard.press("o")
    await operator.wait_for_url("**/ui/")


def test_no_page_broke_the_policy_or_had_a_fault_in_its_script(system):
    assert system.faults == []
