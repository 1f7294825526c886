"""What all answers share, and the answers of probes."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

Instant = Annotated[datetime, Meta(tz=True, description="RFC 3339, in UTC.")]

SubmittedAgenda = Annotated[
    msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/Agenda"})
]

OptionalAgenda = Annotated[
    msgspec.Raw,
    Meta(
        extra_json_schema={"anyOf": [{"$ref": "#/components/schemas/Agenda"}, {"type": "null"}]}
    ),
]
"""An agenda, or null: by its type alone, JSON text and None are one."""

NULL: Final = msgspec.Raw(b"null")
"""The JSON of no JSON."""

Percent = Annotated[float, Meta(ge=0, le=100)]

ExternalId = Annotated[
    str | None, Meta(description="The agenda's param `external_id`, or `externalId`.")
]


class ResponseModel(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all answers: every field is present, null where nothing is known."""


class Health(ResponseModel, frozen=True):
    """The process is alive."""

    status: Literal["ok"]


class DoctorReport(ResponseModel, frozen=True):
    """What is wrong with the installation.

    Attributes:
        findings: In words, each with what to do about it; none if all is well.
        at: When it was looked at; an answer may be some seconds old.
    """

    findings: list[str]
    at: Instant
    took_s: float


class Readiness(ResponseModel, frozen=True):
    """Every part the API depends on answers."""

    status: Literal["ready"]
    parts: Mapping[str, Literal["ok", "away"]]
