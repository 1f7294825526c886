"""A viewer of the console without a browser, before an API under test."""

import re
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from html import unescape

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pop_stream.auth.keys import make_key
from pop_stream.console.app import COOKIE, ConsoleConfig, mount


class Browser:
    """A viewer without JavaScript: follows redirections, keeps one cookie, fills in forms."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.cookie = ""
        self.answered_at = ""
        self.csrf = ""

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        return await self._send("GET", path, headers=headers)

    async def post(self, path: str, headers=None, **form: str) -> tuple[int, str]:
        return await self._send("POST", path, data=form, headers=headers or {})

    async def submit(self, page: str, action: str, /, **fields: str) -> tuple[int, str]:
        """Send the form of a page that goes to an address."""
        _, text = await self.get(page)
        form = re.search(rf'action="{re.escape(action)}".*?</form>', text, re.S)
        assert form, f"no form for {action}"
        hidden = re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', form[0])
        filled = {name: unescape(value) for name, value in hidden}
        return await self.post(action, **(filled | fields))

    async def sign_in(self, token: str) -> int:
        status, _ = await self.post("/ui/sign-in", key=token, back="/ui/definitions")
        return status

    async def sign_in_as(self, world, customer: str | None, *roles) -> None:
        """As somebody of an attack world who has these roles, and no others."""
        key, token = make_key(
            customer_id=customer,
            roles=frozenset(roles),
            now=world.clock.now(),
            created_by="test",
        )
        world.keys_stored[key.id] = key
        assert await self.sign_in(token) == 200

    async def _send(self, method: str, path: str, **more) -> tuple[int, str]:
        headers = {"Cookie": f"{COOKIE}={self.cookie}", **more.pop("headers")}
        async with self.client.request(
            method, path, headers=headers, allow_redirects=False, **more
        ) as response:
            if COOKIE in response.cookies:
                self.cookie = response.cookies[COOKIE].value
            self.answered_at = path
            if response.status == 303:
                return await self.get(response.headers["Location"])
            text = await response.text()
            self.csrf = _csrf(text) or self.csrf
            return response.status, text


def _csrf(text: str) -> str:
    found = re.search(r'name="csrf" value="([^"]*)"', text)
    return found[1] if found else ""


@asynccontextmanager
async def console(api, *, signs_in: bool, session=timedelta(hours=1), oidc=None, now=None):
    """A console that stands before an API under test."""
    app = web.Application()
    url = str(api.client.make_url("/")).rstrip("/")
    config = ConsoleConfig(
        base="/ui", api_url=lambda: url, signs_in=signs_in, session=session, oidc=oidc
    )
    mount(app, config, now or time.monotonic)
    async with TestClient(TestServer(app)) as client:
        yield Browser(client)
