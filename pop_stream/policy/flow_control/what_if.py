"""What other weights would do to a standing backlog: who would start when; decides nothing.

The turns of customers are played forward as the fair queue takes them, from where they stand
now. Nothing else is taken to come, and nothing to become more urgent meanwhile. A customer's
waiting agendas are taken to cost as much as its next one, and all to be worked off at the
present pace. Its cost depends on the number of customers and of starts that are played, not on
the size of the backlog.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

from pop_stream.model.events.forecast import CustomerForecast, QueueForecast, StartForecast
from pop_stream.model.ids import CustomerId
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.policy.fairness.customer_queue import priority_of, ref_in
from pop_stream.policy.fairness.flow import Flow
from pop_stream.policy.fairness.turn_order import MICROSECONDS, Account

MAX_STARTS: Final = 20_000
"""Most starts that are played; what would start after is left out."""

POINTS: Final = 24
"""Instants at which the starts so far are counted, evenly up to the horizon."""

MAX_CUSTOMERS: Final = 50
"""Customers in a forecast: those whose weight would change, then those with most ready."""

_LEAST_COST_S: Final = 1e-6


@dataclass(slots=True)
class _Racer:
    """A customer on its way through its backlog.

    Attributes:
        charge: What each of its agendas counts as, in microseconds of a worker.
        account: A copy, which is charged as the fair queue would charge it: rounded
            otherwise, customers that are level would go in another order.
        segments: Of its agendas, the urgency and how many, most urgent first.
        ends: When those that are out end, soonest first; kept for a customer with a cap.
        starts: Seconds from now of each start so far.
    """

    flow: Flow
    weight: float
    cost: float
    charge: int
    account: Account
    segments: deque[tuple[int, int]]
    token_from: float
    ends: deque[float] = field(default_factory=deque)
    starts: list[float] = field(default_factory=list)

    @property
    def level(self) -> int:
        """Urgency of its next agenda."""
        return self.segments[0][0]

    @property
    def position(self) -> float:
        """Worker-seconds per weight: the least is next."""
        return self.account.position(self.weight)

    def take(self, at: float) -> None:
        """Start its next agenda."""
        urgency, count = self.segments.popleft()
        if count > 1:
            self.segments.appendleft((urgency, count - 1))
        self.account.charged += self.charge
        self.starts.append(at)

    def goes_from(self, at: float) -> float:
        """When it may go next, by its own limits: `at` or later."""
        share, until = self.flow.share, at
        if share.max_in_flight is not None:
            while self.ends and self.ends[0] <= at:
                self.ends.popleft()
            if len(self.ends) >= share.max_in_flight:
                until = self.ends[len(self.ends) - share.max_in_flight]
        if share.rate_per_s is not None:
            wait = self.flow.tokens_after_s(len(self.starts) + 1, self.token_from)
            until = max(until, wait)
        return until


def forecast(
    backlog: Backlog,
    weights: Mapping[str, float],
    *,
    now: float,
    rate_per_s: float,
) -> QueueForecast | None:
    """Who would start when with the present weights, and with these; None without any.

    Args:
        backlog: Of its insight; not changed.
        weights: Of some customers, above 0; those that have nothing here are left out.
        now: The present instant, in seconds since the epoch.
        rate_per_s: Agendas claimed per second while some wait; without any, who starts after
            whom is still shown, as if one started each second.
    """
    if not weights:
        return None
    pace = _pace(backlog, rate_per_s or 1.0)
    before = _Race(backlog, {}, now, pace).run()
    after = _Race(backlog, weights, now, pace).run()
    horizon_s = max((one.starts[-1] for one in (*before, *after) if one.starts), default=0.0)
    then = {one.flow.customer_id: one for one in after}
    listed = sorted(
        before,
        key=lambda one: (
            one.flow.customer_id not in weights,
            -one.flow.ready,
            one.flow.customer_id,
        ),
    )
    return QueueForecast(
        rate_per_s=round(rate_per_s, 3),
        horizon_s=round(horizon_s, 3),
        customers=tuple(
            CustomerForecast(
                customer_id=one.flow.customer_id,
                ready=one.flow.ready,
                weight=one.flow.share.weight,
                new_weight=weights.get(one.flow.customer_id, one.flow.share.weight),
                before=_starts_of(one, horizon_s),
                after=_starts_of(then[one.flow.customer_id], horizon_s),
            )
            for one in listed[:MAX_CUSTOMERS]
        ),
        others=max(0, len(listed) - MAX_CUSTOMERS),
    )


def _starts_of(racer: _Racer, horizon_s: float) -> StartForecast:
    starts, ready = racer.starts, racer.flow.ready
    return StartForecast(
        next_s=round(starts[0], 3) if starts else None,
        last_s=round(starts[-1], 3) if ready and len(starts) == ready else None,
        started=tuple(_counts(starts, horizon_s)),
    )


def _counts(starts: Sequence[float], horizon_s: float) -> Iterable[int]:
    count = 0
    for point in range(1, POINTS + 1):
        until = horizon_s * point / POINTS if point < POINTS else inf
        while count < len(starts) and starts[count] <= until:
            count += 1
        yield count


def _pace(backlog: Backlog, rate_per_s: float) -> float:
    """Worker-seconds begun per second: so many agendas of what goes at present."""
    flows = [flow for flow in backlog.queue.flows() if flow.is_eligible]
    if not flows:
        return rate_per_s
    algorithm = backlog.queue.algorithm
    costs = {flow.customer_id: _cost(backlog, flow) for flow in flows}
    if algorithm.by_age:
        shares = {flow.customer_id: float(flow.ready) for flow in flows}
    elif algorithm.by_turns:
        shares = dict.fromkeys(costs, 1.0)
    else:
        shares = {flow.customer_id: flow.weight / costs[flow.customer_id] for flow in flows}
    total = sum(shares.values())
    return rate_per_s * sum(shares[one] * costs[one] for one in costs) / total


def _cost(backlog: Backlog, flow: Flow) -> float:
    return max(backlog.cost_of(flow.customer_queue.head()), _LEAST_COST_S)


class _Race:
    """Turns played forward from the present state of a backlog."""

    def __init__(
        self, backlog: Backlog, weights: Mapping[str, float], now: float, pace: float
    ) -> None:
        self._backlog, self._queue = backlog, backlog.queue
        self._weights, self._now, self._pace = weights, now, pace
        flows = (flow for flow in self._queue.flows() if flow.ready)
        self._racers = [self._racer(flow) for flow in flows]

    def run(self) -> Sequence[_Racer]:
        """All customers with agendas that wait, each with when they would start."""
        at, done = 0.0, 0
        turns = [(*self._turn(one), number) for number, one in enumerate(self._racers)
                 if not one.flow.share.paused]  # fmt: skip
        heapify(turns)
        waiting: list[tuple[float, int]] = []
        while done < MAX_STARTS and (turns or waiting):
            while waiting and (not turns or waiting[0][0] <= at):
                until, number = heappop(waiting)
                at = max(at, until)
                heappush(turns, (*self._turn(self._racers[number]), number))
            number = heappop(turns)[-1]
            racer = self._racers[number]
            until = racer.goes_from(at)
            if until > at:
                heappush(waiting, (until, number))
                continue
            self._start(racer, at)
            done += 1
            at += racer.cost / self._pace
            if racer.segments:
                heappush(turns, (*self._turn(racer), number))
        return self._racers

    def _start(self, racer: _Racer, at: float) -> None:
        racer.take(at)
        if racer.flow.share.max_in_flight is not None:
            racer.ends.append(at + racer.cost)

    def _turn(self, racer: _Racer) -> tuple[int, float, CustomerId]:
        """Smallest is next, as in the fair queue: urgency, then turn, then id."""
        position = racer.position
        if self._queue.algorithm.by_age:
            position = ref_in(racer.flow.customer_queue.head()) + len(racer.starts)
        return racer.level, position, racer.flow.customer_id

    def _racer(self, flow: Flow) -> _Racer:
        cost = _cost(self._backlog, flow)
        weight = self._weights.get(flow.customer_id)
        due = flow.due_weight if weight is None else weight / flow.division
        is_by_turns = self._queue.algorithm.by_turns
        segments = self._segments(flow)
        racer = _Racer(
            flow=flow,
            weight=flow.weight if is_by_turns else due,
            cost=cost,
            charge=MICROSECONDS if is_by_turns else max(1, round(cost * MICROSECONDS)),
            account=self._account(flow, due, segments[0][0]),
            segments=segments,
            token_from=self._now,
        )
        # Those that are out are taken to end evenly over the time that one takes.
        out = flow.in_flight
        racer.ends.extend(cost * (one + 1) / out for one in range(out))
        return racer

    def _account(self, flow: Flow, due: float, level: int) -> Account:
        """What it was given; with another weight as many worker-seconds ahead as before."""
        present = self._queue.present(level)
        account = copy(flow.account)
        if not flow.level:
            account.lift(present, flow.weight)
        if not self._queue.algorithm.by_turns and due != flow.weight:
            account.reweigh(flow.weight, due, present)
        return account

    def _segments(self, flow: Flow) -> deque[tuple[int, int]]:
        aging = self._queue.aging
        if aging is None:
            return deque([(1, flow.ready)])
        found = (
            (aging.urgency(priority_of(head), ref_in(head), self._now), count)
            for head, count in flow.customer_queue.classes()
        )
        return deque(sorted(found))
