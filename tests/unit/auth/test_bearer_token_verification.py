"""Bearer tokens: what is believed of them, and where the keys come from that sign them."""

import base64
import hmac
import json
from datetime import timedelta
from hashlib import sha256

import jwt
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from fakes import ManualClock
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from pop_stream.auth.jwks import FRESH_FOR, RETRY_AFTER, STALE_FOR, Jwks, jwks_reader
from pop_stream.auth.tokens import TokenRules, TokenVerifier
from pop_stream.clock import WallClock
from pop_stream.model.errors import UnauthenticatedError, UnavailableError
from pop_stream.model.identity import Principal, Role

RSA = rsa.generate_private_key(65537, 2048)
OTHER_RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())


def jwk(key, key_id, **changes):
    algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return json.loads(algorithm.to_jwk(key.public_key())) | {"kid": key_id} | changes


def key_set(*keys):
    return json.dumps({"keys": keys}).encode()


class Issuer:
    """Where the key set comes from."""

    def __init__(self, *keys):
        self.content = key_set(*keys)
        self.read = 0
        self.is_away = False

    async def __call__(self):
        self.read += 1
        if self.is_away:
            raise ConnectionRefusedError
        return self.content


RULES = TokenRules(
    issuer="https://issuer.test",
    audience="pop_stream",
    algorithms=("RS256", "ES256"),
    leeway=timedelta(seconds=30),
    customer_claim="customer_id",
    roles_claim="roles",
)


def claims(**changes):
    known = {
        "iss": "https://issuer.test",
        "aud": "pop_stream",
        "sub": "alice",
        "exp": timedelta(hours=1),
        "customer_id": "acme",
        "roles": ["read", "submit"],
    }
    now = WallClock().now()  # the library reads the clock itself
    return {
        name: now + value if isinstance(value, timedelta) else value
        for name, value in (known | changes).items()
        if value is not ...
    }


def token(key=RSA, algorithm="RS256", key_id="k1", **changes):
    headers = {} if key_id is None else {"kid": key_id}
    return jwt.encode(claims(**changes), key, algorithm=algorithm, headers=headers)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def issuer():
    return Issuer(jwk(RSA, "k1"), jwk(EC, "k2"))


@pytest.fixture
def verifier(issuer, clock):
    return TokenVerifier(RULES, Jwks(issuer, clock))


async def test_a_token_tells_its_principal(verifier):
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


def unsigned(**changes):
    return jwt.encode(claims(**changes), None, algorithm="none", headers={"kid": "k1"})


def signed_with_the_public_key():
    """The classic: the public key, which everybody has, taken for a shared secret."""
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    parts = [{"alg": "HS256", "typ": "JWT", "kid": "k1"}, claims(exp=2_000_000_000)]
    text = ".".join(part(json.dumps(one).encode()) for one in parts)
    return f"{text}.{part(hmac.digest(public, text.encode(), sha256))}"


def part(content):
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def tampered():
    header, _, signature = token().split(".")
    return f"{header}.{part(json.dumps(claims(customer_id='*', exp=2e9)).encode())}.{signature}"


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
