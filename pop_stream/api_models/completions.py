"""Completions of operations from outside, and the tokens for them."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from pop_stream.api_models.base import Instant, ResponseModel
from pop_stream.api_models.pulls import LeaseToken
from pop_stream.model.agenda import Id, Name
from pop_stream.model.ids import INSIGHT_ID_LENGTH, TOPIC_SAFE_PATTERN
from pop_stream.model.json_types import WHOLE_NUMBER, InstantField
from pop_stream.model.retry import MAX_DEFERRAL_S
from pop_stream.policy.completion_token import MAX_COMPLETION_TOKEN_LENGTH

_InsightId = Annotated[
    str, StringConstraints(pattern=TOPIC_SAFE_PATTERN, max_length=INSIGHT_ID_LENGTH)
]


class CompletionTokenRequest(BaseModel):
    """Wish for a token by which an operation of a running attempt can be completed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    operation: Name
    within_s: Annotated[float, Field(ge=1, le=MAX_DEFERRAL_S, allow_inf_nan=False)] = Field(
        default=3_600, description="Seconds until its time is over."
    )
    lease_token: LeaseToken | None = Field(
        default=None, description="Of a worker over HTTP: says all that follows."
    )
    agenda_id: Id | None = Field(default=None, description="As it was emitted.")
    insight_id: _InsightId | None = Field(default=None, description="As it was emitted.")
    attempt: Annotated[int, Field(ge=1, le=1_000_000_000), WHOLE_NUMBER] | None = None
    accepted_at: InstantField | None = None


class CompletionToken(ResponseModel, frozen=True):
    """A token; whoever has it can complete the operation, once.

    Attributes:
        expires_at: From then on it completes nothing.
    """

    token: str
    expires_at: Instant


class FailureReport(BaseModel):
    """Why an operation failed outside."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    message: Annotated[str, StringConstraints(min_length=1, max_length=2_000)]
    retryable: bool = Field(default=True, description="Whether another attempt may help.")


class CompletionRequest(BaseModel):
    """How an operation ended outside: with a result, or an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    token: Annotated[str, StringConstraints(max_length=MAX_COMPLETION_TOKEN_LENGTH)] = Field(
        description="As it was handed over."
    )
    result: JsonValue = Field(
        default=None, description="Of the operation, in success; at most 64 KiB."
    )
    error: FailureReport | None = Field(
        default=None, description="In failure; not together with a result."
    )


class CompletionResult(ResponseModel, frozen=True):
    """The completion is kept; the same once more is answered with the same.

    Attributes:
        operation: That it completes.
        completed_at: When it first came.
    """

    operation: str
    outcome: Literal["succeeded", "failed"]
    completed_at: Instant
