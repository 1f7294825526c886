"""Bearer tokens: what is believed of them, and where the keys come from that sign them."""

from datetime import timedelta

import jwt
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from bearer_tokens import (
    EC,
    OTHER_RSA,
    RSA,
    RULES,
    Issuer,
    claims,
    jwk,
    key_set,
    part,
    signed_with_the_public_key,
    tampered,
    token,
    unsigned,
)
from fakes import ManualClock
from memory_keys import MemoryKeys

from pop_stream.auth.jwks import FRESH_FOR, RETRY_AFTER, STALE_FOR, Jwks, jwks_reader
from pop_stream.auth.keys import ApiKeyCache
from pop_stream.auth.tokens import CredentialVerifier, TokenVerifier
from pop_stream.model.errors import UnauthenticatedError, UnavailableError
from pop_stream.model.identity import Principal, Role


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def issuer():
    return Issuer(jwk(RSA, "k1"), jwk(EC, "k2"))


@pytest.fixture
def verifier(issuer, clock):
    return TokenVerifier(RULES, Jwks(issuer, clock))


async def test_a_token_names_its_principal(verifier):
    principal = await verifier.identify(token())
    assert principal == Principal("jwt:alice", "acme", frozenset({Role.READ, Role.SUBMIT}))
    assert await verifier.identify(token(EC, "ES256", "k2")) == principal


@pytest.mark.parametrize(
    ("roles", "found"),
    [
        ("read pull", {"read", "pull"}),
        (["read", "other:service", 7], {"read"}),
        ([], set()),
        (..., set()),
    ],
)
async def test_roles_that_are_not_ours_are_left_out(verifier, roles, found):
    assert {str(one) for one in (await verifier.identify(token(roles=roles))).roles} == found


async def test_only_a_star_makes_an_operator(verifier):
    assert (await verifier.identify(token(customer_id="*"))).is_operator
    for none in (..., None, "", "a b", 7, ["*"]):
        with pytest.raises(UnauthenticatedError, match="customer_id"):
            await verifier.identify(token(customer_id=none))


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://other.test"},
        {"iss": ...},
        {"aud": "other"},
        {"aud": ...},
        {"sub": ...},
        {"exp": ...},
        {"exp": -timedelta(minutes=1)},
        {"nbf": timedelta(minutes=1)},
        {"roles": {"read": True}},
        {"key": OTHER_RSA},
        {"key_id": "k2"},
        {"key_id": "k9"},
        {"key_id": None},
        {"algorithm": "RS512"},
        {"algorithm": "PS256"},
    ],
)
async def test_a_token_that_does_not_hold_is_nobody(verifier, changes):
    with pytest.raises(UnauthenticatedError):
        await verifier.identify(token(**changes))


async def test_the_issuers_clock_may_differ_a_little(verifier):
    await verifier.identify(token(exp=-timedelta(seconds=20)))
    await verifier.identify(token(nbf=timedelta(seconds=20)))


@pytest.mark.parametrize(
    "forged", [unsigned(), signed_with_the_public_key(), tampered(), "a.b.c", "a" * 20_000]
)
async def test_a_forged_token_is_nobody(verifier, forged):
    with pytest.raises(UnauthenticatedError):
        await verifier.identify(forged)


async def test_a_shared_secret_in_the_key_set_signs_for_nobody(clock):
    secret = {"kty": "oct", "kid": "s1", "alg": "HS256", "k": part(b"s" * 32)}
    verifier = TokenVerifier(RULES, Jwks(Issuer(secret, jwk(RSA, "k1")), clock))
    forged = jwt.encode(claims(), b"s" * 32, algorithm="HS256", headers={"kid": "s1"})
    with pytest.raises(UnauthenticatedError):
        await verifier.identify(forged)


async def test_a_key_for_encryption_signs_for_nobody(clock):
    keys = Jwks(Issuer(jwk(RSA, "k1"), jwk(OTHER_RSA, "e1", use="enc")), clock)
    with pytest.raises(UnauthenticatedError):
        await TokenVerifier(RULES, keys).identify(token(OTHER_RSA, key_id="e1"))


