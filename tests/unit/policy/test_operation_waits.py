"""How long an operation waits, and when that was too long."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pop_stream.model.retry import DEFAULT_WAIT_S, MAX_DEFERRAL_S, MIN_DEFERRAL_S
from pop_stream.policy.operation_waits import timed_out, wait_on

START = datetime(2026, 1, 1, tzinfo=UTC)


def after(seconds):
    return START + timedelta(seconds=seconds)


def test_the_next_look_is_after_the_pause_asked_for():
    wait = wait_on(since=START, now=after(10), recheck_s=30, within_s=600)
    assert (wait.since, wait.until, wait.gives_up_at) == (START, after(40), after(600))


def test_the_last_look_is_at_the_end_of_the_time_allowed():
    assert wait_on(since=START, now=after(590), recheck_s=30, within_s=600).until == after(600)
    assert wait_on(since=START, now=after(600), recheck_s=30, within_s=600) is None


def test_a_wait_without_a_limit_of_its_own_ends_after_a_week():
    wait = wait_on(since=START, now=START, recheck_s=30, within_s=None)
    assert wait.gives_up_at == after(DEFAULT_WAIT_S)


def test_a_sleep_knows_its_end_and_has_no_limit():
    wait = wait_on(since=START, now=after(600), recheck_s=3_600, within_s=60, kind="sleep")
    assert (wait.until, wait.gives_up_at) == (after(4_200), None)


def test_a_time_out_says_how_long_it_was_and_what_for():
    said = timed_out(START, after(601), "no file yet")
    assert "waited 601 s in vain: no file yet" in said
    assert "wait_within_s" in said


@given(
    st.floats(0, 1e8),
    st.floats(allow_nan=False),
    st.none() | st.floats(0.001, MAX_DEFERRAL_S),
    st.sampled_from(["check", "signal", "approval", "sleep"]),
)
def test_whatever_is_asked_for_the_wait_is_bounded(waited_s, recheck_s, within_s, kind):
    now = after(waited_s)
    wait = wait_on(since=START, now=now, recheck_s=recheck_s, within_s=within_s, kind=kind)
    limit = after(DEFAULT_WAIT_S if within_s is None else within_s)
    assert (wait is None) == (kind != "sleep" and now >= limit)
    if wait is not None:
        assert now < wait.until <= now + timedelta(seconds=MAX_DEFERRAL_S)
        assert kind == "sleep" or wait.until <= limit
        assert wait.until >= min(now + timedelta(seconds=MIN_DEFERRAL_S), limit)
