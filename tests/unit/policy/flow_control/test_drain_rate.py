"""How fast a backlog is worked off, reported by what is claimed while something waits."""

from datetime import UTC, datetime

import pytest

from pop_stream.policy.flow_control.target_depth import DrainRate

START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


class Watched:
    """A backlog that is looked at at given seconds."""

    def __init__(self):
        self.drain, self.claimed = DrainRate(), 0

    def look(self, at, claims=0, *, waits=True):
        self.claimed += claims
        self.drain.observe(self.claimed, waits=waits, now=START + at)
        return self.drain.per_s


def test_nothing_is_known_at_first():
    watched = Watched()
    assert watched.look(0) == 0.0
    assert watched.look(0.05, claims=8) == 0.0
    assert watched.look(4, claims=0) == 2.0


def test_runners_that_are_all_busy_are_part_of_the_pace():
    """Two at a time, six seconds each: a third of an agenda a second."""
    watched = Watched()
    for second in range(120):
        reported = watched.look(second, claims=0 if second % 6 else 2)
        if second > 20:
            assert reported == pytest.approx(1 / 3, rel=0.3)


def test_time_in_which_nothing_waits_does_not_count():
    watched = Watched()
    watched.look(0)
    assert watched.look(10, claims=20, waits=False) == 2.0
    assert watched.look(1_000, claims=5) == 2.0
    assert watched.look(1_010, claims=20) == 2.0


@pytest.mark.parametrize(("every_s", "claims"), [(0.5, 50), (30.0, 2)])
def test_a_new_pace_is_soon_known(every_s, claims):
    watched, at = Watched(), 0.0
    for _ in range(1_000):
        at += every_s
        watched.look(at, claims=10 * claims)
    for _ in range(int(max(40.0, 16 * every_s) / every_s)):
        at += every_s
        reported = watched.look(at, claims=claims)
    assert reported == pytest.approx(claims / every_s, rel=0.15)


def test_a_clock_that_is_set_back_does_not_count():
    watched = Watched()
    watched.look(100)
    assert watched.look(110, claims=20) == 2.0
    assert watched.look(50, claims=20) == 2.0
    assert watched.look(60, claims=20) == 2.0
