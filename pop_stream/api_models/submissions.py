"""Answers to submissions, what a CloudEvent submits, and where agendas are routed."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType
from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from pop_stream.api_models.base import ResponseModel, SubmittedAgenda
from pop_stream.model.errors import Issue
from pop_stream.model.json_types import InstantField
from pop_stream.policy.ingress.cloud_events import MAX_ATTRIBUTE_LENGTH


class Links(ResponseModel, frozen=True):
    """Addresses of what belongs to an accepted agenda."""

    agenda: str
    progress: str
    events: str


class AcceptedAgenda(ResponseModel, frozen=True):
    """An agenda that is in Kafka, acknowledged, and will not be lost."""

    id: str
    state: Literal["accepted"]
    insight_id: Annotated[str, Meta(description="The insight it fits now.")]
    links: Links


class SubmissionResult(ResponseModel, frozen=True, omit_defaults=True):
    """The outcome of one agenda of a list.

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


class SubmissionResults(ResponseModel, frozen=True):
    """The outcomes of a list of agendas, in its order."""

    accepted: int
    refused: int
    results: list[SubmissionResult]


class StillRefused(ResponseModel, frozen=True):
    """Why an agenda is refused again."""

    id: str
    reason: str


class Resubmitted(ResponseModel, frozen=True):
    """The outcome of submitting refused agendas again.

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


class RouteCandidate(ResponseModel, frozen=True):
    """Whether one insight matched an agenda, and why.

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


class RouteExplanation(ResponseModel, frozen=True):
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
    considered: tuple[RouteCandidate, ...]


class Preview(ResponseModel, frozen=True):
    """The agenda that a run of a template would submit, and where it would go.

    Attributes:
        insight_id: Null if no insight takes it; `issues` say why.
    """

    agenda: SubmittedAgenda
    insight_id: str | None
    issues: tuple[Issue, ...]


class SplitPreview(ResponseModel, frozen=True):
    """What a run of a template that divides its runs would come to.

    Attributes:
        children: How many agendas it would submit.
        first: Their parts of the payload, those of the first few.
        last: That of the last.
        agenda: The first child, without the id and link that its parent gives it.
        insight_id: Where that goes; null if no insight takes it.
        parent_insight_id: Where the agenda goes that submits the children.
        issues: Why a place is null.
    """

    children: int
    first: tuple[Mapping[str, Any], ...]
    last: Mapping[str, Any]
    agenda: SubmittedAgenda
    insight_id: str | None
    parent_insight_id: str | None
    issues: tuple[Issue, ...]


_Attribute = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ATTRIBUTE_LENGTH)]


class CloudEvent(BaseModel):
    """A CloudEvent 1.0 that submits what it holds; it may have other attributes, too."""

    model_config = ConfigDict(extra="allow", frozen=True)

    specversion: Literal["1.0"]
    id: _Attribute = Field(
        description="With `source`: makes the id of an agenda that names none, so that it is "
        "submitted once, however often the event comes.",
    )
    source: _Attribute
    type: _Attribute = Field(description="Of the event; nothing depends on it.")
    subject: _Attribute | None = None
    time: InstantField | None = None
    datacontenttype: Annotated[
        str, StringConstraints(pattern=r"^application/([a-z0-9.+-]+\+)?json$")
    ] = "application/json"
    poptemplate: _Attribute | None = Field(
        default=None, description="The template to run with `data` as its payload."
    )
    popcustomer: _Attribute | None = Field(
        default=None, description="Whose work it is, if `data` does not say so."
    )
    data: JsonValue = Field(
        default=None,
        description="An agenda, or a template's run; with `poptemplate`, any JSON.",
    )
