"""What agendas are taken to cost, and how that is learned."""

import pytest

from pop_stream.core.costs import DEFAULT_COST_S, LEAST_COST_S, CostBook


def test_a_declared_cost_counts():
    assert CostBook({"t": 9.0}).estimate(("t",), 0.5) == 0.5


def test_nothing_is_free():
    assert CostBook().estimate((), None) == LEAST_COST_S
    assert CostBook().estimate(("t",), 1e-9) == LEAST_COST_S


def test_unknown_types_cost_the_default():
    assert CostBook({"t": 2.0}).estimate(("t", "new", "t"), None) == 4.0 + DEFAULT_COST_S


def test_the_first_sample_is_believed():
    book = CostBook()
    book.learn(("t", "t"), {"t": 3.0})
    assert book.estimate(("t",), None) == 1.5


def test_a_lasting_change_is_followed():
    book = CostBook({"t": 1.0})
    for _ in range(100):
        book.learn(("t",), {"t": 8.0})
    assert book.learned["t"] == pytest.approx(8.0, rel=0.05)
    for _ in range(100):
        book.learn(("t",), {"t": 0.5})
    assert book.learned["t"] == pytest.approx(0.5, rel=0.05)


def test_an_outlier_moves_it_little():
    book = CostBook({"t": 1.0})
    book.learn(("t",), {"t": 1e6})
    assert book.learned["t"] <= 1.2
    book.learn(("t",), {"t": 0.0})
    assert book.learned["t"] >= 0.9


def test_the_mean_is_unbiased_for_mild_noise():
    book = CostBook({"t": 1.0})
    for number in range(400):
        book.learn(("t",), {"t": 0.5 if number % 2 else 1.5})
    assert book.learned["t"] == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("spent", [{"other": 5.0}, {"t": -1.0}, {}])
def test_what_did_not_run_teaches_nothing(spent):
    book = CostBook({"t": 1.0})
    book.learn(("t",), spent)
    assert book.learned == {"t": 1.0}


def test_instant_work_never_costs_nothing():
    book = CostBook()
    book.learn(("t",), {"t": 0.0})
    assert book.learned["t"] == LEAST_COST_S
