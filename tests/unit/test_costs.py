"""What an agenda is taken to cost, and how that follows what it did cost."""

import pytest

from pop_stream.core.costs import (
    DEFAULT_COST_S,
    LEAST_COST_S,
    MOST_COST_S,
    MOST_TYPES,
    CostBook,
    bounded,
)


@pytest.mark.parametrize(
    ("types", "declared", "expected"),
    [
        (("cut",), 7.5, 7.5),
        (("cut",), 1e-9, LEAST_COST_S),
        (("cut",), 1e9, MOST_COST_S),
        (("cut",), None, 0.2),
        (("cut", "cut", "mix"), None, 0.7),
        (("new",), None, DEFAULT_COST_S),
        (("cut", "new"), None, 0.2 + DEFAULT_COST_S),
        ((), None, LEAST_COST_S),
    ],
)
def test_an_estimate_is_what_was_declared_else_learned_else_the_default(
    types, declared, expected
):
    book = CostBook({"cut": 0.2, "mix": 0.3})
    assert book.estimate(types, declared) == pytest.approx(expected)


def test_sums_of_estimates_are_bounded_too():
    assert CostBook({"long": 9e6}).estimate(("long", "long"), None) == MOST_COST_S


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-1.0, LEAST_COST_S), (0.0, LEAST_COST_S), (3.0, 3.0), (1e99, 1e7)],
)
def test_bounded(seconds, expected):
    assert bounded(seconds) == expected


def test_the_first_sample_is_taken_as_it_is():
    book = CostBook()
    book.learn(("cut",), {"cut": 0.25})
    assert book.learned == {"cut": 0.25}


def test_operations_of_a_type_share_what_they_took_together():
    book = CostBook()
    book.learn(("cut", "cut", "mix"), {"cut": 1.0, "mix": 3.0})
    assert book.learned == {"cut": 0.5, "mix": 3.0}


@pytest.mark.parametrize("spent", [{"other": 4.0}, {"cut": -1.0}, {}])
def test_what_cannot_be_is_not_learned(spent):
    book = CostBook({"cut": 0.5})
    book.learn(("cut",), spent)
    assert book.learned == {"cut": 0.5}


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, LEAST_COST_S), (1e300, MOST_COST_S)])
def test_what_is_learned_is_bounded(seconds, expected):
    book = CostBook()
    book.learn(("cut",), {"cut": seconds})
    assert book.learned == {"cut": expected}
    for _ in range(3):
        book.learn(("cut",), {"cut": seconds})
    assert book.learned == {"cut": expected}


def test_a_stray_outlier_moves_it_little():
    book = CostBook({"cut": 1.0})
    book.learn(("cut",), {"cut": 1_000.0})
    assert book.learned["cut"] == pytest.approx(1.0 + 3.0 / 16)


def test_a_stray_outlier_moves_it_as_little_downwards():
    book = CostBook({"cut": 1.0})
    book.learn(("cut",), {"cut": 0.001})
    assert book.learned["cut"] == pytest.approx(1.0 - 0.75 / 16)


@pytest.mark.parametrize("factor", [4.0, 0.25, 10.0, 0.1])
def test_a_lasting_change_is_followed_within_dozens(factor):
    book = CostBook({"cut": 1.0})
    for _ in range(80):
        book.learn(("cut",), {"cut": factor})
    assert book.learned["cut"] == pytest.approx(factor, rel=0.1)


def test_a_book_does_not_write_in_what_it_was_given():
    given = {"cut": 1.0}
    CostBook(given).learn(("cut",), {"cut": 2.0})
    assert given == {"cut": 1.0}


def test_made_up_types_do_not_fill_the_book():
    book = CostBook()
    for number in range(MOST_TYPES + 5):
        book.learn((f"t{number}",), {f"t{number}": 2.0})
    assert len(book.learned) == MOST_TYPES
    assert book.estimate((f"t{MOST_TYPES + 1}",), None) == DEFAULT_COST_S
    book.learn(("t0",), {"t0": 4.0})
    assert book.learned["t0"] > 2.0
