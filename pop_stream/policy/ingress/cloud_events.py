"""Submissions that come as CloudEvents 1.0, over HTTP or Kafka, and what they submit.

An event's data is an agenda, or a template's run; or any JSON, if the extension attribute
`poptemplate` names the template whose payload it is. It becomes the submission that would have
been sent without the event. An agenda that names no id gets one that is made of the event's
`source` and `id`, which are the same whenever the event is delivered again.

Sources: CloudEvents 1.0.2; its JSON format; its HTTP and Kafka protocol bindings.
"""

import hashlib
import re
from base64 import b32encode, b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from msgspec import Raw

from pop_stream.model.errors import Issue, SubmissionError
from pop_stream.model.validation import is_storable, shorten, unstorable_issue

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"

TEMPLATE_ATTRIBUTE: Final = "poptemplate"
CUSTOMER_ATTRIBUTE: Final = "popcustomer"

MAX_ATTRIBUTE_LENGTH: Final = 2_000
"""Of an attribute, in characters."""

_HTTP_PREFIX, _KAFKA_PREFIX = "ce-", "ce_"
_VERSION: Final = "1.0"
_REQUIRED: Final = ("specversion", "id", "source", "type")
_NAME: Final = re.compile(r"[a-z0-9]+")
_JSON_TYPE: Final = re.compile(r"application/([a-z0-9.+-]+\+)?json", re.IGNORECASE)
_ID_BYTES: Final = 20

_FIELDS: Final = msgspec.json.Decoder(dict[str, Raw])
_TEXT: Final = msgspec.json.Decoder(str)

Attributes = Mapping[str, str]


def is_binary_over_http(headers: Iterable[str]) -> bool:
    """Whether a request with these headers is an event in binary mode."""
    return any(name.lower() == f"{_HTTP_PREFIX}specversion" for name in headers)


def from_http_headers(
    headers: Mapping[str, str], body: bytes | bytearray, customer_id: str | None
) -> bytes:
    """The submission of an event in binary mode: attributes in headers, data in the body.

    Args:
        headers: Of the request; names in any case, values percent-encoded.
        body: Of the request.
        customer_id: Of its sender; None is an operator.

    Raises:
        SubmissionError: Naming the attribute that is wrong.
    """
    attributes = {
        name.lower().removeprefix(_HTTP_PREFIX): unquote(value)
        for name, value in headers.items()
        if name.lower().startswith(_HTTP_PREFIX)
    }
    _check(attributes)
    return _submission(attributes, bytes(body), customer_id)


def from_kafka(
    headers: Iterable[tuple[str, bytes | None]], value: bytes, customer_id: str | None
) -> bytes | None:
    """The submission of a record that is an event, in either mode; None if it is none.

    Args:
        headers: Of the record, in UTF-8.
        value: Of the record.
        customer_id: Of its sender; None is an operator, or anyone.

    Raises:
        SubmissionError: Naming the attribute that is wrong.
    """
    texts = {name.lower(): (text or b"").decode(errors="replace") for name, text in headers}
    content_type = texts.get("content-type", "")
    kind = _media_type(content_type)
    if kind == STRUCTURED:
        return from_structured(value, customer_id)
    if kind == BATCH:
        raise _fault(content_type, "content-type", f"send one event a record, as {STRUCTURED}")
    if f"{_KAFKA_PREFIX}specversion" not in texts:
        return None
    attributes = {
        name.removeprefix(_KAFKA_PREFIX): text
        for name, text in texts.items()
        if name.startswith(_KAFKA_PREFIX)
    }
    if content_type:
        attributes["datacontenttype"] = content_type
    _check(attributes)
    return _submission(attributes, value, customer_id)


def from_structured(event: bytes | bytearray, customer_id: str | None) -> bytes:
    """The submission of an event in structured mode: a JSON object with `data` in it.

    Args:
        event: The object.
        customer_id: Of its sender; None is an operator, or anyone.

    Raises:
        SubmissionError: Naming the attribute that is wrong.
    """
    try:
        fields = _FIELDS.decode(event)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _fault(_shown(event), "event", f"must be a JSON object: {error}") from None
    data = _data_of(fields)
    attributes = {name: _text_of(name, raw) for name, raw in fields.items()}
    given = {name: text for name, text in attributes.items() if text is not None}
    _check(given)
    return _submission(given, data, customer_id)


