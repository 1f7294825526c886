"""What a schedule submits: on time, after an outage, and while others run."""

from datetime import UTC, datetime, timedelta
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pop_stream.model.agenda import parse_agenda
from pop_stream.model.events.occasions import ScheduleCommanded, ScheduleState
from pop_stream.model.schedule import Schedule, nominal_of, position_of, schedule_of
from pop_stream.policy.schedules.plan import (
    Plan,
    apply_command,
    apply_end,
    backfilled,
    begin,
    plan,
    status,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SUBMISSION = {
    "customer_id": "acme",
    "operations": [
        {
            "name": "a",
            "type": "noop",
            "payload": {
                "at": "@<pop.occasion::/nominal>",
                "since": "@<pop.occasion::/previous>",
                "until": "@<pop.occasion::/next>",
            },
        }
    ],
}


def schedule(**fields):
    defaults = {
        "id": "tick@acme",
        "owner": "acme",
        "trigger": {"cron": "0 * * * *"},
        "submission": SUBMISSION,
    }
    return Schedule.model_validate({**defaults, **fields})


def hours(made):
    return [round((one.nominal - NOON) / HOUR, 3) for one in made.occurrences]


def after_hours(one, state, count, now=0.0):
    return plan(one, state, NOON + (count + now) * HOUR)


def started(one, **known):
    return ScheduleState(schedule_id=one.id, position=position_of(NOON), **known)


# ---- on time ----


def test_what_is_due_is_submitted_once_with_the_instants_beside_it():
    one = schedule()
    first = after_hours(one, begin(one, NOON), 1)
    assert hours(first) == [1]
    assert first.next_at == NOON + 2 * HOUR
    assert hours(plan(one, first.state, NOON + HOUR)) == []
    second = after_hours(one, first.state, 2)
    agenda = parse_agenda(second.occurrences[0].body())
    assert agenda.id == "tick.20260101T140000Z@acme"
    assert agenda.link_id == "tick"
    assert (agenda.series.id, agenda.series.position) == (
        "schedule:tick",
        position_of(NOON + 2 * HOUR),
    )
    assert agenda.operations[0].payload == {
        "at": "2026-01-01T14:00:00Z",
        "since": "2026-01-01T13:00:00Z",
        "until": "2026-01-01T15:00:00Z",
    }
    assert schedule_of(agenda.id) == one.id


def test_operators_schedules_have_series_of_their_own():
    fields = {"id": "tick", "owner": None}
    made = after_hours(schedule(**fields), begin(schedule(**fields), NOON), 1)
    assert made.occurrences[0].series.id == "operators-schedule:tick"
    assert made.occurrences[0].agenda_id == "tick.20260101T130000Z"


def test_start_end_and_exceptions_bound_it():
    one = schedule(
        start="2026-01-01T14:00:00Z",
        end="2026-01-02T02:00:00Z",
        exceptions=["2026-01-01T15:00:00Z", "2026-01-02"],
        catch_up_s=1_000_000,
    )
    made = plan(one, begin(one, NOON), NOON + 30 * HOUR)
    assert hours(made) == [2, *range(4, 12)]
    assert made.next_at is None
    assert status(one, made.state, NOON + 30 * HOUR) == "ended"


def test_an_expiry_follows_the_nominal_time():
    one = schedule(expires_after_s=600)
    made = after_hours(one, started(one), 1)
    assert parse_agenda(made.occurrences[0].body()).expires_at == NOON + HOUR + HOUR / 6


def test_jitter_delays_and_keeps_order_and_nominal_time():
    one = schedule(trigger={"every_s": 60}, jitter_s=300)
    state, seen, now = started(one), [], NOON
    for _ in range(400):
        now += timedelta(seconds=15)
        made = plan(one, state, now)
        for each in made.occurrences:
            assert timedelta(0) <= now - each.nominal <= timedelta(seconds=315 + 300)
            seen.append(each.nominal)
        state = made.state
    assert seen == sorted(seen)
    assert {now.second for now in seen} == {0}
    assert len({one.due_at(at) - at for at in seen}) > 50


def test_a_clock_that_was_set_back_submits_nothing_twice():
    one = schedule()
    made = after_hours(one, started(one), 2)
    assert hours(after_hours(one, made.state, 1)) == []
    assert after_hours(one, made.state, 1).state == made.state


# ---- after an outage ----


@pytest.mark.parametrize(
    ("fields", "wanted", "missed"),
    [
        ({}, [1, 2, 3, 4, 5], 0),
        ({"max_catch_up": 2}, [3, 4, 5], 2),
        ({"misfire": "coalesce"}, [4, 5], 3),
        ({"misfire": "skip"}, [5], 4),
        ({"catch_up_s": 9_000}, [3, 4, 5], 2),
    ],
)
def test_what_is_late_is_made_up_for_as_the_policy_says(fields, wanted, missed):
    one = schedule(**fields)
    made = after_hours(one, started(one), 5)
    assert hours(made) == wanted
    assert made.state.missed == missed


def test_an_outage_of_years_is_passed_over():
    one = schedule(trigger={"every_s": 1}, catch_up_s=60)
    made = plan(one, started(one), NOON + timedelta(days=2_000))
    assert made.state.missed >= 1_000
    assert len(made.occurrences) == 61


def test_with_a_start_that_has_passed_nothing_since_is_lost():
    one = schedule(start=(NOON - 2 * HOUR).isoformat())
    assert hours(plan(one, begin(one, NOON), NOON)) == [-2, -1, 0]


# ---- paused ----


def test_a_pause_skips():
    paused = schedule(paused=True)
    made = after_hours(paused, started(paused), 3)
    assert (hours(made), made.state.skipped) == ([], 3)
    assert hours(after_hours(schedule(), made.state, 4)) == [4]
    assert status(paused, made.state, NOON) == "paused"


def test_failures_in_a_row_pause_it_until_it_is_resumed():
    one = schedule(pause_after_failures=2)
    state = started(one)
    for hour, outcome in enumerate(["failed", "succeeded", "failed", "expired"], 1):
        made = after_hours(one, state, hour)
        [each] = made.occurrences
        state = apply_end(one, made.state, each.agenda_id, outcome).state
        assert state.is_paused is (hour == 4)
    assert status(one, state, NOON) == "paused_after_failures"
    made = after_hours(one, state, 6)
    assert hours(made) == []
    resume = ScheduleCommanded(schedule_id=one.id, action="resume", at=NOON)
    state = apply_command(one, made.state, resume, 7).state
    assert hours(after_hours(one, state, 7)) == [7]


# ---- overlap ----


def with_three_due(overlap):
    """One is out; three more fall due, each in its hour."""
    one = schedule(overlap=overlap)
    made = after_hours(one, started(one), 1)
    state, submitted, cancelled = made.state, [], []
    for hour in (2, 3, 4):
        made = after_hours(one, state, hour)
        state = made.state
        submitted += hours(made)
        cancelled += [round((nominal_of(c.position) - NOON) / HOUR) for c in made.cancels]
    return one, state, submitted, cancelled


@pytest.mark.parametrize(
    ("overlap", "submitted", "cancelled", "at_the_end", "skipped"),
    [
        ("allow", [2, 3, 4], [], [], 0),
        ("skip", [], [], [], 3),
        ("buffer_one", [], [], [2], 2),
        ("buffer_all", [], [], [2], 0),
        ("cancel_other", [], [1, 1, 1], [4], 2),
        ("replace", [2, 3, 4], [1, 2, 3], [], 0),
    ],
)
def test_overlap(overlap, submitted, cancelled, at_the_end, skipped):
    one, state, early, stopped = with_three_due(overlap)
    assert (early, stopped, state.skipped) == (submitted, cancelled, skipped)
    made = apply_end(one, state, "tick.20260101T130000Z@acme", "cancelled")
    assert hours(made) == at_the_end
    again = apply_end(one, made.state, "tick.20260101T130000Z@acme", "cancelled")
    assert again == Plan(made.state)


def test_what_waits_goes_one_after_the_other():
    one, state, _, _ = with_three_due("buffer_all")
    for hour, end in ((2, "13"), (3, "14"), (4, "15")):
        made = apply_end(one, state, f"tick.20260101T{end}0000Z@acme", "failed")
        assert hours(made) == [hour]
        state = made.state


def test_of_several_that_are_made_up_for_a_replacement_submits_the_last_alone():
    one = schedule(overlap="replace")
    made = after_hours(one, started(one), 3)
    assert (hours(made), made.cancels, made.state.skipped) == ([3], [], 2)
    assert made.state.fired == 1


# ---- by command ----


def test_a_trigger_by_hand_has_an_id_and_a_series_of_its_own():
    one = schedule()
    wanted = ScheduleCommanded(schedule_id=one.id, action="trigger", at=NOON + HOUR / 2)
    made = apply_command(one, started(one), wanted, 41)
    [each] = made.occurrences
    assert each.agenda_id == "tick.20260101T123000Z~t41@acme"
    assert (each.series.id, each.series.position) == ("schedule:tick~t", 41)
    assert schedule_of(each.agenda_id) == one.id
    assert made.state.position == position_of(NOON)


def test_a_backfill_submits_a_range_as_a_series_of_its_own():
    one = schedule()
    wanted = ScheduleCommanded(
        schedule_id=one.id, action="backfill", at=NOON, first=NOON - 3 * HOUR, last=NOON - HOUR
    )
    made = apply_command(one, started(one), wanted, 42)
    assert hours(made) == [-3, -2, -1]
    assert {each.series.id for each in made.occurrences} == {"schedule:tick~b42"}
    assert len(backfilled(one, NOON, NOON + 5_000 * HOUR)) == 1_001


# ---- whatever crashes ----


class Timekeeper:
    """Two owners of a schedule that crash, and a scheduler that drops what it has placed."""

    def __init__(self, one):
        self.one, self.now = one, NOON
        self.written = self.old = started(one)
        self.last, self.placed = position_of(NOON), []

    def submit(self, made):
        for each in made.occurrences:
            if each.series.position > self.last:
                self.last = each.series.position
                self.placed.append(each.nominal)

    def take(self, seconds, what):
        self.now += timedelta(seconds=seconds)
        made = plan(self.one, self.written, self.now)
        self.submit(made)
        if what == "twin":
            self.submit(plan(self.one, self.old, self.now))
        if what != "crash":
            self.old, self.written = self.written, made.state


STEPS = st.tuples(st.integers(0, 9_000), st.sampled_from(["write", "crash", "twin"]))


@given(steps=st.lists(STEPS, max_size=40), every=st.integers(300, 4_000))
def test_no_instant_is_missed_and_none_is_placed_twice(steps, every):
    """Rows are lost by crashes, and a second owner works from an old one."""
    one = schedule(trigger={"every_s": every}, catch_up_s=10**7, max_catch_up=1_000)
    keeper = Timekeeper(one)
    for seconds, what in steps:
        keeper.take(seconds, what)
    keeper.take(0, "write")
    wanted = takewhile(lambda at: at <= keeper.now, one.instants(NOON))
    assert keeper.placed == [*wanted]


# ---- what is reported of instants that are passed over ----


def reported(made):
    return [((one.nominal - NOON) / HOUR, one.reason) for one in made.passed_over]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"misfire": "skip"}, [(1, "late"), (2, "late")]),
        ({"misfire": "coalesce"}, [(1, "late")]),
        ({"misfire": "fire_all", "max_catch_up": 1}, [(1, "late")]),
        ({"misfire": "fire_all"}, []),
        ({"catch_up_s": 3_600}, [(1, "late")]),
        ({"paused": True}, [(1, "paused"), (2, "paused")]),
        ({"paused": True, "catch_up_s": 3_600}, [(1, "late"), (2, "paused")]),
    ],
)
def test_it_is_reported_why_an_instant_is_passed_over(fields, expected):
    one = schedule(**fields)
    assert reported(after_hours(one, started(one), 2, now=0.5)) == expected


