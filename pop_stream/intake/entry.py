"""Admission of what is read from Kafka: by the same quotas as over HTTP, each agenda once."""

from datetime import datetime
from typing import Final

from aiokafka import ConsumerRecord

from pop_stream.core.doors.door import QuotaLedger
from pop_stream.core.doors.seal import ADMITTED_HEADER, RECORD_SIGNATURE_HEADER, is_signed_by

_SECOND_MS: Final = 1000


class KafkaAdmission:
    """Asks the door for every agenda that another part has not let in already.

    What the API answered with 202 is let in, and so is what an intake may have accepted
    before a crash: neither may be refused any more.

    Args:
        quota_ledger: Of this process.
        secret: Of seals; without one, the API's word in a header is believed.
    """

    def __init__(self, quota_ledger: QuotaLedger, secret: bytes | None) -> None:
        self._quota_ledger = quota_ledger
        self._secret = secret
        self._has_decided = False

    def take_has_decided(self) -> bool:
        """Whether anything was decided since the last call that could be decided otherwise."""
        decided, self._has_decided = self._has_decided, False
        return decided

    def admit(
        self,
        record: ConsumerRecord,
        index: int,
        *,
        customer_id: str,
        insight_id: str,
        now: datetime,
    ) -> None:
        """Let an agenda of a record in.

        Its record's own instant counts for the rate: what has waited for intake is no faster
        for it.

        Raises:
            QuotaError: If it is one too many of its customer.
            CapacityError: If there is no room for it.
        """
        quota_ledger = self._quota_ledger
        if not quota_ledger.is_limited(customer_id, insight_id):
            return
        if self._is_admitted(record):
            quota_ledger.count_admitted(customer_id)
        elif record.offset < quota_ledger.started_up_to.get(record.partition, 0):
            self._has_decided = True
            quota_ledger.count_admitted(customer_id)
        else:
            self._has_decided = True
            quota_ledger.admit(customer_id, insight_id, now_s=_sent_s(record, now))
        lane = (insight_id, record.partition)
        quota_ledger.record_position(customer_id, (record.offset, index), lane=lane)

    def _is_admitted(self, record: ConsumerRecord) -> bool:
        headers = dict(record.headers or ())
        if self._secret is None:
            name, value = ADMITTED_HEADER
            return bool(headers.get(name) == value)
        shown = headers.get(RECORD_SIGNATURE_HEADER)
        value = record.value or b""
        return shown is not None and is_signed_by(
            self._secret, shown, key=record.key, value=value
        )


def _sent_s(record: ConsumerRecord, now: datetime) -> float:
    """When the record was sent, in seconds since the epoch; not later than now."""
    if record.timestamp is None or record.timestamp < 0:
        return now.timestamp()
    return float(min(record.timestamp / _SECOND_MS, now.timestamp()))
