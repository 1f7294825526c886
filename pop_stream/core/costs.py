"""What an agenda costs in worker-seconds: declared, else learned per operation type."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

DEFAULT_COST_S: Final = 1.0
"""Cost of an operation whose type never ran; equal for all, so shares start by count."""

LEAST_COST_S: Final = 1e-4
"""Nothing is free: a charge of zero would let one customer be picked for ever."""

MOST_COST_S: Final = 1e7
"""Beyond it a report is a fault: one charge must not outlast a customer's work of months."""

MOST_TYPES: Final = 10_000
"""Operation types whose costs are learned; names that are made up must not fill the memory."""

_GAIN: Final = 1 / 16
_OUTLIER: Final = 4.0


def bounded(seconds: float) -> float:
    """Worker-seconds between the least and the most that anything costs."""
    return min(max(seconds, LEAST_COST_S), MOST_COST_S)


class CostBook:
    """Running estimates of worker-seconds per operation, by operation type.

    A mean with exponential forgetting over the last 16 or so, of samples clipped to four
    times the estimate and a quarter of it, so that a stray outlier moves it little and a
    lasting change is followed within a few dozen agendas. Of types beyond `MOST_TYPES`
    nothing is learned: what they took is charged when it is known.
    """

    def __init__(self, learned: Mapping[str, float] | None = None) -> None:
        self._learned = dict(learned or {})

    @property
    def learned(self) -> Mapping[str, float]:
        """The estimates, by operation type."""
        return self._learned

    def estimate(self, operation_types: Sequence[str], declared: float | None) -> float:
        """Worker-seconds of an agenda, `bounded`."""
        if declared is not None:
            return bounded(declared)
        learned = self._learned
        return bounded(sum(learned.get(one, DEFAULT_COST_S) for one in operation_types))

    def learn(self, operation_types: Sequence[str], spent_s: Mapping[str, float]) -> None:
        """Take note of what an agenda's operations took.

        Args:
            operation_types: The type of each operation.
            spent_s: Worker-seconds of all operations of a type together; a type that is
                absent did not run.
        """
        counts = Counter(operation_types)
        for name, seconds in spent_s.items():
            if counts[name] and seconds >= 0:
                self._sample(name, seconds / counts[name])

    def _sample(self, name: str, seconds: float) -> None:
        known = self._learned.get(name)
        if known is None:
            if len(self._learned) < MOST_TYPES:
                self._learned[name] = bounded(seconds)
            return
        clipped = min(max(seconds, known / _OUTLIER), known * _OUTLIER)
        self._learned[name] = bounded(known + _GAIN * (clipped - known))
