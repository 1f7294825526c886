"""The report's arithmetic."""

from datetime import UTC, datetime, timedelta

import pytest

from pop_stream.cli.demo.measures import contended, jain, percentile, service
from pop_stream.cli.demo.tally import Course

START = datetime(2030, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def course(accepted: float, started: float | None, *, spent_s: float = 1.0) -> Course:
    claims = set() if started is None else {(1, "puller", at(started))}
    return Course("any", accepted_at=at(accepted), claims=claims, spent_s=spent_s)


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([7.0], 50, 7.0),
        ([7.0], 99, 7.0),
        ([3.0, 1.0, 2.0, 4.0], 50, 2.0),
        ([float(n) for n in range(1, 101)], 99, 99.0),
        ([float(n) for n in range(1, 101)], 100, 100.0),
        ([float(n) for n in range(1, 202)], 50, 101.0),
    ],
)
def test_percentile_is_a_value_that_occurred(values, percent, expected):
    assert percentile(values, percent) == expected


def test_percentile_of_nothing_is_unknown():
    assert percentile([], 50) is None


@pytest.mark.parametrize("percent", [0, -1, 100.5])
def test_impossible_percentile_is_refused(percent):
    with pytest.raises(ValueError, match="percentile"):
        percentile([1.0], percent)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [([2.0, 2.0, 2.0], 1.0), ([5.0, 0.0, 0.0, 0.0], 0.25), ([1.0, 3.0], 0.8)],
)
def test_jain_runs_from_one_nth_to_one(shares, expected):
    assert jain(shares) == pytest.approx(expected)


@pytest.mark.parametrize("shares", [[], [0.0, 0.0]])
def test_jain_of_no_service_is_unknown(shares):
    assert jain(shares) is None


def test_contention_lasts_from_the_last_arrival_to_the_first_backlog_that_empties():
    flood = [course(0, 1), course(0, 90)]
    small = [course(5, 6), course(6, 30)]
    assert contended({"flood": flood, "small": small}) == (at(5), at(30))


def test_backlogs_that_never_met_were_never_contended():
    assert contended({"early": [course(0, 1)], "late": [course(5, 6)]}) is None


def test_a_customer_that_was_never_served_leaves_no_contended_span():
    assert contended({"served": [course(0, 9)], "starved": [course(0, None)]}) is None


def test_service_counts_what_started_within_the_span():
    courses = [course(0, 1, spent_s=8), course(0, 5, spent_s=2), course(0, None)]
    assert service(courses, (at(5), at(9))) == 2
