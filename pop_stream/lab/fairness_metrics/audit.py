"""Measures a log of service: how even, how far apart, how long the waits, how busy."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, fsum
from typing import Final

from pop_stream.lab.fairness_metrics.gap import Gap, GapTracker
from pop_stream.lab.fairness_metrics.jain import competitors, jain, jain_lower_bound
from pop_stream.lab.fairness_metrics.presence import BackloggedCustomers
from pop_stream.lab.fairness_metrics.service_log import (
    EMITTED,
    REWEIGHTED,
    SETTLED,
    STARTED,
    ServiceLog,
)
from pop_stream.model.ids import CustomerId


@dataclass(frozen=True, slots=True)
class WaitDistribution:
    """From submission to start, in seconds, by the nearest rank: values that occurred."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float
    longest: float


def wait_distribution(seconds: Sequence[float]) -> WaitDistribution:
    """The distribution of some waits; all zero for none."""
    if not seconds:
        return WaitDistribution(0, 0.0, 0.0, 0.0, 0.0, 0.0)
    ordered = sorted(seconds)

    def rank(percent: int) -> float:
        return ordered[ceil(len(ordered) * percent / 100) - 1]

    return WaitDistribution(
        count=len(ordered),
        mean=fsum(ordered) / len(ordered),
        p50=rank(50),
        p95=rank(95),
        p99=rank(99),
        longest=ordered[-1],
    )


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """When things happened; all in seconds.

    Attributes:
        waits: From submission to start, by customer, in order of start.
        begins_at: The first arrival.
        ends_at: The last end.
    """

    waits: Mapping[CustomerId, Sequence[float]]
    begins_at: float
    ends_at: float

    @property
    def started(self) -> int:
        """Agendas that were started; all of them, once a run is over."""
        return sum(map(len, self.waits.values()))

    @property
    def seconds(self) -> float:
        """From the first arrival to the last end: the makespan."""
        return self.ends_at - self.begins_at

    @property
    def per_second(self) -> float:
        """Agendas per second of that; 0 for an empty log."""
        return self.started / self.seconds if self.seconds > 0 else 0.0


def service_times(log: ServiceLog) -> ServiceTimes:
    """The times in a log, in one pass."""
    waits = [array("d") for _ in log.customers]
    begins_at, ends_at = log.span[0], 0.0
    for kind, at, customer, first, _ in log:
        if kind == STARTED:
            waits[customer].append(first)
        elif kind == SETTLED:
            ends_at = at
    return ServiceTimes(
        waits=dict(zip(log.customers, waits, strict=True)),
        begins_at=begins_at,
        ends_at=max(begins_at, ends_at),
    )


MAX_PAIRED: Final = 64
"""Customers whose gaps are compared pair by pair, if nothing else is said."""

_MIN_COMPETITORS: Final = 2
_MIN_PAIRED: Final = 8
_COMPARISONS: Final = 20_000_000


@dataclass(frozen=True, slots=True)
class FairnessMetrics:
    """What a log of service came to.

    Attributes:
        jain: Index of service by weight among those that compete, as the module `jain` defines
            it; None if no two competed for long enough.
        jain_floor: What the index of a perfect order may come to, as agendas are whole.
        competitors: How many customers it is taken over.
        gap: The worst over its bound; None if no two were backlogged together.
        paired: How many customers were compared for it.
        depth: Most agendas that were in flight at once: the D of the bound.
        times: Waits and makespan.
        served: Worker-seconds by customer.
    """

    jain: float | None
    jain_floor: float | None
    competitors: int
    gap: Gap | None
    paired: int
    depth: int
    times: ServiceTimes
    served: Mapping[CustomerId, float]

    @property
    def gap_over_bound(self) -> float | None:
        """The worst gap over its bound; None if there is none."""
        return self.gap.over_bound if self.gap else None

    def utilisation(self, runners: int) -> float:
        """Worker-seconds over those that so many runners had, over the whole log."""
        offered = runners * self.times.seconds
        return fsum(self.served.values()) / offered if offered > 0 else 0.0


def measure_fairness(
    log: ServiceLog,
    *,
    depth: int = 0,
    max_paired: int = MAX_PAIRED,
    sizes: ServiceLog | None = None,
) -> FairnessMetrics:
    """Measure a log; O(customers that are compared) per event.

    Args:
        log: Of one insight.
        depth: Most agendas that the scheduler counted as in flight at once, if known: an end
            is reported to it later than an observer sees it.
        max_paired: Most customers to compare pair by pair: those with the most agendas, and
            fewer in a log so long that it would take more than seconds.
        sizes: How large agendas are without accidents; see `jain.competitors`.
    """
    paired = _customers_to_pair(log, max_paired)
    facts = _gather_facts(log, GapTracker(paired))
    competing = [*competitors(log, sizes).values()]
    is_competition = len(competing) >= _MIN_COMPETITORS
    most_out = max(depth, facts.depth)
    return FairnessMetrics(
        jain=jain([one.given / one.due for one in competing]) if is_competition else None,
        jain_floor=jain_lower_bound([one.coarseness for one in competing])
        if is_competition
        else None,
        competitors=len(competing) if is_competition else 0,
        gap=facts.gaps.worst(log.customers, most_out),
        paired=len(paired),
        depth=most_out,
        times=service_times(log),
        served=dict(zip(log.customers, facts.served, strict=True)),
    )


@dataclass(slots=True)
class _LogFacts:
    """The facts of one pass over the log."""

    gaps: GapTracker
    served: list[float] = field(default_factory=list)
    depth: int = 0


def _gather_facts(log: ServiceLog, gaps: GapTracker) -> _LogFacts:
    facts = _LogFacts(gaps, [0.0] * len(log.customers))
    backlogged_now = BackloggedCustomers(len(log.customers))
    in_flight = 0
    for kind, _, customer, first, second in log:
        weighed = backlogged_now.weights[customer]
        change = backlogged_now.note(kind, customer, first)
        if change > 0:
            gaps.join(customer)
        if kind == EMITTED:
            in_flight += 1
            facts.depth = max(facts.depth, in_flight)
            weight = backlogged_now.weights[customer]
            gaps.charge(customer, charged=first, spent=second, weight=weight)
        elif kind == SETTLED:
            in_flight -= 1
            gaps.serve(customer, first)
            facts.served[customer] += second
        elif kind == REWEIGHTED and first != weighed:
            gaps.reweigh(customer, first)
        if change < 0:
            gaps.leave(customer)
    return facts


def _customers_to_pair(log: ServiceLog, most: int) -> Sequence[int]:
    counts = [0] * len(log.customers)
    for kind, _, customer, _, _ in log:
        if kind == SETTLED:
            counts[customer] += 1
    room = _COMPARISONS // max(1, sum(counts))
    ordered = sorted(range(len(counts)), key=lambda one: -counts[one])
    return ordered[: min(most, max(_MIN_PAIRED, room))]