async def test_the_only_key_needs_no_name(clock):
    verifier = TokenVerifier(RULES, Jwks(Issuer(jwk(RSA, "k1")), clock))
    assert (await verifier.identify(token(key_id=None))).customer_id == "acme"


async def test_a_key_that_is_new_at_the_issuer_is_found(verifier, issuer, clock):
    await verifier.identify(token())
    issuer.content = key_set(jwk(OTHER_RSA, "k3"))
    clock.move(RETRY_AFTER)
    await verifier.identify(token(OTHER_RSA, key_id="k3"))
    with pytest.raises(UnauthenticatedError):
        await verifier.identify(token())


async def test_made_up_key_ids_do_not_flood_the_issuer(verifier, issuer, clock):
    for number in range(50):
        with pytest.raises(UnauthenticatedError):
            await verifier.identify(token(key_id=f"made-up-{number}"))
    assert issuer.read == 1
    clock.move(RETRY_AFTER)
    with pytest.raises(UnauthenticatedError):
        await verifier.identify(token(key_id="made-up"))
    assert issuer.read == 2


async def test_a_withdrawn_key_ends_when_the_set_is_read_again(verifier, issuer, clock):
    await verifier.identify(token())
    issuer.content = key_set(jwk(EC, "k2"))
    clock.move(FRESH_FOR + timedelta(seconds=1))
    with pytest.raises(UnauthenticatedError):
        await verifier.identify(token())


async def test_known_keys_serve_for_a_day_without_their_issuer(verifier, issuer, clock):
    await verifier.identify(token())
    issuer.is_away = True
    clock.move(STALE_FOR)
    await verifier.identify(token())
    with pytest.raises(UnavailableError):
        await verifier.identify(token(OTHER_RSA, key_id="k3"))
    clock.move(RETRY_AFTER)
    with pytest.raises(UnavailableError):
        await verifier.identify(token())


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"keys": []}', b"\xff", b'{"keys": 1}']
)
async def test_what_is_no_key_set_is_as_good_as_none(clock, content):
    issuer = Issuer()
    issuer.content = content
    with pytest.raises(UnavailableError):
        await TokenVerifier(RULES, Jwks(issuer, clock)).identify(token())


async def test_a_key_set_is_read_from_a_file(tmp_path, clock):
    file = tmp_path / "jwks.json"
    file.write_bytes(key_set(jwk(RSA, "k1")))
    verifier = TokenVerifier(RULES, Jwks(jwks_reader(str(file)), clock))
    await verifier.identify(token())
    with pytest.raises(UnavailableError):
        await Jwks(jwks_reader(str(tmp_path / "none")), clock).key("k1")


async def test_a_key_set_is_read_from_a_url_that_answers_itself(clock):
    async def answer(request):
        match request.path:
            case "/jwks":
                return web.Response(body=key_set(jwk(RSA, "k1")))
            case "/moved":
                raise web.HTTPFound(location="/jwks")
            case "/huge":
                return web.Response(body=b" " * 2_000_000)
            case _:
                raise web.HTTPNotFound

    app = web.Application()
    app.router.add_get("/{path}", answer)
    async with TestServer(app) as server:
        await Jwks(jwks_reader(str(server.make_url("/jwks"))), clock).key("k1")
        for path in ("/moved", "/huge", "/none"):
            with pytest.raises(UnavailableError):
                await Jwks(jwks_reader(str(server.make_url(path))), clock).key("k1")


@pytest.mark.parametrize(
    "shown", ["\udcff.\udce9.\udc80", "é.é.é", "pop_" + "a" * 16 + "_\udcff"]
)
async def test_what_is_no_text_is_refused_like_any_token_that_does_not_hold(
    verifier, clock, shown
):
    credentials = CredentialVerifier(ApiKeyCache(MemoryKeys(), clock), verifier)
    with pytest.raises(UnauthenticatedError, match="plain ASCII"):
        await credentials.identify(f"Bearer {shown}")
