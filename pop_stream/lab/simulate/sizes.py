"""How small, middle and big customers fared, beside first come, first served.

A customer is *small* if it had less than half of an equal part of all worker-seconds, *big* if
more than twice one, else *middle*. Who is small pays most for others' work and gains most by
fairness, so one figure over all says little.

The *slowdown* of an agenda is its wait and run by its run: 1 if it did not wait. A run counts
as 10 s at least, or as the median run if that is shorter, or whatever runs for a moment would
decide it all (bounded slowdown: Feitelson et al., "Theory and Practice in Parallel Job
Scheduling", JSSPP 1997).
"""

from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import fsum
from statistics import median_low
from typing import Final

from pop_stream.lab.fairness_metrics.audit import WaitDistribution, wait_distribution
from pop_stream.lab.fairness_metrics.service_log import EMITTED, STARTED, ServiceLog
from pop_stream.model.ids import CustomerId

SIZES: Final = ("small", "middle", "big")
MIN_RUN_S: Final = 10.0
_MOMENT_S: Final = 1e-3

_SMALL: Final = 0.5
_BIG: Final = 2.0

ByCustomer = Mapping[CustomerId, Sequence[float]]


@dataclass(frozen=True, slots=True)
class CustomerTimes:
    """Of each customer's agendas, in order of their starts, in seconds.

    Attributes:
        waits: From submission to start.
        runs: From start to end.
    """

    waits: ByCustomer
    runs: ByCustomer


@dataclass(frozen=True, slots=True)
class SizeRow:
    """All customers of one size.

    Attributes:
        part: Of all worker-seconds, 0 to 1.
        slowdowns: As a distribution; without unit.
        fifo_waits: What the waits would have been first come, first served.
    """

    size: str
    customers: int
    part: float
    waits: WaitDistribution
    slowdowns: WaitDistribution
    fifo_waits: WaitDistribution
    fifo_slowdowns: WaitDistribution


def customer_times(log: ServiceLog) -> CustomerTimes:
    """Waits and runs from a log in which each customer's agendas start as they were emitted."""
    waits, runs = ([array("d") for _ in log.customers] for _ in range(2))
    emitted: list[deque[float]] = [deque() for _ in log.customers]
    for kind, _, customer, first, second in log:
        if kind == EMITTED:
            emitted[customer].append(second)
        elif kind == STARTED:
            waits[customer].append(first)
            runs[customer].append(emitted[customer].popleft())
    return CustomerTimes(
        waits=dict(zip(log.customers, waits, strict=True)),
        runs=dict(zip(log.customers, runs, strict=True)),
    )


def sizes_of(work: Mapping[CustomerId, float]) -> Mapping[CustomerId, str]:
    """Each customer's size by its worker-seconds."""
    equal = fsum(work.values()) / max(1, len(work))

    def size(worker_s: float) -> str:
        if worker_s < _SMALL * equal:
            return "small"
        return "big" if worker_s > _BIG * equal else "middle"

    return {customer: size(worker_s) for customer, worker_s in work.items()}


def min_run_s(times: Iterable[CustomerTimes]) -> float:
    """What a run counts as at least, in slowdowns."""
    runs = [*chain.from_iterable(chain.from_iterable(one.runs.values() for one in times))]
    return max(_MOMENT_S, min(MIN_RUN_S, median_low(runs))) if runs else _MOMENT_S


def size_rows(times: Sequence[CustomerTimes], fifo: Sequence[CustomerTimes]) -> list[SizeRow]:
    """A row a size, if any customer is of it.

    Args:
        times: Of each insight.
        fifo: The same work first come, first served.
    """
    work: dict[CustomerId, float] = {}
    for one in times:
        for customer, runs in one.runs.items():
            work[customer] = work.get(customer, 0.0) + fsum(runs)
    sizes, total = sizes_of(work), fsum(work.values())
    least_s = min_run_s(times)
    rows: list[SizeRow] = []
    for size in SIZES:
        members = [one for one in work if sizes[one] == size]
        if not members:
            continue
        waits, slowdowns = _distributions(times, members, least_s)
        fifo_waits, fifo_slowdowns = _distributions(fifo, members, least_s)
        part = fsum(work[one] for one in members) / total if total else 0.0
        rows.append(
            SizeRow(size, len(members), part, waits, slowdowns, fifo_waits, fifo_slowdowns)
        )
    return rows


def _distributions(
    times: Sequence[CustomerTimes], members: Sequence[CustomerId], least_s: float
) -> tuple[WaitDistribution, WaitDistribution]:
    waits, slowdowns = array("d"), array("d")
    for one in times:
        for customer in members:
            own = one.waits.get(customer, ())
            waits.extend(own)
            slowdowns.extend(
                max(1.0, (wait + run) / max(run, least_s))
                for wait, run in zip(own, one.runs.get(customer, ()), strict=True)
            )
    return wait_distribution(waits), wait_distribution(slowdowns)
