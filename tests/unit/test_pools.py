"""How a pool's insights share what it can have in flight."""

import pytest

from pop_stream.core.gate.pools import Claimant, limits


def claimant(name: str, demand: int, weight: float = 1.0, minimum: int = 0) -> Claimant:
    return Claimant(insight_id=name, weight=weight, minimum=minimum, demand=demand)


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
