"""Occurrences of schedules: what was decided about each, and what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from pop_stream.model.events.occasions import ScheduleEvent, SkipReason
from pop_stream.policy.lifecycle.states import OccurrenceState

MAX_RUNS: Final = 100
"""Most runs that are shown of one instant; the last ones."""

WINDOW_INSTANTS: Final = 2_000
"""Instants that one page is chosen from, where only some states are wanted."""


@dataclass(frozen=True, slots=True)
class OccurrenceFilter:
    """Selects instants of one schedule; what is empty or None does not narrow.

    Attributes:
        states: Of its last run, or of what else became of it.
        nominal_from: At this instant or later.
        nominal_before: Before this instant.
    """

    schedule_id: str
    states: tuple[OccurrenceState, ...] = ()
    nominal_from: datetime | None = None
    nominal_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class OccurrenceRun:
    """An agenda that was submitted for an instant.

    Attributes:
        state: Of the agenda; `submitted` if there is no row of it.
        attempt: Its latest one; 0 if there is no row of it.
        submitted_at: When it was decided to submit it.
    """

    agenda_id: str
    state: OccurrenceState
    attempt: int
    submitted_at: datetime
    accepted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class StoredOccurrence:
    """One instant of a schedule.

    Attributes:
        state: That of its last run; without any, `buffered` or `skipped`.
        reason: Why it was skipped, though it may have been run by hand since.
        runs: The last `MAX_RUNS`, latest first.
    """

    nominal: datetime
    state: OccurrenceState
    reason: SkipReason | None = None
    runs: Sequence[OccurrenceRun] = ()


@dataclass(frozen=True, slots=True)
class OccurrencePage:
    """Occurrences, latest instant first.

    Attributes:
        next: What the next page's instants are before; None on the last. A page may have fewer
            than were asked for, or none, and still not be the last.
    """

    occurrences: Sequence[StoredOccurrence]
    next: datetime | None


class OccurrenceStore(Protocol):
    """Every method raises UnavailableError while the database is away."""

    async def add(self, events: Sequence[ScheduleEvent]) -> None:
        """Record decisions; repeats change nothing, and what was fired once stays so.

        Raises:
            UnstorableError: If one holds what no row can; then none is recorded.
        """
        ...

    async def page(self, wanted: OccurrenceFilter, *, limit: int) -> OccurrencePage:
        """At most `limit` occurrences, at a bounded cost."""
        ...
