"""What a dead letter is about, read from its record: whose it is, and its id."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final, Literal

import msgspec

from pop_stream.model.errors import ForbiddenError, UnauthenticatedError, UnreadableRecordError
from pop_stream.model.events.base import RefusedIssue
from pop_stream.model.events.scheduling import RecordRefused
from pop_stream.model.ids import ID_LENGTH, ID_PATTERN, OWN_ID_LENGTH, OWN_ID_PATTERN
from pop_stream.policy.lifecycle.webhooks import WebhookExhausted

LetterKind = Literal["unreadable", "refused", "exhausted", "webhook"]
"""A record that no part can use; a refused submission; an agenda that failed for good; a
webhook that no try could deliver."""

LetterState = Literal["open", "redriven", "discarded"]

WEBHOOK_CODE: Final = "undelivered"
"""The code of every letter about a webhook."""

ID_BYTES: Final = 10
"""Of a letter's id, which is written in hexadecimal."""

_EXHAUSTED_CODES: Final = frozenset({"attempts_exhausted", "final_failure"})
_NOT_OF_THE_NAMED: Final = frozenset({ForbiddenError.code, UnauthenticatedError.code})
"""Refused because the sender may not speak for the customer that the submission names."""

_SUBMISSIONS_PART: Final = "ingest"
_MAX_REASON: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """What came to nothing, with all that is needed to try it once more.

    Attributes:
        letter_id: Made of what it is about, so that a repeated letter has the same.
        code: Stable, of the reason.
        part: That gave it up.
        customer_id: Whose it is; None belongs to the operators.
        sender_id: Of a submission, the customer who sent it; None for anybody else.
        topic: Where the record was read; of an agenda, the one that its pullers read.
        offset: -1 if it is about no record, and so is `partition`.
        value: Of the record; the agenda as accepted; the body of a webhook.
        truncated: Whether the value is not whole.
        url: Of a webhook, where it goes.
    """

    letter_id: str
    kind: LetterKind
    code: str
    reason: str
    part: str
    at: datetime
    customer_id: str | None = None
    insight_id: str | None = None
    agenda_id: str | None = None
    webhook_id: str | None = None
    sender_id: str | None = None
    url: str | None = None
    topic: str = ""
    partition: int = -1
    offset: int = -1
    key: bytes | None = None
    value: bytes = b""
    truncated: bool = False
    issues: Sequence[RefusedIssue] = ()


_REFUSED: Final = msgspec.json.Decoder(RecordRefused)
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_EXHAUSTED_WEBHOOK: Final = msgspec.json.Decoder(WebhookExhausted)
_UNREADABLE: Final = (
    msgspec.DecodeError,
    UnicodeDecodeError,
    RecursionError,
    binascii.Error,
)


def letter_of_record(
    value: bytes | None, *, key: bytes | None, insight_of: Callable[[str], str | None]
) -> DeadLetter:
    """The letter that a record of `pop.dead-letters` is.

    Args:
        value: Of the record.
        key: Of the record.
        insight_of: The insight whose pullers read a topic; None for other topics.

    Raises:
        UnreadableRecordError: If the value is no such letter.
    """
    try:
        refused = _REFUSED.decode(value or b"")
        refused_value = base64.b64decode(refused.value_base64, validate=True)
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None
    return _letter(refused, refused_value, key=key, insight_id=insight_of(refused.topic))


def _letter(
    refused: RecordRefused, value: bytes, *, key: bytes | None, insight_id: str | None
) -> DeadLetter:
    kind = _kind(refused)
    sender = refused.sender_customer_id
    sender_id = None if sender is msgspec.UNSET else sender
    facts = _Facts()
    if kind != "unreadable" and not refused.truncated:
        facts = _facts(value)
    if kind == "refused" and refused.code in _NOT_OF_THE_NAMED:
        facts = _Facts(agenda_id=facts.agenda_id)
    agenda_id = _text(key) if kind == "exhausted" else facts.agenda_id
    return DeadLetter(
        letter_id=_letter_id(refused, key),
        kind=kind,
        code=refused.code,
        reason=_storable(refused.reason[:_MAX_REASON]),
        part=refused.part,
        at=refused.at,
        customer_id=sender_id or facts.customer_id,
        insight_id=insight_id,
        agenda_id=agenda_id,
        sender_id=sender_id,
        topic=refused.topic,
        partition=refused.partition,
        offset=refused.offset,
        key=key,
        value=value,
        truncated=refused.truncated,
        issues=refused.issues,
    )


