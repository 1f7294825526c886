"""What a worker may believe to be its own."""

from datetime import timedelta

from pop_stream.scheduler.insight_registry import PartitionOwnership


class Watch:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def hold_on(watch):
    ownership = PartitionOwnership(timedelta(seconds=6), watch)
    ownership.assign({1, 2})
    return ownership


def test_what_was_assigned_is_held_and_nothing_else():
    ownership = hold_on(Watch())
    assert [one for one in range(4) if ownership.owns(one)] == [1, 2]
    ownership.revoke({2})
    assert [one for one in range(4) if ownership.owns(one)] == [1]
    assert ownership.partitions == {1}


def test_after_a_session_without_an_answer_nothing_is_sure_but_all_is_still_assigned():
    watch = Watch()
    ownership = hold_on(watch)
    watch.now += 5.9
    assert ownership.owns(1)
    watch.now += 0.1
    assert not ownership.owns(1)
    assert ownership.partitions == {1, 2}


def test_a_session_counts_from_the_question_not_from_the_answer():
    watch = Watch()
    ownership = hold_on(watch)
    watch.now += 4
    asked_at = watch.now
    watch.now += 5
    ownership.heartbeat_acknowledged(asked_at)
    assert ownership.owns(1)
    watch.now += 1
    assert not ownership.owns(1)


def test_answers_that_overtake_each_other_take_nothing_back():
    watch = Watch()
    ownership = hold_on(watch)
    watch.now += 3
    ownership.heartbeat_acknowledged(103.0)
    ownership.heartbeat_acknowledged(101.0)
    watch.now = 108.9
    assert ownership.owns(1)


def test_whom_the_group_has_expelled_holds_nothing_until_it_is_given_something_again():
    ownership = hold_on(Watch())
    ownership.expelled()
    assert ownership.partitions == set()
    ownership.assign({1})
    assert ownership.owns(1)


def test_what_was_begun_before_a_loss_has_not_lasted_though_all_is_given_back():
    watch = Watch()
    ownership = hold_on(watch)
    watch.now += 1
    begun = watch.now
    assert ownership.held_since(begun)
    watch.now += 7  # frozen past the session: who knows
    assert ownership.held_since(begun) is None
    ownership.heartbeat_acknowledged(watch.now)
    assert ownership.held_since(begun)
    ownership.expelled()
    watch.now += 1
    ownership.assign({1, 2})
    assert ownership.held_since(begun) is False
    assert ownership.held_since(watch.now)


def test_only_what_was_held_can_be_lost():
    watch = Watch()
    ownership = hold_on(watch)
    ownership.revoke({3})
    assert ownership.held_since(watch.now)
    ownership.revoke({1})
    assert ownership.held_since(watch.now) is False


def test_what_was_given_up_has_not_lasted_and_what_follows_has():
    watch = Watch()
    ownership = hold_on(watch)
    begun = watch.now
    ownership.invalidate()
    assert ownership.owns(1)
    assert ownership.held_since(begun) is False
    watch.now += 0.1
    assert ownership.held_since(watch.now)
