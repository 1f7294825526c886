"""Occurrences of schedules in Postgres; `PostgresRetention` removes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, get_args

from pop_stream.model.errors import UnstorableError
from pop_stream.model.events.occasions import (
    OccurrenceBuffered,
    OccurrenceFired,
    OccurrenceSkipped,
    ScheduleEvent,
)
from pop_stream.policy.lifecycle.states import OccurrenceState
from pop_stream.ports.occurrences import (
    MAX_RUNS,
    WINDOW_INSTANTS,
    OccurrenceFilter,
    OccurrencePage,
    OccurrenceRun,
    StoredOccurrence,
)
from pop_stream.postgres.pool import acquire_connection, load_queries

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Pool

_SQL: Final = load_queries("occurrences")
_RANKS: Final[Mapping[type[ScheduleEvent], tuple[int, str]]] = {
    OccurrenceBuffered: (0, "buffered"),
    OccurrenceSkipped: (1, "skipped"),
    OccurrenceFired: (2, "fired"),
}
_STATES: Final[Mapping[str, OccurrenceState]] = {one: one for one in get_args(OccurrenceState)}


@dataclass(frozen=True, slots=True)
class PostgresOccurrences:
    """The port `OccurrenceStore`."""

    pool: "Pool"

    async def add(self, events: Sequence[ScheduleEvent]) -> None:
        """Record decisions; see the port."""
        strongest: dict[tuple[str, datetime, str], ScheduleEvent] = {}
        for one in events:
            key = (one.schedule_id, one.nominal, one.agenda_id)
            known = strongest.setdefault(key, one)
            if _RANKS[type(one)][0] > _RANKS[type(known)][0]:
                strongest[key] = one
        if not strongest:
            return
        rows = [_row(strongest[key]) for key in sorted(strongest)]
        async with acquire_connection(self.pool) as connection:
            await connection.execute(_SQL["add"], *zip(*rows, strict=True))

    async def page(self, wanted: OccurrenceFilter, *, limit: int) -> OccurrencePage:
        """At most `limit` occurrences; see the port."""
        window = max(WINDOW_INSTANTS, limit) if wanted.states else limit + 1
        span = (wanted.nominal_from, wanted.nominal_before)
        try:
            async with acquire_connection(self.pool) as connection:
                known = await connection.fetch(
                    _SQL["states"], wanted.schedule_id, *span, window
                )
                fit = [one for one in known if _fits(one["state"], wanted.states)]
                shown = {one["nominal_at"]: one["state"] for one in fit[:limit]}
                runs = await connection.fetch(
                    _SQL["runs"], wanted.schedule_id, [*shown], MAX_RUNS
                )
        except UnstorableError:
            return OccurrencePage((), None)  # asked for what no row can hold
        following = None
        if len(fit) > limit:
            following = fit[limit - 1]["nominal_at"]
        elif wanted.states and len(known) == window:
            following = known[-1]["nominal_at"]
        found = [_occurrence(at, state, runs) for at, state in shown.items()]
        return OccurrencePage(found, following)


def _row(event: ScheduleEvent) -> tuple[Any, ...]:
    reason = event.reason if isinstance(event, OccurrenceSkipped) else None
    decision = _RANKS[type(event)][1]
    return event.schedule_id, event.nominal, event.agenda_id, decision, reason, event.at


def _fits(state: str, wanted: Sequence[OccurrenceState]) -> bool:
    return not wanted or state in wanted


def _occurrence(at: datetime, state: str, rows: Sequence[Any]) -> StoredOccurrence:
    own = [row for row in rows if row["nominal_at"] == at]
    runs = [
        OccurrenceRun(
            agenda_id=row["agenda_id"],
            state=_STATES[row["state"] or "submitted"],
            attempt=row["attempt"] or 0,
            submitted_at=row["decided_at"],
            accepted_at=row["accepted_at"],
            started_at=row["started_at"],
            ended_at=row["ended_at"],
            message=row["message"] or "",
        )
        for row in own
        if row["decision"] == "fired"
    ]
    reason = next((row["reason"] for row in own if row["reason"]), None)
    return StoredOccurrence(at, _STATES[state], reason, runs)
