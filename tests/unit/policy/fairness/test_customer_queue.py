"""A customer's own backlog: classes, lanes by fairness key, and what is kept of them."""

from pop_stream.policy.fairness.customer_queue import CustomerQueue, entry_of, ref_in


def entry(ref, *, priority=5, rank=0):
    return entry_of(priority=priority, resumed=False, rank=rank, ref=ref)


def line(**keys):
    """A line with some entries under each key."""
    one = CustomerQueue()
    for key, refs in keys.items():
        for ref in refs:
            one.push(entry(ref), key)
    return one


def popped(one, count, cost=1.0):
    found = []
    for _ in range(count):
        head = one.head()
        one.pop(head, lambda _: cost)
        found.append(ref_in(head))
    return found


def test_a_whole_backlog_may_come_in_any_order():
    one = CustomerQueue()
    one.fill({"": [entry(1, rank=2), entry(2, rank=1), entry(3), entry(4, priority=1)]})
    assert one.ready == 4
    assert popped(one, 4) == [4, 3, 2, 1]


def test_keys_that_are_back_have_the_turns_they_had():
    one = CustomerQueue()
    one.virtual_time, one.tags = 2.0, {"k": 1.0, "l": 3.0}
    one.fill({"l": [entry(1), entry(2)], "k": [entry(3), entry(4), entry(5)]})
    assert one.tags == {"k": 1.0, "l": 3.0}
    assert popped(one, 5) == [3, 4, 5, 1, 2]


def test_what_is_withdrawn_comes_back_and_is_withdrawn_again_is_gone():
    one = line(k=[1, 2])
    one.withdraw(entry(2), "k")
    one.push(entry(2), "k")
    one.withdraw(entry(2), "k")
    assert one.ready == 1
    assert popped(one, 1) == [1]
    assert [*one.heads()] == []


def test_of_every_class_it_is_reported_who_is_next_and_how_many_wait():
    one = line(k=[1, 2, 3], l=[4])
    one.push(entry(9, priority=2), "k")
    one.withdraw(entry(2), "k")
    assert sorted(one.classes()) == [(entry(9, priority=2), 1), (entry(1), 3)]


def test_the_clock_of_keys_does_not_go_back_for_another_class():
    one = line(a=[1, 2, 3], b=[4, 5, 6])
    one.push(entry(9, priority=8), "c")
    popped(one, 4)
    assert one.virtual_time == 1.0
    later = next(head for priority, head in one.heads() if priority == 8)
    one.pop(later, lambda _: 1.0)
    assert one.virtual_time == 1.0
    one.push(entry(10, priority=8), "d")
    assert one.tags["d"] == 1.0


def test_every_tag_that_moved_is_reported_once():
    one = line(a=[1, 2], b=[3, 4])
    assert one.drain_moved() == {"a": 0.0, "b": 0.0}
    popped(one, 2, cost=3.0)
    assert one.drain_moved() == {"a": 3.0, "b": 3.0}
    one.push(entry(5), "c")
    assert one.drain_moved() == {"c": 3.0}
    assert one.drain_moved() == {}


def test_keys_without_work_are_forgotten_once_the_clock_has_reached_them():
    one = line(a=[1], b=[2], c=[3, 4, 6], d=[5, 7])
    popped(one, 5)
    assert one.virtual_time == 1.0
    assert one.tags == {"a": 1.0, "b": 1.0, "c": 2.0, "d": 1.0}
    one.forget_idle_keys()
    assert one.tags == {"c": 2.0, "d": 1.0}


def test_a_key_does_not_escape_its_charge_by_going_idle_for_a_moment():
    one = line(a=[1], b=[2, 3, 4])
    popped(one, 2, cost=9.0)
    one.forget_idle_keys()
    one.push(entry(5), "a")
    assert one.tags == {"a": 9.0, "b": 0.0}, "who is alone is not charged"


def test_once_nothing_waits_the_clock_is_past_all_tags():
    """Tags that were reported before may be laid over it again."""
    one = line(a=[1], b=[2])
    popped(one, 2, cost=9.0)
    assert (one.virtual_time, one.tags) == (9.0, {})


def test_a_key_that_comes_and_goes_between_turns_has_one():
    one = line(b=[1, 2, 3], c=[4], d=[5, 6])
    for _ in range(2):
        one.withdraw(entry(4), "c")
        one.push(entry(4), "c")
    one.withdraw(entry(4), "c")
    assert popped(one, 5) == [1, 5, 2, 6, 3]
