"""The arithmetic of the report: percentiles, Jain's index, the time all were backlogged."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime

from pop_stream.cli.demo.tally import Course, Tally


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


def jain(shares: Sequence[float]) -> float | None:
    """Jain's index of fairness: 1 when all shares are equal, 1/n when one has it all.

    Returns:
        None for no shares, or when all are zero: nothing was shared.

    Source: Jain, Chiu and Hawe, DEC-TR-301, 1984.
    """
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else None


def contended(
    courses: Mapping[str, Sequence[Course]],
) -> tuple[datetime, datetime] | None:
    """The span in which every customer had agendas waiting.

    It begins when the last customer's first agenda was accepted and ends when the first
    customer's last agenda was started; None if the customers' backlogs never overlapped.
    """
    begins, ends = [], []
    for own in courses.values():
        accepted = [one.accepted_at for one in own if one.accepted_at is not None]
        started = [one.started_at for one in own if one.started_at is not None]
        if not accepted or not started:
            return None
        begins.append(min(accepted))
        ends.append(max(started))
    if not begins or max(begins) >= min(ends):
        return None
    return max(begins), min(ends)


def service(courses: Sequence[Course], span: tuple[datetime, datetime]) -> float:
    """Worker-seconds of the agendas that were started within a span."""
    begin, end = span
    return sum(
        one.spent_s
        for one in courses
        if one.started_at is not None and begin <= one.started_at <= end
    )


def pace(tally: Tally) -> float:
    """Agendas per second of the second half of a run: the first is spent on gaining speed."""
    ends = sorted(min(one.successes) for one in tally.courses.values() if one.successes)
    half = len(ends) // 2
    seconds = (ends[-1] - ends[half]).total_seconds() if ends else 0.0
    return max(1.0, (len(ends) - half - 1) / seconds) if seconds else 1.0
