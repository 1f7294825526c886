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

Fault = Literal["missing", "not_claimed", "other_attempt", "ended"]
"""Unknown to the scheduler and not ended; emitted and not claimed for long; of another attempt
with the scheduler; held by the scheduler though it has ended."""


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
    """

    kind: Fault
    row: LedgerRow
    detail: str

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
    told = f"{row.state.value}, attempt {row.attempt}"
    if row.state in ENDS:
        if held is None:
            return None
        return LedgerFault("ended", row, f"{told}, and the scheduler has it as {held.state}")
    if held is None:
        return LedgerFault("missing", row, f"{told}, and the scheduler has none of it")
    if held.attempt != row.attempt:
        detail = f"{told}, and the scheduler has attempt {held.attempt} as {held.state}"
        return LedgerFault("other_attempt", row, detail)
    if held.state == "emitted" and row.is_quiet:
        return LedgerFault("not_claimed", row, f"{told}, and no puller has claimed it")
    return None
