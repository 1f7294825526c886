"""What an agenda is taken to cost in worker-seconds before it ends.

An estimate decides only how much is reserved while the agenda is out; what it took is
delivered, and that alone counts in the end. So an estimate has to be about right, soon, and
nobody may gain or lose much by a wrong one. Too high a declaration counts as `HINT` times what
the customer's agendas took, at most. Too low a one is multiplied by what its agendas took of
what was declared, counts as a `HINT`th of what is usual at least, and as what it takes from its
first heartbeat on.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import exp2, log2
from typing import Final, NamedTuple

DEFAULT_COST_S: Final = 1.0
"""Cost of an operation where nothing was learned yet; equal for all, so shares go by count."""

MIN_COST_S: Final = 1e-4
"""Nothing that ran is free."""

MAX_COST_S: Final = 1e7
"""A report beyond it is an error: one agenda must not outlast a customer's work of months."""

MAX_TYPES: Final = 10_000
"""Most operation types whose costs are learned, as anyone may make up names."""

MAX_RATIOS: Final = 10_000
"""Most customers whose usual cost and declarations are learned, likewise."""

HINT: Final = 4.0
"""An estimate is at most so many times a customer's usual cost."""

_TRUSTED: Final = 1.25
"""Who declares less than its agendas took by more than this has no small ones believed."""

_GAIN: Final = 1 / 4
_LARGEST_STEP: Final = 8.0
_TYPICAL_GAIN: Final = 1 / 8
_ALL: Final = ""


def clamp_cost(seconds: float) -> float:
    """Worker-seconds between the least and the most that anything costs."""
    return min(max(seconds, MIN_COST_S), MAX_COST_S)


class Estimate(NamedTuple):
    """What is reserved for an agenda, in worker-seconds.

    Attributes:
        cost_s: As declared or learned, at most `HINT` times what is usual.
        sure_s: The lesser of that and what is usual.
    """

    cost_s: float
    sure_s: float


