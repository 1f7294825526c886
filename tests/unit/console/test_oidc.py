"""Sign-in at an OpenID Connect issuer, against a small real one."""

import re
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import aiohttp
import attack_world
import pytest
from attack_world import open_world
from bearer_tokens import RULES
from console_viewer import console
from oidc_issuer import oidc_issuer

from pop_stream.console.app import SIGN_IN_COOKIE
from pop_stream.console.oidc import PENDING_S, OidcConfig
from pop_stream.settings import Settings


class Clock:
    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


class Visitor:
    """A browser that goes to the issuer and comes back, with the cookies of a sign-in."""

    def __init__(self, browser):
        self.browser = browser
        self.cookie = ""

    async def begin(self, back="/ui/agendas"):
        address = f"/ui/sign-in/issuer?back={back}"
        async with self.browser.client.get(address, allow_redirects=False) as answer:
            cookie = answer.cookies.get(SIGN_IN_COOKIE)
            self.cookie = cookie.value if cookie else ""
            self.attributes = cookie
            return answer.status, answer.headers.get("Location", "")

    async def authorize(self, location):
        async with (
            aiohttp.ClientSession() as session,
            session.get(location, allow_redirects=False) as answer,
        ):
            return "/" + answer.headers["Location"].split("/", 3)[3]

    async def come_back(self, place):
        headers = {"Cookie": f"{SIGN_IN_COOKIE}={self.cookie}"}
        async with self.browser.client.get(
            place, headers=headers, allow_redirects=False
        ) as answer:
            for name, morsel in answer.cookies.items():
                if name == "__Host-pop-session":
                    self.browser.cookie = morsel.value
                    self.session_attributes = morsel
            return answer.status, await answer.text()

    async def sign_in(self):
        _, location = await self.begin()
        return await self.come_back(await self.authorize(location))


@asynccontextmanager
async def signing_in(monkeypatch, *, now=None, **changes):
    async with oidc_issuer() as issuer:
        rules = replace(RULES, issuer=issuer.url, audience=issuer.client_id)
        monkeypatch.setattr(attack_world, "RULES", rules)
        config = OidcConfig(
            issuer=issuer.url, client_id=issuer.client_id,
            client_secret=issuer.client_secret, redirect_url=issuer.redirect_url,
            scopes="openid",
        )  # fmt: skip
        async with (
            open_world(customers=("acme", "beta")) as world,
            console(world, signs_in=True, oidc=replace(config, **changes), now=now) as browser,
        ):
            yield issuer, Visitor(browser)


async def test_whoever_the_issuer_knows_is_signed_in_as_its_customer(monkeypatch):
    async with signing_in(monkeypatch) as (issuer, visitor):
        _, page = await visitor.browser.get("/ui/agendas")
        assert re.search(r'href="/ui/sign-in/issuer\?back=', page)
        status, text = await visitor.sign_in()
        assert (status, 'content="0;url=/ui/agendas"' in text) == (200, True)
        _, listed = await visitor.browser.get("/ui/agendas")
        assert "a-own" in listed
        assert "a-foreign" not in listed
        assert issuer.codes == {}


async def test_cookies_are_for_this_host_and_no_script(monkeypatch):
    async with signing_in(monkeypatch) as (_, visitor):
        await visitor.sign_in()
        for cookie, same_site in (
            (visitor.attributes, "Lax"), (visitor.session_attributes, "Strict")
        ):  # fmt: skip
            assert cookie["httponly"]
            assert cookie["secure"]
            assert (cookie["path"], cookie["domain"]) == ("/", "")
            assert cookie["samesite"] == same_site


async def test_an_operator_of_the_issuer_is_an_operator(monkeypatch):
    async with signing_in(monkeypatch) as (issuer, visitor):
        issuer.claims = {"customer_id": "*", "roles": ["read"]}
        await visitor.sign_in()
        _, listed = await visitor.browser.get("/ui/agendas")
        assert "a-own" in listed
        assert "a-foreign" in listed


async def test_another_browser_cannot_use_the_answer(monkeypatch):
    async with signing_in(monkeypatch) as (_, visitor):
        _, location = await visitor.begin()
        place = await visitor.authorize(location)
        visitor.cookie = "of another"
        status, text = await visitor.come_back(place)
        assert (status, "not begun in this browser" in text) == (401, True)
        assert visitor.browser.cookie == ""


async def test_an_answer_counts_once_and_not_for_ever(monkeypatch):
    clock = Clock()
    async with signing_in(monkeypatch, now=clock) as (_, visitor):
        _, location = await visitor.begin()
        place = await visitor.authorize(location)
        assert (await visitor.come_back(place))[0] == 200
        assert (await visitor.come_back(place))[0] == 401
        _, location = await visitor.begin()
        place = await visitor.authorize(location)
        clock.seconds += PENDING_S + 1
        assert (await visitor.come_back(place))[0] == 401


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"denies": "access_denied"}, "access_denied"),
        ({"nonce": "of another sign-in"}, "of another sign-in"),
        ({"claims": {"customer_id": "<b>"}}, "key"),
        ({"claims": {"exp": timedelta(hours=-1)}}, "key"),
        ({"claims": {"roles": []}}, "read"),
        ({"client_secret": "changed"}, "gave no token"),
    ],
)
async def test_what_does_not_hold_signs_nobody_in(monkeypatch, fault, said):
    async with signing_in(monkeypatch) as (issuer, visitor):
        for name, value in fault.items():
            setattr(issuer, name, value)
        status, text = await visitor.sign_in()
        assert (status, said in text) == (401, True), text
        assert visitor.browser.cookie == ""


async def test_an_issuer_that_is_away_or_another_says_so(monkeypatch):
    async with signing_in(monkeypatch, issuer="http://127.0.0.1:9") as (_, visitor):
        status, _ = await visitor.begin()
        assert status == 503
    async with signing_in(monkeypatch) as (issuer, visitor):
        issuer.url = "https://another.example"
        assert (await visitor.begin())[0] == 503


async def test_nobody_is_led_elsewhere_after_it(monkeypatch):
    async with signing_in(monkeypatch) as (_, visitor):
        _, location = await visitor.begin(back="https://evil.example/")
        _, text = await visitor.come_back(await visitor.authorize(location))
        assert 'content="0;url=/ui/"' in text


async def test_without_an_issuer_there_is_no_such_address():
    async with open_world() as world, console(world, signs_in=True) as browser:
        for path in ("issuer", "callback?state=x&code=y"):
            assert (await browser.get(f"/ui/sign-in/{path}"))[0] == 404


def test_half_a_configuration_is_refused():
    with pytest.raises(ValueError, match="POP_OIDC_CLIENT_ID"):
        Settings(oidc_issuer="https://issuer.example")
