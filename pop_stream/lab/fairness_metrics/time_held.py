"""How evenly runners were held while customers competed: small customers and long agendas too.

The index of `jain` dates service by emission and counts only stretches in which many agendas
are due, so it says nothing of a customer with five agendas, nor of one that is starved by
agendas that have not ended yet. This one looks at every instant at which at least two customers
want runners. What runs at that instant is due to them by weighted max-min, none more than it
has to run: that is *entitled*. What runs for it is *held*. Their sums over time are compared.

Agendas are whole: one of its own that a customer holds beyond what it is entitled to does not
count. What it holds less counts in full, so a customer that waits behind others' long agendas
shows. A customer at a limit of its own wants what it runs, and no more.

Source of max-min by weights: Bertsekas and Gallager, Data Networks, 1992.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pop_stream.lab.fairness_metrics.jain import jain
from pop_stream.lab.fairness_metrics.service_log import (
    ARRIVED,
    HELD,
    RELEASED,
    REWEIGHTED,
    SETTLED,
    STARTED,
    ServiceLog,
)
from pop_stream.model.ids import CustomerId

_PAIR: Final = 2


def max_min(capacity: float, claims: Sequence[tuple[float, float]]) -> Sequence[float]:
    """Divide a capacity by weight; what one does not want is shared by the others.

    Args:
        capacity: Runners.
        claims: Weight above 0 and demand of each.

    Returns:
        What each is entitled to, in the same order, in runners. O(n log n).
    """
    left, total = capacity, sum(weight for weight, _ in claims)
    entitled = [0.0] * len(claims)
    for index in sorted(range(len(claims)), key=lambda one: claims[one][1] / claims[one][0]):
        weight, demand = claims[index]
        entitled[index] = min(demand, left * weight / total) if left > 0 else 0.0
        left -= entitled[index]
        total -= weight
    return entitled


@dataclass(slots=True)
class TimeHeld:
    """Of one customer, in worker-seconds, while it competed.

    Attributes:
        largest: The most that one of its agendas took.
    """

    held: float = 0.0
    entitled: float = 0.0
    largest: float = 0.0

    @property
    def part(self) -> float:
        """Held by entitled, less one whole agenda of what is beyond."""
        beyond = max(0.0, self.held - self.entitled)
        return (self.held - min(self.largest, beyond)) / self.entitled


@dataclass(slots=True)
class _Present:
    """What a customer wants and has at an instant."""

    weight: float = 1.0
    waiting: int = 0
    running: int = 0
    is_held: bool = False
    time: TimeHeld = field(default_factory=TimeHeld)

    @property
    def demand(self) -> int:
        return self.running + (0 if self.is_held else self.waiting)

    def note(self, kind: int, first: float, second: float) -> None:
        """Apply an event of the log."""
        if kind == ARRIVED:
            self.waiting += 1
        elif kind == STARTED:
            self.waiting -= 1
            self.running += 1
        elif kind == SETTLED:
            self.running -= 1
            self.time.largest = max(self.time.largest, second)
        elif kind == REWEIGHTED:
            self.weight = first
        elif kind in {HELD, RELEASED}:
            self.is_held = kind == HELD


def times_held(log: ServiceLog) -> Mapping[CustomerId, TimeHeld]:
    """What everybody held and was entitled to; those who never competed are left out.

    Costs O(customers that want runners) for every instant of the log.
    """
    customers = [_Present() for _ in log.customers]
    active: dict[int, _Present] = {}
    was_at = 0.0
    for kind, at, customer, first, second in log:
        if at > was_at:
            _count(at - was_at, [*active.values()])
            was_at = at
        one = customers[customer]
        one.note(kind, first, second)
        if one.demand > 0:
            active[customer] = one
        else:
            active.pop(customer, None)
    named = zip(log.customers, customers, strict=True)
    return {name: one.time for name, one in named if one.time.entitled > 0}


def jain_of_time_held(log: ServiceLog) -> float | None:
    """Jain's index of what customers held by what they were entitled to.

    Returns:
        1 if all held their parts; None if no two competed.
    """
    parts = [one.part for one in times_held(log).values()]
    return jain(parts) if len(parts) >= _PAIR else None


def _count(seconds: float, active: Sequence[_Present]) -> None:
    if len(active) < _PAIR:
        return
    busy = sum(one.running for one in active)
    entitled = max_min(busy, [(one.weight, one.demand) for one in active])
    for one, due in zip(active, entitled, strict=True):
        one.time.held += one.running * seconds
        one.time.entitled += due * seconds
