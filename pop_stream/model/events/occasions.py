"""What the timekeeper reads, keeps and tells about schedules.

- `pop.occasions`, keyed by schedule id: how occurrences ended, and commands about schedules.
- `pop.timekeeper`, keyed by schedule id, compacted: up to where each schedule has come.
- `pop.schedule-events`: what was decided about each occurrence, in frames of several schedules.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta

from pop_stream.model.events.base import Count, Event, Instant, Struct

NominalSecond = Annotated[int, Meta(ge=-1, le=221_845_391_999)]
"""An instant in seconds since 1970, or the second before the first; up to the year 9000."""

OccurrenceOutcome = Literal["succeeded", "failed", "cancelled", "expired"]
ScheduleAction = Literal["trigger", "backfill", "resume"]


class OccurrenceEnded(Event, frozen=True):
    """The agenda of an occurrence has ended; its id says of which schedule it is."""

    schedule_id: str
    agenda_id: str
    outcome: OccurrenceOutcome


class ScheduleCommanded(Event, frozen=True):
    """Somebody wants something of a schedule that its definition cannot say.

    Attributes:
        action: `trigger` submits an occurrence for now; `backfill` those of a range; `resume`
            ends the pause that failures have led to.
        at: When it was wanted; the nominal instant of `trigger`.
        first: Of a backfill, the first instant of the range.
        last: Of a backfill, the last one.
        by: Who wants it.
    """

    schedule_id: str
    action: ScheduleAction
    at: Instant
    first: Instant | None = None
    last: Instant | None = None
    by: str = ""


OccasionEvent = OccurrenceEnded | ScheduleCommanded

SkipReason = Literal["overlap", "superseded", "paused", "paused_after_failures", "late"]
"""Why an occurrence was not submitted: one before had not ended; a later one took its place
while it waited; the schedule was paused, by somebody or by failures; it was too late."""


class _OccurrenceDecided(Event, frozen=True):
    """What all decisions about an occurrence carry.

    Attributes:
        agenda_id: The id of its agenda, whether or not there is one.
        nominal: The instant that it is for.
        at: When it was decided.
    """

    schedule_id: str
    agenda_id: str
    nominal: Instant
    at: Instant


class OccurrenceFired(_OccurrenceDecided, frozen=True):
    """Its agenda was submitted, or is refused under this id."""


class OccurrenceBuffered(_OccurrenceDecided, frozen=True):
    """It waits for the end of one before."""


class OccurrenceSkipped(_OccurrenceDecided, frozen=True):
    """It is not submitted."""

    reason: SkipReason


ScheduleEvent = OccurrenceFired | OccurrenceBuffered | OccurrenceSkipped


class OpenOccurrence(Struct, frozen=True, array_like=True):
    """An occurrence whose end matters and is not known yet; `position` is its instant."""

    agenda_id: str
    position: NominalSecond


NOTHING_APPLIED: Final = -1
"""The offset before the first."""


class ScheduleState(Event, frozen=True):
    """Up to where a schedule has come; positions are seconds since 1970.

    Attributes:
        position: The last nominal instant that was decided on.
        previous: The last one that was submitted; None if none was.
        fired: Occurrences ever submitted.
        skipped: Those that were not, since one before had not ended, or it was paused.
        missed: Those that were not, since they were late; of long outages at least so many.
        failures: How many failed in a row, up to now.
        is_paused: Whether it pauses because of them.
        open: Occurrences of which the end is waited for.
        waiting: Instants that wait for the end of those.
        applied: The offset in `pop.occasions` up to which events are in this state.
    """

    schedule_id: str
    position: NominalSecond
    previous: NominalSecond | None = None
    fired: Count = 0
    skipped: Count = 0
    missed: Count = 0
    failures: Count = 0
    is_paused: bool = False
    open: tuple[OpenOccurrence, ...] = ()
    waiting: tuple[NominalSecond, ...] = ()
    applied: Annotated[int, Meta(ge=NOTHING_APPLIED, le=2**63 - 1)] = NOTHING_APPLIED
