"""Webhooks: what is sent to a customer's server when an agenda has ended, and its signature."""

import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from pop_stream.model.agenda import CallbackFormat
from pop_stream.model.events.base import Event, Instant, Struct
from pop_stream.model.retry import Backoff
from pop_stream.model.tenancy import display_id
from pop_stream.policy.lifecycle.states import OUTCOMES
from pop_stream.policy.lifecycle.summary import Summary

CallbackState = Literal["waiting", "delivered", "exhausted"]
"""Of a report of an agenda's end: still tried, answered with a 2xx, or given up."""

BACKOFF: Final = Backoff(first_s=5.0, factor=3.0, most_s=3 * 3600.0)
"""Between tries: 5 s, 15 s, 45 s, and so on; ten tries take some eight hours."""

SIGNATURE_HEADER: Final = "Pop-Signature"
ID_HEADER: Final = "Pop-Callback-Id"

_SECRET_BYTES: Final = 32
_JSON: Final = "application/json"
_CLOUD_EVENT: Final = "application/cloudevents+json"
_SOURCE: Final = "/v1/agendas"
_EVENT_TYPE: Final = "pop_stream.agenda.ended"
_EVENT_MARK: Final = '{"specversion":'
"""How a CloudEvent of ours begins, and no other body."""


class AgendaEnded(Struct, frozen=True, tag_field="type", tag="agenda.ended"):
    """The body of a webhook, JSON.

    Attributes:
        id: The same for every try: by it a receiver knows repeats.
        agenda_id: What the customer calls it.
        state: `succeeded`, `failed`, `cancelled` or `expired`.
    """

    id: str
    agenda_id: str
    customer_id: str
    insight_id: str
    state: str
    attempt: int
    title: str = ""
    link_id: str | None = None
    message: str = ""
    accepted_at: Instant | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None


class AgendaEndedCloudEvent(Struct, frozen=True):
    """The body of a webhook as a CloudEvent 1.0, in structured mode.

    The signature covers the body alone: in binary mode nothing would vouch for the attributes.

    Attributes:
        id: Of what it holds: the same for every try.
        subject: The agenda, as the customer calls it.
        time: When it ended.
    """

    specversion: str
    id: str
    source: str
    type: str
    subject: str
    time: Instant | None
    datacontenttype: str
    data: AgendaEnded


class WebhookExhausted(Event, frozen=True):
    """A dead letter of `pop.dead-webhooks`: a webhook that no try could deliver.

    Attributes:
        webhook_id: As in the header `Pop-Callback-Id`.
        tries: How many there were.
        reason: Of the last one.
        body: What was sent.
    """

    webhook_id: str
    agenda_id: str
    customer_id: str
    url: str
    tries: int
    reason: str
    at: Instant
    body: str


def webhook_payload(before: Summary | None, after: Summary) -> AgendaEnded | None:
    """The webhook that a change of a summary calls for, if any.

    One for each attempt that an agenda ends with: an agenda that is run again and ends again
    is reported again, under another id.
    """
    if not after.callback_url or after.state not in OUTCOMES:
        return None
    if before is not None and before.callback_url and _is_same_end(before, after):
        return None
    return AgendaEnded(
        id=f"{after.agenda_id}/{after.attempt}",
        agenda_id=display_id(after.agenda_id, after.customer_id),
        customer_id=after.customer_id,
        insight_id=after.insight_id,
        state=after.state.value,
        attempt=after.attempt,
        title=after.title,
        link_id=after.link_id,
        message=after.message,
        accepted_at=after.accepted_at,
        started_at=after.started_at,
        ended_at=after.ended_at,
    )


def webhook_body(ended: AgendaEnded, sent_as: CallbackFormat) -> str:
    """What is sent, JSON."""
    if sent_as == "json":
        return msgspec.json.encode(ended).decode()
    event = AgendaEndedCloudEvent(
        specversion="1.0",
        id=ended.id,
        source=_SOURCE,
        type=_EVENT_TYPE,
        subject=ended.agenda_id,
        time=ended.ended_at,
        datacontenttype=_JSON,
        data=ended,
    )
    return msgspec.json.encode(event).decode()


def media_type_of(body: str) -> str:
    """What a body that was made by `webhook_body` is called."""
    return _CLOUD_EVENT if body.startswith(_EVENT_MARK) else _JSON


def webhook_secret(customer_id: str, key: bytes) -> str:
    """The customer's secret, hexadecimal: made from the operator's key, and stored nowhere."""
    made = hmac.new(key, b"callback/" + customer_id.encode(), hashlib.sha256)
    return made.hexdigest()[: 2 * _SECRET_BYTES]


def signature(body: bytes, at: datetime, secrets: Sequence[str]) -> str:
    """The value of `Pop-Signature`: `t=<seconds>,v1=<hex>`, one `v1` a secret.

    Each is HMAC-SHA256, keyed with the secret's text, over `<seconds>.<body>`. While keys are
    changed there are two, and a receiver accepts either.
    """
    seconds = str(int(at.timestamp()))
    signed = seconds.encode() + b"." + body
    marks = [hmac.new(one.encode(), signed, hashlib.sha256).hexdigest() for one in secrets]
    return ",".join([f"t={seconds}", *(f"v1={mark}" for mark in marks)])


def _is_same_end(before: Summary, after: Summary) -> bool:
    return before.state in OUTCOMES and before.attempt == after.attempt
