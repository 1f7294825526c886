"""The arithmetic of a report: runs side by side, percentiles, steady rates."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from pop_stream.lab.demo.statistics import percentile


class ProgressSample(NamedTuple):
    """How far a run was at one instant.

    Attributes:
        at: Seconds since the run began.
        submitted: Agendas handed to the producer.
        ended: Agendas whose end is durable.
    """

    at: float
    submitted: int
    ended: int


def spread(values: Sequence[float], digits: int = 1) -> Mapping[str, float]:
    """Least, median and most of several runs; of none, nothing."""
    if not values:
        return {}
    return {
        "min": round(min(values), digits),
        "median": round(median(values), digits),
        "max": round(max(values), digits),
    }


def percentiles_ms(seconds: Sequence[float]) -> Mapping[str, float | None]:
    """p50, p95, p99 and the most, in milliseconds; None where there was nothing."""
    named = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0}
    found = {name: percentile(seconds, percent) for name, percent in named.items()}
    return {name: None if one is None else round(one * 1e3, 3) for name, one in found.items()}


def rate(
    samples: Sequence[ProgressSample], *, begin: float = 0.0, end: float | None = None
) -> float:
    """Agendas ended a second between two instants of a run.

    Args:
        samples: In order; the first is from before anything was submitted.
        begin: What ended up to the first sample at or after it does not count.
        end: As `begin`, for the end; None is the last sample.
    """
    first = next((one for one in samples if one.at >= begin), samples[-1])
    last = samples[-1]
    if end is not None:
        last = next((one for one in samples if one.at >= end), last)
    span = last.at - first.at
    return (last.ended - first.ended) / span if span > 0 else 0.0


def thinned(samples: Sequence[ProgressSample], most: int = 240) -> list[ProgressSample]:
    """At most so many samples, evenly chosen, the first and the last among them."""
    if len(samples) <= most:
        return [*samples]
    step = (len(samples) - 1) / (most - 1)
    return [samples[round(number * step)] for number in range(most)]
