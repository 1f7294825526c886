"""How a pool's insights share what it can have in flight."""

import pytest

from pop_stream.policy.flow_control.pool_sharing import (
    COUNTED_FOR_S,
    PoolDemand,
    SharedPool,
    pool_limits,
)


def pool_demand(
    name: str, demand: int, weight: float = 1.0, minimum: int = 0, in_flight: int = 0
) -> PoolDemand:
    return PoolDemand(name, weight, minimum, demand, in_flight)


@pytest.mark.parametrize(
    ("capacity", "demands", "expected"),
    [
        (10, [], {}),
        (10, [pool_demand("a", 100), pool_demand("b", 100)], {"a": 5, "b": 5}),
        (10, [pool_demand("a", 100), pool_demand("b", 2)], {"a": 8, "b": 2}),
        (10, [pool_demand("a", 100), pool_demand("b", 0)], {"a": 10, "b": 0}),
        (9, [pool_demand("a", 100, weight=2), pool_demand("b", 100)], {"a": 6, "b": 3}),
        (
            10,
            [pool_demand("a", 100, weight=9), pool_demand("b", 100, minimum=3)],
            {"a": 7, "b": 3},
        ),
        (
            10,
            [pool_demand("a", 100, minimum=4), pool_demand("b", 2, minimum=9)],
            {"a": 8, "b": 2},
        ),
        (6, [pool_demand("a", 9, minimum=8), pool_demand("b", 9, minimum=4)], {"a": 4, "b": 2}),
        (10, [pool_demand("a", 3), pool_demand("b", 2)], {"a": 3, "b": 2}),
        (7, [pool_demand(one, 9) for one in "abc"], {"a": 3, "b": 2, "c": 2}),
        (0, [pool_demand("a", 3)], {"a": 0}),
    ],
)
def test_capacity_is_shared(capacity, demands, expected):
    assert pool_limits(capacity, demands) == expected


def test_a_loan_ends_when_its_owner_wants_it_back():
    borrower = pool_demand("a", 100)
    assert pool_limits(10, [borrower, pool_demand("b", 0)])["a"] == 10
    assert pool_limits(10, [borrower, pool_demand("b", 100)])["a"] == 5


def test_what_is_left_over_goes_to_one_of_those_who_want_more():
    three = [pool_demand("a", 40), pool_demand("b", 41), pool_demand("c", 41)]
    assert pool_limits(121, three) == {"a": 40, "b": 41, "c": 40}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, {"a": 8, "b": 1, "c": 1}),
        ({"weight": 9}, {"a": 8, "b": 0, "c": 2}),
        ({"minimum": 5}, {"a": 8, "b": 0, "c": 2}),
        ({"in_flight": 1}, {"a": 8, "b": 1, "c": 1}),
        ({"in_flight": 2}, {"a": 8, "b": 0, "c": 2}),
        ({"in_flight": 4}, {"a": 8, "b": 0, "c": 4}),
    ],
)
def test_what_comes_back_of_a_loan_is_shared_as_if_it_were_all(more, expected):
    borrower = pool_demand("a", 50, in_flight=8)
    assert (
        pool_limits(10, [borrower, pool_demand("b", 9), pool_demand("c", 9, **more)])
        == expected
    )


def test_who_is_given_less_since_others_keep_more_may_have_more_than_that_too():
    three = [
        pool_demand("a", 9, in_flight=6),
        pool_demand("b", 9, in_flight=3),
        pool_demand("c", 9),
    ]
    assert pool_limits(9, three) == {"a": 6, "b": 3, "c": 0}


def test_what_is_owed_decides_only_about_parts_of_slots():
    three = [pool_demand(one, 9) for one in "abc"]
    assert pool_limits(7, three, {"c": 1.0}) == {"a": 2, "b": 2, "c": 3}
    assert pool_limits(6, three, {"c": 1.0}) == {"a": 2, "b": 2, "c": 2}


def test_nobody_is_owed_anything_by_an_insight_that_wants_no_more():
    pool = SharedPool()
    alone = [PoolDemand("a", 1, 0, 9, 0), PoolDemand("b", 1, 0, 0, 0)]
    assert pool.limits(1, alone, 0.0)["a"] == 1
    now_both = [PoolDemand("a", 1, 0, 9, 0, held_s=500.0), PoolDemand("b", 1, 0, 9, 0)]
    assert pool.limits(1, now_both, 500.0) == {"a": 1, "b": 0}


def test_weights_are_divided_by_the_insights_in_which_a_customer_is_active():
    pool = SharedPool()
    active = {"i": {"ann": 1, "bob": 1}, "j": {"ann": 1}, "k": {"ann": 2}}
    assert pool.changed_divisions(active, 0.0) == {
        "i": {"ann": 3},
        "j": {"ann": 3},
        "k": {"ann": 3},
    }
    known = {"i": {"ann": 3, "bob": 1}, "j": {"ann": 3}, "k": {"ann": 3}}
    assert pool.changed_divisions(known, 1.0) == {}


def test_an_insight_counts_for_a_customer_for_a_while():
    pool = SharedPool()
    both = {"i": {"ann": 2}, "j": {"ann": 2}}
    assert pool.changed_divisions(both, 0.0) == {}
    one = {"i": {"ann": 2}, "j": {}}
    assert pool.changed_divisions(one, COUNTED_FOR_S / 2) == {}
    assert pool.changed_divisions(one, COUNTED_FOR_S) == {"i": {"ann": 1}}
