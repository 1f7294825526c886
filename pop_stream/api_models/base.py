"""What all answers share.

Errors, as RFC 9457 has them.

What probes are answered with.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pop_stream.api_models.submissions import SubmissionResult
from pop_stream.model.errors import Issue

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


class Problem(ResponseModel, frozen=True, omit_defaults=True):
    """An RFC 9457 problem; `code` never changes once published.

    Attributes:
        correlation_id: Finds the request in the log; also the header X-Correlation-Id.
        issues: What is wrong with a document or a query, at most 10.
        limit: What was exceeded, in bytes or agendas as `detail` says.
        present: What there is of it.
        customer_id: Whose quota it is.
        quota: Which field of the customer's definition.
        insight_id: Whose scheduler is full.
        parts: By name, which part is away.
        used_by: Why something cannot be deleted; of many, some.
        reason: Why an attempt is over.
        state: How the agenda has ended, if that is why.
        results: Of a list of which no agenda was accepted.
    """

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    correlation_id: str
    issues: tuple[Issue, ...] | UnsetType = UNSET
    limit: float | UnsetType = UNSET
    present: float | UnsetType = UNSET
    customer_id: str | UnsetType = UNSET
    quota: str | UnsetType = UNSET
    insight_id: str | UnsetType = UNSET
    parts: Mapping[str, Literal["ok", "away"]] | UnsetType = UNSET
    used_by: tuple[str, ...] | UnsetType = UNSET
    reason: Literal["outdated", "followed", "ended"] | UnsetType = UNSET
    state: str | UnsetType = UNSET
    accepted: int | UnsetType = UNSET
    refused: int | UnsetType = UNSET
    results: list[SubmissionResult] | UnsetType = UNSET


class Health(ResponseModel, frozen=True):
    """The process is alive."""

    status: Literal["ok"]


class Readiness(ResponseModel, frozen=True):
    """Every part the API depends on answers."""

    status: Literal["ready"]
    parts: Mapping[str, Literal["ok", "away"]]
