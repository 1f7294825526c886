"""The seal on a record: that it comes from a part that has judged its sender already.

The API checks who submits, and must not hand its callers' keys on through Kafka, where they
would lie for days. It seals what it publishes with a secret that it shares with ingest.
"""

import hashlib
import hmac
from typing import Final

RECORD_SIGNATURE_HEADER: Final = "pop-signature"
AUTHORIZATION_HEADER: Final = "authorization"

ADMITTED_HEADER: Final = ("pop-admitted", b"1")
"""The header of what the API let in where it has no secret to seal it with."""

DEFINITIONS_VERSION_HEADER: Final = "pop-definitions"
"""The header that tells the version of the definitions by which the API let a record in."""

_VERSION: Final = b"v1="


def sign(secret: bytes, *, key: bytes | None, value: bytes) -> bytes:
    """The seal of a record with this key and value; a repeat of the record has it too."""
    # The key's length comes first, so that no byte can move between key and value.
    head = len(key or b"").to_bytes(4) + (key or b"")
    return _VERSION + hmac.digest(secret, head + value, hashlib.sha256).hex().encode()


def is_signed_by(secret: bytes, shown: bytes, *, key: bytes | None, value: bytes) -> bool:
    """Whether the seal is the record's own."""
    return hmac.compare_digest(sign(secret, key=key, value=value), shown)
