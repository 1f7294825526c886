"""The gate: slots by table, and what a pace makes of claims."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pop_stream.core.admission import LEAST_TARGET, MOST_TARGET, Depth, Pace, slots, target
from pop_stream.core.definitions import Insight

START = datetime(2026, 1, 1, tzinfo=UTC)


def insight(**fields):
    return Insight(id="media", **fields)


def at_pace(rate_per_s, stretch=1.0):
    pace = Pace()
    pace.rate_per_s, pace.stretch = rate_per_s, stretch
    return pace


@pytest.mark.parametrize(
    ("unclaimed", "expected"),
    [(0, 10), (1, 9), (4, 6), (5, 0), (9, 0), (10, 0), (25, 0)],
)
def test_a_refill_starts_below_half_the_target_and_fills_to_it(unclaimed, expected):
    depth = Depth(unclaimed=unclaimed, in_flight=unclaimed)
    assert slots(insight(target=10), depth, Pace()) == expected


@pytest.mark.parametrize(
    ("low_water", "unclaimed", "expected"),
    [(8, 7, 3), (8, 8, 0), (10, 9, 1), (10, 10, 0), (1, 0, 10), (1, 1, 0)],
)
def test_low_water_is_as_defined(low_water, unclaimed, expected):
    depth = Depth(unclaimed=unclaimed, in_flight=0)
    assert slots(insight(target=10, low_water=low_water), depth, Pace()) == expected


def test_the_least_target_lets_one_go_at_a_time():
    one = insight(target=1)
    assert slots(one, Depth(unclaimed=0, in_flight=0), Pace()) == 1
    assert slots(one, Depth(unclaimed=1, in_flight=1), Pace()) == 0


@pytest.mark.parametrize(("in_flight", "expected"), [(0, 5), (3, 2), (5, 0), (9, 0)])
def test_a_cap_counts_what_runs(in_flight, expected):
    depth = Depth(unclaimed=0, in_flight=in_flight)
    assert slots(insight(target=10, max_in_flight=5), depth, Pace()) == expected


def test_a_low_water_above_an_automatic_target_is_that_target():
    one = insight(low_water=500)
    assert slots(one, Depth(unclaimed=LEAST_TARGET - 1, in_flight=0), Pace()) == 1
    assert slots(one, Depth(unclaimed=LEAST_TARGET, in_flight=0), Pace()) == 0


@pytest.mark.parametrize(
    ("rate", "stretch", "wait_ms", "expected"),
    [
        (0.0, 1.0, 100, LEAST_TARGET),
        (50.0, 1.0, 100, LEAST_TARGET),
        (1_000.0, 1.0, 100, 100),
        (1_000.0, 3.0, 100, 300),
        (1_000.0, 1.0, 1_000, 1_000),
        (1e9, 64.0, 60_000, MOST_TARGET),
    ],
)
def test_an_automatic_target_is_rate_times_wanted_wait(rate, stretch, wait_ms, expected):
    assert target(insight(wanted_wait_ms=wait_ms), at_pace(rate, stretch)) == expected


def test_a_fixed_target_does_not_follow_the_pace():
    assert target(insight(target=3), at_pace(1e6, 64.0)) == 3


# ---- pace ----


class Pullers:
    """Claims at a rate, from a topic that holds so much."""

    def __init__(self, pace=None):
        self.pace = pace or Pace()
        self.now = START
        self.claimed = 0
        self.observe(unclaimed=0)

    def observe(self, *, unclaimed, ready=0):
        depth = Depth(unclaimed=unclaimed, in_flight=unclaimed)
        self.pace.observe(self.claimed, depth, ready=ready, now=self.now)

    def run(self, seconds, *, rate, unclaimed, ready=0, step=0.05):
        for _ in range(round(seconds / step)):
            self.now += timedelta(seconds=step)
            self.claimed += round(rate * step)
            self.observe(unclaimed=unclaimed, ready=ready)


def test_the_pace_converges_to_the_rate_of_claims():
    pullers = Pullers()
    pullers.run(5.0, rate=400.0, unclaimed=30)
    assert pullers.pace.rate_per_s == pytest.approx(400.0, rel=0.01)
    pullers.run(5.0, rate=100.0, unclaimed=30)
    assert pullers.pace.rate_per_s == pytest.approx(100.0, rel=0.01)


def test_an_empty_topic_says_nothing_about_speed():
    pullers = Pullers()
    pullers.run(5.0, rate=400.0, unclaimed=30)
    pullers.run(60.0, rate=0.0, unclaimed=0)
    assert pullers.pace.rate_per_s == pytest.approx(400.0, rel=0.01)


def test_the_time_before_work_came_is_not_held_against_the_pullers():
    pullers = Pullers()
    pullers.run(100.0, rate=0.0, unclaimed=0)
    pullers.run(2.0, rate=400.0, unclaimed=30)
    assert pullers.pace.rate_per_s == pytest.approx(400.0, rel=0.05)


def test_pullers_that_stand_still_are_slow():
    pullers = Pullers()
    pullers.run(5.0, rate=400.0, unclaimed=30)
    pullers.run(5.0, rate=0.0, unclaimed=30)
    assert pullers.pace.rate_per_s < 1.0


def test_instants_too_close_are_not_divided_by():
    pullers = Pullers()
    pullers.run(0.015, rate=10_000.0, unclaimed=5, step=0.005)
    assert pullers.pace.rate_per_s == 0.0


def test_a_clock_that_goes_back_does_no_harm():
    pullers = Pullers()
    pullers.run(2.0, rate=400.0, unclaimed=30)
    before = pullers.pace.rate_per_s
    pullers.now -= timedelta(hours=1)
    pullers.claimed += 50
    pullers.observe(unclaimed=30)
    assert pullers.pace.rate_per_s == before
    pullers.run(2.0, rate=100.0, unclaimed=30)
    assert pullers.pace.rate_per_s == pytest.approx(100.0, rel=0.1)


def test_the_stretch_grows_while_pullers_starve_and_falls_back_once_fed():
    pullers = Pullers()
    pullers.run(1.0, rate=400.0, unclaimed=0, ready=100)
    grown = pullers.pace.stretch
    assert grown > 10.0
    pullers.run(10.0, rate=400.0, unclaimed=0, ready=100)
    assert pullers.pace.stretch == 64.0
    pullers.run(5.0, rate=400.0, unclaimed=20, ready=100)
    assert 1.0 < pullers.pace.stretch < 64.0
    pullers.run(60.0, rate=400.0, unclaimed=20, ready=100)
    assert pullers.pace.stretch == 1.0


def test_an_empty_topic_with_nothing_waiting_is_no_starvation():
    pullers = Pullers()
    pullers.run(5.0, rate=400.0, unclaimed=0, ready=0)
    assert pullers.pace.stretch == 1.0


def test_depth_is_a_value():
    depth = Depth(unclaimed=3, in_flight=5)
    assert replace(depth, unclaimed=4) == Depth(unclaimed=4, in_flight=5)