class CostModel:
    """Running estimates: by operation type, and by customer.

    Of types and of what is declared, the mean of logarithms with forgetting by a quarter: one
    sample moves it by a factor of 8**(1/4) at most, so it moves a thousandfold within a dozen,
    up or down. Of what is *usual* with a customer, the mean of worker-seconds over the last
    eight or so attempts, however they ended, each taken as at most eight times the mean. What
    is usual of all customers, under the empty name, stands in for a customer that is new.

    An attempt that did not succeed, and took less than was expected, counts for the part of it
    that it took: to fail at once, or to look for something and wait, says little of what the
    work takes, and who does so often would have it begun for next to nothing.

    What a customer declares is multiplied by the ratio that its agendas took of what it
    declared, so a mistake of unit is mended within a dozen agendas.

    Args:
        learned: Worker-seconds by operation type.
        ratios: By customer, what its agendas took of what was declared.
        usual: By customer, worker-seconds of an attempt.

    Attributes:
        overdeclared: Attempts learned from whose agenda declared more than `HINT` times what is
            usual; of this object, in memory only.
    """

    def __init__(
        self,
        learned: Mapping[str, float] | None = None,
        ratios: Mapping[str, float] | None = None,
        usual: Mapping[str, float] | None = None,
    ) -> None:
        self._learned = dict(learned or {})
        self._ratios = dict(ratios or {})
        self._usual = dict(usual or {})
        self.overdeclared = 0
        self._changed: tuple[set[str], set[str], set[str]] = (set(), set(), set())

    @property
    def learned(self) -> Mapping[str, float]:
        """The estimates, by operation type."""
        return self._learned

    @property
    def ratios(self) -> Mapping[str, float]:
        """By customer, what its agendas took of what was declared."""
        return self._ratios

    @property
    def usual(self) -> Mapping[str, float]:
        """By customer, worker-seconds of an attempt; of all under the empty name."""
        return self._usual

    def drain_changed(self) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
        """What was learned since the last call: types, ratios, usual costs."""
        (names, ratios, usual), self._changed = self._changed, (set(), set(), set())
        return (
            {one: self._learned[one] for one in names},
            {one: self._ratios[one] for one in ratios},
            {one: self._usual[one] for one in usual},
        )

    def estimate(
        self, operation_types: Sequence[str], declared: float | None, customer_id: str
    ) -> Estimate:
        """What to reserve for a customer's agenda."""
        usual = self._usual_of(customer_id)
        ratio = self._ratios.get(customer_id, 1.0)
        if declared is not None:
            cost = clamp_cost(declared) * ratio
        else:
            cost = self._of_types(operation_types, usual)
        if usual is None:
            return Estimate(clamp_cost(cost), min(clamp_cost(cost), DEFAULT_COST_S))
        if ratio > _TRUSTED:
            cost = max(cost, usual / HINT)
        cost = clamp_cost(min(cost, usual * HINT))
        return Estimate(cost, min(cost, usual))

    def is_overdeclared(self, declared: float, customer_id: str) -> bool:
        """Whether a declaration is beyond what any agenda of the customer is taken to cost."""
        usual = self._usual_of(customer_id)
        return usual is not None and declared > usual * HINT

    def learn(self, operation_types: Sequence[str], spent_s: Mapping[str, float]) -> None:
        """Learn from what an agenda's operations took.

        Args:
            operation_types: The type of each operation.
            spent_s: Worker-seconds of all operations of a type together; a type that is
                absent did not run.
        """
        counts = Counter(operation_types)
        for name, seconds in spent_s.items():
            if counts[name] and seconds >= 0:
                self._learn_type(name, seconds / counts[name])

    def learn_usual(self, customer_id: str, spent: float, *, succeeded: bool = True) -> None:
        """Learn from the worker-seconds of an attempt, however it ended."""
        expected = self._usual_of(customer_id)
        for name in (customer_id, _ALL):
            known = self._usual.get(name)
            if known is not None:
                sample = min(spent, known * _LARGEST_STEP)
                gain = _TYPICAL_GAIN * _part(spent, known, succeeded=succeeded)
                self._usual[name] = clamp_cost(known + gain * (sample - known))
            elif _part(spent, expected or DEFAULT_COST_S, succeeded=succeeded) < 1:
                continue
            elif name == _ALL or len(self._usual) <= MAX_RATIOS:
                self._usual[name] = clamp_cost(spent)
            else:
                continue
            self._changed[2].add(name)

    def learn_ratio(
        self, customer_id: str, *, declared: float, spent: float, succeeded: bool = True
    ) -> None:
        """Learn from what an agenda took, compared with what its customer declared."""
        self.overdeclared += self.is_overdeclared(declared, customer_id)
        ratio, known = clamp_cost(spent) / clamp_cost(declared), self._ratios.get(customer_id)
        if known is None and len(self._ratios) >= MAX_RATIOS:
            return
        before = 1.0 if known is None else known
        part = _part(ratio, before, succeeded=succeeded)
        self._ratios[customer_id] = _moved(before, ratio, part)
        self._changed[1].add(customer_id)

    def _usual_of(self, customer_id: str) -> float | None:
        return self._usual.get(customer_id) or self._usual.get(_ALL)

    def _of_types(self, operation_types: Sequence[str], usual: float | None) -> float:
        """The sum over types; what is usual if one was never seen."""
        learned = self._learned
        if usual is not None and any(one not in learned for one in operation_types):
            return usual
        return sum(learned.get(one, DEFAULT_COST_S) for one in operation_types)

    def _learn_type(self, name: str, seconds: float) -> None:
        known = self._learned.get(name)
        if known is not None:
            self._learned[name] = clamp_cost(_moved(known, seconds))
        elif len(self._learned) < MAX_TYPES:
            self._learned[name] = clamp_cost(seconds)
        else:
            return
        self._changed[0].add(name)


def _moved(known: float, sample: float, part: float = 1.0) -> float:
    """A step of the mean of logarithms, or a part of one."""
    sample = min(max(sample, known / _LARGEST_STEP), known * _LARGEST_STEP)
    return known * exp2(part * _GAIN * log2(sample / known))


def _part(took: float, expected: float, *, succeeded: bool) -> float:
    """How much an attempt counts of a whole one."""
    return 1.0 if succeeded else min(1.0, took / expected)
