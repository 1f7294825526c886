"""The gate: how many may go, by table."""

import itertools

import pytest

from pop_stream.model.definitions import Insight
from pop_stream.policy.backlog.health import HEALTHY, HealthCoefficient
from pop_stream.policy.flow_control.emission_gate import (
    INITIAL_TARGET,
    MAX_TARGET,
    CurrentDepth,
    budget,
    in_flight_cap,
    is_half_full,
    target,
)
from pop_stream.policy.flow_control.target_depth import TargetDepth


class KnownTargetDepth(TargetDepth):
    """A pace that asks for so many."""

    def __init__(self, wanted=None):
        super().__init__()
        self._wanted = wanted
        self.asked_for_s = None

    def target(self, wanted_wait_s):
        self.asked_for_s = wanted_wait_s
        return self._wanted


def insight(**fields):
    return Insight(id="media", **fields)


def may_go(unclaimed, in_flight=0, *, pace=None, idle_returners=0, **fields):
    depth = CurrentDepth(unclaimed=unclaimed, in_flight=in_flight)
    return budget(
        insight(**fields), depth, pace or TargetDepth(), idle_returners=lambda: idle_returners
    )


@pytest.mark.parametrize(
    ("unclaimed", "expected"), [(0, 12), (1, 11), (8, 4), (9, 0), (12, 0), (99, 0)]
)
def test_a_refill_starts_below_three_quarters_and_fills_to_the_target(unclaimed, expected):
    assert may_go(unclaimed, target=12) == expected


@pytest.mark.parametrize(
    ("low_water", "unclaimed", "expected"),
    [(8, 7, 3), (8, 8, 0), (10, 9, 1), (10, 10, 0), (1, 0, 10), (1, 1, 0)],
)
def test_low_water_is_as_defined(low_water, unclaimed, expected):
    assert may_go(unclaimed, target=10, low_water=low_water) == expected


@pytest.mark.parametrize(
    ("unclaimed", "idle_returners", "expected"),
    [(8, 1, 4), (9, 1, 1), (9, 2, 2), (9, 7, 3), (11, 2, 1), (12, 2, 0), (99, 2, 0)],
)
def test_idle_returners_need_not_wait_until_the_topic_is_low(
    unclaimed, idle_returners, expected
):
    assert may_go(unclaimed, idle_returners=idle_returners, target=12) == expected


def idle_pace(idle, wanted=None):
    pace = KnownTargetDepth(wanted)
    pace.idle = idle
    return pace


@pytest.mark.parametrize(
    ("wanted", "idle", "expected"),
    [
        (None, 0, INITIAL_TARGET),
        (None, 50, 50),
        (20, 50, 50),
        (60, 50, 60),
        (20, 1_000_000, MAX_TARGET),
    ],
)
def test_idle_runners_are_given_one_each_at_least(wanted, idle, expected):
    assert target(insight(), idle_pace(idle, wanted)) == expected


def test_a_fixed_target_is_fixed_whoever_is_idle():
    assert target(insight(target=12), idle_pace(50)) == 12


def test_nothing_goes_while_the_insight_is_paused():
    assert may_go(0, idle_returners=3, paused=True) == 0


def test_a_cap_holds_for_idle_runners_too():
    assert may_go(0, 29, pace=idle_pace(50), max_in_flight=30) == 1


def test_a_cap_holds_for_idle_returners_too():
    assert may_go(9, 29, idle_returners=3, target=12, max_in_flight=30) == 1


@pytest.mark.parametrize("aim", [1, 2, 3])
def test_the_least_targets_let_some_go_and_then_none(aim):
    assert may_go(0, target=aim) == aim
    assert may_go(aim, target=aim) == 0


@pytest.mark.parametrize(("in_flight", "expected"), [(0, 5), (3, 2), (5, 0), (9, 0)])
def test_a_cap_counts_what_runs(in_flight, expected):
    assert may_go(0, in_flight, target=10, max_in_flight=5) == expected


@pytest.mark.parametrize(
    ("unclaimed", "in_flight", "cap", "expected"),
    [
        (5, 5, None, False),
        (6, 6, None, True),
        (0, 999, None, False),
        (0, 3, 6, False),
        (0, 4, 6, True),
        (1, 4, 7, True),
    ],
)
def test_reports_are_wanted_once_more_than_half_of_the_target_or_of_the_cap_is_taken(
    unclaimed, in_flight, cap, expected
):
    depth = CurrentDepth(unclaimed=unclaimed, in_flight=in_flight)
    assert is_half_full(insight(target=10, max_in_flight=cap), depth, TargetDepth()) is expected


def test_a_low_water_above_an_automatic_target_is_that_target():
    pace = KnownTargetDepth(20)
    assert may_go(19, low_water=500, pace=pace) == 1
    assert may_go(20, low_water=500, pace=pace) == 0


def test_an_automatic_target_is_the_paces_for_the_wanted_wait():
    pace = KnownTargetDepth(77)
    assert target(insight(wanted_wait_ms=250), pace) == 77
    assert pace.asked_for_s == 0.25


def test_until_a_pace_is_known_a_first_target_is_tried():
    assert target(insight(), KnownTargetDepth(None)) == INITIAL_TARGET


def test_an_automatic_target_has_a_limit():
    assert target(insight(), KnownTargetDepth(10**9)) == MAX_TARGET


def test_a_fixed_target_does_not_follow_the_pace():
    assert target(insight(target=3), KnownTargetDepth(10**9)) == 3


def test_whatever_the_depth_neither_target_nor_cap_is_exceeded():
    numbers = (0, 1, 2, 7, 30, 1_000)
    choices = itertools.product((1, 2, 7, 30), (None, 1, 2), (None, 1, 5, 40), (0, 1, 50))
    for aim, low, cap, idle_returners in choices:
        fields = {
            "target": aim,
            "low_water": low and min(low, aim),
            "max_in_flight": cap,
            "idle_returners": idle_returners,
        }
        for unclaimed, running in itertools.product(numbers, numbers):
            in_flight = unclaimed + running
            count = may_go(unclaimed, in_flight, **fields)
            assert count >= 0
            assert count == 0 or unclaimed + count <= aim
            assert count == 0 or cap is None or in_flight + count <= cap


def test_more_on_the_topic_never_lets_more_go():
    for aim in (1, 5, 16, 100):
        counts = [may_go(unclaimed, target=aim) for unclaimed in range(2 * aim)]
        assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize(
    ("cap", "coefficient", "usual", "expected"),
    [
        (10, 1.0, 3, 10),
        (10, 0.5, 3, 5),
        (10, 0.29, 3, 2),
        (100, 0.29, 3, 29),
        (10, 0.01, 3, 1),  # some go on, or nobody would see that it is over
        (10, 0.0, 3, 0),
        (None, 1.0, 3, None),
        (None, 0.5, 8, 4),
        (None, 0.5, 0, 1),
    ],
)
def test_the_cap_is_multiplied_by_the_health(cap, coefficient, usual, expected):
    health = HEALTHY if coefficient == 1.0 else HealthCoefficient(coefficient, "disk")
    assert in_flight_cap(insight(max_in_flight=cap), health, usual=usual) == expected


def test_a_paused_insight_has_a_cap_of_nothing():
    assert in_flight_cap(insight(paused=True), HEALTHY, usual=7) == 0
