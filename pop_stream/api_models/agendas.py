"""Agendas and links as they are read."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from pop_stream.api_models.base import (
    ExternalId,
    Instant,
    OptionalAgenda,
    Percent,
    ResponseModel,
)
from pop_stream.model.errors import Issue
from pop_stream.model.events.base import (
    AppendedOperation,
    Diagnostic,
    OperationState,
    OperationWait,
    PriorProgress,
)
from pop_stream.model.events.lifecycle import StopReason, WaitReason
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import PastAttempt
from pop_stream.policy.lifecycle.webhooks import CallbackState


class AgendaSummary(ResponseModel, frozen=True):
    """One agenda, as far as its events have been folded."""

    id: str
    state: State
    attempt: Annotated[int, Meta(ge=1)]
    insight_id: str | None
    customer_id: str | None
    title: str
    link_id: str | None
    priority: int
    percent: Percent
    message: str
    puller_id: str | None
    accepted_at: Instant | None
    emitted_at: Instant | None
    started_at: Instant | None
    ended_at: Instant | None
    lease_until: Instant | None
    waiting_until: Annotated[Instant | None, Meta(description="Not started earlier.")]
    waiting_for: WaitReason | None
    stopping: StopReason | None
    duplicate_of: Annotated[
        str | None, Meta(description="The agenda that stands in its place.")
    ]
    history: Annotated[tuple[PastAttempt, ...], Meta(description="Earlier attempts.")]
    issues: tuple[Issue, ...]
    diagnostics: tuple[Diagnostic, ...]
    agenda: Annotated[OptionalAgenda, Meta(description="As accepted, id included.")]


class CallbackView(ResponseModel, frozen=True):
    """A report of an agenda's end to its customer's server: one for each end.

    Attributes:
        id: By it the receiver knows repeats: its header `webhook-id`.
        url: Where it goes.
        state: `waiting` is tried on; `delivered` was answered with a 2xx; `exhausted` is given
            up, and is a dead letter.
        tries: That were made.
        created_at: When the agenda ended.
        due_at: When it is tried next; null if it is not.
        ended_at: When it was delivered or given up; null while it waits.
        reason: Why the last try failed; empty if none did.
    """

    id: str
    url: str
    state: CallbackState
    tries: int
    created_at: Instant
    due_at: Instant | None
    ended_at: Instant | None
    reason: str


class CallbackList(ResponseModel, frozen=True):
    """The callbacks of an agenda, newest first: at most 100."""

    callbacks: list[CallbackView]


class OperationView(ResponseModel, frozen=True):
    """One operation; one of which nothing was reported waits."""

    name: str
    type: str | None
    state: OperationState
    percent: Percent
    message: str
    started_at: Instant | None
    ended_at: Instant | None
    result: Annotated[msgspec.Raw, Meta(description="Any JSON.")]
    diagnostics: tuple[Diagnostic, ...]
    tries: Annotated[int, Meta(ge=1, description="Begun in this attempt.")]
    appended_by: Annotated[
        str | None, Meta(description="The operation whose handler added this one.")
    ]
    prior: Annotated[
        PriorProgress | None, Meta(description="How far an earlier attempt was with it.")
    ]
    wait: Annotated[
        OperationWait | None, Meta(description="What it waits for without a runner.")
    ]


class AgendaProgress(ResponseModel, frozen=True):
    """How far an agenda is, in the order of its operations."""

    id: str
    state: State
    attempt: Annotated[int, Meta(ge=1)]
    percent: Percent
    message: str
    link_id: str | None
    external_id: ExternalId
    started_at: Instant | None
    ended_at: Instant | None
    operations: tuple[OperationView, ...]
    diagnostics: tuple[Diagnostic, ...]
    appended: Annotated[
        tuple[AppendedOperation, ...], Meta(description="Operations that handlers added.")
    ]


class LinkView(ResponseModel, frozen=True):
    """What all agendas of one link id add up to; states without any are left out."""

    link_id: str
    state: State
    percent: Percent
    total: Annotated[int, Meta(ge=1)]
    counts: Mapping[State, int]
