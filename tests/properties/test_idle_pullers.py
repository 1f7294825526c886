"""What pullers say of their idle runners, and what the gate makes of it, for any of them."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from pop_stream.model.definitions import Insight
from pop_stream.model.events.scheduling import IdleRunners
from pop_stream.policy.backlog.flow_counts import (
    FRESH_FOR_S,
    MAX_PULLERS,
    FlowCounts,
    IdleRunnerCounts,
)
from pop_stream.policy.flow_control.emission_gate import CurrentDepth, budget
from pop_stream.policy.flow_control.target_depth import TargetDepth

NOW = datetime(2026, 1, 1, tzinfo=UTC).timestamp()

pullers = st.sampled_from("pqr")
reported = st.lists(
    st.tuples(st.floats(0, 2 * FRESH_FOR_S), st.dictionaries(pullers, st.integers(-2, 60)))
)


def said(counts):
    return [IdleRunners(puller, count) for puller, count in counts.items()]


@given(reported, st.floats(0, 3 * FRESH_FOR_S))
def test_of_each_puller_the_last_word_counts_and_not_for_long(words, later):
    idle, now, last = IdleRunnerCounts(), 0.0, {}
    for pause, counts in words:
        now += pause
        idle.update(said(counts), now)
        last |= {puller: (count, now) for puller, count in counts.items()}
    now += later
    lately = [max(0, count) for count, at in last.values() if now - at < FRESH_FOR_S]
    assert idle.count(now) == sum(lately)


@given(reported)
def test_by_a_clock_that_was_set_back_nobody_is_idle(words):
    idle, now = IdleRunnerCounts(), 10.0
    for pause, counts in words:
        idle.update(said(counts), now := now + pause)
    assert idle.count(9.0) == 0


def test_however_many_names_there_are_memory_is_bounded():
    idle = IdleRunnerCounts()
    for number in range(MAX_PULLERS + 5):
        idle.update(said({f"p{number}": 1}), 0.0)
    assert idle.count(0.0) == MAX_PULLERS
    idle.update(said({"p5": 3}), 0.0)
    idle.update(said({"new": 1}), 0.0)
    assert idle.count(0.0) == MAX_PULLERS + 2, "who spoke last is not forgotten first"


@given(
    idle=st.integers(0, 6_000),
    unclaimed=st.integers(0, 6_000),
    cap=st.none() | st.integers(1, 60),
    running=st.integers(0, 60),
)
def test_idle_runners_bring_out_what_they_can_start_and_no_more(idle, unclaimed, cap, running):
    """Else as if nobody were idle: what is beyond them is the target's and the cap's to say."""
    insight = Insight(id="media", max_in_flight=cap)
    depth = CurrentDepth(unclaimed=unclaimed, in_flight=unclaimed + running)

    def may_go(idle):
        pace = TargetDepth()
        pace.observe(FlowCounts(emitted=0, claimed=0, ready=1, idle=idle), NOW)
        return budget(insight, depth, pace, idle_returners=lambda: 0)

    least, now = may_go(0), may_go(idle)
    assert now >= least
    if now > least:
        assert unclaimed + now <= idle
    if cap is not None:
        assert now <= max(0, cap - depth.in_flight)
    elif unclaimed < min(idle, 5_000) * 3 // 4:
        assert unclaimed + now >= min(idle, 5_000)
