"""Keys that change while they wait, and those that are taken out again."""

import pytest

from pop_stream.policy.fairness.turn_order import KeyedHeap


def turns(**keys: float) -> KeyedHeap:
    one = KeyedHeap()
    for name, key in keys.items():
        one.put(name, key)
    return one


def pop(one: KeyedHeap) -> tuple[float, str] | None:
    """The first, taken out."""
    first = one.first()
    if first is not None:
        one.drop(first[1])
    return first


def test_least_key_first_and_ties_by_id():
    one = turns(c=2.0, b=1.0, a=1.0)
    assert [pop(one) for _ in range(4)] == [(1.0, "a"), (1.0, "b"), (2.0, "c"), None]


def test_the_last_key_counts_whether_it_is_later_or_sooner():
    one = turns(a=1.0, b=2.0, c=3.0)
    one.put("a", 5.0)
    one.put("c", 0.5)
    assert [pop(one)[1] for _ in range(3)] == ["c", "b", "a"]


def test_who_is_taken_out_does_not_come_up_until_put_back():
    one = turns(a=1.0, b=2.0)
    one.drop("a")
    one.drop("nobody")
    assert (len(one), one.first()) == (1, (2.0, "b"))
    one.put("a", 3.0)
    assert [pop(one) for _ in range(3)] == [(2.0, "b"), (3.0, "a"), None]


def test_looking_takes_nothing():
    one = turns(a=1.0)
    assert one.first() == one.first() == (1.0, "a")
    assert KeyedHeap().first() is None
    assert not KeyedHeap()


def test_the_soonest_are_named_in_order_without_those_outdated():
    one = turns(d=4.0, c=3.0, b=2.0, a=1.0)
    one.put("a", 9.0)
    one.drop("b")
    assert one.soonest(2) == ["c", "d"]
    assert one.soonest(9) == ["c", "d", "a"]


@pytest.mark.parametrize("number", [1, 500])
def test_outdated_keys_do_not_outgrow_the_others(number):
    one = turns(**{f"c{index}": float(index) for index in range(number)})
    for index in range(10_000):
        one.put(f"c{index % number}", float(index * 7919 % 10_007))
    assert len(one._heap) <= 4 * number + 64 + 1
    assert len(one) == number
    keys = [pop(one)[0] for _ in range(number)]
    assert keys == sorted(index * 7919 % 10_007 for index in range(10_000 - number, 10_000))


def test_those_up_to_a_key_are_named_outdated_keys_left_aside():
    turns = KeyedHeap()
    for number in range(40):
        turns.put(f"c{number}", float(number % 10))
    assert [len(turns.up_to(key, 100)) for key in (-1.0, 0.0, 3.0, 9.0)] == [0, 4, 16, 40]
    assert len(turns.up_to(3.0, 7)) == 7
    turns.drop("c10")
    turns.put("c20", 5.0)
    assert sorted(turns.up_to(0.0, 100)) == ["c0", "c30"]
    assert len(turns) == 39, "naming takes nobody's turn"
