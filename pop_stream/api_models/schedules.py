"""What is asked and answered about schedules, beside their definitions."""

from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pop_stream.api_models.base import Instant, ResponseModel
from pop_stream.model.json_types import WHOLE_NUMBER, InstantField

MAX_NEXT: Final = 100
"""Most instants that are shown at once."""


class NextQuery(BaseModel):
    """How many of the next instants are wanted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    n: Annotated[int, Field(ge=1, le=MAX_NEXT), WHOLE_NUMBER] = 5


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
