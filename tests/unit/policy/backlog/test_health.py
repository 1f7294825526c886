"""The health coefficient: what is seen, what is reported, and which of it counts."""

import pytest
from backlogs import backlog, failed, settled, several
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pop_stream.model.events.base import HealthValue
from pop_stream.model.insight_options import HealthScaling
from pop_stream.policy.backlog.health import (
    HEALTHY,
    MAX_CUSTOMERS,
    MAX_SOURCES,
    HealthCoefficient,
    HealthTracker,
)

SCALING = HealthScaling(
    failures_from=0.2,
    failures_to=0.6,
    losses_from=0.0,
    losses_to=0.5,
    least=0.1,
    half_life_s=60,
    min_attempts=10,
)


def tracker(**ends):
    """By customer, how many attempts ended done, failed and lost; all at once."""
    one = HealthTracker()
    for customer_id, (done, not_done, lost) in ends.items():
        for end, count in (("done", done), ("failed", not_done), ("lost", lost)):
            for _ in range(count):
                one.note(customer_id, end, 0.0, SCALING)
    return one


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((10, 0, 0), HEALTHY),
        ((8, 2, 0), HEALTHY),
        ((6, 4, 0), HealthCoefficient(0.55, "failures")),
        ((2, 8, 0), HealthCoefficient(0.1, "failures")),
        ((9, 0, 1), HealthCoefficient(0.82, "losses")),
        ((5, 0, 5), HealthCoefficient(0.1, "losses")),
        ((5, 4, 1), HealthCoefficient(0.55, "failures")),
        ((0, 9, 0), HEALTHY),  # too few to say anything
    ],
)
def test_the_worse_of_failures_and_losses_counts(ends, expected):
    found = tracker(ann=ends).at(0.0, SCALING)
    assert (found.coefficient, found.by) == (pytest.approx(expected.coefficient), expected.by)


def test_a_customer_that_fails_always_counts_as_one_of_many():
    ends = {f"c{n}": (10, 0, 0) for n in range(9)}
    assert tracker(**ends, bad=(0, 10_000, 0)).at(0.0, SCALING) is HEALTHY


def test_what_was_seen_fades():
    one = tracker(ann=(0, 40, 0))
    assert one.at(60.0, SCALING).coefficient == pytest.approx(0.1)
    assert one.at(121.0, SCALING) is HEALTHY  # fewer than ten are left of forty


def test_without_scaling_failures_count_for_nothing():
    one = HealthTracker()
    for _ in range(100):
        one.note("ann", "failed", 0.0, None)
    assert one.at(0.0, None) is HEALTHY
    assert one.at(0.0, SCALING) is HEALTHY


def test_the_worst_of_reported_values_counts_until_it_is_void():
    one = HealthTracker()
    one.report("disk", HealthValue(0.5, 10.0), 0.0)
    one.report("queue", HealthValue(0.75, 20.0), 0.0)
    assert one.at(9.9, None) == HealthCoefficient(0.5, "disk")
    assert one.at(10.0, None) == HealthCoefficient(0.75, "queue")
    assert one.at(20.0, None) is HEALTHY
    one.report("disk", HealthValue(0.0, 40.0), 20.0)
    assert one.at(21.0, None) == HealthCoefficient(0.0, "disk")
    one.report("disk", HealthValue(1.0, 40.0), 22.0)
    assert one.at(22.0, None) is HEALTHY


def test_what_is_remembered_is_bounded():
    one = HealthTracker()
    for number in range(MAX_SOURCES + 20):
        one.report(f"s{number}", HealthValue(0.5, 1_000.0 + number), 0.0)
    assert len(one.all()) == MAX_SOURCES
    assert "s0" not in one.all()
    for number in range(MAX_CUSTOMERS + 20):
        one.note(f"c{number}", "failed", 0.0, SCALING)
    assert len(one._recent) == MAX_CUSTOMERS


@given(
    reports=st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.floats(0, 1),
            st.floats(1, 100),
            st.floats(0, 100),
        ),
        max_size=30,
    ),
    restarts=st.sets(st.integers(0, 29)),
)
def test_reported_values_survive_restarts(reports, restarts):
    without = backlog()
    one, deltas = backlog(), []
    for step, (source, coefficient, until, now) in enumerate(
        sorted(reports, key=lambda r: r[3])
    ):
        value = HealthValue(coefficient, until)
        for target in (without, one):
            target.report_health(source, value, now)
        deltas.append(one.drain_delta())
        if step in restarts:
            deltas = [one.snapshot()] if step % 2 else deltas
            one = backlog()
            one.restore([], deltas)
        assert one.health.at(now, None) == without.health.at(now, None)


def test_attempts_of_a_backlog_are_counted_once():
    one = backlog(health=SCALING)
    one.place(several("ann", 20))
    one.choose(20)
    for number in range(20):
        end = (
            settled(f"ann-{number}") if number % 2 else failed(f"ann-{number}", retryable=False)
        )
        one.settle(end)
        one.settle(end)
    assert one.health.at(0.0, SCALING).coefficient == pytest.approx(1 - 0.9 * 0.75)


def test_lost_attempts_of_a_backlog_count_as_lost():
    one = backlog(health=SCALING, lease_ms=1000)
    one.place(several("ann", 10))
    one.choose(10)
    for number in range(10):
        one.claim(f"ann-{number}", 1)
    one.attempts.expire_leases(5.0, 5.0)
    assert one.health.at(5.0, SCALING) == HealthCoefficient(pytest.approx(0.1), "losses")


@pytest.mark.parametrize("what", ["failures", "losses"])
def test_a_ramp_that_does_not_rise_is_refused(what):
    with pytest.raises(ValidationError, match=f"lower {what}_from or raise {what}_to"):
        HealthScaling(**{f"{what}_from": 0.5, f"{what}_to": 0.5})
