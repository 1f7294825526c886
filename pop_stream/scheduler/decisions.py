"""The record of a round: who was chosen, and why the others still wait."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pop_stream.core.backlog.backlog import Backlog
from pop_stream.core.backlog.whereabouts import Chosen
from pop_stream.core.events import RoundDecided
from pop_stream.core.gate import forecast
from pop_stream.core.gate.admission import Depth
from pop_stream.scheduler.desk import Desk

_CUSTOMERS: Final = 50


def decided(
    desk: Desk, chosen: Sequence[Chosen], *, depth: Depth, slots: int, at: datetime
) -> RoundDecided:
    """Describe the round just chosen; where it came from is for the caller to add.

    Args:
        desk: After the choice.
        chosen: In order of emission.
        depth: Before the choice.
        slots: How many could be chosen.
        at: The present instant.
    """
    backlog = desk.backlog
    counts = Counter[str](one.customer_id for one in chosen)
    flows = {
        one: backlog.queue.flow(one) for one in dict.fromkeys(c.customer_id for c in chosen)
    }
    for flow in backlog.queue.upcoming(_CUSTOMERS):
        flows.setdefault(flow.customer_id, flow)
    shown = [*flows.values()][:_CUSTOMERS]
    return RoundDecided(
        insight_id=backlog.insight.id,
        at=at,
        round=backlog.rounds,
        algorithm=backlog.insight.algorithm,
        lag=depth.unclaimed,
        in_flight=depth.in_flight,
        slots=slots,
        chosen=tuple(one.agenda_id for one in chosen),
        ready=backlog.ready,
        virtual_time=backlog.queue.virtual_time,
        customers=forecast.shares(
            shown, mean=desk.mean_service(at), now=at.timestamp(), chosen=counts
        ),
        gap=desk.gap(at),
        bound=desk.bound(at),
        waiting=_waiting(backlog, len(chosen), slots),
        delayed=backlog.waiting,
        held=backlog.held,
    )


def _waiting(backlog: Backlog, chosen: int, slots: int) -> str:
    if not backlog.ready:
        return ""
    return "depth" if chosen == slots else "customer_caps"
