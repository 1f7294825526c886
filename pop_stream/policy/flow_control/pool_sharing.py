"""How the insights of one resource pool share what it can have in flight.

A pool is divided among its insights by their weights, or, if the pool says so, among customers
as if its insights were one. For that a customer's weight is divided by the number of insights
in which it has agendas, and an insight weighs as much as its customers.

Shares are seldom whole numbers, and an agenda needs a whole slot. So what is left after all
have the whole part of their share goes to those that are owed most, each for a time. Nothing
of it lasts: after a restart nobody is owed anything.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from math import ceil, floor, inf
from typing import Final

DIVIDE_EVERY_S: Final = 1.0
"""Between two looks at which customers have agendas in how many insights of a pool."""

LENT_AFTER_S: Final = 30.0
"""Slots of agendas on a topic that nobody has claimed from for so long are lent to the pool."""

COUNTED_FOR_S: Final = 5.0
"""So long an insight counts for a customer that was active there."""

REPAID_S: Final = 5.0
"""Slots times seconds for which an insight has one slot more, or less, than its share."""

MAX_OWED_S: Final = 60.0
"""Slots times seconds that an insight is owed at most, or has had too many at most."""

_NO_PART: Final = 1e-9
"""A part of a slot that small is an error of the arithmetic."""


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """An insight that wants part of its pool.

    Attributes:
        weight: Relative to the pool's other insights, above 0.
        minimum: What it gets before the rest is shared, as far as it demands it.
        demand: What it could have in flight now: what is in flight and what it could emit.
        in_flight: Part of the demand.
        held_s: Slots that it held so far times the seconds for which it held them.
    """

    insight_id: str
    weight: float
    minimum: int
    demand: int
    in_flight: int
    held_s: float = 0.0


class HeldSlots:
    """The slots that one insight holds, counted in slots times seconds; what it lends is not.

    Agendas on the topic hold no slots once none has been claimed for `LENT_AFTER_S`: nobody
    pulls there, or all runners are busy.

    Attributes:
        held_s: Slots times seconds so far.
    """

    def __init__(self) -> None:
        self.held_s = 0.0
        self._claimed = 0
        self._pulled_at = self._until = inf

    def note_claims(self, claimed: int, unclaimed: int, now: float) -> None:
        """Notice whether anything was claimed since the last call; before anything is emitted.

        Args:
            claimed: All claims so far.
            unclaimed: Agendas on the topic.
            now: The present instant, in seconds.
        """
        if self._until == inf:
            self._until = now
        if claimed != self._claimed or not unclaimed or self._pulled_at == inf:
            self._claimed, self._pulled_at = claimed, now

    def lends(self, unclaimed: int, now: float) -> bool:
        """Whether the agendas on the topic hold no slots."""
        return unclaimed > 0 and now - self._pulled_at >= LENT_AFTER_S

    def count(self, in_flight: int, unclaimed: int, now: float) -> None:
        """Count what was held since the last call; before anything is emitted or ends."""
        held = in_flight - (unclaimed if self.lends(unclaimed, now) else 0)
        self.held_s += held * max(0.0, now - self._until)
        self._until = max(self._until, now)


class SharedPool:
    """Divides one pool again and again, so that in the long run each has its exact share.

    It counts what each insight is owed: the slots that were its share, times the seconds for
    which they were, less what it held. One that wants no more than its share is owed nothing,
    and none more than `MAX_OWED_S`.
    """

    def __init__(self) -> None:
        self._owed: dict[str, float] = {}
        self._shares: Mapping[str, float] = {}
        self._held: dict[str, float] = {}
        self._at = 0.0
        self._seen: dict[tuple[str, str], float] = {}

    def limits(
        self, capacity: int, demands: Sequence[PoolDemand], now: float
    ) -> Mapping[str, int]:
        """How many agendas each insight may have in flight now; see `pool_limits`.

        Args:
            capacity: Of the pool.
            demands: Of all its insights.
            now: The present instant, in seconds; an earlier one than before counts as that.
        """
        elapsed_s = max(0.0, now - self._at)
        self._at = max(self._at, now)
        shares = exact_shares(capacity, demands)
        owed: dict[str, float] = {}
        for one in demands:
            name = one.insight_id
            held_s = one.held_s - self._held.get(name, one.held_s)
            more_s = self._shares.get(name, 0.0) * elapsed_s - held_s
            most = MAX_OWED_S if one.demand > shares[name] else 0.0
            owed[name] = max(-MAX_OWED_S, min(most, self._owed.get(name, 0.0) + more_s))
        self._owed, self._shares = owed, shares
        self._held = {one.insight_id: one.held_s for one in demands}
        slots = {name: max(-1.0, min(1.0, one / REPAID_S)) for name, one in owed.items()}
        return pool_limits(capacity, demands, slots)

    def changed_divisions(
        self, active: Mapping[str, Mapping[str, int]], now: float
    ) -> Mapping[str, Mapping[str, int]]:
        """Into how many parts customers' weights are to be divided, where that has changed.

        An insight counts for a customer until it was not active there for `COUNTED_FOR_S`:
        one whose agendas come and go everywhere is not taken for a customer of few insights.

        Args:
            active: By insight, the customers that have agendas out or that may go, and the
                number by which the weight of each is divided so far.
            now: The present instant, in seconds.

        Returns:
            By insight, the new numbers of those customers for which it is another.
        """
        seen = {key: at for key, at in self._seen.items() if now - at < COUNTED_FOR_S}
        for insight_id, customers in active.items():
            seen |= dict.fromkeys(((insight_id, one) for one in customers), now)
        self._seen = seen
        counts = Counter(customer for _, customer in seen)
        changed = {
            insight_id: {one: counts[one] for one in customers if customers[one] != counts[one]}
            for insight_id, customers in active.items()
        }
        return {insight_id: divisions for insight_id, divisions in changed.items() if divisions}


_NOTHING_OWED: Final[Mapping[str, float]] = {}


def pool_limits(
    capacity: int, demands: Sequence[PoolDemand], owed: Mapping[str, float] = _NOTHING_OWED
) -> Mapping[str, int]:
    """How many agendas each insight may have in flight; never less than it has.

    Minimums come first, in proportion if they exceed the capacity; the rest is shared by
    weight, and what one does not demand is lent to the others. Nothing is held back: the
    limits add up to the capacity, or to all demands if that is less, unless more is in flight.
    The past does not count, but for `owed`, so a loan ends as soon as its owner demands it
    back.

    Agendas in flight are not stopped for that. While an insight has a slot more than its share
    or several, what it has is taken off, and the rest is shared among the others by minimum
    and weight.

    Source: weighted max-min fairness by water-filling (Bertsekas and Gallager, Data
    Networks, 1992, on max-min flow control), rounded by largest remainders.

    Args:
        capacity: Agendas of all insights together.
        demands: Of each insight.
        owed: By insight, slots by which its share counts as larger, or smaller if negative,
            when it comes to parts of slots; between -1 and 1.
    """
    kept: dict[str, int] = {}
    others = demands
    while True:
        rest = max(0, capacity - sum(kept.values()))
        shares = exact_shares(rest, others)
        over = {
            one.insight_id: one.in_flight
            for one in others
            if one.in_flight >= shares[one.insight_id] + 1 - _NO_PART
        }
        if not over:
            return {**kept, **_whole(rest, others, shares, owed)}
        kept |= over
        others = [one for one in others if one.insight_id not in over]


def exact_shares(capacity: int, demands: Sequence[PoolDemand]) -> Mapping[str, float]:
    """What each would have if nothing were in flight and slots could be divided.

    The sum is the capacity, or all demands if that is less.
    """
    floors = {one.insight_id: min(one.minimum, one.demand) for one in demands}
    wanted = sum(floors.values())
    if wanted > capacity:
        return {name: least * capacity / wanted for name, least in floors.items()}
    return _filled(capacity, demands, floors)


def _filled(
    capacity: int, demands: Sequence[PoolDemand], floors: Mapping[str, int]
) -> dict[str, float]:
    """Weight times one level for all, but no less than a floor, no more than a demand."""

    def at(level: float) -> dict[str, float]:
        return {
            one.insight_id: min(one.demand, max(floors[one.insight_id], one.weight * level))
            for one in demands
        }

    bends = {floors[one.insight_id] / one.weight for one in demands}
    bends |= {one.demand / one.weight for one in demands}
    low = 0.0
    for high in sorted(bends):
        # Between two bends the sum grows in a straight line, so the level is found exactly.
        below, above = sum(at(low).values()), sum(at(high).values())
        if above > capacity:
            return at(low + (high - low) * (capacity - below) / (above - below))
        low = high
    return at(low)


def _whole(
    capacity: int,
    demands: Sequence[PoolDemand],
    shares: Mapping[str, float],
    owed: Mapping[str, float],
) -> dict[str, int]:
    """Shares as whole numbers, no less than what is in flight.

    One slot after the other goes to the insight that has least of its share, minimums first.
    """
    # None is further than all others together are above their shares.
    least = len(demands)
    found = {
        one.insight_id: max(one.in_flight, floor(shares[one.insight_id]) - least)
        for one in demands
    }
    waiting = [_next_slot(one, found[one.insight_id], shares, owed) for one in demands]
    heapify(waiting)
    free = min(capacity, sum(one.demand for one in demands)) - sum(found.values())
    by_name = {one.insight_id: one for one in demands}
    while free > 0:
        name = waiting[0][-1]
        found[name] += 1
        free -= 1
        heapreplace(waiting, _next_slot(by_name[name], found[name], shares, owed))
    return found


def _next_slot(
    one: PoolDemand, has: int, shares: Mapping[str, float], owed: Mapping[str, float]
) -> tuple[bool, bool, bool, bool, float, str]:
    """The rank of an insight for one more slot; the least is first.

    What is owed matters only between the whole part of a share and the whole number above it.
    """
    name = one.insight_id
    share = shares[name]
    lacks = share + owed.get(name, 0.0) - has
    return (
        has >= one.demand,
        has >= min(one.minimum, one.demand),
        has >= floor(share + _NO_PART),
        has >= ceil(share - _NO_PART),
        -lacks,
        name,
    )