def _data_of(fields: dict[str, Raw]) -> bytes:
    """Take the data out of the fields, whichever way they hold it."""
    data, encoded = fields.pop("data", None), fields.pop("data_base64", None)
    if data is not None and encoded is not None:
        raise _fault(_shown(encoded), "data_base64", "is there beside data; send one of them")
    if encoded is None:
        return bytes(data) if data is not None else b"null"
    try:
        return b64decode(_TEXT.decode(encoded), validate=True)
    except (msgspec.DecodeError, UnicodeDecodeError, Base64Error, ValueError):
        raise _fault(_shown(encoded), "data_base64", "must be a text in Base64") from None


def _text_of(name: str, raw: Raw) -> str | None:
    """An attribute's value in its text form; None for null, which stands for its absence."""
    try:
        value: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = ()
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case _:
            remedy = "must be a text, a whole number or true or false"
            raise _fault(_shown(raw), name, remedy)


def _check(attributes: Attributes) -> None:
    """Check the context of an event.

    Raises:
        SubmissionError: With one issue for each attribute that is wrong.
    """
    issues = [
        Issue(name, "null", "is missing, and every CloudEvent has it")
        for name in _REQUIRED
        if not attributes.get(name)
    ]
    issues += [issue for name, text in attributes.items() if (issue := _issue(name, text))]
    if issues:
        raise SubmissionError(issues, about="CloudEvent: ")


def _issue(name: str, text: str) -> Issue | None:
    remedy = ""
    if not is_storable(name + text):
        return unstorable_issue(ascii(shorten(name))[1:-1], text)
    if not _NAME.fullmatch(name):
        remedy = "is no attribute; names have lower-case letters and digits only"
    elif len(text) > MAX_ATTRIBUTE_LENGTH:
        remedy = f"has {len(text):,} characters, and {MAX_ATTRIBUTE_LENGTH:,} at most are read"
    elif name == "specversion" and text and text != _VERSION:
        remedy = f"is not known here; send version {_VERSION}"
    elif name == "datacontenttype" and not _JSON_TYPE.fullmatch(_media_type(text)):
        remedy = "is not JSON; send data as application/json"
    elif name == "time" and not _is_instant(text):
        remedy = "is no instant as RFC 3339 has it, such as 2026-01-01T12:00:00Z"
    elif name == "subject" and not text:
        remedy = "is empty; leave it out"
    return Issue(name, shorten(text), remedy) if remedy else None


def _submission(attributes: Attributes, data: bytes, customer_id: str | None) -> bytes:
    """The JSON of what an event submits, with an id and a customer if it has none."""
    named = attributes.get(CUSTOMER_ATTRIBUTE)
    fields: dict[str, Raw]
    if template := attributes.get(TEMPLATE_ATTRIBUTE):
        fields = {"template_id": _raw(template), "payload": Raw(_checked_json(data))}
    else:
        try:
            fields = _FIELDS.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            remedy = (
                "must be an agenda or a template's run, as a JSON object; for any other data "
                f"name a template in the attribute {TEMPLATE_ATTRIBUTE}"
            )
            raise _fault(_shown(data), "data", remedy) from None
    if named and "customer_id" not in fields:
        fields["customer_id"] = _raw(named)
    whose = _customer(fields, customer_id)
    # On behalf of another customer, ids are that one's to choose: none may be named.
    if "id" not in fields and customer_id in {None, whose}:
        fields["id"] = _raw(event_agenda_id(attributes["source"], attributes["id"], whose))
    return msgspec.json.encode(fields)


def _customer(fields: Mapping[str, Raw], sender: str | None) -> str:
    """Whose the submission is, as far as it says so."""
    try:
        return _TEXT.decode(fields["customer_id"])
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
        return sender or ""


def event_agenda_id(source: str, event_id: str, customer_id: str) -> str:
    """The id of the agenda that an event submits: the same whenever the event comes again.

    Source and id may hold any characters and be long, so it is a digest of both.
    """
    said = msgspec.json.encode([customer_id, source, event_id])
    digest = hashlib.sha256(said).digest()[:_ID_BYTES]
    return f"ce-{b32encode(digest).decode().lower()}"


def _checked_json(data: bytes) -> bytes:
    try:
        msgspec.json.decode(data, type=Raw)
        data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _fault(_shown(data), "data", f"must be JSON: {error}") from None
    return data


def _is_instant(text: str) -> bool:
    try:
        return msgspec.convert(text, datetime).tzinfo is not None
    except msgspec.ValidationError:
        return False


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _raw(text: str) -> Raw:
    return Raw(msgspec.json.encode(text))


def _shown(raw: Raw | bytes | bytearray) -> str:
    return shorten(bytes(raw).decode(errors="replace"))


def _fault(value: str, name: str, message: str) -> SubmissionError:
    return SubmissionError([Issue(name, shorten(value), message)], about="CloudEvent: ")
