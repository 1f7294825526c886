"""The token by which a worker over HTTP proves which attempt it holds.

It comes with every agenda that is pulled, and goes back with every report. It holds, signed,
all that is needed to accept a report, so any process of the API can do so, whether or not it
has delivered the agenda, and while the database is away. It does not say that the lease still
runs: an attempt that is over is fenced by its number, as any other puller's.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Final, Self

import msgspec

from pop_stream.model.events.base import Instant
from pop_stream.model.events.scheduling import EmittedAgenda

MAX_TOKEN_LENGTH: Final = 2_000
"""In characters; no token is longer, whatever agenda and insight are called."""

_VERSION: Final = "v1"
_PURPOSE: Final = b"pop_stream lease token "


class LeaseClaims(msgspec.Struct, frozen=True, array_like=True):
    """The attempt that a token is for.

    Attributes:
        agenda_id: As it is called inside, not as its customer calls it.
        accepted_at: When the agenda was accepted: of another one under the same id, later,
            attempts begin at 1 again.
        run_from: The first attempt of the same run; 0 where that is not known.
        unfinished: How many operations had not succeeded when the attempt was delivered; what
            its worker appends is not counted.
    """

    agenda_id: str
    insight_id: str
    attempt: int
    accepted_at: Instant
    lease_ms: int
    run_from: int
    unfinished: int = 0

    @classmethod
    def of(cls, emitted: EmittedAgenda, unfinished: int = 0) -> Self:
        """The claims of an attempt that is delivered."""
        return cls(
            emitted.agenda_id,
            emitted.insight_id,
            emitted.attempt,
            emitted.accepted_at,
            emitted.lease_ms,
            emitted.run_from,
            unfinished,
        )


class LeaseTokens:
    """Signs tokens, and reads those that it or another process with the same key has signed.

    Args:
        secrets: The same in all processes of the API, at least one; the first signs. Once one
            is left out, the tokens of workers that it was signed with are refused.
    """

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._keys = [hmac.digest(one, _PURPOSE, hashlib.sha256) for one in secrets]

    def sign(self, claims: LeaseClaims) -> str:
        """The token, opaque to its holder; the same each time."""
        payload = f"{_VERSION}.{_text(msgspec.json.encode(claims))}"
        return f"{payload}.{_signature(self._keys[0], payload)}"

    def read(self, token: str) -> LeaseClaims | None:
        """What a token says; None if it is none, or signed with another key."""
        payload, _, signature = token.rpartition(".")
        version, _, encoded = payload.partition(".")
        is_ours = any(
            hmac.compare_digest(_signature(key, payload).encode(), signature.encode())
            for key in self._keys
        )
        if not is_ours or version != _VERSION:
            return None
        return msgspec.json.decode(urlsafe_b64decode(encoded), type=LeaseClaims)


def _signature(key: bytes, payload: str) -> str:
    return _text(hmac.digest(key, payload.encode(), hashlib.sha256))


def _text(raw: bytes) -> str:
    # The padding stays: a signed payload is decoded as it was encoded.
    return urlsafe_b64encode(raw).decode()
