"""Occurrences in memory; the contract suite holds them to their port."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import get_args

from pop_stream.model.events.occasions import (
    OccurrenceBuffered,
    OccurrenceFired,
    OccurrenceSkipped,
    ScheduleEvent,
)
from pop_stream.policy.lifecycle.states import OccurrenceState
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.ports.occurrences import (
    MAX_RUNS,
    OccurrenceFilter,
    OccurrencePage,
    OccurrenceRun,
    StoredOccurrence,
)

STATES = {one: one for one in get_args(OccurrenceState)}
RANKS = {OccurrenceBuffered: 0, OccurrenceSkipped: 1, OccurrenceFired: 2}


class MemoryOccurrences:
    """The port, beside summaries in memory."""

    def __init__(self, agendas: Mapping[str, Summary]) -> None:
        self.agendas = agendas
        self.events: dict[tuple[str, datetime, str], ScheduleEvent] = {}

    async def add(self, events: Sequence[ScheduleEvent]) -> None:
        for one in events:
            key = (one.schedule_id, one.nominal, one.agenda_id)
            known = self.events.setdefault(key, one)
            if RANKS[type(one)] > RANKS[type(known)]:
                self.events[key] = one

    async def page(self, wanted: OccurrenceFilter, *, limit: int) -> OccurrencePage:
        by_nominal: dict[datetime, list[ScheduleEvent]] = {}
        for one in self.events.values():
            if (
                one.schedule_id == wanted.schedule_id
                and (wanted.nominal_from is None or one.nominal >= wanted.nominal_from)
                and (wanted.nominal_before is None or one.nominal < wanted.nominal_before)
            ):
                by_nominal.setdefault(one.nominal, []).append(one)
        found = [
            self._occurrence(at, by_nominal[at]) for at in sorted(by_nominal, reverse=True)
        ]
        fit = [one for one in found if not wanted.states or one.state in wanted.states]
        following = fit[limit - 1].nominal if len(fit) > limit else None
        return OccurrencePage(fit[:limit], following)

    def _occurrence(self, at: datetime, events: Sequence[ScheduleEvent]) -> StoredOccurrence:
        fired = [one for one in events if isinstance(one, OccurrenceFired)]
        fired.sort(key=lambda one: (one.at, one.agenda_id), reverse=True)
        runs = [self._run(one) for one in fired[:MAX_RUNS]]
        skipped = next((one for one in events if isinstance(one, OccurrenceSkipped)), None)
        other = "buffered" if skipped is None else "skipped"
        state = runs[0].state if runs else other
        return StoredOccurrence(at, state, skipped.reason if skipped else None, runs)

    def _run(self, one: OccurrenceFired) -> OccurrenceRun:
        known = self.agendas.get(one.agenda_id)
        if known is None:
            return OccurrenceRun(one.agenda_id, "submitted", 0, one.at)
        return OccurrenceRun(
            one.agenda_id,
            STATES[known.state.value],
            known.attempt,
            one.at,
            known.accepted_at,
            known.started_at,
            known.ended_at,
            known.message,
        )
