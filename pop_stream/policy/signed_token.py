"""Tokens that say something, and that only the API can make or change.

Whatever a token says is readable by its holder, and signed: by HMAC-SHA256, with a key made of
the secret and of what the tokens are for, so that one of another purpose is none of these.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

import msgspec

C = TypeVar("C", bound=msgspec.Struct)

_VERSION: Final = "v1"


class SignedTokens(Generic[C]):
    """Signs tokens, and reads those that it or another process with the same key has signed.

    Args:
        secrets: The same in all processes of the API, at least one; the first signs. Once one
            is left out, the tokens that it was signed with are refused.
        claims: What a token says.
        purpose: What it is for.
    """

    def __init__(self, secrets: Sequence[bytes], claims: type[C], *, purpose: bytes) -> None:
        self._keys = [hmac.digest(one, purpose, hashlib.sha256) for one in secrets]
        self._claims = claims

    def sign(self, claims: C) -> str:
        """The token, opaque to its holder; the same each time."""
        payload = f"{_VERSION}.{_text(msgspec.json.encode(claims))}"
        return f"{payload}.{_signature(self._keys[0], payload)}"

    def read(self, token: str) -> C | None:
        """What a token says; None if it is none, or signed with another key."""
        payload, _, signature = token.rpartition(".")
        is_ours = any(
            hmac.compare_digest(_signature(key, payload).encode(), signature.encode())
            for key in self._keys
        )
        return unverified_claims(token, self._claims) if is_ours else None


def unverified_claims(token: str, claims: type[C]) -> C | None:
    """What a token says to one who cannot check its signature; None if it is no token."""
    version, _, rest = token.partition(".")
    if version != _VERSION:
        return None
    try:
        return msgspec.json.decode(urlsafe_b64decode(rest.partition(".")[0]), type=claims)
    except (ValueError, Base64Error):
        return None


def _signature(key: bytes, payload: str) -> str:
    return _text(hmac.digest(key, payload.encode(), hashlib.sha256))


def _text(raw: bytes) -> str:
    # The padding stays: a signed payload is decoded as it was encoded.
    return urlsafe_b64encode(raw).decode()
