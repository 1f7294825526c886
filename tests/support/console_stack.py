"""A whole system to look at: customers with a backlog, agendas in many states, keys, a browser.

For the browser tests of the console, and for the pictures in the documentation.
"""

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import browser
from deadlines import within
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from pop_stream.auth.keys import make_key
from pop_stream.client import ApiNotFoundError, Client
from pop_stream.clock import WallClock
from pop_stream.devserver.folder import PORTS, is_free_port
from pop_stream.devserver.plan import StackPlan
from pop_stream.devserver.stack import Stack
from pop_stream.model.identity import ALL_ROLES, ANYONE, Role
from pop_stream.model.revisions import Author
from pop_stream.postgres.keys import PostgresKeys
from pop_stream.postgres.pool import open_pool
from pop_stream.settings import Settings

WITHIN_S = 60
DEFINITIONS = """
[pools.farm]
title = "The render farm"
max_in_flight = 40

[customers.acme]
title = "Acme Studios"
weight = 2

[customers.beta]
title = "Beta Broadcast"

[customers.capped]
max_in_flight = 1

[customers.paused]
paused = true

[insights.render]
title = "Rendering"
visibility = "global"
pool = "farm"
max_in_flight = 4
mappers = { operation_types = ["show.work"] }

[insights.probe]
title = "Probing"
visibility = "global"
mappers = { operation_types = ["show.fail", "noop"] }

[insights.quiet]
title = "Nobody pulls here"
visibility = "global"
mappers = { operation_names = ["quiet"] }
"""
TEMPLATE = {
    "id": "trailer",
    "title": "Cut a trailer",
    "description": "Cuts a trailer of a reel, and probes it.",
    "visibility": "global",
    "params": {
        "codec": {"type": "string", "default": "h265", "description": "Of the outcome"},
        "loud": {"type": "boolean", "default": False},
    },
    "payload_schema": {
        "type": "object",
        "required": ["reel", "seconds"],
        "additionalProperties": False,
        "properties": {
            "reel": {"type": "string", "title": "Reel", "minLength": 2},
            "seconds": {"type": "number", "minimum": 0, "maximum": 60},
            "kind": {"enum": ["teaser", "full"], "default": "teaser"},
            "notes": {"type": "object", "title": "Notes"},
        },
    },
    "agenda": {
        "customer_id": "acme",
        "title": "Trailer of @<pop.payload::/reel>",
        "operations": [
            {"name": "cut", "type": "show.work", "payload": "@<pop.payload::/seconds>"},
            {"name": "probe", "type": "noop", "depends_on": ["cut"]},
        ],
    },
}
SCHEDULE = {
    "id": "yearly",
    "title": "The yearly report",
    "timezone": "Europe/Berlin",
    "trigger": {"cron": "0 3 1 1 *"},
    "jitter_s": 600,
    "submission": {"customer_id": "acme", "operations": [{"name": "only", "type": "noop"}]},
}
HOSTILE = (
    "<script>document.title='owned'</script>{{ 7*7 }}{% raw %}"
    "\N{RIGHT-TO-LEFT OVERRIDE}'\"--><svg onload=alert(1)>"
)
VIEWER, OPERATOR, ACME, BETA = "viewer", "operator", "acme", "beta"
_ALL = tuple(sorted(ALL_ROLES))
_KEYS: Mapping[str, tuple[str | None, tuple[Role, ...]]] = {
    OPERATOR: (None, _ALL),
    VIEWER: (None, (Role.READ,)),
    ACME: ("acme", tuple(one for one in _ALL if one is not Role.ADMIN)),
    BETA: ("beta", (Role.READ,)),
}


@dataclass
class ConsoleStack:
    """The system, a browser, and who may sign in.

    Attributes:
        url: Of the API; the console is below it.
        tokens: By viewer.
        faults: What the policy for content kept from any page, and errors of scripts.
    """

    stack: Stack
    browser: Browser
    tokens: Mapping[str, str]
    faults: list[str] = field(default_factory=list)
    _cookies: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        return self.stack.settings

    @property
    def url(self) -> str:
        return self.settings.api_url

    @asynccontextmanager
    async def client(self, who: str = OPERATOR) -> AsyncIterator[Client]:
        async with Client(self.url, token=self.tokens[who]) as client:
            yield client

    @asynccontextmanager
    async def context(self, **options: Any) -> AsyncIterator[BrowserContext]:
        """A browser of one person, who has never been here."""
        options = {"viewport": {"width": 1360, "height": 900}, **options}
        context = await self.browser.new_context(**options)
        context.set_default_timeout(WITHIN_S * 1000)
        context.on("console", lambda said: self._note(said.text))
        context.on("weberror", lambda error: self.faults.append(str(error.error)))
        try:
            yield context
        finally:
            await context.close()

    @asynccontextmanager
    async def viewer(
        self, who: str | None, url: str = "", *, anew: bool = False, **options: Any
    ) -> AsyncIterator[Page]:
        """A page of somebody, signed in unless it is nobody.

        Args:
            who: Whom the page is of.
            url: Of another console than the system's.
            anew: Whether to sign in now, and not go on with the session of a page before.
            options: Of the browser's context.
        """
        async with self.context(base_url=url or self.url, **options) as context:
            page = await context.new_page()
            if who is not None and (url or anew):
                await self.sign_in(page, who)
            elif who is not None:
                if who not in self._cookies:
                    await self.sign_in(page, who)
                    self._cookies[who] = await context.cookies()
                await context.add_cookies(self._cookies[who])
            yield page

    async def sign_in(self, page: Page, who: str) -> None:
        await page.goto("/ui/sign-in")
        await page.get_by_label("API key").fill(self.tokens[who])
        await page.get_by_role("button", name="Sign in").click()
        await page.wait_for_url("**/ui/")

    async def submit(self, *agendas: Mapping[str, Any]) -> list[str]:
        async with self.client() as client:
            answer = await client.submit_many(agendas)
            assert answer.refused == 0, answer
            return [one["id"] for one in agendas]

    async def in_state(self, agenda_id: str, *states: str) -> None:
        """Until its summary says that it is in one of these states."""
        async with self.client() as client, within(WITHIN_S):
            while await _state(client, agenda_id) not in states:  # noqa: ASYNC110  # no event
                await asyncio.sleep(0.1)

    def _note(self, said: str) -> None:
        if "content security policy" in said.lower():
            self.faults.append(said)


