"""What an agenda costs in worker-seconds: as declared and corrected, else learned by type."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

DEFAULT_COST_S: Final = 1.0
"""Cost of an operation whose type never ran; equal for all, so shares start by count."""

MIN_COST_S: Final = 1e-4
"""Nothing is free: a charge of zero would let one customer be picked for ever."""

MAX_COST_S: Final = 1e7
"""A report beyond it is an error: one charge must not outlast a customer's work of months."""

MAX_TYPES: Final = 10_000
"""Most operation types whose costs are learned, as anyone may make up names."""

MAX_RATIOS: Final = 10_000
"""Most customers whose declarations are compared with what they took, likewise."""

_GAIN: Final = 1 / 16
_OUTLIER: Final = 4.0
_MIN_RATIO: Final = 0.5
_MAX_RATIO: Final = 4.0
_ALIKE: Final = 1.5


def clamp_cost(seconds: float) -> float:
    """Worker-seconds between the least and the most that anything costs."""
    return min(max(seconds, MIN_COST_S), MAX_COST_S)


class CostModel:
    """Running estimates of worker-seconds: per operation type, and of what is declared.

    Each is a mean with exponential forgetting over the last 16 or so, of samples clipped to
    four times the estimate and a quarter of it, so that a stray outlier moves it little and a
    lasting change is followed within a few dozen agendas. Of types beyond `MAX_TYPES`
    nothing is learned: what they took is charged when it is known.

    What a customer declares is multiplied by the *ratio* that its agendas took of what was
    declared. A customer that declares in other units, or too little, is then charged correctly
    from the start, and owes nothing later for what was out when another customer joined. A new
    customer has the ratio of all, kept between a half and four: a machine may be slower than
    people think, but one customer's mistake must not become the rule. So has every customer
    whose own ratio is within a factor of 1.5 of it, and only of those is it learned: otherwise
    the chance of a customer's last 16 agendas would decide its share while 200 are out.

    Args:
        learned: Worker-seconds by operation type.
        ratios: By customer; that of all is under the empty name.
    """

    def __init__(
        self,
        learned: Mapping[str, float] | None = None,
        ratios: Mapping[str, float] | None = None,
    ) -> None:
        self._learned = dict(learned or {})
        self._ratios = dict(ratios or {})
        self._changed: tuple[set[str], set[str]] = (set(), set())

    @property
    def learned(self) -> Mapping[str, float]:
        """The estimates, by operation type."""
        return self._learned

    @property
    def ratios(self) -> Mapping[str, float]:
        """By customer, what its agendas took of what was declared; of all under no name."""
        return self._ratios

    def drain_changed(self) -> tuple[dict[str, float], dict[str, float]]:
        """Estimates and ratios that changed since the last call."""
        (names, customers), self._changed = self._changed, (set(), set())
        return (
            {one: self._learned[one] for one in names},
            {one: self._ratios[one] for one in customers},
        )

    def estimate(
        self, operation_types: Sequence[str], declared: float | None, customer_id: str
    ) -> float:
        """Worker-seconds of a customer's agenda, `clamp_cost`."""
        if declared is not None:
            return clamp_cost(clamp_cost(declared) * self._ratio(customer_id))
        learned = self._learned
        return clamp_cost(sum(learned.get(one, DEFAULT_COST_S) for one in operation_types))

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
                self._sample(name, seconds / counts[name])

    def learn_ratio(self, customer_id: str, *, declared: float, spent: float) -> None:
        """Learn from what an agenda took, compared with what its customer declared."""
        ratio, known = clamp_cost(spent) / clamp_cost(declared), self._own_ratio(customer_id)
        if customer_id in self._ratios or len(self._ratios) <= MAX_RATIOS:
            self._ratios[customer_id] = _smoothed(known, ratio)
            self._changed[1].add(customer_id)
        of_all = self._ratio_of_all
        if _are_alike(known, of_all):
            self._ratios[""] = of_all + _GAIN * (_plausible(ratio) - of_all)
            self._changed[1].add("")

    @property
    def _ratio_of_all(self) -> float:
        return self._ratios.get("", 1.0)

    def _own_ratio(self, customer_id: str) -> float:
        return self._ratios.get(customer_id, self._ratio_of_all)

    def _ratio(self, customer_id: str) -> float:
        """That of all while its own is close to it: a mean of 16 is off by chance alone."""
        own, of_all = self._own_ratio(customer_id), self._ratio_of_all
        return of_all if _are_alike(own, of_all) else own

    def _sample(self, name: str, seconds: float) -> None:
        known = self._learned.get(name)
        if known is not None:
            self._learned[name] = clamp_cost(_smoothed(known, seconds))
        elif len(self._learned) < MAX_TYPES:
            self._learned[name] = clamp_cost(seconds)
        else:
            return
        self._changed[0].add(name)


def _smoothed(known: float, sample: float) -> float:
    clipped = min(max(sample, known / _OUTLIER), known * _OUTLIER)
    return known + _GAIN * (clipped - known)


def _are_alike(ratio: float, of_all: float) -> bool:
    return of_all / _ALIKE <= ratio <= of_all * _ALIKE


def _plausible(ratio: float) -> float:
    return min(max(ratio, _MIN_RATIO), _MAX_RATIO)
