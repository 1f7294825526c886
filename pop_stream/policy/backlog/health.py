"""The health coefficient of an insight: by what its cap on agendas in flight is multiplied.

It is the worst of two kinds of values:

- what the scheduler sees itself: the parts of recent attempts that failed, and that fell
  silent, if the insight's definition asks for it (`health`);
- what others report of the insight from outside, each under a name of its own and void after
  its time to live.

Failures are counted by customer, and each customer counts alike: one whose every agenda fails
lowers the coefficient for the others by its part only.

Counts are in memory and begin again after a restart; reported values are part of the deltas.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from math import floor
from typing import Final, Literal

from pop_stream.model.events.base import HealthValue
from pop_stream.model.insight_options import HealthScaling

MAX_SOURCES: Final = 50
"""Most names under which values are reported; beyond, the one that ends first goes."""

MAX_CUSTOMERS: Final = 1_000
"""Most customers whose attempts are counted; the one without any for longest goes first."""

FULL: Final = 1.0

OBSERVED: Final = frozenset({"failures", "losses"})
"""Names of what the scheduler sees itself."""

AttemptEnd = Literal["done", "failed", "lost"]


@dataclass(slots=True)
class _RecentAttempts:
    """Ends of a customer's attempts, each counting half after every half-life."""

    at: float
    ended: float = 0.0
    failed: float = 0.0
    lost: float = 0.0

    def age(self, now: float, half_life_s: float) -> None:
        kept = 0.5 ** (max(0.0, now - self.at) / half_life_s)
        self.at = max(self.at, now)
        self.ended, self.failed, self.lost = (
            self.ended * kept,
            self.failed * kept,
            self.lost * kept,
        )


@dataclass(frozen=True, slots=True)
class HealthCoefficient:
    """A coefficient and what it comes from.

    Attributes:
        coefficient: From 0 to 1.
        by: `failures`, `losses`, or the name of the reported value; empty at 1.
    """

    coefficient: float = FULL
    by: str = ""

    @property
    def shown(self) -> float | None:
        """As events have it: None where nothing is to be said."""
        return self.coefficient if self.coefficient < FULL else None


HEALTHY: Final = HealthCoefficient()


class HealthTracker:
    """What is known of one insight's health; every `now` is in seconds since the epoch."""

    def __init__(self) -> None:
        self._recent: OrderedDict[str, _RecentAttempts] = OrderedDict()
        self._reported: dict[str, HealthValue] = {}
        self._changed: dict[str, HealthValue] = {}

    # ---- what the scheduler sees ----

    def note(
        self, customer_id: str, end: AttemptEnd, now: float, scaling: HealthScaling | None
    ) -> None:
        """An attempt of the customer's has ended; without scaling nothing is counted."""
        if scaling is None:
            return
        recent = self._recent.pop(customer_id, None) or _RecentAttempts(now)
        self._recent[customer_id] = recent
        recent.age(now, scaling.half_life_s)
        recent.ended += 1
        recent.failed += end == "failed"
        recent.lost += end == "lost"
        if len(self._recent) > MAX_CUSTOMERS:
            self._recent.popitem(last=False)

    # ---- what is reported ----

    def report(self, source: str, value: HealthValue, now: float) -> None:
        """Put a value in the place of what there was under this name; O(values)."""
        self._store(source, value)
        ended = [one for one, known in self._reported.items() if known.until <= now]
        for one in ended:
            self._store(one, _FORGOTTEN)
        if len(self._reported) > MAX_SOURCES:
            first = min(self._reported, key=lambda one: (self._reported[one].until, one))
            self._store(first, _FORGOTTEN)

    def drain_changed(self) -> dict[str, HealthValue]:
        """Reported values that changed since the last call."""
        changed, self._changed = self._changed, {}
        return changed

    def all(self) -> dict[str, HealthValue]:
        """All reported values, void ones perhaps among them."""
        return dict(self._reported)

    def apply(self, known: Mapping[str, HealthValue]) -> None:
        """Apply one delta's values, oldest delta first."""
        for source, value in known.items():
            if value.until:
                self._reported[source] = value
            else:
                self._reported.pop(source, None)

    # ---- the coefficient ----

    def at(self, now: float, scaling: HealthScaling | None) -> HealthCoefficient:
        """The worst of all values in force; O(values + customers counted)."""
        found = [
            HealthCoefficient(value.coefficient, source)
            for source, value in self._reported.items()
            if value.until > now
        ]
        if scaling is not None:
            found += self._observed(now, scaling)
        worst = min(found, key=lambda one: (one.coefficient, one.by), default=HEALTHY)
        return worst if worst.coefficient < FULL else HEALTHY

    def _observed(self, now: float, scaling: HealthScaling) -> list[HealthCoefficient]:
        failures = losses = attempts = customers = 0.0
        for recent in self._recent.values():
            recent.age(now, scaling.half_life_s)
            if recent.ended < _LEAST_ENDED:
                continue
            customers += 1
            attempts += recent.ended
            failures += recent.failed / recent.ended
            losses += recent.lost / recent.ended
        if attempts < scaling.min_attempts:
            return []
        ramp = _ramp(failures / customers, scaling.failures_from, scaling.failures_to)
        falls = _ramp(losses / customers, scaling.losses_from, scaling.losses_to)
        least = scaling.least
        return [
            HealthCoefficient(FULL - (FULL - least) * ramp, "failures"),
            HealthCoefficient(FULL - (FULL - least) * falls, "losses"),
        ]

    def _store(self, source: str, value: HealthValue) -> None:
        self._changed[source] = value
        self.apply({source: value})


_LEAST_ENDED: Final = 0.05
"""A customer with less than this, of one attempt some half-lives ago, says nothing."""

_FORGOTTEN: Final = HealthValue(FULL, 0.0)
"""In place of a value: the name is not known any more."""


def _ramp(rate: float, start: float, end: float) -> float:
    """How far the rate has come from `start` to `end`: from 0 to 1."""
    return min(1.0, max(0.0, (rate - start) / (end - start)))


def scaled_cap(cap: int, health: HealthCoefficient) -> int:
    """What is left of a cap: at least one, unless the coefficient is 0."""
    if health.coefficient <= 0.0:
        return 0
    return max(1, floor(cap * health.coefficient + _ROUNDING))


_ROUNDING: Final = 1e-9
"""0.29 of 100 is 28.999…; who reports 0.29 means 29."""
