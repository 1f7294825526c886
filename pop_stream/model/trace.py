"""What ties an agenda to the request it came from: W3C trace context and a correlation id.

It travels as headers over HTTP and on records of `pop.submissions`, then in the agenda itself,
so that retries, reruns and every handler have it. Where the entry point makes a span of the
submission (see `pop_stream.telemetry.spans`), the agenda keeps that span as its parent; else
what came in.

Source: https://www.w3.org/TR/trace-context/, sections 3.2 and 3.3.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
CORRELATION: Final = "x-correlation-id"

CORRELATION_PATTERN: Final = r"^[A-Za-z0-9._:~-]{1,128}$"
"""What a correlation id may look like, so that no header can forge a log line."""

_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_KEY: Final = (
    r"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
)
_VALUE: Final = r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
_MEMBER: Final = re.compile(f"{_KEY}={_VALUE}")
_MAX_MEMBERS: Final = 32
_MAX_STATE_LENGTH: Final = 2_048

_PARENT_SCHEMA: Final = WithJsonSchema(
    {
        "type": "string",
        "pattern": "^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$",
    }
)
_STATE_SCHEMA: Final = WithJsonSchema(
    {
        "type": "string",
        "pattern": f"^{_KEY}={_VALUE}(?:,{_KEY}={_VALUE}){{0,{_MAX_MEMBERS - 1}}}$",
        "maxLength": _MAX_STATE_LENGTH,
    }
)


def _sound_parent(text: str) -> str:
    found = parent(text)
    if found != text:
        msg = "must be a W3C traceparent of version 00: 00-<32 hex>-<16 hex>-<2 hex>"
        raise ValueError(msg)
    return text


def _sound_state(text: str) -> str:
    if state(text) != text:
        msg = "must be a W3C tracestate: at most 32 members key=value, comma between"
        raise ValueError(msg)
    return text


class Trace(BaseModel):
    """Where an agenda came from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    traceparent: Annotated[str, AfterValidator(_sound_parent), _PARENT_SCHEMA] | None = None
    tracestate: Annotated[str, AfterValidator(_sound_state), _STATE_SCHEMA] | None = Field(
        default=None, description="Only with a traceparent; no key twice."
    )
    correlation_id: Annotated[str, StringConstraints(pattern=CORRELATION_PATTERN)] | None = None

    @property
    def trace_id(self) -> str | None:
        """The 32 hexadecimal digits that all spans of the trace share."""
        return self.traceparent.split("-")[1] if self.traceparent else None

    @property
    def is_sampled(self) -> bool:
        """Whether those who had it before record their spans, and ask others to."""
        return self.traceparent is not None and int(self.traceparent[-2:], 16) & 1 == 1

    @property
    def headers(self) -> Mapping[str, str]:
        """As headers, of HTTP or of a record."""
        fields = {
            TRACEPARENT: self.traceparent,
            TRACESTATE: self.tracestate,
            CORRELATION: self.correlation_id,
        }
        return {name: value for name, value in fields.items() if value is not None}

    @property
    def context(self) -> Mapping[str, str]:
        """The same without the correlation id, for who knows nothing of that."""
        headers = dict(self.headers)
        headers.pop(CORRELATION, None)
        return headers

    @staticmethod
    def of(headers: Mapping[str, str]) -> "Trace | None":
        """What headers say; what is malformed counts as absent, as the standard asks.

        Args:
            headers: Values by name in lower case.
        """
        traceparent = parent(headers.get(TRACEPARENT, ""))
        tracestate = state(headers.get(TRACESTATE, "")) if traceparent else None
        correlation_id = headers.get(CORRELATION, "")
        if not re.fullmatch(CORRELATION_PATTERN, correlation_id):
            correlation_id = ""
        if not traceparent and not correlation_id:
            return None
        return Trace.model_construct(
            traceparent=traceparent,
            tracestate=tracestate,
            correlation_id=correlation_id or None,
        )


def parent(text: str) -> str | None:
    """The traceparent, as of version 00 if it is of a later one; None if it is malformed."""
    match = _PARENT.fullmatch(text.strip())
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    is_void = not trace_id.strip("0") or not span_id.strip("0")
    if is_void or version == "ff" or (version == "00" and rest is not None):
        return None
    return f"00-{trace_id}-{span_id}-{flags}"


def state(text: str) -> str | None:
    """The tracestate without blanks between members; None if it is malformed or empty."""
    members = [one.strip(" \t") for one in text.split(",")]
    named = [one for one in members if one]
    keys = {one.partition("=")[0] for one in named}
    is_sound = (
        0 < len(named) <= _MAX_MEMBERS
        and len(text) <= _MAX_STATE_LENGTH
        and len(keys) == len(named)
        and all(_MEMBER.fullmatch(one) for one in named)
    )
    return ",".join(named) if is_sound else None
