"""Who sends what is read from Kafka: by the record's seal, or the token in its header.

A batch's tokens are judged before it is sorted, each once, however many records show it. The
database is asked for a key every two seconds at most and can be away for a while; see
`identity.key_book`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from aiokafka import ConsumerRecord

from pop_stream.core.doors.seal import (
    AUTHORIZATION_HEADER,
    RECORD_SIGNATURE_HEADER,
    is_signed_by,
)
from pop_stream.core.errors import PopStreamError, UnauthenticatedError, UnavailableError
from pop_stream.core.values.identity import ANYONE, Principal

_MAX_CONCURRENT: Final = 16

Senders = Mapping[tuple[int, int], Principal | PopStreamError]
"""Who sent a record, by partition and offset, or why that cannot be told."""


class CredentialVerifier(Protocol):
    """Tells who a token belongs to."""

    async def identify(self, authorization: str | None) -> Principal:
        """Who the value of an `Authorization` header belongs to.

        Raises:
            UnauthenticatedError: If nobody can be told from it.
            UnavailableError: If that cannot be found out now.
        """
        ...


class Gate:
    """Tells records apart by who sent them.

    Args:
        authenticator: Who judges tokens.
        secret: Of seals; without one, no seal counts.
        is_strict: Whether a record that shows neither is refused; else it may be anyone's.
    """

    def __init__(
        self, authenticator: CredentialVerifier, *, secret: bytes | None, is_strict: bool
    ) -> None:
        self._authenticator = authenticator
        self._secret = secret
        self._is_strict = is_strict

    async def senders(self, records: Sequence[ConsumerRecord]) -> Senders:
        """Who sent each record."""
        shown = {
            record_position(one): _token(one) for one in records if not self._is_signed(one)
        }
        slots = asyncio.Semaphore(_MAX_CONCURRENT)

        async def verified(token: str) -> Principal | PopStreamError:
            async with slots:
                return await self._verify(token)

        tokens = [*{token for token in shown.values() if token is not None}]
        known = dict(zip(tokens, await asyncio.gather(*map(verified, tokens)), strict=True))
        nobody = _missing_credentials() if self._is_strict else ANYONE
        found: dict[tuple[int, int], Principal | PopStreamError] = {}
        for where, token in shown.items():
            found[where] = nobody if token is None else known[token]
        return found

    async def _verify(self, token: str) -> Principal | PopStreamError:
        try:
            return await self._authenticator.identify(token)
        except (UnauthenticatedError, UnavailableError) as error:
            return error

    def _is_signed(self, record: ConsumerRecord) -> bool:
        shown = _header(record, RECORD_SIGNATURE_HEADER)
        if self._secret is None or shown is None:
            return False
        return is_signed_by(self._secret, shown, key=record.key, value=record.value or b"")


def record_position(record: ConsumerRecord) -> tuple[int, int]:
    """Where a record stands in its topic."""
    return record.partition, record.offset


def _missing_credentials() -> UnauthenticatedError:
    msg = f"the record has no header {AUTHORIZATION_HEADER!r} with `Bearer <key or token>`"
    return UnauthenticatedError(msg)


def _token(record: ConsumerRecord) -> str | None:
    value = _header(record, AUTHORIZATION_HEADER)
    return None if value is None else value.decode("latin-1")


def _header(record: ConsumerRecord, name: str) -> bytes | None:
    for key, value in record.headers or ():
        if key.lower() == name:
            found: bytes = value or b""
            return found
    return None
