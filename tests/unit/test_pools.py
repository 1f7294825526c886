"""How a pool's insights share what it can have in flight."""

import pytest

from pop_stream.core.gate.pools import Claimant, limits


def claimant(
    name: str, demand: int, weight: float = 1.0, minimum: int = 0, in_flight: int = 0
) -> Claimant:
    return Claimant(name, weight, minimum, demand, in_flight)


@pytest.mark.parametrize(
    ("capacity", "claimants", "expected"),
    [
        (10, [], {}),
        (10, [claimant("a", 100), claimant("b", 100)], {"a": 5, "b": 5}),
        (10, [claimant("a", 100), claimant("b", 2)], {"a": 8, "b": 2}),
        (10, [claimant("a", 100), claimant("b", 0)], {"a": 10, "b": 0}),
        (9, [claimant("a", 100, weight=2), claimant("b", 100)], {"a": 6, "b": 3}),
        (10, [claimant("a", 100, weight=9), claimant("b", 100, minimum=3)], {"a": 7, "b": 3}),
        (10, [claimant("a", 100, minimum=4), claimant("b", 2, minimum=9)], {"a": 8, "b": 2}),
        (6, [claimant("a", 9, minimum=8), claimant("b", 9, minimum=4)], {"a": 4, "b": 2}),
        (10, [claimant("a", 3), claimant("b", 2)], {"a": 3, "b": 2}),
        (7, [claimant(one, 9) for one in "abc"], {"a": 3, "b": 2, "c": 2}),
        (0, [claimant("a", 3)], {"a": 0}),
    ],
)
def test_capacity_is_shared(capacity, claimants, expected):
    assert limits(capacity, claimants) == expected


def test_a_loan_ends_when_its_owner_wants_it_back():
    borrower = claimant("a", 100)
    assert limits(10, [borrower, claimant("b", 0)])["a"] == 10
    assert limits(10, [borrower, claimant("b", 100)])["a"] == 5


def test_what_is_left_over_goes_to_one_of_those_who_want_more():
    three = [claimant("a", 40), claimant("b", 41), claimant("c", 41)]
    assert limits(121, three) == {"a": 40, "b": 41, "c": 40}


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
    borrower = claimant("a", 50, in_flight=8)
    assert limits(10, [borrower, claimant("b", 9), claimant("c", 9, **more)]) == expected


def test_who_is_given_less_since_others_keep_more_may_have_more_than_that_too():
    three = [claimant("a", 9, in_flight=6), claimant("b", 9, in_flight=3), claimant("c", 9)]
    assert limits(9, three) == {"a": 6, "b": 3, "c": 0}
