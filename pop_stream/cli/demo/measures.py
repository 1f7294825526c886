"""The arithmetic of the report: percentiles, shares, the time all were backlogged."""

import math
from collections.abc import Mapping, Sequence

from pop_stream.cli.demo.tally import RunStatistics
from pop_stream.core.audits.service import ServedAttempt


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The nearest-rank percentile: a value that occurred, never one between two.

    Returns:
        None if there are no values.

    Raises:
        ValueError: If `percent` is not above 0 and at most 100.
    """
    if not 0 < percent <= 100:  # noqa: PLR2004  # what a percentage is
        msg = f"a percentile lies above 0 and at most at 100, got {percent}"
        raise ValueError(msg)
    if not values:
        return None
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def contended_span(
    served: Mapping[str, Sequence[ServedAttempt]],
) -> tuple[float, float] | None:
    """The span in which every customer had agendas waiting, in seconds since the epoch.

    It begins when the scheduler had the first agenda of the last customer to come, and ends
    when it emitted the last one of the first that had none left; None if the customers'
    backlogs never overlapped.

    Args:
        served: By customer.
    """
    if not served or not all(served.values()):
        return None
    begin = max(min(one.arrived_at for one in own) for own in served.values())
    end = min(max(one.emitted_at for one in own) for own in served.values())
    return (begin, end) if begin < end else None


def given(served: Sequence[ServedAttempt], span: tuple[float, float]) -> float:
    """Worker-seconds of the agendas that were emitted within a span, its ends included."""
    begin, end = span
    return sum(one.spent for one in served if begin <= one.emitted_at <= end)


def throughput(run_statistics: RunStatistics) -> float:
    """Agendas per second of the second half of a run: the first is spent on gaining speed."""
    ends = sorted(
        min(one.successes) for one in run_statistics.by_agenda.values() if one.successes
    )
    half = len(ends) // 2
    seconds = (ends[-1] - ends[half]).total_seconds() if ends else 0.0
    return max(1.0, (len(ends) - half - 1) / seconds) if seconds else 1.0
