"""Who sends what is read from Kafka: by the record's signature, or the token in its header.

A batch's tokens are checked before its records, each once, however many records show it. The
database is asked for a key every two seconds at most and can be away for a while; see
`identity.key_book`.

Quotas for what is read from Kafka: the same as over HTTP, each agenda once.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

from pop_stream.model.errors import PopStreamError, UnauthenticatedError, UnavailableError
from pop_stream.model.identity import ANYONE, Principal
from pop_stream.policy.ingress.admission import Standing
from pop_stream.policy.ingress.quotas import QuotaLedger
from pop_stream.policy.ingress.signature import (
    ADMITTED_HEADER,
    AUTHORIZATION_HEADER,
    RecordSigner,
)
from pop_stream.ports.records import ConsumedRecord

_MAX_CONCURRENT: Final = 16

Senders = Mapping[tuple[int, int], Principal | PopStreamError]
"""Who sent a record, by partition and offset, or why that is not known."""


class SenderVerifier(Protocol):
    """Checks tokens."""

    async def identify(self, authorization: str | None) -> Principal:
        """Who the value of an `Authorization` header belongs to.

        Raises:
            UnauthenticatedError: If it is nobody's.
            UnavailableError: If that cannot be found out now.
        """
        ...


class SenderAuthenticator:
    """Finds out who sent records.

    Args:
        authenticator: Checks tokens.
        signer: Knows the API's signatures.
        is_strict: Whether a record that shows neither is refused; else it may be anyone's.
    """

    def __init__(
        self, authenticator: SenderVerifier, *, signer: RecordSigner, is_strict: bool
    ) -> None:
        self._authenticator = authenticator
        self._signer = signer
        self._is_strict = is_strict

    async def senders(self, records: Sequence[ConsumedRecord]) -> Senders:
        """Who sent each record."""
        shown = {
            record_position(one): _token(one)
            for one in records
            if not _is_signed(one, self._signer)
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


def record_position(record: ConsumedRecord) -> tuple[int, int]:
    """Where a record stands in its topic."""
    return record.partition, record.offset


def _is_signed(record: ConsumedRecord, signer: RecordSigner) -> bool:
    return signer.has_signed(
        record.topic, key=record.key, value=record.value, headers=record.headers or ()
    )


def _missing_credentials() -> UnauthenticatedError:
    msg = f"the record has no header {AUTHORIZATION_HEADER!r} with `Bearer <key or token>`"
    return UnauthenticatedError(msg)


def _token(record: ConsumedRecord) -> str | None:
    value = _header(record, AUTHORIZATION_HEADER)
    return None if value is None else value.decode("latin-1")


def _header(record: ConsumedRecord, name: str) -> bytes | None:
    for key, value in record.headers or ():
        if key.lower() == name:
            found: bytes = value or b""
            return found
    return None


_SECOND_MS: Final = 1000


class KafkaSubmissionQuota:
    """Holds records' agendas to the quotas, but for those that were admitted already.

    What the API answered with 202 is admitted, and so is what an ingest may have accepted
    before a crash: neither may be refused any more.

    Args:
        quota_ledger: Of this process.
        signer: Knows the API's signatures; without a secret, its word in a header is
            believed.
    """

    def __init__(self, quota_ledger: QuotaLedger, signer: RecordSigner) -> None:
        self._quota_ledger = quota_ledger
        self._signer = signer
        self._has_decided = False

    def take_has_decided(self) -> bool:
        """Whether since the last call a quota or policy decided; asking resets it."""
        decided, self._has_decided = self._has_decided, False
        return decided

    def standing(self, record: ConsumedRecord) -> Standing:
        """Whether the record's agendas were let in before; asked before policies decide."""
        if self._is_admitted(record):
            return "admitted"
        self._has_decided = True
        started_up_to = self._quota_ledger.started_up_to.get(record.partition, 0)
        return "perhaps" if record.offset < started_up_to else "new"

    def admit(
        self,
        record: ConsumedRecord,
        index: int,
        *,
        customer_id: str,
        insight_id: str,
        is_urgent: bool,
        now: datetime,
    ) -> None:
        """Admit an agenda of a record.

        Its record's own instant counts for the rate: what has waited for ingest is no faster
        for it.

        Raises:
            QuotaError: If it is one too many of its customer.
            CapacityError: If there is no room for it.
        """
        quota_ledger = self._quota_ledger
        if not quota_ledger.is_limited(customer_id, insight_id):
            return
        if self._is_admitted(record):
            quota_ledger.count_admitted(customer_id, insight_id)
        elif record.offset < quota_ledger.started_up_to.get(record.partition, 0):
            self._has_decided = True
            quota_ledger.count_admitted(customer_id, insight_id)
        else:
            self._has_decided = True
            quota_ledger.admit(
                customer_id, insight_id, now_s=_sent_s(record, now), is_urgent=is_urgent
            )
        lane = (insight_id, record.partition)
        position = (record.offset, index)
        quota_ledger.record_position(customer_id, insight_id, position, lane=lane)

    def _is_admitted(self, record: ConsumedRecord) -> bool:
        if self._signer.has_secret:
            return _is_signed(record, self._signer)
        return ADMITTED_HEADER in (record.headers or ())


def _sent_s(record: ConsumedRecord, now: datetime) -> float:
    """When the record was sent, in seconds since the epoch; not later than now."""
    if record.timestamp is None or record.timestamp < 0:
        return now.timestamp()
    return float(min(record.timestamp / _SECOND_MS, now.timestamp()))
