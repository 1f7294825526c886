"""What a picture of a run shows: everybody's service by time, sampled from a log."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pop_stream.core.audits.service import SETTLED, REWEIGHTED, ServiceLog

NAMED: Final = 7
"""Customers that are drawn in a colour of their own."""

_FAINT: Final = 40
_SAMPLES: Final = 300
_BINS: Final = 75
_MAX_MARKS: Final = 6


@dataclass(frozen=True, slots=True)
class ServiceCurve:
    """One customer's service by time.

    Attributes:
        name: With its weight, if that is not 1.
        heights: Worker-seconds per weight so far, at the samples' instants.
        parts: Of all worker-seconds in each of some equal spans, 0 to 1.
    """

    name: str
    heights: Sequence[float]
    parts: Sequence[float]


@dataclass(frozen=True, slots=True)
class ServiceChart:
    """What is drawn.

    Attributes:
        instants: Of the samples, in seconds.
        named: The customers with the most work.
        faint: Further ones, as far as they can be told apart.
        others: How many there are beside the named ones.
        marks: Instants when weights changed, and to what.
    """

    title: str
    instants: Sequence[float]
    named: Sequence[ServiceCurve]
    faint: Sequence[ServiceCurve]
    others: int
    marks: Sequence[tuple[float, str]]


def chart_of(title: str, log: ServiceLog) -> ServiceChart:
    """Sample everybody's service, in one pass over the log."""
    sampled = _sample(log)
    work = sampled.work[-1]
    order = sorted(range(len(work)), key=lambda one: (-work[one], log.customers[one]))
    parts = _parts(sampled.work)

    def course(customer: int) -> ServiceCurve:
        return ServiceCurve(
            name=_label(log.customers[customer], sampled.weights[customer]),
            heights=[row[customer] for row in sampled.served],
            parts=[row[customer] for row in parts],
        )

    return ServiceChart(
        title=title,
        instants=sampled.instants,
        named=[course(one) for one in order[:NAMED]],
        faint=[course(one) for one in order[NAMED : NAMED + _FAINT]],
        others=max(0, len(order) - NAMED),
        marks=sampled.marks[:_MAX_MARKS],
    )


@dataclass(slots=True)
class _ServiceSamples:
    """Rows of one value a customer: served per weight, and worker-seconds."""

    instants: list[float]
    served: list[list[float]]
    work: list[list[float]]
    weights: list[float]
    marks: list[tuple[float, str]]


def _sample(log: ServiceLog) -> _ServiceSamples:
    count = len(log.customers)
    served, work, weights = [0.0] * count, [0.0] * count, [1.0] * count
    begin, end = log.span
    step = (end - begin) / _SAMPLES or 1.0
    found = _ServiceSamples([], [], [], weights, [])

    def sample() -> None:
        found.instants.append(len(found.instants) * step)
        found.served.append([*served])
        found.work.append([*work])

    for kind, at, customer, first, second in log:
        while at > begin + len(found.instants) * step:
            sample()
        if kind == SETTLED:
            served[customer] += first
            work[customer] += second
        elif kind == REWEIGHTED:
            if weights[customer] != 1 or at > begin + step:
                found.marks.append((at - begin, f"{log.customers[customer]} weighs {first:g}"))
            weights[customer] = first
    sample()
    return found


def _parts(work: Sequence[Sequence[float]]) -> Sequence[Sequence[float]]:
    """Everybody's part of the worker-seconds of each span; all zero if there were none."""
    last = len(work) - 1
    bounds = [work[round(last * number / _BINS)] for number in range(_BINS + 1)]
    parts: list[list[float]] = []
    for before, after in pairwise(bounds):
        gained = [late - early for early, late in zip(before, after, strict=True)]
        total = sum(gained)
        parts.append([one / total if total > 0 else 0.0 for one in gained])
    return parts


def _label(name: str, weight: float, most: int = 18) -> str:
    shown = name if len(name) <= most else f"{name[: most - 1]}…"
    return shown if weight == 1 else f"{shown} (weight {weight:g})"
