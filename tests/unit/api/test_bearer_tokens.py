"""Tokens at the API, as the settings wire it, with an issuer that serves its keys over HTTP."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import jwt
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from api_fakes import QUICK, ports, summary
from bearer_tokens import (
    EC,
    OTHER_RSA,
    RSA,
    claims,
    jwk,
    part,
    signed_with_the_public_key,
    tampered,
    token,
    unsigned,
)
from deadlines import within
from fakes import ManualClock

from pop_stream.api.app import create_app
from pop_stream.auth.jwks import FRESH_FOR, RETRY_AFTER, STALE_FOR
from pop_stream.auth.keys import ApiKeyCache
from pop_stream.auth.tokens import CredentialVerifier
from pop_stream.composition import auth
from pop_stream.settings import Settings

A_MOMENT = timedelta(seconds=1)


class Issuer:
    """Serves its key set; counts who asks, and answers when it may."""

    def __init__(self, *keys):
        self.keys = list(keys)
        self.status = 200
        self.asked = 0
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def answer(self, _):
        self.asked += 1
        self.is_asked.set()
        await self.may_answer.wait()
        return web.json_response({"keys": self.keys}, status=self.status)


class World:
    """The API, its issuer, and the clock by which keys grow old."""

    def __init__(self, client, issuer, clock):
        self.client, self.issuer, self.clock = client, issuer, clock

    async def status(self, shown):
        headers = {"Authorization": f"Bearer {shown}"}
        async with (
            within(10),
            self.client.get("/v1/agendas/a1", headers=headers) as response,
        ):
            return response.status


@asynccontextmanager
async def open_world(monkeypatch, *keys):
    clock, issuer = ManualClock(), Issuer(*keys)
    monkeypatch.setattr(auth, "WallClock", lambda: clock)
    app = web.Application()
    app.router.add_get("/jwks", issuer.answer)
    async with TestServer(app) as server:
        settings = Settings(
            auth="required",
            signing_secrets=("s" * 32,),
            jwt_issuer="https://issuer.test",
            jwt_jwks=str(server.make_url("/jwks")),
        )
        behind = ports()
        behind.summaries.put(summary("a1"))
        verifier = auth.token_verifier(settings)
        known = CredentialVerifier(ApiKeyCache(behind.keys, clock), verifier)
        served = create_app(replace(behind, authenticator=known), settings, timing=QUICK)
        async with TestClient(TestServer(served)) as client:
            yield World(client, issuer, clock)


@pytest.fixture
async def world(monkeypatch):
    async with open_world(monkeypatch, jwk(RSA, "k1")) as opened:
        yield opened


async def test_keys_are_rotated_and_withdrawn_while_the_api_runs(world):
    assert await world.status(token()) == 200
    world.issuer.keys.append(jwk(EC, "k2"))
    new = token(EC, "ES256", "k2")
    assert await world.status(new) == 401  # the issuer was asked just now
    world.clock.move(RETRY_AFTER)
    assert [await world.status(one) for one in (new, token())] == [200, 200]
    del world.issuer.keys[0]
    world.clock.move(FRESH_FOR)
    assert await world.status(token()) == 200
    world.clock.move(A_MOMENT)
    assert [await world.status(one) for one in (token(), new)] == [401, 200]


async def test_a_key_id_that_gets_another_key_believes_the_new_one_alone(world):
    assert await world.status(token()) == 200
    world.issuer.keys[:] = [jwk(OTHER_RSA, "k1")]
    world.clock.move(FRESH_FOR + A_MOMENT)
    assert await world.status(token()) == 401
    assert await world.status(token(OTHER_RSA)) == 200


async def test_without_its_issuer_the_api_goes_on_with_the_keys_it_knows(world):
    assert await world.status(token()) == 200
    world.issuer.status = 500
    world.clock.move(FRESH_FOR + A_MOMENT)
    assert await world.status(token()) == 200
    assert await world.status(token(EC, "ES256", "k2")) == 503  # nobody knows whether it is bad
    world.clock.move(STALE_FOR)
    assert await world.status(token()) == 503
    world.issuer.status = 200
    world.clock.move(RETRY_AFTER)
    assert await world.status(token()) == 200


async def test_an_api_that_never_read_the_keys_says_so(monkeypatch):
    async with open_world(monkeypatch) as world:
        assert await world.status(token()) == 503
        assert await world.status(unsigned()) == 401


async def test_an_issuer_that_hangs_holds_up_one_caller_and_not_all(world):
    assert await world.status(token()) == 200
    world.issuer.status = 500
    world.clock.move(FRESH_FOR + A_MOMENT)
    assert await world.status(token()) == 200  # and is known to fail from here on
    world.clock.move(RETRY_AFTER)
    world.issuer.may_answer.clear()
    world.issuer.is_asked.clear()
    held_up = asyncio.create_task(world.status(token()))
    async with within(10):
        await world.issuer.is_asked.wait()
        assert await world.status(token()) == 200
        assert not held_up.done()
        world.issuer.may_answer.set()
        assert await held_up == 200


async def test_a_flood_of_made_up_key_ids_reaches_neither_issuer_nor_others(world):
    flood = [world.status(token(key_id=f"made-up-{number}")) for number in range(60)]
    statuses = await asyncio.gather(*flood, world.status(token()))
    assert statuses == [401] * 60 + [200]
    assert world.issuer.asked == 1


async def test_no_confusion_of_algorithms_makes_a_token(world):
    secret = {"kty": "oct", "kid": "s1", "alg": "HS256", "k": part(b"s" * 32)}
    world.issuer.keys += [secret, jwk(EC, "k2"), jwk(OTHER_RSA, "e1", use="enc")]
    assert await world.status(token()) == 200
    for forged in (
        unsigned(),
        signed_with_the_public_key(),
        tampered(),
        jwt.encode(claims(), b"s" * 32, algorithm="HS256", headers={"kid": "s1"}),
        token(EC, "ES256", "k1"),  # another key's id
        token(RSA, "RS256", "k2"),
        token(RSA, "PS256", "k1"),
        token(OTHER_RSA, "RS256", "e1"),
        jwt.encode(claims(), RSA, algorithm="RS256", headers={"kid": "k1", "crit": ["x"]}),
    ):
        assert await world.status(forged) == 401, forged


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"exp": -timedelta(seconds=20)}, 200),
        ({"exp": -timedelta(seconds=40)}, 401),
        ({"exp": ...}, 401),
        ({"exp": "soon"}, 401),
        ({"nbf": timedelta(seconds=20)}, 200),
        ({"nbf": timedelta(seconds=40)}, 401),
        ({"iat": timedelta(seconds=40)}, 401),
        ({"aud": ["other", "pop_stream"]}, 200),
        ({"aud": "other"}, 401),
        ({"aud": ...}, 401),
        ({"iss": "https://issuer.test/"}, 401),
        ({"iss": ...}, 401),
        ({"sub": ...}, 401),
        ({"customer_id": "beta"}, 404),
        ({"customer_id": "ACME"}, 404),
        ({"customer_id": "acme@beta"}, 401),
        ({"customer_id": ["acme"]}, 401),
        ({"roles": []}, 403),
    ],
)
async def test_claims_are_held_to_the_settings(world, changes, status):
    assert await world.status(token(**changes)) == status
