"""What is asked and answered about schedules, beside their definitions."""

from typing import Annotated, Final, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pop_stream.api_models.base import Instant, ResponseModel
from pop_stream.model.events.occasions import SkipReason
from pop_stream.model.json_types import WHOLE_NUMBER, InstantField
from pop_stream.model.schedule import OccurrenceKind
from pop_stream.policy.lifecycle.states import OccurrenceState

MAX_NEXT: Final = 100
"""Most instants that are shown at once."""


MAX_OCCURRENCES: Final = 500
"""Most occurrences of one page."""


class NextQuery(BaseModel):
    """How many of the next instants are wanted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    n: Annotated[int, Field(ge=1, le=MAX_NEXT), WHOLE_NUMBER] = 5


class OccurrenceSelection(BaseModel):
    """Which occurrences of a schedule are wanted, and how many at once."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    state: Annotated[
        tuple[OccurrenceState, ...], Field(max_length=len(get_args(OccurrenceState)))
    ] = ()
    nominal_from: InstantField | None = None
    nominal_before: InstantField | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_OCCURRENCES), WHOLE_NUMBER] = 50


class Backfill(BaseModel):
    """A range of instants whose occurrences are to be submitted now, both ends included."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    first: InstantField = Field(description="Nothing before it.")
    last: InstantField = Field(description="Nothing after it.")

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.last < self.first:
            msg = f"last, {self.last.isoformat()}, is before first, {self.first.isoformat()}"
            raise ValueError(msg)
        return self


class NextInstant(ResponseModel, frozen=True):
    """One instant at which a schedule fires.

    Attributes:
        nominal: The instant that the occurrence is for, in UTC.
        local: The same on the clock of the schedule's time zone.
        due_at: When it is submitted, with its jitter.
    """

    nominal: Instant
    local: str
    due_at: Instant


class NextInstants(ResponseModel, frozen=True):
    """When a schedule fires next; fewer than asked for if it ends before."""

    items: tuple[NextInstant, ...]


class OccurrenceRunView(ResponseModel, frozen=True):
    """An agenda that was submitted for an instant.

    Attributes:
        kind: Whether it was due, or asked for by `trigger` or `backfill`.
        state: Of the agenda; `submitted` while nothing is known of it, or no more.
        attempt: Its latest; 0 while nothing is known of it, or no more.
        submitted_at: When it was decided to submit it.
        message: Of the agenda, for people.
    """

    agenda_id: str
    kind: OccurrenceKind
    state: OccurrenceState
    attempt: int
    submitted_at: Instant
    accepted_at: Instant | None
    started_at: Instant | None
    ended_at: Instant | None
    message: str


class OccurrenceView(ResponseModel, frozen=True):
    """One instant of a schedule.

    Attributes:
        nominal: The instant, in UTC.
        local: The same on the clock of the schedule's time zone.
        state: That of its last run; without any, `buffered` or `skipped`.
        reason: Why it was skipped, though it may have been run since.
        runs: The last 100, latest first.
    """

    nominal: Instant
    local: str
    state: OccurrenceState
    reason: SkipReason | None
    runs: tuple[OccurrenceRunView, ...]


class OccurrenceList(ResponseModel, frozen=True):
    """Occurrences of a schedule, latest first.

    Attributes:
        next: `nominal_before` of the next page; null on the last. A page may be short, even
            empty, and not be the last.
    """

    items: tuple[OccurrenceView, ...]
    next: Instant | None


class ScheduleProgress(ResponseModel, frozen=True):
    """How far a schedule has come.

    Attributes:
        status: In a word; `ended` if nothing is due any more.
        last: The nominal instant that was submitted last; null if none was.
        fired: Occurrences ever submitted.
        skipped: Those that were not, as one before had not ended, or it was paused.
        missed: Those that were not, as they were late; at least so many after a long outage.
        failures: How many have failed in a row.
        running: Agendas of occurrences whose end is waited for.
        waiting: Nominal instants that wait for the end of those.
    """

    status: Literal["scheduled", "paused", "paused_after_failures", "ended"]
    last: Instant | None
    fired: int
    skipped: int
    missed: int
    failures: int
    running: tuple[str, ...]
    waiting: tuple[Instant, ...]


class CommandedSchedule(ResponseModel, frozen=True):
    """A command that is on its way to the timekeeper.

    Attributes:
        occurrences: How many it submits.
    """

    schedule_id: str
    occurrences: int
