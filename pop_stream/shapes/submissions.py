"""What submitting is answered with."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from pop_stream.core.errors import Issue
from pop_stream.shapes.base import ResponseModel


class Links(ResponseModel, frozen=True):
    """Where to read on."""

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


class SubmissionResults(ResponseModel, frozen=True):
    """What became of a list of agendas, in its order."""

    accepted: int
    refused: int
    results: list[SubmissionResult]


class StillRefused(ResponseModel, frozen=True):
    """Why an agenda is refused again."""

    id: str
    reason: str


class Resubmitted(ResponseModel, frozen=True):
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
