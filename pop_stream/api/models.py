"""What the API answers, as types: the JSON is encoded, and documented, from these."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from aiohttp import web
from msgspec import UNSET, Meta, UnsetType

from pop_stream.core.errors import Issue
from pop_stream.core.events import (
    AppendedOperation,
    Diagnostic,
    OperationState,
    PriorProgress,
    StopReason,
    WaitReason,
)
from pop_stream.core.lifecycle import State
from pop_stream.core.summary import PastAttempt

Instant = Annotated[datetime, Meta(tz=True, description="RFC 3339, in UTC.")]

SubmittedAgenda = Annotated[
    msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/Agenda"})
]

Percent = Annotated[float, Meta(ge=0, le=100)]

JSON: Final = "application/json"


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all answers: every field is present, null where nothing is known."""


class Links(Model, frozen=True):
    """Where to read on."""

    agenda: str
    progress: str
    events: str


class AcceptedAgenda(Model, frozen=True):
    """An agenda that is in Kafka, acknowledged, and will not be lost."""

    id: str
    state: Literal["accepted"]
    insight_id: Annotated[str, Meta(description="The insight it fits now.")]
    links: Links


class SubmissionResult(Model, frozen=True, omit_defaults=True):
    """What became of one agenda of a list.

    Attributes:
        index: Its place in the list, from 0.
        id: Kept or made; absent when the agenda was refused before its id was known.
        status: What the agenda alone would have been answered.
        issues: Why it was refused; absent when it was accepted.
    """

    index: int
    status: int
    id: str | UnsetType = UNSET
    insight_id: str | UnsetType = UNSET
    issues: tuple[Issue, ...] | UnsetType = UNSET


class SubmissionResults(Model, frozen=True):
    """What became of a list of agendas, in its order."""

    accepted: int
    refused: int
    results: list[SubmissionResult]


class AgendaSummary(Model, frozen=True):
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
    history: Annotated[tuple[PastAttempt, ...], Meta(description="Earlier attempts.")]
    issues: tuple[Issue, ...]
    diagnostics: tuple[Diagnostic, ...]
    agenda: Annotated[SubmittedAgenda | None, Meta(description="As accepted, id included.")]


class Considered(Model, frozen=True):
    """How one insight fared with an agenda.

    Attributes:
        matches: What of its mappers fits: `operation_types: http`.
        specificity: 3 if a param matched, 2 if a name, 1 if a type, 0 if nothing.
        is_wanted: Whether the agenda's param `default_insight` names it.
    """

    insight_id: str
    outcome: Literal["chosen", "outranked", "other_pool", "no_match"]
    why: str
    matches: tuple[str, ...]
    precedence: int
    specificity: Annotated[int, Meta(ge=0, le=3)]
    is_wanted: bool


class Explained(Model, frozen=True):
    """Where an agenda goes by the definitions in force now, and why.

    Attributes:
        insight_id: Null if no insight takes it; `issues` say why.
        went_to: Where it went when it was accepted; null if it was not submitted.
        considered: Every insight that serves its customer, the chosen one first.
    """

    agenda_id: str | None
    customer_id: str
    insight_id: str | None
    went_to: str | None
    issues: tuple[Issue, ...]
    considered: tuple[Considered, ...]


class Preview(Model, frozen=True):
    """The agenda that a run of a template would submit, and where it would go.

    Attributes:
        insight_id: Null if no insight takes it; `issues` say why.
    """

    agenda: SubmittedAgenda
    insight_id: str | None
    issues: tuple[Issue, ...]


class StillRefused(Model, frozen=True):
    """Why an agenda is refused again."""

    id: str
    reason: str


class Resubmitted(Model, frozen=True):
    """What came of submitting refused agendas again.

    Attributes:
        resubmitted: Those that pass now, and so were submitted, under their ids.
        still_refused: Those that are refused by the present definitions too.
        without_body: Those that were malformed: of these no agenda is known.
        reasons: Of those still refused, some.
    """

    dry_run: bool
    resubmitted: int
    still_refused: int
    without_body: int
    reasons: list[StillRefused]


class OperationView(Model, frozen=True):
    """One operation; one never heard of is waiting."""

    name: str
    type: str | None
    state: OperationState
    percent: Percent
    message: str
    started_at: Instant | None
    ended_at: Instant | None
    result: Annotated[msgspec.Raw | None, Meta(description="Any JSON.")]
    diagnostics: tuple[Diagnostic, ...]
    tries: Annotated[int, Meta(ge=1, description="Begun in this attempt.")]
    appended_by: Annotated[
        str | None, Meta(description="The operation whose handler added this one.")
    ]
    prior: Annotated[
        PriorProgress | None, Meta(description="How far an earlier attempt was with it.")
    ]


