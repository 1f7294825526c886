"""Signals, and decisions about operations that wait for a person."""

from typing import Annotated

import msgspec
from msgspec import Meta
from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from pop_stream.api_models.base import Instant, ResponseModel
from pop_stream.model.agenda import Id
from pop_stream.model.signal import DEFAULT_KEEP_S, MAX_KEEP_S
from pop_stream.policy.lifecycle.states import State


class SignalRequest(BaseModel):
    """A signal to give."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    customer_id: Id | None = Field(
        default=None, description="Whose waits it ends; a customer's own if left out."
    )
    payload: JsonValue = Field(
        default=None, description="Becomes the result of operations that wait; at most 64 KiB."
    )
    keep_s: Annotated[float, Field(ge=0, le=MAX_KEEP_S, allow_inf_nan=False)] = Field(
        default=DEFAULT_KEEP_S,
        description="So long it also ends waits that begin after it; a day if left out.",
    )


class SignalView(ResponseModel, frozen=True):
    """A signal that is kept."""

    customer_id: str
    name: str
    payload: Annotated[msgspec.Raw, Meta(description="Any JSON.")]
    given_at: Instant
    given_by: str
    expires_at: Instant


class SignalList(ResponseModel, frozen=True):
    """Signals that are kept, by name; at most a thousand."""

    signals: list[SignalView]


class Decision(BaseModel):
    """Why an operation is approved or rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: Annotated[str, StringConstraints(max_length=500)] = Field(
        default="", description="Shown with the operation, and in the audit log."
    )


class DecisionResult(ResponseModel, frozen=True):
    """The decision is recorded, and on its way.

    Attributes:
        state: Of the agenda, when it was decided.
    """

    agenda_id: str
    operation: str
    decision: str
    state: State
