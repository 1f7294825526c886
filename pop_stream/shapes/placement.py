"""Where agendas go, and why."""

from typing import Annotated, Literal

from msgspec import Meta

from pop_stream.core.errors import Issue
from pop_stream.shapes.base import ResponseModel, SubmittedAgenda


class RouteCandidate(ResponseModel, frozen=True):
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
