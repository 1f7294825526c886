"""Judges a log of service: how even, how far apart, how long the waits, how busy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Final

from pop_stream.core.audits.contest import competitors, jain_lower_bound, jain
from pop_stream.core.audits.gap import Gap, GapTracker
from pop_stream.core.audits.presence import BackloggedCustomers
from pop_stream.core.audits.service import EMITTED, SETTLED, REWEIGHTED, ServiceLog
from pop_stream.core.audits.times import ServiceTimes, service_times
from pop_stream.core.values.ids import CustomerId

MAX_PAIRED: Final = 64
"""Customers whose gaps are compared pair by pair, if nothing else is said."""

_MIN_COMPETITORS: Final = 2
_MIN_PAIRED: Final = 8
_COMPARISONS: Final = 20_000_000


@dataclass(frozen=True, slots=True)
class FairnessMetrics:
    """What a log of service came to.

    Attributes:
        jain: Index of service by weight among those that compete, as `core.contest` has it;
            None if no two competed for long enough.
        jain_floor: What the index of a perfect order may come to, as agendas are whole.
        competitors: How many customers it is taken over.
        gap: The worst, by its bound; None if no two were backlogged together.
        paired: How many customers were compared for it.
        depth: Most agendas that were out at once: the D of the bound.
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
        """The worst gap by its bound; None if there is none."""
        return self.gap.over_bound if self.gap else None

    def utilisation(self, runners: int) -> float:
        """Worker-seconds by what so many runners had to give over the whole log."""
        offered = runners * self.times.seconds
        return fsum(self.served.values()) / offered if offered > 0 else 0.0


def audit(
    log: ServiceLog,
    *,
    depth: int = 0,
    max_paired: int = MAX_PAIRED,
    sizes: ServiceLog | None = None,
) -> FairnessMetrics:
    """Judge a log; O(customers that are compared) per event.

    Args:
        log: Of one insight.
        depth: Most agendas that the scheduler held to be out at once, if it is known: it
            hears of an end later than an observer.
        max_paired: Most customers to compare pair by pair: those with the most agendas, and
            fewer in a log so long that it would take more than seconds.
        sizes: How large agendas are without accidents; see `contest.competitors`.
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
    """What one pass over the log gathers."""

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
