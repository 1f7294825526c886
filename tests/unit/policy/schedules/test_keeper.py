"""The schedules of one owner: due, redefined, gone, and taken over after any crash."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pop_stream.model.events.occasions import OccurrenceEnded, ScheduleCommanded
from pop_stream.model.schedule import Schedule
from pop_stream.policy.schedules.keeper import SLICE, Firing, ScheduleKeeper, merged

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SUBMISSION = {"customer_id": "acme", "operations": [{"name": "a", "type": "noop"}]}


def schedule(schedule_id="tick@acme", **fields):
    defaults = {"owner": "acme", "trigger": {"every_s": 1}, "submission": SUBMISSION}
    return Schedule.model_validate({"id": schedule_id, **defaults, **fields})


def by_id(*schedules):
    return {one.id: one for one in schedules}


def define(keeper, *schedules, at=NOON):
    return merged(keeper.define(by_id(*schedules), at))


def fire(keeper, at):
    firings = []
    while firing := keeper.fire(at):
        firings.append(firing)
    return merged(firings)


def seconds(firing):
    return [round((one.nominal - NOON) / SECOND) for one in firing.occurrences]


def test_what_is_due_is_fired_once_and_its_row_says_so():
    keeper = ScheduleKeeper()
    begun = define(keeper, schedule())
    assert (begun.occurrences, [*begun.rows]) == ([], ["tick@acme"])
    assert keeper.next_at == NOON + SECOND
    fired = fire(keeper, NOON + 3 * SECOND)
    assert seconds(fired) == [1, 2, 3]
    assert fired.rows["tick@acme"].fired == 3
    assert not fire(keeper, NOON + 3 * SECOND)


def test_a_definition_that_is_gone_leaves_a_tombstone_and_fires_no_more():
    keeper = ScheduleKeeper()
    define(keeper, schedule(), schedule("tock@acme"))
    gone = define(keeper, schedule("tock@acme"), at=NOON)
    assert gone.rows["tick@acme"] is None
    fired = fire(keeper, NOON + SECOND)
    assert {one.schedule.id for one in fired.occurrences} == {"tock@acme"}


def test_a_row_whose_schedule_is_not_defined_any_more_goes():
    first = ScheduleKeeper()
    rows = define(first, schedule()).rows
    second = ScheduleKeeper()
    second.load(rows.values())
    assert define(second).rows == {"tick@acme": None}


def test_new_timing_counts_from_now_and_what_was_due_before_is_due_as_it_was():
    keeper = ScheduleKeeper()
    define(keeper, schedule(trigger={"every_s": 10}))
    changed = define(keeper, schedule(), at=NOON + 10.5 * SECOND)
    assert seconds(changed) == [10]
    assert seconds(fire(keeper, NOON + 12 * SECOND)) == [11, 12]


def test_other_fields_change_nothing_of_what_is_due():
    keeper = ScheduleKeeper()
    define(keeper, schedule())
    assert seconds(define(keeper, schedule(title="new"), at=NOON + 2 * SECOND)) == [1, 2]


def test_many_are_decided_in_slices():
    many = [schedule(f"t{number}@acme") for number in range(2 * SLICE + 1)]
    keeper = ScheduleKeeper()
    slices = [*keeper.define(by_id(*many), NOON)]
    assert [len(one.rows) for one in slices] == [SLICE, SLICE, 1]
    assert len(keeper) == len(many)
    assert len(keeper.fire(NOON + SECOND).occurrences) == SLICE
    assert len(fire(keeper, NOON + SECOND).occurrences) == SLICE + 1


def test_an_event_is_applied_once_and_one_of_an_unknown_schedule_not_at_all():
    keeper = ScheduleKeeper()
    define(keeper, schedule(overlap="skip"))
    [one] = fire(keeper, NOON + SECOND).occurrences
    ended = OccurrenceEnded(
        schedule_id="tick@acme", agenda_id=one.agenda_id, outcome="succeeded"
    )
    assert keeper.resume_after() == -1
    assert keeper.apply(ended, 7).rows["tick@acme"].open == ()
    assert keeper.resume_after() is None
    trigger = ScheduleCommanded(schedule_id="tick@acme", action="trigger", at=NOON)
    assert len(keeper.apply(trigger, 8).occurrences) == 1
    assert not keeper.apply(trigger, 8)
    assert not keeper.apply(
        ScheduleCommanded(schedule_id="none@acme", action="trigger", at=NOON), 9
    )


class Scheduler:
    """Places a position of a series once, as the owner of an insight does."""

    def __init__(self):
        self.last, self.placed = {}, []

    def take(self, firing: Firing):
        for one in firing.occurrences:
            series = one.series
            if series.position > self.last.get(series.id, -1):
                self.last[series.id] = series.position
                self.placed.append(one.agenda_id)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["none", "before", "after"]))),
    st.sampled_from(["fire_all", "coalesce"]),
)
def test_no_instant_is_missed_or_placed_twice_wherever_owners_crash(steps, misfire):
    """A crash before the row is written, or a row of a late owner: the next fires again."""
    one = schedule(misfire=misfire)
    rows, scheduler, keeper, now = {}, Scheduler(), ScheduleKeeper(), NOON
    rows |= define(keeper, one).rows
    for passed, crash in steps:
        now += passed * SECOND
        firing = fire(keeper, now)
        scheduler.take(firing)
        if crash != "before":
            rows |= firing.rows
        if crash != "none":
            keeper = ScheduleKeeper()
            keeper.load(rows.values())
            again = define(keeper, one, at=now)
            scheduler.take(again)
            rows |= again.rows
    expected = round((now - NOON) / SECOND)
    assert len(scheduler.placed) == len({*scheduler.placed}) == expected
