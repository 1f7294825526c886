"""Helpers of `test_bearer_token_verification.py` and of other tests."""

import base64
import hmac
import json
from datetime import timedelta
from hashlib import sha256

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from pop_stream.auth.tokens import TokenRules
from pop_stream.clock import WallClock

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
