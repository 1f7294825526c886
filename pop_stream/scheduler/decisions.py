"""The record of a round: who was chosen, and why the others still wait."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pop_stream.core.admission import Depth
from pop_stream.core.backlog import Backlog, Chosen
from pop_stream.core.events import CustomerShare, RoundDecided
from pop_stream.core.ids import CustomerId

_CUSTOMERS: Final = 50


def decided(
    insight_id: str,
    backlog: Backlog,
    chosen: Sequence[Chosen],
    *,
    depth: Depth,
    slots: int,
    at: datetime,
) -> RoundDecided:
    """Describe the round just chosen.

    Args:
        insight_id: Whose round it was.
        backlog: After the choice.
        chosen: In order of emission.
        depth: Before the choice.
        slots: How many could be chosen.
        at: The present instant.
    """
    counts = Counter(one.customer_id for one in chosen)
    named = dict.fromkeys(customer_id for customer_id, _ in counts.most_common(_CUSTOMERS))
    room = _CUSTOMERS - len(named)
    named |= dict.fromkeys(flow.customer_id for flow in backlog.queue.upcoming(room))
    shares = [_share(backlog, customer_id, counts[customer_id]) for customer_id in named]
    return RoundDecided(
        insight_id=insight_id,
        at=at,
        round=backlog.rounds,
        algorithm=backlog.insight.algorithm,
        lag=depth.unclaimed,
        in_flight=depth.in_flight,
        slots=slots,
        chosen=tuple(one.agenda_id for one in chosen),
        ready=backlog.ready,
        virtual_time=backlog.queue.virtual_time,
        customers=tuple(shares[:_CUSTOMERS]),
        waiting=_waiting(backlog, len(chosen), slots),
    )


def _share(backlog: Backlog, customer_id: CustomerId, chosen: int) -> CustomerShare:
    flow = backlog.queue.flow(customer_id)
    return CustomerShare(
        customer_id=customer_id,
        chosen=chosen,
        ready=flow.ready,
        in_flight=flow.in_flight,
        weight=flow.share.weight,
        held_by=flow.held_by,
    )


def _waiting(backlog: Backlog, chosen: int, slots: int) -> str:
    if not backlog.ready:
        return ""
    return "depth" if chosen == slots else "customer_caps"
