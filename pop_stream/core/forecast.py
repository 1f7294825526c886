"""What the scheduler can say about its backlog: shares, and when an agenda's turn comes."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from math import ceil
from typing import Final

from pop_stream.core.backlog import Backlog
from pop_stream.core.events import AgendaPlace, CustomerShare, HeldAgenda, PlaceState
from pop_stream.core.flow import Flow
from pop_stream.core.page import CLAIMED, EMITTED, HELD, READY, WAITING
from pop_stream.core.whereabouts import Whereabouts

_NAMES: Final[Mapping[int, PlaceState]] = {
    READY: "ready",
    EMITTED: "emitted",
    CLAIMED: "claimed",
    WAITING: "waiting",
    HELD: "held",
}


def shares(
    flows: Iterable[Flow], *, mean: float, now: float, chosen: Mapping[str, int] | None = None
) -> tuple[CustomerShare, ...]:
    """Describe some customers of a backlog, in the order given.

    Args:
        flows: Those to describe.
        mean: From `mean_service`.
        now: The present instant, in seconds since the epoch.
        chosen: By customer, how many a round chose.
    """
    counts = chosen or {}
    return tuple(
        CustomerShare(
            customer_id=flow.customer_id,
            chosen=counts.get(flow.customer_id, 0),
            ready=flow.ready,
            in_flight=flow.in_flight,
            weight=flow.share.weight,
            share=round(flow.served_by(now) / flow.share.weight / mean, 4) if mean else 1.0,
            wait_s=round(flow.wait_s, 6),
            held_by=flow.held_by,
        )
        for flow in flows
    )


def mean_service(backlog: Backlog, now: float) -> float:
    """Recent worker-seconds per weight, over backlogged customers; O(customers)."""
    waiting = [flow for flow in backlog.queue.flows() if flow.ready]
    weights = sum(flow.share.weight for flow in waiting)
    return sum(flow.served_by(now) for flow in waiting) / weights if weights else 0.0


def place(
    backlog: Backlog, agenda_id: str, *, now: float, rate_per_s: float, unclaimed: int
) -> AgendaPlace:
    """Where an agenda stands, and about when it is claimed.

    Args:
        backlog: Of its insight.
        agenda_id: Any id.
        now: The present instant, in seconds since the epoch.
        rate_per_s: Agendas claimed per second.
        unclaimed: Records on the topic before any that is emitted now.
    """
    where = backlog.whereabouts(agenda_id)
    if where is None:
        return AgendaPlace(agenda_id=agenda_id, state="unknown")
    position = _position(backlog, where) if where.state == READY else 0
    eta_s = None
    if where.state == CLAIMED:
        eta_s = 0.0
    elif where.state in {READY, EMITTED} and rate_per_s > 0 and not where.flow.held_by:
        eta_s = round((position + unclaimed) / rate_per_s, 3)
    mark = where.mark
    return AgendaPlace(
        agenda_id=agenda_id,
        state=_NAMES[where.state],
        position=position,
        own_ahead=where.own_ahead,
        eta_s=eta_s,
        customer=shares([where.flow], mean=mean_service(backlog, now), now=now)[0],
        attempt=where.attempt,
        until=datetime.fromtimestamp(mark.due, UTC) if mark.due else None,
        why=mark.why if where.state == WAITING else None,
        stopping=mark.stopping,
    )


def held(backlog: Backlog, agenda_ids: Iterable[str]) -> tuple[HeldAgenda, ...]:
    """Those of the agendas that are here, in any state; costs a look-up each."""
    slots = backlog.slots
    found = ((agenda_id, slots.find(agenda_id)) for agenda_id in agenda_ids)
    return tuple(
        HeldAgenda(agenda_id, _NAMES[slots.state(ref)], slots.attempt(ref))
        for agenda_id, ref in found
        if ref is not None
    )


def _position(backlog: Backlog, where: Whereabouts) -> int:
    """How many go up to and with it, taking each customer's agendas for alike.

    Its turn comes when the virtual clock reaches the customer's tag plus the charges of its
    own agendas ahead; by then every other customer of the same urgency has been given as much
    per weight, those that are more urgent all they want, and those that are less so nothing.
    """
    own = _charge(backlog, where.flow, where.cost)
    turn = where.flow.tag + where.own_ahead * own
    ahead = where.own_ahead
    for flow in backlog.queue.flows():
        if flow is where.flow or not flow.is_eligible:
            continue
        if where.flow.level and flow.level != where.flow.level:
            ahead += flow.ready if flow.level < where.flow.level else 0
            continue
        step = _charge(backlog, flow, backlog.cost_of(flow.line.head()))
        ahead += min(flow.ready, max(0, ceil((turn - flow.tag) / step)))
    return ahead + 1


def _charge(backlog: Backlog, flow: Flow, cost: float) -> float:
    return backlog.queue.algorithm.charge(cost=cost, weight=flow.share.weight)
