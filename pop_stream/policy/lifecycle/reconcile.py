"""The rules by which summaries and the schedulers' backlogs are compared, and repaired.

They are compared twice, with all events in between folded: an agenda on its way from one to the
other is missing in one of two comparisons, and lost only if it is missing in both.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from msgspec.structs import replace

from pop_stream.model.agenda import parse_agenda, routed_agenda
from pop_stream.model.events.scheduling import RoutedAgenda, TrackedAgenda
from pop_stream.policy.lifecycle.states import BEFORE_EMISSION, OUTCOMES, State
from pop_stream.policy.lifecycle.summary import Summary

LedgerErrorKind = Literal[
    "missing", "not_claimed", "other_attempt", "ended", "no_summary", "summary"
]
"""Unknown to the scheduler and not ended; emitted and not claimed for long; of another attempt
with the scheduler; held by the scheduler though it has ended; held by it and without a summary;
with a summary that is not what Kafka's events add up to."""


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """An agenda by its summary.

    Attributes:
        version: Grows with every change.
        is_stale: Whether nothing changed for so long that something should have.
    """

    agenda_id: str
    insight_id: str
    state: State
    attempt: int
    version: int
    is_stale: bool = True


@dataclass(frozen=True, slots=True)
class LedgerDiscrepancy:
    """What is wrong with one agenda.

    Attributes:
        detail: For people.
        scheduler_attempt: The one that the scheduler has; 0 if it has none.
    """

    kind: LedgerErrorKind
    row: LedgerRow
    detail: str
    scheduler_attempt: int = 0

    @property
    def is_repairable(self) -> bool:
        """Whether placing it again puts it right."""
        return self.kind == "missing"


def find_discrepancies(
    rows: Iterable[LedgerRow], holds: Mapping[str, TrackedAgenda]
) -> Mapping[str, LedgerDiscrepancy]:
    """What one comparison finds, by agenda id.

    Args:
        rows: Of one insight.
        holds: What the scheduler holds of exactly these agendas.
    """
    found = (_discrepancy(row, holds.get(row.agenda_id)) for row in rows)
    return {one.row.agenda_id: one for one in found if one is not None}


def confirmed(
    first: Mapping[str, LedgerDiscrepancy], second: Mapping[str, LedgerDiscrepancy]
) -> list[LedgerDiscrepancy]:
    """What both comparisons found, of agendas that did not change in between."""
    return [
        again
        for agenda_id, again in second.items()
        if (before := first.get(agenda_id)) is not None
        and (before.kind, before.row.version) == (again.kind, again.row.version)
    ]


def missing_summary(insight_id: str, held: TrackedAgenda) -> LedgerDiscrepancy:
    """The discrepancy of an agenda that the scheduler holds and that has no summary."""
    row = LedgerRow(held.agenda_id, insight_id, State.ACCEPTED, held.attempt, version=0)
    detail = (
        f"the scheduler has it as {held.state}, attempt {held.attempt}, and Postgres not at all"
    )
    return LedgerDiscrepancy("no_summary", row, detail)


def checked_against_events(
    discrepancy: LedgerDiscrepancy, folded: Summary
) -> LedgerDiscrepancy:
    """The discrepancy in the light of what the agenda's events in Kafka add up to.

    Where that is not what the summary says, the summary is wrong, and nothing that was
    concluded from it holds: what it takes for lost may have ended long ago.
    """
    row = discrepancy.row
    is_so = (folded.state, folded.attempt) == (row.state, row.attempt)
    if discrepancy.kind == "no_summary" or is_so:
        return discrepancy
    detail = (
        f"Postgres says {_describe(row.state, row.attempt)}, and its events in Kafka come to "
        f"{_describe(folded.state, folded.attempt)}"
    )
    return LedgerDiscrepancy("summary", row, detail)


def placed_for_repair(row: LedgerRow, body: bytes, accepted_at: datetime) -> RoutedAgenda:
    """What the scheduler is to be given of an agenda that it lacks.

    An attempt that was never emitted is placed as it was. One that was may still run
    somewhere, so the next one is placed, and outdates it.

    Raises:
        SubmissionError: If the body is no agenda that this version accepts.
    """
    agenda = parse_agenda(body, is_accepted=True)
    attempt = row.attempt if row.state in BEFORE_EMISSION else row.attempt + 1
    first = routed_agenda(agenda, body, agenda_id=row.agenda_id, accepted_at=accepted_at)
    held = row.state is State.HELD
    dedupe = first.dedupe
    if dedupe is not None:  # what came later under its key goes on
        dedupe = replace(dedupe, on_duplicate="keep", debounce_s=0.0)
    return replace(
        first, attempt=attempt, run_from=row.attempt, held=held, series=None, dedupe=dedupe
    )


def _discrepancy(row: LedgerRow, held: TrackedAgenda | None) -> LedgerDiscrepancy | None:
    known = _describe(row.state, row.attempt)
    if row.state in OUTCOMES:
        if held is None:
            return None
        detail = f"{known}, and the scheduler has attempt {held.attempt} as {held.state}"
        return LedgerDiscrepancy("ended", row, detail, held.attempt)
    if held is None:
        return LedgerDiscrepancy("missing", row, f"{known}, and the scheduler has none of it")
    if held.attempt != row.attempt:
        detail = f"{known}, and the scheduler has attempt {held.attempt} as {held.state}"
        return LedgerDiscrepancy("other_attempt", row, detail)
    if held.state == "emitted" and row.is_stale:
        return LedgerDiscrepancy("not_claimed", row, f"{known}, and no puller has claimed it")
    return None


def _describe(state: State, attempt: int) -> str:
    return f"{state.value}, attempt {attempt}"
