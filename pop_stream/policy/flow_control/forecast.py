"""Shares and forecasts of one backlog, for people to read; decides nothing."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice
from math import ceil, floor
from typing import Final

from pop_stream.model.events.base import Overdeclared
from pop_stream.model.events.scheduling import (
    MAX_QUERIED_AGENDAS,
    CustomerShare,
    QueuedAgendaStatus,
    QueueQueried,
    QueueState,
    TrackedAgenda,
)
from pop_stream.model.ids import CustomerId
from pop_stream.policy.backlog.agenda_index import (
    CLAIMED,
    EMITTED,
    HELD,
    READY,
    WAITING,
    AgendaIndex,
    AgendaPosition,
)
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.policy.fairness.customer_queue import priority_of, ref_in
from pop_stream.policy.fairness.eligible_customers import TOP_LEVEL
from pop_stream.policy.fairness.flow import Flow
from pop_stream.policy.fairness.queue import FairQueue

_NAMES: Final[Mapping[int, QueueState]] = {
    READY: "ready",
    EMITTED: "emitted",
    CLAIMED: "claimed",
    WAITING: "waiting",
    HELD: "held",
}

MAX_CUSTOMERS_LISTED: Final = 50
"""Customers that a decision or a reply names; and some more that may not go."""

_MAX_HELD_LISTED: Final = 10


def customer_shares(
    flows: Iterable[Flow],
    *,
    mean: float,
    now: float,
    chosen: Mapping[str, int] | None = None,
    with_delivered: bool = False,
) -> tuple[CustomerShare, ...]:
    """Describe customers of a backlog, in the order given.

    Args:
        flows: Those to describe.
        mean: From `mean_service`.
        now: The present instant, in seconds since the epoch.
        chosen: By customer, how many a round chose.
        with_delivered: Whether they say what was delivered, which a replay does not know.
    """
    counts = chosen or {}
    return tuple(
        CustomerShare(
            customer_id=flow.customer_id,
            chosen=counts.get(flow.customer_id, 0),
            ready=flow.ready,
            in_flight=flow.in_flight,
            weight=flow.share.weight,
            share=round(flow.served_by(now) / flow.due_weight / mean, 4) if mean else 1.0,
            wait_s=round(flow.wait_s, 6),
            held_by=flow.held_by,
            # Only the default itself is left out of a record, an equal number is written.
            **({"delivered_s": round(flow.delivered_s, 6)} if with_delivered else {}),
        )
        for flow in flows
    )


def listed_flows(queue: FairQueue, chosen: Iterable[str]) -> list[Flow]:
    """Who was chosen, then who is next, then some that may not go."""
    flows = {one: queue.flow(CustomerId(one)) for one in chosen}
    flows |= {one.customer_id: one for one in queue.next_customers(MAX_CUSTOMERS_LISTED)}
    shown = dict(islice(flows.items(), MAX_CUSTOMERS_LISTED))
    shown |= {one.customer_id: one for one in queue.held(_MAX_HELD_LISTED)}
    return [*shown.values()]


def mean_service(backlog: Backlog, now: float) -> float:
    """Recent worker-seconds per weight, over customers that may go; O(customers).

    Customers that are paused, or at a limit of their own, are left out.
    """
    waiting = [flow for flow in backlog.queue.flows() if flow.is_eligible]
    weights = sum(flow.due_weight for flow in waiting)
    return sum(flow.served_by(now) for flow in waiting) / weights if weights else 0.0


def agenda_position(
    backlog: Backlog, agenda_id: str, *, now: float, rate_per_s: float, unclaimed: int
) -> QueuedAgendaStatus:
    """Where an agenda is in the order of turns, and about when it is claimed.

    Args:
        backlog: Of its insight.
        agenda_id: Any id.
        now: The present instant, in seconds since the epoch.
        rate_per_s: Agendas claimed per second while some wait.
        unclaimed: Records on the topic before any that is emitted now.
    """
    where = backlog.position_of(agenda_id)
    if where is None:
        return QueuedAgendaStatus(agenda_id=agenda_id, state="unknown")
    is_ready = where.state == READY
    own_ahead, urgent, position = _agendas_ahead(backlog, where, now) if is_ready else (0, 0, 0)
    eta_s = None
    if where.state == CLAIMED:
        eta_s = 0.0
    elif where.state in {READY, EMITTED} and rate_per_s > 0 and _is_emittable(where.flow):
        limit_s = where.flow.tokens_after_s(own_ahead + 1, now) if is_ready else 0.0
        eta_s = round(max((position + unclaimed) / rate_per_s, limit_s), 3)
    mean, overrides = mean_service(backlog, now), where.overrides
    return QueuedAgendaStatus(
        agenda_id=agenda_id,
        state=_NAMES[where.state],
        position=position,
        own_ahead=own_ahead,
        urgent_ahead=urgent,
        rises_at=_rises_at(backlog, where, now) if is_ready else None,
        eta_s=eta_s,
        customer=customer_shares([where.flow], mean=mean, now=now, with_delivered=True)[0],
        attempt=where.attempt,
        until=datetime.fromtimestamp(overrides.due, UTC) if overrides.due else None,
        why=overrides.why if where.state == WAITING else None,
        stopping=overrides.stopping,
        overdeclared=_overdeclared(backlog, where),
    )


def _overdeclared(backlog: Backlog, where: AgendaPosition) -> Overdeclared | None:
    page, slot = backlog.index.at(ref_in(where.entry))
    declared = page.declared_cost(slot)
    if declared is None or not backlog.costs.is_overdeclared(declared, page.customers[slot]):
        return None
    return Overdeclared(declared_s=round(declared, 4), counts_as_s=round(where.cost, 4))


def _is_emittable(flow: Flow) -> bool:
    """Whether its agendas are emitted in time: a rate limit only delays them."""
    return flow.held_by in {"", "rate"}


def asked_agendas(
    backlog: Backlog, query: QueueQueried
) -> tuple[tuple[TrackedAgenda, ...], int | None]:
    """What a query asks of agendas, and the place of the last tracked one if there are more."""
    holds = held_agendas(backlog, query.agenda_ids[:MAX_QUERIED_AGENDAS])
    if query.tracked_after is None:
        return holds, None
    more, tracked_up_to = tracked_after(backlog, query.tracked_after, MAX_QUERIED_AGENDAS)
    return holds + more, tracked_up_to


def held_agendas(backlog: Backlog, agenda_ids: Iterable[str]) -> tuple[TrackedAgenda, ...]:
    """Those of the agendas that have not ended, in any state; O(ids)."""
    found = (backlog.index.find(agenda_id) for agenda_id in agenda_ids)
    return tuple(_held(backlog.index, ref) for ref in found if ref is not None)


def tracked_after(
    backlog: Backlog, ref: int, most: int
) -> tuple[tuple[TrackedAgenda, ...], int | None]:
    """The next agendas by place, and the last one's place if there are more.

    Args:
        backlog: Of which insight.
        ref: The place after which they are; -1 for the first.
        most: How many; O(most + pages).
    """
    refs = [*islice(backlog.index.after(ref), most + 1)]
    holds = tuple(_held(backlog.index, one) for one in refs[:most])
    return holds, refs[most - 1] if len(refs) > most else None


def _held(index: AgendaIndex, ref: int) -> TrackedAgenda:
    page, slot = index.at(ref)
    return TrackedAgenda(page.ids[slot], _NAMES[page.states[slot]], index.attempt(ref))


def _rises_at(backlog: Backlog, where: AgendaPosition, now: float) -> datetime | None:
    aging = backlog.queue.aging
    if aging is None:
        return None
    at = aging.changes_at(priority_of(where.entry), ref_in(where.entry), now)
    return None if at is None else datetime.fromtimestamp(at, UTC)


def _agendas_ahead(backlog: Backlog, where: AgendaPosition, now: float) -> tuple[int, int, int]:
    """How many of its own and how many more urgent go before it, and its position among all.

    Nothing else is taken to come, and nothing to become more urgent meanwhile.

    By age it is exact. Else its turn comes once its customer's own agendas before it are out;
    by then every other customer that is as urgent has been given as much per weight, those
    that are more urgent all they want, and those that are less so nothing. A customer's
    agendas are taken to cost alike, and those of one priority to be as urgent as the first.
    """
    mine, queue = where.flow, backlog.queue
    others = [flow for flow in queue.flows() if flow.is_eligible and flow is not mine]
    own_ahead = mine.customer_queue.ahead(_threshold_for(backlog, where.entry, now))
    position = 1 + own_ahead
    if queue.algorithm.by_age:
        older = sum(flow.customer_queue.ahead(lambda _: where.entry) for flow in others)
        return own_ahead, 0, position + older
    level = TOP_LEVEL
    if queue.aging is not None:
        level = queue.aging.urgency(priority_of(where.entry), ref_in(where.entry), now)
    race = _TurnEstimate(backlog, level, now)
    own, _ = race.waiting(mine)
    own = min(own, own_ahead)
    alike = own_ahead - own
    turn = race.start(mine, own, where.cost) + alike * race.charge(mine, where.cost)
    urgent = own + sum(race.waiting(flow)[0] for flow in others)
    position += sum(race.before(turn, mine.customer_id, one) for one in others)
    return own_ahead, urgent, position


def _threshold_for(backlog: Backlog, entry: int, now: float) -> Callable[[int], float]:
    """For `CustomerQueue.ahead` of the entry's own queue."""
    aging = backlog.queue.aging
    return lambda head: entry if aging is None else aging.threshold(entry, head, now)


