"""The present of each level of urgency."""

import pytest

from pop_stream.policy.fairness.virtual_clock import VirtualClock


def test_time_is_the_greatest_tag_emitted():
    clock = VirtualClock(1)
    clock.advance(1, 3.0)
    clock.advance(1, 2.0)
    assert clock.at(1) == 3.0


def test_what_is_emitted_at_a_level_counts_for_all_more_urgent_ones():
    clock = VirtualClock(4)
    clock.advance(3, 5.0)
    clock.advance(1, 7.0)
    assert clock.times == (7.0, 5.0, 5.0, 0.0)


def test_who_turned_out_to_be_behind_takes_its_level_and_those_below_along():
    clock = VirtualClock(4, (9.0, 8.0, 6.0, 1.0))
    clock.pull_back(2, 5.0)
    assert clock.times == (9.0, 5.0, 5.0, 1.0)
    clock.pull_back(1, 20.0)
    assert clock.times == (9.0, 5.0, 5.0, 1.0)


def test_a_leap_brings_all_levels_to_the_same():
    clock = VirtualClock(3, (9.0, 4.0, 1.0))
    clock.jump_to(12.0)
    assert clock.times == (12.0,) * 3
    clock.jump_to(3.0)
    assert clock.times == (12.0,) * 3


@pytest.mark.parametrize(
    ("levels", "times", "expected"),
    [
        (1, (5.0, 3.0, 1.0), (5.0,)),
        (3, (5.0, 3.0, 1.0), (5.0, 3.0, 1.0)),
        (3, (5.0,), (5.0, 5.0, 5.0)),
        (2, (5.0,), (5.0, 5.0)),
    ],
)
def test_it_goes_on_from_what_was_kept_also_with_other_levels(levels, times, expected):
    assert VirtualClock(levels, times).times == expected
