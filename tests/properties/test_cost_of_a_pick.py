"""What a pick costs, counted in steps, not timed: calls made, and comparisons of keys.

Every call of a function counts, of Python's own as well, and every time a generator goes on.
Comparisons inside a heap are no calls of their own, so the keys count them.
"""

import sys
from math import log2

import pytest

from pop_stream.policy.fairness.algorithms import WeightedFair
from pop_stream.policy.fairness.cost_model import Estimate
from pop_stream.policy.fairness.flow import Aging, Share
from pop_stream.policy.fairness.queue import FairQueue

FEW, MANY = 10, 10_000
LITTLE, MUCH = 1_000, 100_000


class Turn(float):
    """A customer's key; each comparison is a call."""

    __slots__ = ()
    __hash__ = float.__hash__

    def __eq__(self, other):
        return float(self) == float(other)

    def __lt__(self, other):
        return float(self) < float(other)

    def __le__(self, other):
        return float(self) <= float(other)


class Entry(int):
    """An agenda's key in its customer's line, likewise."""

    __slots__ = ()
    __hash__ = int.__hash__

    def __eq__(self, other):
        return int(self) == int(other)

    def __lt__(self, other):
        return int(self) < int(other)


class Counted(WeightedFair):
    """The usual turns, by keys that count."""

    def entry(self, **what):
        return Entry(super().entry(**what))

    def turn(self, **where):
        return Turn(super().turn(**where))


class Steps:
    """Counts calls while it is entered."""

    def __init__(self):
        self.count = 0

    def __enter__(self):
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _note(self, _frame, event, _argument):
        self.count += event in {"call", "c_call"}


def queue_of(customers, ready, *, step_s=None):
    aging = Aging(step_s, lambda _: 0.0) if step_s else None
    queue = FairQueue(Counted(), lambda _: Share(), aging)
    for ref in range(ready):
        entry = queue.algorithm.entry(priority=5, resumed=False, rank=0, ref=ref)
        queue.push(f"c{ref % customers:05}", entry)
    return queue


def estimate(ref):
    return Estimate(1.0 + ref % 7, 1.0)


def steps_per_pick(queue, picks):
    """Of picks with the end of each, a hundred of them out at a time.

    Customers join with the first pick after they came: that is O(log customers) for each who
    came, whoever is picked, and not counted here.
    """
    out, steps = [queue.pick(estimate, 0.0)], Steps()
    for number in range(picks):
        with steps:
            pick = queue.pick(estimate, float(number))
        assert pick is not None
        out.append(pick)
        if len(out) > 100:
            ended = out.pop(0)
            with steps:
                queue.settle(ended.customer_id, "", ended.reservation, 2.5)
    return steps.count / picks


STEPS_A_DOUBLING = 40
"""Two heaps, of turns and of what is due, with some ten comparisons a level each."""

PLAIN, AGING = {}, {"step_s": 1e6}


@pytest.mark.parametrize(("kind", "picks"), [(PLAIN, 10_500), (AGING, 1_000)])
def test_a_pick_takes_steps_by_the_logarithm_of_customers(kind, picks):
    """In the first, everybody's tag is looked at once: that costs a step a pick."""
    few, many = (steps_per_pick(queue_of(n, 12_000, **kind), picks) for n in (FEW, MANY))
    assert many - few <= STEPS_A_DOUBLING * log2(MANY / FEW)


@pytest.mark.parametrize("kind", [PLAIN, AGING])
def test_a_pick_takes_as_many_steps_whatever_waits(kind):
    """But for the place of an agenda among its customer's own: two comparisons a doubling."""
    little, much = (steps_per_pick(queue_of(FEW, n, **kind), 900) for n in (LITTLE, MUCH))
    assert much - little <= 2 * log2(MUCH / LITTLE)


def test_what_may_start_is_counted_in_few_steps_whatever_waits():
    def steps_to_count(customers):
        queue, steps = queue_of(customers, 2 * MANY), Steps()
        with steps:
            assert queue.eligible_count(5, 0.0) == 5
        return steps.count

    assert steps_to_count(MANY) <= 2 * steps_to_count(FEW)
