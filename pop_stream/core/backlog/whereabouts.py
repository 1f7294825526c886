"""What is said of one agenda of a backlog: that it was chosen, or where it is."""

from dataclasses import dataclass
from typing import NamedTuple

from pop_stream.core.delta import Overrides
from pop_stream.core.fairness.flow import Flow
from pop_stream.core.values.ids import CustomerId


class ChosenAgenda(NamedTuple):
    """One agenda of a round."""

    ref: int
    agenda_id: str
    customer_id: CustomerId
    attempt: int


@dataclass(frozen=True, slots=True)
class AgendaPosition:
    """Where an agenda is.

    Attributes:
        state: Of its slot.
        entry: Its place in its customer's line.
        cost: Worker-seconds it is taken to cost.
        overrides: What people or the clock want of it.
    """

    flow: Flow
    state: int
    entry: int
    cost: float
    attempt: int
    overrides: Overrides
