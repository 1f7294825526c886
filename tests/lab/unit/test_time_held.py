"""The index of runners held, on logs that can be counted by hand."""

import pytest

from pop_stream.lab.fairness_metrics.audit import measure_fairness
from pop_stream.lab.fairness_metrics.service_log import ServiceLog
from pop_stream.lab.fairness_metrics.time_held import (
    jain_of_time_held,
    max_min,
    times_held,
)


def logged(*lines):
    """A log of `at deed customer`; an end says what was spent."""
    log = ServiceLog()
    for line in lines:
        at, deed, name, *values = line.split()
        customer, instant = log.index(name), float(at)
        match deed:
            case "arrives":
                log.arrived(instant, customer)
            case "starts":
                log.emitted(instant, customer, charged=1.0, spent=1.0)
                log.started(instant, customer, waited=0.0)
            case "ends":
                log.settled(instant, customer, spent=float(values[0]), weight=1.0)
            case "weighs":
                log.weighed(instant, customer, float(values[0]))
            case "held":
                log.held(instant, customer)
    return log


@pytest.mark.parametrize(
    ("capacity", "claims", "entitled"),
    [
        (6, [(1, 9), (1, 9)], [3, 3]),
        (6, [(1, 9), (2, 9)], [2, 4]),
        (6, [(1, 1), (1, 9), (1, 9)], [1, 2.5, 2.5]),
        (6, [(4, 1), (1, 9), (1, 2)], [1, 3, 2]),
        (6, [(1, 1), (1, 2)], [1, 2]),
        (0, [(1, 1)], [0]),
        (6, [], []),
    ],
)
def test_capacity_is_divided_by_weight_up_to_what_each_wants(capacity, claims, entitled):
    assert max_min(capacity, claims) == pytest.approx(entitled)


def test_who_starts_one_agenda_at_once_has_its_part():
    log = logged(
        "0 arrives a", "0 arrives a", "0 starts a", "0 starts a",
        "1 arrives b", "10 ends a 10", "10 starts b", "12 ends b 2", "20 ends a 20",
    )  # fmt: skip
    held = times_held(log)

    # From 1 to 10 two runners: one each is due, and a has both. From 10 to 12 each has its own.
    assert (held["a"].held, held["a"].entitled) == (20.0, 11.0)
    assert (held["b"].held, held["b"].entitled) == (2.0, 11.0)


def test_a_customer_with_one_agenda_that_waits_is_seen():
    flood = [f"0 {deed} a" for deed in ("arrives", "starts") for _ in range(4)]
    log = logged(
        *flood, "0 arrives b", *(f"100 ends a {100}" for _ in range(4)), "100 starts b"
    )

    assert measure_fairness(log).jain is None
    assert jain_of_time_held(log) == pytest.approx(0.5)


def test_what_runs_counts_before_it_has_ended():
    log = logged("0 arrives a", "0 arrives b", "0 starts a", "50 weighs b 1")

    assert times_held(log)["a"].held == 50.0
    assert jain_of_time_held(log) == pytest.approx(0.5)


def test_a_whole_agenda_too_much_does_not_count():
    log = logged(
        "0 arrives a", "0 arrives b", "0 starts a", "1 ends a 1", "1 starts b", "2 ends b 1"
    )

    assert [one.part for one in times_held(log).values()] == [1.0, 0.0]
    assert times_held(log)["a"].entitled == 0.5


def test_weights_and_limits_of_ones_own_are_looked_at():
    log = logged(
        "0 weighs a 3", "0 arrives a", "0 arrives b", "0 arrives a", "0 held a",
        "0 starts b", "0 starts a", "4 ends a 4",
    )  # fmt: skip

    assert [one.part for one in times_held(log).values()] == [1.0, 1.0]
    assert jain_of_time_held(log) == 1.0


def test_nobody_competes_alone():
    assert jain_of_time_held(logged("0 arrives a", "0 starts a", "5 ends a 5")) is None
