"""What Postgres says of agendas against what the scheduler holds: faults, and their repair.

Both are looked at twice, with everything told in between folded: an agenda on its way from
one to the other is missing in one of two looks, and lost only if it is missing in both.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from msgspec.structs import replace

from pop_stream.core.agendas.agenda import parse_agenda
from pop_stream.core.agendas.placing import placed_agenda
from pop_stream.core.events import HeldAgenda, PlacedAgenda
from pop_stream.core.lifecycle.lifecycle import BEFORE_EMISSION, ENDS, State
from pop_stream.core.lifecycle.summary import Summary

Fault = Literal["missing", "not_claimed", "other_attempt", "ended", "no_summary", "summary"]
"""Unknown to the scheduler and not ended; emitted and not claimed for long; of another attempt
with the scheduler; held by the scheduler though it has ended; held by it and without a summary;
with a summary that is not what Kafka's events add up to."""


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """An agenda by its summary.

    Attributes:
        version: Grows with every change.
        is_quiet: Whether nothing changed for so long that something should have.
    """

    agenda_id: str
    insight_id: str
    state: State
    attempt: int
    version: int
    is_quiet: bool = True


@dataclass(frozen=True, slots=True)
class LedgerFault:
    """What is wrong with one agenda.

    Attributes:
        detail: For people.
        held_attempt: The one that the scheduler has; 0 if it has none.
    """

    kind: Fault
    row: LedgerRow
    detail: str
    held_attempt: int = 0

    @property
    def is_repairable(self) -> bool:
        """Whether placing it again puts it right."""
        return self.kind == "missing"


def faults(
    rows: Iterable[LedgerRow], holds: Mapping[str, HeldAgenda]
) -> Mapping[str, LedgerFault]:
    """What one look finds, by agenda id.

    Args:
        rows: Of one insight.
        holds: What the scheduler holds of exactly these agendas.
    """
    found = (_fault(row, holds.get(row.agenda_id)) for row in rows)
    return {one.row.agenda_id: one for one in found if one is not None}


def confirmed(
    first: Mapping[str, LedgerFault], second: Mapping[str, LedgerFault]
) -> list[LedgerFault]:
    """What both looks found, of agendas that did not change in between."""
    return [
        again
        for agenda_id, again in second.items()
        if (before := first.get(agenda_id)) is not None
        and (before.kind, before.row.version) == (again.kind, again.row.version)
    ]


def unsummarised(insight_id: str, held: HeldAgenda) -> LedgerFault:
    """The fault of an agenda that the scheduler holds and that has no summary."""
    row = LedgerRow(held.agenda_id, insight_id, State.ACCEPTED, held.attempt, version=0)
    detail = (
        f"the scheduler has it as {held.state}, attempt {held.attempt}, and Postgres not at all"
    )
    return LedgerFault("no_summary", row, detail)


def weighed(fault: LedgerFault, told: Summary) -> LedgerFault:
    """The fault in the light of what all that Kafka tells of the agenda adds up to.

    Where that is not what the summary says, the summary is wrong, and nothing that was
    concluded from it holds: what it takes for lost may have ended long ago.
    """
    row = fault.row
    if fault.kind == "no_summary" or (told.state, told.attempt) == (row.state, row.attempt):
        return fault
    detail = (
        f"Postgres says {_told(row.state, row.attempt)}, and all that Kafka tells of it comes "
        f"to {_told(told.state, told.attempt)}"
    )
    return LedgerFault("summary", row, detail)


def placed_anew(row: LedgerRow, body: bytes, accepted_at: datetime) -> PlacedAgenda:
    """What the scheduler is to be given of an agenda that it lacks.

    An attempt that was never emitted is placed as it was. One that was may still run
    somewhere, so the next one is placed, and outdates it.

    Raises:
        SubmissionError: If the body is no agenda that this version accepts.
    """
    agenda = parse_agenda(body, is_accepted=True)
    attempt = row.attempt if row.state in BEFORE_EMISSION else row.attempt + 1
    first = placed_agenda(agenda, body, agenda_id=row.agenda_id, accepted_at=accepted_at)
    held = row.state is State.HELD
    return replace(first, attempt=attempt, run_from=row.attempt, held=held)


def _fault(row: LedgerRow, held: HeldAgenda | None) -> LedgerFault | None:
    told = _told(row.state, row.attempt)
    if row.state in ENDS:
        if held is None:
            return None
        detail = f"{told}, and the scheduler has attempt {held.attempt} as {held.state}"
        return LedgerFault("ended", row, detail, held.attempt)
    if held is None:
        return LedgerFault("missing", row, f"{told}, and the scheduler has none of it")
    if held.attempt != row.attempt:
        detail = f"{told}, and the scheduler has attempt {held.attempt} as {held.state}"
        return LedgerFault("other_attempt", row, detail)
    if held.state == "emitted" and row.is_quiet:
        return LedgerFault("not_claimed", row, f"{told}, and no puller has claimed it")
    return None


def _told(state: State, attempt: int) -> str:
    return f"{state.value}, attempt {attempt}"
