"""What workers without Kafka send and get: agendas to run, and what becomes of them."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from pop_stream.api_models.agendas import AgendaProgress
from pop_stream.api_models.base import Instant, ResponseModel, SubmittedAgenda
from pop_stream.model.agenda import Id, Name
from pop_stream.model.events.lifecycle import StopReason
from pop_stream.model.ids import ID_LENGTH
from pop_stream.model.json_types import WHOLE_NUMBER, InstantField
from pop_stream.model.retry import MAX_DEFERRAL_S
from pop_stream.policy.completion_token import MAX_COMPLETION_TOKEN_LENGTH
from pop_stream.policy.lease_token import MAX_TOKEN_LENGTH

MAX_PULL_COUNT: Final = 100
MAX_WAIT_S: Final = 60

Text = Annotated[str, StringConstraints(max_length=2_000)]
LeaseToken = Annotated[str, StringConstraints(max_length=MAX_TOKEN_LENGTH)]
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PullRequest(_Request):
    """Wish for agendas."""

    puller_id: Id = Field(description="Who will run them; shown with each.")
    count: Annotated[int, Field(ge=1, le=MAX_PULL_COUNT), WHOLE_NUMBER] = Field(
        default=1, description="At most so many; never more than are run at once."
    )
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = Field(
        default=20, description="How long to wait for the first."
    )


class Heartbeat(_Request):
    """A sign of life: the lease runs anew."""

    puller_id: Id
    lease_token: LeaseToken = Field(description="As it came with the agenda.")


class DiagnosticReport(_Request):
    """Something a person may want to know."""

    message: Annotated[str, StringConstraints(max_length=500)]
    code: Annotated[str, StringConstraints(max_length=100)] = ""
    detail: JsonValue = None


class OperationReport(_Request):
    """How far an operation is; replaces what was reported of it before."""

    name: Name
    state: Literal["waiting", "running", "succeeded", "failed"]
    percent: Annotated[float, Field(ge=0, le=100)] = 0
    message: Text = ""
    started_at: InstantField | None = None
    ended_at: InstantField | None = None
    result: JsonValue = Field(default=None, description="With success; at most 256 KiB.")
    diagnostics: Annotated[tuple[DiagnosticReport, ...], Field(max_length=10)] = ()
    tries: Annotated[int, Field(ge=1, le=1_000), WHOLE_NUMBER] = 1


Reports = Annotated[tuple[OperationReport, ...], Field(max_length=10_000)]


class AppendRequest(_Request):
    """Operations that the agenda is to have from now on."""

    by: Name = Field(description="The operation that makes them; without it, they go too.")
    operations: Annotated[list[dict[str, Any]], Field(min_length=1)] = Field(
        description="As in an agenda. One that is known, with the same content, is left out."
    )


class ProgressReport(Heartbeat):
    """What changed since the last report; a sign of life too."""

    operations: Reports = ()
    append: AppendRequest | None = None


class WaitReport(_Request):
    """What an operation waits for."""

    name: Name = Field(description="Of the operation.")
    recheck_s: Annotated[float, Field(ge=1, le=MAX_DEFERRAL_S, allow_inf_nan=False)] = Field(
        default=60, description="Seconds until the agenda is to be pulled again."
    )
    message: Text = Field(default="", description="What it waits for.")
    kind: Literal["check", "signal", "approval", "completion"] = Field(
        default="check",
        description="All but `check` are ended from outside, which wakes the agenda.",
    )
    signal: Annotated[str, StringConstraints(max_length=ID_LENGTH)] = Field(
        default="", description="With `signal`: its name."
    )
    completion_token: Annotated[
        str, StringConstraints(max_length=MAX_COMPLETION_TOKEN_LENGTH)
    ] = Field(
        default="",
        description="With `completion`: the token that was handed over; left out in later "
        "attempts, for as long as the operation is not completed.",
    )


class Completion(Heartbeat):
    """How the attempt ended."""

    outcome: Literal["succeeded", "failed", "stopped", "not_yet"] = Field(
        description="`stopped` answers a wanted stop; `not_yet` names what waits in `waits`."
    )
    message: Text = Field(default="", description="Of a failure: why.")
    waits: Annotated[tuple[WaitReport, ...], Field(max_length=100)] = Field(
        default=(),
        description="Of `not_yet`: the operations that wait. Another attempt follows, which "
        "does not count; one that has waited for `wait_within_s` fails finally.",
    )
    retryable: bool = Field(
        default=True, description="Of a failure: whether another attempt may help."
    )
    operations: Reports = ()
    diagnostics: Annotated[tuple[DiagnosticReport, ...], Field(max_length=10)] = ()
    spent_s: Annotated[dict[Name, Seconds], Field(max_length=200)] = Field(
        default_factory=dict,
        description="Worker-seconds by operation type.",
        json_schema_extra={"additionalProperties": False},
    )


class PulledAgenda(ResponseModel, frozen=True):
    """An agenda whose lease the caller holds.

    Attributes:
        attempt: From 1; part of every path that reports on it.
        lease_ms: Report something within it, or the agenda goes to someone else.
        progress: What earlier attempts left; null in the first, or if it cannot be read now:
            then read it before you begin.
        lease_token: Proves that the caller holds the attempt; send it with every report.
    """

    agenda_id: str
    insight_id: str
    customer_id: str
    attempt: Annotated[int, Meta(ge=1)]
    lease_ms: int
    accepted_at: Instant
    emitted_at: Instant
    agenda: SubmittedAgenda
    progress: AgendaProgress | None
    lease_token: str


class PulledAgendas(ResponseModel, frozen=True):
    """Agendas to run now; none if the wait ended before there was one."""

    agendas: list[PulledAgenda]


class PullerView(ResponseModel, frozen=True):
    """A puller in one insight, by its last sign of life there, some seconds old at most.

    Attributes:
        puller_id: As it calls itself.
        last_claim_at: When it last claimed; null of a worker over HTTP.
        idle: Runners that had no agenda at that claim; null of a worker over HTTP.
        last_agenda_id: What its last sign was about.
    """

    insight_id: str
    puller_id: str
    first_seen_at: Instant
    last_sign_at: Instant
    last_claim_at: Instant | None
    idle: int | None
    last_agenda_id: str


class PullerList(ResponseModel, frozen=True):
    """A page of pullers, by insight and id.

    Attributes:
        next: The `after` of the next page; null on the last.
    """

    pullers: list[PullerView]
    next: str | None


class ReportAcknowledgement(ResponseModel, frozen=True):
    """The report is in Kafka, acknowledged.

    Attributes:
        stop: Why the attempt is to stop; null if it is not. Then complete it as `stopped`.
        appended: Names of operations that were new.
    """

    agenda_id: str
    attempt: int
    lease_ms: int
    stop: StopReason | None
    appended: list[str] = msgspec.field(default_factory=list)
