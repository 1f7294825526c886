"""What an insight's scheduler returns: the effects of an event, a planned round, figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pop_stream.model.events.scheduling import QueueDescribed
from pop_stream.policy.backlog.agenda_index import ChosenAgenda
from pop_stream.policy.flow_control.emission_gate import CurrentDepth


class PlacedPage(NamedTuple):
    """A page that an event added to the backlog, to be written before the event's delta.

    Attributes:
        bodies: The agendas that were new, as they came, in the order of the page's slots.
    """

    number: int
    bodies: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Effects:
    """What an event calls for beside its change of the backlog.

    Attributes:
        page: Of the agendas it brought; None if none was new.
        reply: To the query it was.
    """

    page: PlacedPage | None = None
    reply: QueueDescribed | None = None


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """A round of one insight.

    Attributes:
        at: Its instant.
        slots: How many agendas it could choose.
        depth: What was out before it.
        chosen: In order of emission; they count as out already.
    """

    at: float
    slots: int
    depth: CurrentDepth
    chosen: Sequence[ChosenAgenda]


@dataclass(frozen=True, slots=True)
class FairnessFigures:
    """Figures that cost a look at every customer, so they are computed now and then.

    Attributes:
        at: The instant they are of.
        mean_service: Recent worker-seconds per weight of customers that may go.
        weight: Of all customers with agendas that may go, or are out.
        gap: Widest difference of what customers were given per weight, delivered and out.
        bound: What `gap` could not exceed at that instant.
        customers: How many were looked at.
    """

    at: float
    mean_service: float
    weight: float
    gap: float
    bound: float
    customers: int
