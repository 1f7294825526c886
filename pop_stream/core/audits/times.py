"""How long agendas waited in a log of service, and how long all of it took."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, fsum

from pop_stream.core.audits.service import SETTLED, STARTED, ServiceLog
from pop_stream.core.values.ids import CustomerId


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
