"""What all answers share.

Errors, as RFC 9457 has them.

What probes are answered with.
"""

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
"""An agenda, or null: JSON text cannot be told from None by its type."""

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


class Readiness(ResponseModel, frozen=True):
    """Every part the API depends on answers."""

    status: Literal["ready"]
    parts: Mapping[str, Literal["ok", "away"]]