class _TurnEstimate:
    """Who is served before a turn at one level of urgency."""

    def __init__(self, backlog: Backlog, level: int, now: float) -> None:
        self._backlog = backlog
        self._queue = backlog.queue
        self._level = level
        self._now = now

    def waiting(self, flow: Flow) -> tuple[int, int]:
        """How many of its agendas are more urgent than the level, and how many as urgent."""
        aging = self._queue.aging
        if aging is None:
            return 0, flow.ready
        counts = {-1: 0, 0: 0, 1: 0}
        for head, count in flow.customer_queue.classes():
            urgency = aging.urgency(priority_of(head), ref_in(head), self._now)
            counts[(urgency > self._level) - (urgency < self._level)] += count
        return counts[-1], counts[0]

    def start(self, flow: Flow, urgent: int, cost: float) -> float:
        """Its position once it is served at the level."""
        position = flow.position
        if not flow.level:
            position += max(0.0, self._queue.present(self._level) - flow.sure_position)
        return position + urgent * self.charge(flow, cost)

    def charge(self, flow: Flow, cost: float) -> float:
        """What one of its agendas moves its position by."""
        return 1.0 if self._queue.algorithm.by_turns else cost / flow.weight

    def before(self, turn: float, customer_id: CustomerId, flow: Flow) -> int:
        """How many of its agendas go before this customer's turn; ties go by id."""
        urgent, alike = self.waiting(flow)
        cost = self._backlog.cost_of(flow.customer_queue.head())
        steps = (turn - self.start(flow, urgent, cost)) / self.charge(flow, cost)
        turns = floor(steps) + 1 if flow.customer_id < customer_id else ceil(steps)
        return urgent + min(alike, max(0, turns))