class AgendaProgress(Model, frozen=True):
    """How far an agenda is, in the order of its operations."""

    id: str
    state: State
    attempt: Annotated[int, Meta(ge=1)]
    percent: Percent
    message: str
    link_id: str | None
    external_id: Annotated[
        str | None, Meta(description="The agenda's param `external_id`, or `externalId`.")
    ]
    started_at: Instant | None
    ended_at: Instant | None
    operations: tuple[OperationView, ...]
    diagnostics: tuple[Diagnostic, ...]
    appended: Annotated[
        tuple[AppendedOperation, ...], Meta(description="Operations that handlers added.")
    ]


class LinkView(Model, frozen=True):
    """What all agendas of one link id add up to; states without any are left out."""

    link_id: str
    state: State
    percent: Percent
    total: Annotated[int, Meta(ge=1)]
    counts: Mapping[State, int]


class Health(Model, frozen=True):
    """The process is alive."""

    status: Literal["ok"]


class Readiness(Model, frozen=True):
    """Every part the API depends on answers."""

    status: Literal["ready"]
    parts: Mapping[str, Literal["ok", "away"]]


class Problem(Model, frozen=True, omit_defaults=True):
    """An RFC 9457 problem; `code` never changes once published.

    Attributes:
        correlation_id: Finds the request in the log; also the header X-Correlation-Id.
        issues: What is wrong with a document or a query, at most 10.
        limit: What was exceeded, in bytes or agendas as `detail` says.
        parts: By name, which part is away.
        used_by: Why something cannot be deleted; of many, some.
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
    limit: int | UnsetType = UNSET
    parts: Mapping[str, Literal["ok", "away"]] | UnsetType = UNSET
    used_by: tuple[str, ...] | UnsetType = UNSET
    accepted: int | UnsetType = UNSET
    refused: int | UnsetType = UNSET
    results: list[SubmissionResult] | UnsetType = UNSET


_ENCODER: Final = msgspec.json.Encoder()


def encode(model: Model) -> bytes:
    """The model as JSON."""
    return _ENCODER.encode(model)


class CustomerStanding(Model, frozen=True):
    """One customer in an insight's queue.

    Attributes:
        share: Recent service per weight, as a multiple of the mean of backlogged customers.
        wait_s: Recent mean of the wait from acceptance to emission.
        held_by: What keeps all of its agendas waiting: paused, max_in_flight or rate.
    """

    customer_id: str
    ready: int
    in_flight: int
    weight: float
    share: float
    wait_s: float
    held_by: str | None


class QueueView(Model, frozen=True):
    """What waits in an insight, whose it is, and how fast it goes.

    Attributes:
        ready: Agendas that wait for their turn.
        waiting: Agendas with an instant to wait for.
        held: Agendas that wait for their release.
        lag: Emitted agendas that no puller has claimed.
        slots: How many agendas could be emitted now.
        target: Unclaimed agendas that a refill aims at.
        rate_per_s: Agendas claimed per second, lately.
        gap_s: Widest difference of customers' places on the virtual clock.
        bound_s: What the gap cannot exceed.
        customers: Those with most waiting, at most 50.
        other_customers: How many more there are.
    """

    insight_id: str
    at: Instant
    algorithm: str
    ready: int
    waiting: int
    held: int
    lag: int
    in_flight: int
    slots: int
    target: int
    rate_per_s: float
    gap_s: float
    bound_s: float
    customers: list[CustomerStanding]
    other_customers: int


class WhyView(Model, frozen=True):
    """Why an agenda is where it is, in words and figures.

    Attributes:
        position: About how many are emitted up to and with it; null unless it waits.
        own_ahead: How many of these are its customer's own; null unless it waits.
        eta_s: Until it is claimed, at the present rate; null while nothing moves.
        until: When it goes on, of one with an instant to wait for.
        stopping: Why its attempt is to stop; null if it is not.
        queue: Its insight's queue; null once it has ended.
    """

    id: str
    state: State
    why: str
    insight_id: str | None
    position: int | None
    own_ahead: int | None
    eta_s: float | None
    until: Instant | None
    stopping: str | None
    customer: CustomerStanding | None
    queue: QueueView | None


def answer(
    model: Model, *, status: int, headers: Mapping[str, str] | None = None
) -> web.Response:
    """An answer in JSON."""
    return web.Response(
        body=_ENCODER.encode(model), status=status, headers=headers, content_type=JSON
    )
