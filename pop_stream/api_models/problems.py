"""Problems, as RFC 9457 has them."""

from collections.abc import Mapping
from typing import Literal

from msgspec import UNSET, UnsetType

from pop_stream.api_models.base import ResponseModel
from pop_stream.api_models.submissions import SubmissionResult
from pop_stream.model.errors import Issue


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
        duplicate_of: The agenda with the same deduplication key.
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
    duplicate_of: str | UnsetType = UNSET
    parts: Mapping[str, Literal["ok", "away"]] | UnsetType = UNSET
    used_by: tuple[str, ...] | UnsetType = UNSET
    reason: Literal["outdated", "followed", "ended"] | UnsetType = UNSET
    state: str | UnsetType = UNSET
    accepted: int | UnsetType = UNSET
    refused: int | UnsetType = UNSET
    results: list[SubmissionResult] | UnsetType = UNSET
