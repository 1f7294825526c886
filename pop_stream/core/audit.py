"""Judges a log of service: how even, how far apart, how long the waits, how busy."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, fsum
from typing import Final

from pop_stream.core.contest import competitors, jain
from pop_stream.core.gap import Gap, Gaps
from pop_stream.core.ids import CustomerId
from pop_stream.core.presence import Presence
from pop_stream.core.service import EMITTED, SETTLED, STARTED, ServiceLog

MOST_PAIRED: Final = 64
"""Customers whose gaps are compared pair by pair, if nothing else is said."""

_LEAST_PAIRED: Final = 8
_COMPARISONS: Final = 20_000_000


@dataclass(frozen=True, slots=True)
class Waits:
    """From submission to start, in seconds, by the nearest rank: values that occurred."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float
    longest: float


@dataclass(frozen=True, slots=True)
class Audit:
    """What a log of service came to.

    Attributes:
        jain: Index of service by weight among those that compete, as `core.contest` has it.
        competitors: How many customers it is taken over.
        gap: The worst, by its bound; None if no two were backlogged together.
        paired: How many customers were compared for it.
        depth: Most agendas that were out at once: the D of the bound.
        waits: From submission to start in seconds, by customer, in order of start.
        served: Worker-seconds by customer.
        begins_at: The first arrival.
        ends_at: The last end.
        utilisation: Worker-seconds by runners and seconds; 0 if runners are unknown.
    """

    jain: float
    competitors: int
    gap: Gap | None
    paired: int
    depth: int
    waits: Mapping[CustomerId, Sequence[float]]
    served: Mapping[CustomerId, float]
    begins_at: float
    ends_at: float
    utilisation: float

    @property
    def gap_over_bound(self) -> float:
        """The worst gap by its bound; 0 if there is none."""
        return self.gap.over_bound if self.gap else 0.0

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
        """Agendas per second of that."""
        return self.started / self.seconds if self.seconds > 0 else 0.0


@dataclass(slots=True)
class _Facts:
    """What one pass over the log gathers."""

    gaps: Gaps
    waits: "list[array[float]]"
    served: list[float]
    in_flight: int = 0
    depth: int = 0
    begin: float = 0.0
    end: float = 0.0


def audit(
    log: ServiceLog, *, runners: int = 0, depth: int = 0, most_paired: int = MOST_PAIRED
) -> Audit:
    """Judge a log; O(customers that are compared) per event.

    Args:
        log: Of one insight.
        runners: Agendas that can run at a time, for the utilisation; 0 if unknown.
        depth: Most agendas that the scheduler held to be out at once, if it is known: it
            hears of an end later than an observer.
        most_paired: Most customers to compare pair by pair; those with the most agendas.
    """
    paired = _paired(log, most_paired)
    facts = _gather(log, paired)
    names = log.customers
    rivals = competitors(log)
    seconds = facts.end - facts.begin
    most_out = max(depth, facts.depth)
    total = fsum(facts.served)
    return Audit(
        jain=jain([one.given / one.due for one in rivals.values()]),
        competitors=len(rivals),
        gap=facts.gaps.worst(names, most_out),
        paired=len(paired),
        depth=most_out,
        waits={names[i]: own for i, own in enumerate(facts.waits)},
        served={names[i]: served for i, served in enumerate(facts.served)},
        begins_at=facts.begin,
        ends_at=facts.end,
        utilisation=total / (runners * seconds) if runners and seconds > 0 else 0.0,
    )


def waits_of(seconds: Sequence[float]) -> Waits:
    """The distribution of some waits; all zero for none."""
    if not seconds:
        return Waits(0, 0.0, 0.0, 0.0, 0.0, 0.0)
    ordered = sorted(seconds)

    def rank(percent: int) -> float:
        return ordered[ceil(len(ordered) * percent / 100) - 1]

    return Waits(
        count=len(ordered),
        mean=fsum(ordered) / len(ordered),
        p50=rank(50),
        p95=rank(95),
        p99=rank(99),
        longest=ordered[-1],
    )


def _gather(log: ServiceLog, paired: Sequence[int]) -> _Facts:
    count = len(log.customers)
    facts = _Facts(
        gaps=Gaps(paired),
        waits=[array("d") for _ in range(count)],
        served=[0.0] * count,
    )
    presence = Presence(count)
    for number, moment in enumerate(log):
        if not number:
            facts.begin = moment.at
        kind, at, customer, first, second = moment
        change = presence.note(moment)
        if change > 0:
            facts.gaps.join(customer)
        if kind == EMITTED:
            facts.in_flight += 1
            facts.depth = max(facts.depth, facts.in_flight)
            weight = presence.weights[customer]
            facts.gaps.charge(customer, charged=first / weight, spent=second / weight)
        elif kind == STARTED:
            facts.waits[customer].append(first)
        elif kind == SETTLED:
            facts.in_flight -= 1
            facts.gaps.serve(customer, first)
            facts.served[customer] += second
            facts.end = at
        if change < 0:
            facts.gaps.leave(customer)
    return facts


def _paired(log: ServiceLog, most: int) -> Sequence[int]:
    """The customers to compare pair by pair: fewer in a long log, so that it takes seconds."""
    counts = [0] * len(log.customers)
    for moment in log:
        if moment.kind == SETTLED:
            counts[moment.customer] += 1
    room = _COMPARISONS // max(1, sum(counts))
    ordered = sorted(range(len(counts)), key=lambda one: -counts[one])
    return ordered[: min(most, max(_LEAST_PAIRED, room))]
