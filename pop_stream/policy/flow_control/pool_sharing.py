"""How the insights of one resource pool share what it can have in flight."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """An insight that wants part of its pool.

    Attributes:
        weight: Relative to the pool's other insights, above 0.
        minimum: What it gets before the rest is shared, as far as it demands it.
        demand: What it could have in flight now: what is in flight and what it could emit.
        in_flight: Part of the demand.
    """

    insight_id: str
    weight: float
    minimum: int
    demand: int
    in_flight: int


def pool_limits(capacity: int, demands: Sequence[PoolDemand]) -> Mapping[str, int]:
    """How many agendas each insight may have in flight; never less than it has.

    Minimums come first, in proportion if they exceed the capacity; the rest is shared by
    weight, and what one does not demand is lent to the others. Nothing is held back: the
    limits add up to the capacity, or to all demands if that is less, unless more is in flight.
    The past does not count, so a loan ends as soon as its owner demands it back.

    Agendas in flight are not stopped for that. While an insight has more than its due, what it
    has is taken off, and the rest is shared among the others by minimum and weight.

    Source: weighted max-min fairness by water-filling (Bertsekas and Gallager, Data
    Networks, 1992, on max-min flow control), rounded by largest remainders.
    """
    kept: dict[str, int] = {}
    others = demands
    while True:
        found = _dues(max(0, capacity - sum(kept.values())), others)
        over = {
            one.insight_id: one.in_flight
            for one in others
            if one.in_flight > found[one.insight_id]
        }
        if not over:
            return {**kept, **found}
        kept |= over
        others = [one for one in others if one.insight_id not in over]


def _dues(capacity: int, demands: Sequence[PoolDemand]) -> Mapping[str, int]:
    """What each would have if nothing were in flight."""
    floors = {one.insight_id: min(one.minimum, one.demand) for one in demands}
    wanted = sum(floors.values())
    if wanted > capacity:
        shares = {name: least * capacity / wanted for name, least in floors.items()}
        return _whole(capacity, shares)
    shares = _filled(capacity, demands, floors)
    total = min(capacity, sum(one.demand for one in demands))
    return _whole(total, shares)


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


def _whole(total: int, shares: Mapping[str, float]) -> dict[str, int]:
    """The shares as whole numbers that add up to the total; remainders by size, then name."""
    whole = {name: floor(share) for name, share in shares.items()}
    left = total - sum(whole.values())
    by_remainder = sorted(shares, key=lambda name: (whole[name] - shares[name], name))
    for name in by_remainder[:left]:
        whole[name] += 1
    return whole