async def _state(client: Client, agenda_id: str) -> str:
    try:
        return (await client.agenda(agenda_id)).state.value
    except ApiNotFoundError:
        return ""  # its summary follows its events


def agenda(agenda_id: str, customer: str = "acme", seconds: float = 0.0, **more: Any) -> dict:
    """An agenda of one operation that takes so long."""
    operation = {"name": "only", "type": "show.work", "payload": seconds}
    return {"id": agenda_id, "customer_id": customer, "operations": [operation], **more}


def diamond(agenda_id: str, seconds: float) -> dict:
    """An agenda of four operations, two of which run beside each other."""
    parts = [
        {"name": "fetch", "type": "show.work", "payload": seconds},
        {"name": "picture", "type": "show.work", "payload": seconds, "depends_on": ["fetch"]},
        {"name": "sound", "type": "show.work", "payload": seconds, "depends_on": ["fetch"]},
        {"name": "mix", "type": "noop", "depends_on": ["picture", "sound"]},
    ]
    return {"id": agenda_id, "customer_id": "acme", "title": "The diamond", "operations": parts}


def failing(agenda_id: str, customer: str = "acme", text: str = "the reel") -> dict:
    """An agenda whose second operation fails with the text."""
    parts = [
        {"name": "first", "type": "noop"},
        {"name": "second", "type": "show.fail", "payload": text, "depends_on": ["first"]},
    ]
    return {"id": agenda_id, "customer_id": customer, "operations": parts}


def wide(agenda_id: str, operations: int) -> dict:
    """An agenda of more operations than are drawn."""
    parts = [{"name": f"part {one}", "type": "noop"} for one in range(operations)]
    return {"id": agenda_id, "customer_id": "acme", "title": "Wide", "operations": parts}


@asynccontextmanager
async def console_stack(**overrides: object) -> AsyncIterator[ConsoleStack]:
    """The system, with a backlog of several customers, and a browser."""
    with tempfile.TemporaryDirectory(
        prefix="pop-stream-console-", ignore_cleanup_errors=True
    ) as made:
        definitions = Path(made) / "definitions.toml"
        definitions.write_text(DEFINITIONS)
        plan = StackPlan(
            folder=Path(made) / "data",
            definitions=definitions,
            port=next(one for _ in PORTS if is_free_port(one := secrets.choice(PORTS))),
            handlers=("console_handlers:handlers",),
            overrides={"auth": "required", **overrides},
            environment={"PYTHONPATH": str(Path(__file__).parent)},
        )
        async with Stack(plan, lambda _: None) as stack, async_playwright() as playwright:
            tokens = await _make_keys(stack.settings)
            chromium = await playwright.chromium.launch(
                executable_path=browser.executable(), args=[*browser.FLAGS]
            )
            system = ConsoleStack(stack, chromium, tokens)
            await _fill(system)
            yield system
            await chromium.close()


async def _make_keys(settings: Settings) -> Mapping[str, str]:
    tokens = {}
    async with open_pool(settings) as pool:
        for name, (customer, roles) in _KEYS.items():
            key, tokens[name] = make_key(
                customer_id=customer,
                roles=frozenset(roles),
                now=WallClock().now(),
                created_by="test",
                title=name,
            )
            await PostgresKeys(pool).create(key, Author(principal=ANYONE, request_id="test"))
    return tokens


async def _fill(system: ConsoleStack) -> None:
    async with system.client() as client:
        await client.templates.create(TEMPLATE)
        await client.schedules.create(SCHEDULE)
    hostile = failing("hostile", text=HOSTILE) | {"title": HOSTILE, "params": {"x": HOSTILE}}
    await system.submit(
        failing("failed"),
        failing("beta-failed", "beta"),
        agenda("done"),
        wide("wide", 300),
        hostile,
        {**agenda("held"), "hold": True},
        agenda("at-rest", "paused"),
    )
    backlog = [
        agenda(f"{customer}-{number}", customer, 30.0, title=f"Render {number} of {customer}")
        for number in range(80)
        for customer in ("acme", "beta", "capped")
    ]
    for ended in ("failed", "done", "hostile", "wide"):
        await system.in_state(ended, "failed", "succeeded")
    await system.submit(diamond("diamond", 2.0), *backlog)
    await system.in_state("diamond", "running", "succeeded")
