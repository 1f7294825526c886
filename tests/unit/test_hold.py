"""What a worker may believe to be its own."""

from datetime import timedelta

from pop_stream.scheduler.hold import Hold


class Watch:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def hold_on(watch):
    hold = Hold(timedelta(seconds=6), watch)
    hold.gain({1, 2})
    return hold


def test_what_was_assigned_is_held_and_nothing_else():
    hold = hold_on(Watch())
    assert [one for one in range(4) if hold.is_sure_of(one)] == [1, 2]
    hold.lose({2})
    assert [one for one in range(4) if hold.is_sure_of(one)] == [1]
    assert hold.partitions == {1}


def test_after_a_session_without_an_answer_nothing_is_sure_but_all_is_still_assigned():
    watch = Watch()
    hold = hold_on(watch)
    watch.now += 5.9
    assert hold.is_sure_of(1)
    watch.now += 0.1
    assert not hold.is_sure_of(1)
    assert hold.partitions == {1, 2}


def test_a_session_counts_from_the_question_not_from_the_answer():
    watch = Watch()
    hold = hold_on(watch)
    watch.now += 4
    asked_at = watch.now
    watch.now += 5
    hold.heard(asked_at)
    assert hold.is_sure_of(1)
    watch.now += 1
    assert not hold.is_sure_of(1)


def test_answers_that_overtake_each_other_take_nothing_back():
    watch = Watch()
    hold = hold_on(watch)
    watch.now += 3
    hold.heard(103.0)
    hold.heard(101.0)
    watch.now = 108.9
    assert hold.is_sure_of(1)


def test_whom_the_group_has_expelled_holds_nothing_until_it_is_given_something_again():
    hold = hold_on(Watch())
    hold.forgotten()
    assert hold.partitions == set()
    hold.gain({1})
    assert hold.is_sure_of(1)


def test_what_was_begun_before_a_loss_has_not_lasted_though_all_is_given_back():
    watch = Watch()
    hold = hold_on(watch)
    watch.now += 1
    begun = watch.now
    assert hold.has_lasted(begun)
    watch.now += 7  # frozen past the session: who knows
    assert hold.has_lasted(begun) is None
    hold.heard(watch.now)
    assert hold.has_lasted(begun)
    hold.forgotten()
    watch.now += 1
    hold.gain({1, 2})
    assert hold.has_lasted(begun) is False
    assert hold.has_lasted(watch.now)


def test_only_what_was_held_can_be_lost():
    watch = Watch()
    hold = hold_on(watch)
    hold.lose({3})
    assert hold.has_lasted(watch.now)
    hold.lose({1})
    assert hold.has_lasted(watch.now) is False


def test_what_was_given_up_has_not_lasted_and_what_follows_has():
    watch = Watch()
    hold = hold_on(watch)
    begun = watch.now
    hold.give_up()
    assert hold.is_sure_of(1)
    assert hold.has_lasted(begun) is False
    watch.now += 0.1
    assert hold.has_lasted(watch.now)
