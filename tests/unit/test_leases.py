"""Who was silent longest, and whose record was passed over."""

import pytest

from pop_stream.core.backlog.leases import Leases, Unclaimed


def leases(**heard_at):
    one = Leases()
    for ref, at in enumerate(heard_at.values()):
        one.begin(ref, at)
    return one


def sent(*partitions, now=10.0):
    one = Unclaimed()
    for ref, partition in enumerate(partitions):
        one.send(ref, partition, now)
    return one


def passed(one, lags, since=0, home=0, before=11.0):
    return one.passed(lags, since, lambda _: home, before)


# ---- leases ----


def test_a_sign_of_life_moves_a_lease_behind_the_others():
    one = leases(a=1.0, b=2.0)
    one.begin(0, 3.0)
    assert one.oldest == 2.0
    assert one.take_silent(2.5, 9) == [1]
    assert one.oldest == 3.0


def test_what_is_silent_is_taken_once_the_longest_first_and_only_so_many():
    one = leases(a=1.0, b=2.0, c=3.0, d=4.0)
    assert one.take_silent(4.0, 2) == [0, 1]
    assert not one.is_running(0)
    assert one.take_silent(4.0, 2) == [2]
    assert one.take_silent(4.0, 2) == [], "who was heard in that very instant is not silent"


def test_a_lease_that_is_to_end_soon_is_looked_at_first():
    one = leases(a=10.0, b=20.0)
    one.end_by(1, 30.0, 60.0)
    assert one.oldest == -30.0
    assert one.take_silent(30.1 - 60.0, 9) == [1]


# ---- unclaimed ----


def test_a_record_is_passed_over_once_fewer_lie_behind_the_commit_than_came_from_it_on():
    one = sent(0, 0, 0)
    assert [passed(one, [lag]) for lag in (3, 2, 1, 0)] == [[], [0], [0, 1], [0, 1, 2]]


def test_each_partition_has_its_own_count():
    one = sent(0, 1, 1, 0)
    assert passed(one, [0, 2]) == [0, 3]
    assert passed(one, [2, 0]) == [1, 2]


def test_what_was_sent_after_the_lags_were_asked_for_may_not_be_in_them():
    one = sent(0, 0)
    assert passed(one, [0], since=1) == [0]
    assert passed(one, [0], since=2) == []


def test_nothing_is_said_of_a_partition_whose_lag_is_not_known():
    assert passed(sent(0, 5), [0]) == [0]


@pytest.mark.parametrize(("before", "found"), [(10.0, []), (10.1, [0])])
def test_only_what_was_sent_before_the_instant_is_looked_at(before, found):
    assert passed(sent(0), [0], before=before) == found


def test_what_is_sent_again_lies_behind_the_others():
    one = sent(0, 0)
    one.send(0, 0, 12.0)
    assert one.oldest == 10.0
    assert passed(one, [1], before=11.0) == [1]
    assert passed(one, [0], before=13.0) == [1, 0]


def test_what_was_out_before_a_restart_lies_before_all_that_are_sent_now():
    one = Unclaimed()
    one.recover(7)
    one.send(0, 1, 10.0)
    assert one.sent_at(7) is None
    assert (one.sent_at(0), one.sent_at(8)) == (10.0, None)
    assert [passed(one, [0, lag], home=1) for lag in (2, 1, 0)] == [[], [7], [7, 0]]
    assert passed(one, [0, 1], since=1, home=1) == []
