"""Signatures of records: by them a part knows what another part of ours has written.

The API checks who submits and who commands, and must not pass its callers' keys on through
Kafka, where they would lie for days. So it signs what it publishes, ingest signs what it
accepts, and who acts on such a record in a customer's name asks for the signature first: many
more may write to these topics than may act for everyone.
"""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Final

RECORD_SIGNATURE_HEADER: Final = "pop-signature"
AUTHORIZATION_HEADER: Final = "authorization"

ADMITTED_HEADER: Final = ("pop-admitted", b"1")
"""The header of what the API admitted where it has no secret to sign it with."""

HELD_TO_QUOTAS_HEADER: Final = ("pop-held-to-quotas", b"1")
"""The header of what a part has signed, as it knows the sender, and has not admitted: the
sender's quotas are ingest's to hold it to."""

DEFINITIONS_VERSION_HEADER: Final = "pop-definitions"
"""The header with the version of the definitions by which the API admitted a record."""

_VERSION: Final = b"v1="

Headers = Iterable[tuple[str, bytes | None]]


class RecordSigner:
    """Signs records, and knows those that it or a part with one of its secrets has signed.

    To sign or check takes 3 microseconds for a record of 1 kB, 0.15 ms for one of 256 kB.

    Args:
        secrets: Newest first. The first signs, each is believed, so that one can follow
            another while both are in use. Without any, nothing is signed.
    """

    def __init__(self, secrets: Sequence[bytes] = ()) -> None:
        self._secrets = tuple(secrets)

    @property
    def has_secret(self) -> bool:
        """Whether it can tell signed records from others at all."""
        return bool(self._secrets)

    def headers(
        self, topic: str, *, key: bytes | None, value: bytes
    ) -> tuple[tuple[str, bytes], ...]:
        """The header that signs a record; none without a secret. The same for a repeat of it.

        Args:
            topic: Where it is written; elsewhere the signature does not hold.
            key: Of the record.
            value: Of the record.
        """
        return tuple(
            (RECORD_SIGNATURE_HEADER, _signature(secret, topic, key, value))
            for secret in self._secrets[:1]
        )

    def has_signed(
        self, topic: str, *, key: bytes | None, value: bytes | None, headers: Headers
    ) -> bool:
        """Whether the headers show a signature of this record; never without a secret."""
        shown = next((one for name, one in headers if name == RECORD_SIGNATURE_HEADER), None)
        if not shown:
            return False
        return any(
            hmac.compare_digest(_signature(secret, topic, key, value or b""), shown)
            for secret in self._secrets
        )


def _signature(secret: bytes, topic: str, key: bytes | None, value: bytes) -> bytes:
    # Lengths come first, so that no byte can move between topic, key and value.
    name, known = topic.encode(), key or b""
    head = len(name).to_bytes(4) + name + len(known).to_bytes(4) + known
    return _VERSION + hmac.digest(secret, head + value, hashlib.sha256).hex().encode()