def letter_of_webhook(value: bytes | None) -> DeadLetter:
    """The letter that a record of `pop.dead-webhooks` is.

    Raises:
        UnreadableRecordError: If the value is no such letter.
    """
    try:
        exhausted = _EXHAUSTED_WEBHOOK.decode(value or b"")
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None
    return DeadLetter(
        letter_id=_hashed("webhook", exhausted.webhook_id, exhausted.at.isoformat()),
        kind="webhook",
        code=WEBHOOK_CODE,
        reason=_storable(f"{exhausted.tries} tries: {exhausted.reason}"[:_MAX_REASON]),
        part="webhooks",
        at=exhausted.at,
        customer_id=exhausted.customer_id,
        agenda_id=exhausted.agenda_id,
        webhook_id=exhausted.webhook_id,
        url=exhausted.url,
        value=exhausted.body.encode(),
    )


def submissions_of(value: bytes) -> Sequence[bytes]:
    """The agendas of a record of `pop.submissions`, each as JSON.

    Raises:
        UnreadableRecordError: If it is no JSON object or list.
    """
    if value.lstrip(b" \t\r\n")[:1] == b"{":
        return [value]
    try:
        return [bytes(one) for one in _LIST.decode(value)]
    except _UNREADABLE as error:
        raise UnreadableRecordError(str(error)) from None


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a submission or an agenda says of itself."""

    customer_id: str | None = None
    agenda_id: str | None = None


def _kind(refused: RecordRefused) -> LetterKind:
    if refused.code in _EXHAUSTED_CODES:
        return "exhausted"
    if refused.part == _SUBMISSIONS_PART and refused.code != UnreadableRecordError.code:
        return "refused"
    return "unreadable"


def _facts(value: bytes) -> _Facts:
    """The customer that all agendas of a value name, and the id of the only one."""
    try:
        document = msgspec.json.decode(value)
    except _UNREADABLE:
        return _Facts()
    found = document if isinstance(document, list) else [document]
    agendas = [one for one in found if isinstance(one, Mapping)]
    customers = {_fitting(one.get("customer_id"), ID_PATTERN, ID_LENGTH) for one in agendas}
    only = agendas[0].get("id") if len(found) == len(agendas) == 1 else None
    return _Facts(
        customers.pop() if len(customers) == 1 else None,
        _fitting(only, OWN_ID_PATTERN, OWN_ID_LENGTH),
    )


def _fitting(value: object, pattern: str, most: int) -> str | None:
    is_fit = isinstance(value, str) and len(value) <= most and re.fullmatch(pattern, value)
    return str(value) if is_fit else None


def _letter_id(refused: RecordRefused, key: bytes | None) -> str:
    if refused.partition >= 0 and refused.offset >= 0:
        # Several rules may read one record.
        rules = () if refused.rule_id is msgspec.UNSET else (refused.rule_id,)
        return _hashed(refused.topic, str(refused.partition), str(refused.offset), *rules)
    # An agenda's reason begins with its attempt, a row's with its key.
    return _hashed(refused.topic, _text(key) or "", refused.reason)


def _hashed(*parts: str) -> str:
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return sha256(text).hexdigest()[: 2 * ID_BYTES]


def _text(key: bytes | None) -> str | None:
    return None if key is None else _storable(key.decode("utf-8", "replace"))


def _storable(text: str) -> str:
    """The text without what no database holds: NUL, and halves of surrogate pairs."""
    sound = text.encode("utf-8", "replace").decode()
    return sound.replace("\0", "\N{REPLACEMENT CHARACTER}")
