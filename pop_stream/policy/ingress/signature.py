"""The signature of a record by which ingest knows that the API has checked its sender.

The API checks who submits, and must not pass its callers' keys on through Kafka, where they
would lie for days. So it signs what it publishes with a secret that it shares with ingest.
"""

import hashlib
import hmac
from typing import Final

RECORD_SIGNATURE_HEADER: Final = "pop-signature"
AUTHORIZATION_HEADER: Final = "authorization"

ADMITTED_HEADER: Final = ("pop-admitted", b"1")
"""The header of what the API admitted where it has no secret to sign it with."""

DEFINITIONS_VERSION_HEADER: Final = "pop-definitions"
"""The header with the version of the definitions by which the API admitted a record."""

_VERSION: Final = b"v1="


def sign(secret: bytes, *, key: bytes | None, value: bytes) -> bytes:
    """The signature of a record with this key and value; the same for a repeat of it."""
    # The key's length comes first, so that no byte can move between key and value.
    head = len(key or b"").to_bytes(4) + (key or b"")
    return _VERSION + hmac.digest(secret, head + value, hashlib.sha256).hex().encode()


def is_signed_by(secret: bytes, shown: bytes, *, key: bytes | None, value: bytes) -> bool:
    """Whether the signature shown is that of this record; takes the same time if not."""
    return hmac.compare_digest(sign(secret, key=key, value=value), shown)
