"""Commands for agendas, their results, and the lists that agendas are chosen from."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, get_args

from msgspec import Meta, field
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pop_stream.api_models.base import ExternalId, Instant, Percent, ResponseModel
from pop_stream.api_models.submissions import Links
from pop_stream.model.agenda import Id, Name, OwnId
from pop_stream.model.events.base import MAX_RANK
from pop_stream.model.events.lifecycle import StopReason, WaitReason
from pop_stream.model.json_types import WHOLE_NUMBER, InstantField
from pop_stream.policy.lifecycle.states import State

BulkAction = Literal["cancel", "hold", "release", "reprioritise", "rerun", "delete"]

MAX_PAYLOAD_TESTS: Final = 8
"""Most values of payloads in one filter."""

MAX_FILTER_VALUES: Final = 10_000
"""Most values of one field of a filter."""

MAX_REASON: Final = 500
"""Characters of a reason."""

Reason = Annotated[str, StringConstraints(max_length=MAX_REASON)]
Title = Annotated[str, StringConstraints(max_length=500)]
Ids = Annotated[tuple[Id, ...], Field(max_length=MAX_FILTER_VALUES)]
FilterPriority = Annotated[int, Field(ge=1, le=9), WHOLE_NUMBER]
FilterAttempt = Annotated[int, Field(ge=1, le=2**31 - 1), WHOLE_NUMBER]


class CommandRequest(BaseModel):
    """A command that needs no more than a reason."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: Reason = Field(default="", description="Shown with the agenda and in its events.")


class Reprioritisation(CommandRequest):
    """Where an agenda stands among its customer's own; what is absent stays."""

    priority: Annotated[int, Field(ge=1, le=9), WHOLE_NUMBER] | None = Field(
        default=None, description="1 is most urgent, 9 least."
    )
    rank: Annotated[int, Field(ge=0, le=MAX_RANK), WHOLE_NUMBER] | None = Field(
        default=None, description="Among agendas of one priority, least first."
    )


class Rerun(CommandRequest):
    """Run an agenda that has ended again, as a new attempt."""

    operations: (
        Literal["all", "failed"]
        | Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_FILTER_VALUES)]
    ) = Field(
        default="failed",
        description="All of them; those that did not succeed; or these, with every operation "
        "that depends on one of them. All others keep their results.",
    )
    hold: bool = Field(default=False, description="Reset it, and run it once it is released.")


SkipReason = Literal["no_body", "invalid"]


