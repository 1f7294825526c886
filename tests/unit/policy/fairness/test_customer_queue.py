"""A customer's own backlog: priorities, fairness keys, and what is kept of them."""

from pop_stream.policy.fairness.customer_queue import CustomerQueue, entry_of, ref_in
from pop_stream.policy.fairness.turn_order import MICROSECONDS, Reservation


def entry(ref, *, priority=5, rank=0):
    return entry_of(priority=priority, resumed=False, rank=rank, ref=ref)


def line(*, by_class=False, **keys):
    """A queue with some entries under each key."""
    one = CustomerQueue(by_class=by_class)
    for key, refs in keys.items():
        for ref in refs:
            one.push(entry(ref), key)
    return one


def costs(seconds):
    return Reservation(round(seconds * MICROSECONDS), round(seconds * MICROSECONDS))


def popped(one, count, cost=1.0):
    found = []
    for _ in range(count):
        head = one.head()
        one.pop(head, costs(cost))
        found.append(ref_in(head))
    return found


def test_a_whole_backlog_may_come_in_any_order():
    one = CustomerQueue()
    one.fill({"": [entry(1, rank=2), entry(2, rank=1), entry(3), entry(4, priority=1)]}, {})
    assert one.ready == 4
    assert popped(one, 4) == [4, 3, 2, 1]


def test_keys_that_are_back_have_the_turns_they_had():
    one = CustomerQueue()
    one.restore(1.0, {"k": (1.0, 0), "l": (3.5, 0)})
    one.fill({"l": [entry(1), entry(2)], "k": [entry(3), entry(4), entry(5)]}, {})
    assert one.keys() == {"k": (1.0, 0), "l": (3.5, 0)}
    assert popped(one, 5) == [3, 4, 5, 1, 2]


def test_what_is_out_counts_for_its_key_after_a_restart_too():
    one = CustomerQueue()
    one.restore(0.0, {"k": (0.0, 0), "l": (0.0, 0)})
    one.fill({"k": [entry(1)], "l": [entry(2), entry(3)]}, {"k": [costs(1.5)]})
    assert popped(one, 3) == [2, 3, 1]


def test_what_is_withdrawn_comes_back_and_is_withdrawn_again_is_gone():
    one = line(k=[1, 2])
    one.withdraw(entry(2), "k")
    one.push(entry(2), "k")
    one.withdraw(entry(2), "k")
    assert one.ready == 1
    assert popped(one, 1) == [1]
    assert [*one.heads()] == []


def test_keys_come_before_priorities():
    one = line(k=[1, 2], l=[3, 4])
    one.push(entry(9, priority=1), "k")
    assert popped(one, 5) == [9, 3, 1, 4, 2]


def test_with_strict_priorities_every_class_reports_who_is_next_and_how_many_wait():
    one = line(by_class=True, k=[1, 2, 3], l=[4])
    one.push(entry(9, priority=2), "k")
    one.withdraw(entry(2), "k")
    assert sorted(one.classes()) == [(entry(9, priority=2), 1), (entry(1), 3)]
    assert sorted(one.heads()) == [(2, entry(9, priority=2)), (5, entry(1))]


def test_what_keys_were_given_is_reported_once():
    one = line(a=[1, 2], b=[3, 4])
    assert {*one.drain_moved()} == {"a", "b"}
    popped(one, 2, cost=3.0)
    one.settle("a", costs(3.0), 5.0)
    assert one.drain_moved() == {"a": (5.0, 5_000_000), "b": (0.0, 3_000_000)}
    assert one.drain_moved() == {}


def test_a_customer_without_keys_writes_none_down():
    one = line(**{"": [1, 2, 3]})
    popped(one, 2)
    one.settle("", costs(1.0), 4.0)
    assert one.drain_moved() == {}
    assert one.keys() == {}


def test_a_key_joins_at_the_present_of_the_others():
    one = line(a=[1, 2, 3, 4], b=[5, 6, 7, 8])
    popped(one, 6)
    one.push(entry(20), "c")
    one.push(entry(21), "c")
    assert popped(one, 4) == [20, 4, 8, 21], "one agenda in advance, no more"


def test_a_key_does_not_escape_what_it_was_given_by_going_idle_for_a_moment():
    one = line(a=[1], b=[2, 3, 4])
    popped(one, 2, cost=9.0)
    one.settle("a", costs(9.0), 30.0)
    one.push(entry(5), "a")
    assert popped(one, 3) == [3, 4, 5]


def test_what_a_key_was_given_is_forgotten_once_the_others_have_as_much():
    one = line(a=[1], b=[2, 3, 4, 5, 6])
    popped(one, 1, cost=2.0)
    one.settle("a", costs(2.0), 2.0)
    assert {*one.keys()} == {"a", "b"}
    popped(one, 4, cost=1.0)
    assert {*one.keys()} <= {"b"}


def test_once_nothing_waits_and_nothing_is_out_the_present_is_past_all():
    """What was reported before may be laid over it again."""
    one = line(a=[1], b=[2])
    popped(one, 2, cost=9.0)
    one.settle("a", costs(9.0), 9.0)
    assert one.keys() != {}
    one.settle("b", costs(9.0), 4.0)
    assert (one.present, one.keys()) == (9.0, {})


def test_a_key_that_comes_and_goes_between_turns_has_one():
    one = line(b=[1, 2, 3], c=[4], d=[5, 6])
    for _ in range(2):
        one.withdraw(entry(4), "c")
        one.push(entry(4), "c")
    one.withdraw(entry(4), "c")
    assert popped(one, 5) == [1, 5, 2, 6, 3]


def test_what_runs_for_longer_counts_for_its_key():
    one = line(a=[1, 2], b=[3, 4, 5, 6])
    popped(one, 2)
    one.replace("a", costs(1.0), costs(3.5))
    assert popped(one, 4) == [4, 5, 6, 2]
