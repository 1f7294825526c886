"""The report's arithmetic."""

import pytest

from pop_stream.lab.demo.statistics import contended_span, percentile, service_within
from pop_stream.lab.fairness_metrics.service_log import ServedAttempt
from pop_stream.model.ids import CustomerId


def served(arrived, emitted, *, spent=1.0):
    return ServedAttempt(
        customer_id=CustomerId("any"),
        submitted_at=0,
        arrived_at=arrived,
        emitted_at=emitted,
        started_at=emitted + 50,
        ended_at=emitted + 60,
        charged=spent,
        spent=spent,
    )


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


def test_contention_lasts_from_the_last_arrival_to_the_first_backlog_that_empties():
    flood = [served(0, 1), served(0, 90)]
    small = [served(5, 6), served(6, 30)]
    assert contended_span({"flood": flood, "small": small}) == (5, 30)


def test_backlogs_that_never_met_were_never_contended():
    assert contended_span({"early": [served(0, 1)], "late": [served(5, 6)]}) is None


def test_a_customer_that_was_never_served_leaves_no_contended_span():
    assert contended_span({"served": [served(0, 9)], "starved": []}) is None


def test_given_is_what_was_emitted_within_the_span_whenever_it_ran():
    own = [served(0, 1, spent=8), served(0, 5, spent=2), served(0, 9, spent=3), served(0, 10)]
    assert service_within(own, (5, 9)) == 5