class Selection(BaseModel):
    """Agendas that fit every field that is set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ids: Annotated[tuple[OwnId, ...], Field(max_length=MAX_FILTER_VALUES)] = ()
    customer_id: Ids = ()
    insight_id: Ids = ()
    link_id: Ids = ()
    title: Annotated[tuple[Title, ...], Field(max_length=MAX_FILTER_VALUES)] = ()
    external_id: Annotated[tuple[Title, ...], Field(max_length=MAX_FILTER_VALUES)] = ()
    correlation_id: Annotated[tuple[Title, ...], Field(max_length=MAX_FILTER_VALUES)] = ()
    state: Annotated[tuple[State, ...], Field(max_length=len(State))] = ()
    template_id: Annotated[tuple[OwnId, ...], Field(max_length=MAX_FILTER_VALUES)] = ()
    priority: Annotated[tuple[FilterPriority, ...], Field(max_length=9)] = ()
    attempt: Annotated[tuple[FilterAttempt, ...], Field(max_length=MAX_FILTER_VALUES)] = ()
    puller_id: Annotated[tuple[Title, ...], Field(max_length=MAX_FILTER_VALUES)] = ()
    waiting_for: Annotated[
        tuple[WaitReason, ...], Field(max_length=len(get_args(WaitReason)))
    ] = ()
    stopping: Annotated[
        tuple[StopReason, ...], Field(max_length=len(get_args(StopReason)))
    ] = ()
    accepted_from: InstantField | None = None
    accepted_before: InstantField | None = None
    emitted_from: InstantField | None = None
    emitted_before: InstantField | None = None
    started_from: InstantField | None = None
    started_before: InstantField | None = None
    ended_from: InstantField | None = None
    ended_before: InstantField | None = None


PAYLOAD_TEST: Final = "^[^=]+="
"""A path of a payload, its parts joined by dots, and the value that stands there."""

MAX_PAYLOAD_TEST: Final = 900

PayloadTest = Annotated[
    str, StringConstraints(pattern=PAYLOAD_TEST, max_length=MAX_PAYLOAD_TEST)
]


class ListSelection(Selection):
    """The same for lists, which may also look into payloads, a part of the list at a time."""

    payload: Annotated[tuple[PayloadTest, ...], Field(max_length=MAX_PAYLOAD_TESTS)] = Field(
        default=(),
        description="`path=value`: an operation's payload has this value there. Of one path "
        "any value fits; of several paths, all must.",
    )


class BulkCommand(Reprioritisation):
    """One command for all agendas of a selection that are in a state for it."""

    action: BulkAction
    filter: Selection = Field(description="At least one field of it must be set.")
    operations: Literal["all", "failed"] = Field(
        default="failed", description="With rerun: which operations begin anew."
    )
    hold: bool = Field(default=False, description="With rerun: reset, but do not run.")
    dry_run: bool = Field(default=False, description="Only count.")


class CommandResult(ResponseModel, frozen=True):
    """The outcome of a command.

    Attributes:
        state: When the command was judged; `GET` shows what comes of it.
        done: True if there was nothing left to do.
    """

    id: str
    action: str
    state: State
    done: bool
    links: Links


class BulkResult(ResponseModel, frozen=True):
    """The outcome of a command for many agendas.

    Attributes:
        matched: Agendas that fit the filter.
        commanded: Those that were in a state for the command; of a hold or a release, also
            those where it seems done, as another command may be under way.
        skipped: Those that were in no state for it, by state.
        not_possible: Those in a state for it that cannot be run again, by why: `no_body`, what
            they were is not kept any more; `invalid`, it is not understood any more.
    """

    action: BulkAction
    dry_run: bool
    matched: int
    commanded: int
    skipped: Mapping[State, int]
    not_possible: Mapping[SkipReason, int] = field(default_factory=dict)


class ListedAgenda(ResponseModel, frozen=True):
    """An agenda of a list; `GET /v1/agendas/{id}` has the rest."""

    id: str
    state: State
    attempt: Annotated[int, Meta(ge=1)]
    insight_id: str | None
    customer_id: str | None
    title: str
    link_id: str | None
    external_id: ExternalId
    correlation_id: Annotated[str | None, Meta(description="Of the request it came from.")]
    template_id: Annotated[str | None, Meta(description="Of the template it was made from.")]
    puller_id: Annotated[str | None, Meta(description="Who has, or had, its latest attempt.")]
    priority: int
    percent: Percent
    message: str
    accepted_at: Instant | None
    emitted_at: Instant | None
    started_at: Instant | None
    ended_at: Instant | None
    waiting_until: Instant | None
    waiting_for: WaitReason | None
    stopping: StopReason | None


class SelectedAgendas(ResponseModel, frozen=True):
    """A page of agendas of which only some fields were asked for; else as `AgendaList`."""

    total: int
    total_is_capped: bool
    agendas: Sequence[Mapping[str, Any]]
    next: str | None


class AgendaList(ResponseModel, frozen=True):
    """A page of agendas.

    Attributes:
        total: How many fit the filter, up to 10,000.
        total_is_capped: Whether more may fit than `total` says; else it is exact.
        next: The `cursor` of the next page; null on the last one. A page may have fewer agendas
            than its limit, or none, and not be the last.
    """

    total: int
    total_is_capped: bool
    agendas: list[ListedAgenda]
    next: str | None