def test_a_pause_after_failures_is_reported_as_such():
    one = schedule(pause_after_failures=1)
    made = after_hours(one, started(one, is_paused=True), 1)
    assert reported(made) == [(1, "paused_after_failures")]


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        ("skip", [(2, "overlap"), (3, "overlap")]),
        ("buffer_one", [(2, None), (3, "overlap")]),
        ("buffer_all", [(2, None), (3, None)]),
        ("cancel_other", [(2, None), (2, "superseded"), (3, None)]),
        ("allow", []),
        ("replace", []),
    ],
)
def test_it_is_reported_what_waits_and_what_a_running_one_keeps_out(overlap, expected):
    one = schedule(overlap=overlap)
    state, seen = started(one), []
    for hour in (1, 2, 3):
        made = after_hours(one, state, hour)
        state, seen = made.state, seen + reported(made)
    assert seen == expected


def test_what_is_replaced_in_the_decision_that_submits_it_is_reported():
    one = schedule(overlap="replace")
    assert reported(after_hours(one, started(one), 2, now=0.5)) == [(1, "superseded")]


def test_of_many_the_last_are_reported():
    one = schedule(trigger={"every_s": 1}, paused=True)
    made = after_hours(one, started(one), 1)
    assert (made.state.skipped, len(made.passed_over)) == (3_600, 100)
    assert made.passed_over[-1].nominal == NOON + HOUR
