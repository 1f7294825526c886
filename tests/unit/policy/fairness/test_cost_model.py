"""What an agenda is taken to cost, and how that follows what it did cost."""

import pytest

from pop_stream.policy.fairness.cost_model import (
    DEFAULT_COST_S,
    MAX_COST_S,
    MAX_RATIOS,
    MAX_TYPES,
    MIN_COST_S,
    CostModel,
    clamp_cost,
)


@pytest.mark.parametrize(
    ("types", "declared", "expected"),
    [
        (("cut",), 7.5, 7.5),
        (("cut",), 1e-9, MIN_COST_S),
        (("cut",), 1e9, MAX_COST_S),
        (("cut",), None, 0.2),
        (("cut", "cut", "mix"), None, 0.7),
        (("new",), None, DEFAULT_COST_S),
        (("cut", "new"), None, 0.2 + DEFAULT_COST_S),
        ((), None, MIN_COST_S),
    ],
)
def test_an_estimate_is_what_was_declared_else_learned_else_the_default(
    types, declared, expected
):
    book = CostModel({"cut": 0.2, "mix": 0.3})
    assert book.estimate(types, declared, "ann") == pytest.approx(expected)


def test_sums_of_estimates_are_bounded_too():
    assert CostModel({"long": 9e6}).estimate(("long", "long"), None, "ann") == MAX_COST_S


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-1.0, MIN_COST_S), (0.0, MIN_COST_S), (3.0, 3.0), (1e99, 1e7)],
)
def test_bounded(seconds, expected):
    assert clamp_cost(seconds) == expected


def test_the_first_sample_is_taken_as_it_is():
    book = CostModel()
    book.learn(("cut",), {"cut": 0.25})
    assert book.learned == {"cut": 0.25}


def test_operations_of_a_type_share_what_they_took_together():
    book = CostModel()
    book.learn(("cut", "cut", "mix"), {"cut": 1.0, "mix": 3.0})
    assert book.learned == {"cut": 0.5, "mix": 3.0}


@pytest.mark.parametrize("spent", [{"other": 4.0}, {"cut": -1.0}, {}])
def test_what_cannot_be_is_not_learned(spent):
    book = CostModel({"cut": 0.5})
    book.learn(("cut",), spent)
    assert book.learned == {"cut": 0.5}


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, MIN_COST_S), (1e300, MAX_COST_S)])
def test_what_is_learned_is_bounded(seconds, expected):
    book = CostModel()
    book.learn(("cut",), {"cut": seconds})
    assert book.learned == {"cut": expected}
    for _ in range(3):
        book.learn(("cut",), {"cut": seconds})
    assert book.learned == {"cut": expected}


def test_a_stray_outlier_moves_it_little():
    book = CostModel({"cut": 1.0})
    book.learn(("cut",), {"cut": 1_000.0})
    assert book.learned["cut"] == pytest.approx(1.0 + 3.0 / 16)


def test_a_stray_outlier_moves_it_as_little_downwards():
    book = CostModel({"cut": 1.0})
    book.learn(("cut",), {"cut": 0.001})
    assert book.learned["cut"] == pytest.approx(1.0 - 0.75 / 16)


@pytest.mark.parametrize("factor", [4.0, 0.25, 10.0, 0.1])
def test_a_lasting_change_is_followed_within_dozens(factor):
    book = CostModel({"cut": 1.0})
    for _ in range(80):
        book.learn(("cut",), {"cut": factor})
    assert book.learned["cut"] == pytest.approx(factor, rel=0.1)


def test_a_book_does_not_write_in_what_it_was_given():
    given = {"cut": 1.0}
    CostModel(given).learn(("cut",), {"cut": 2.0})
    assert given == {"cut": 1.0}


def test_made_up_types_do_not_fill_the_book():
    book = CostModel()
    for number in range(MAX_TYPES + 5):
        book.learn((f"t{number}",), {f"t{number}": 2.0})
    assert len(book.learned) == MAX_TYPES
    assert book.estimate((f"t{MAX_TYPES + 1}",), None, "ann") == DEFAULT_COST_S
    book.learn(("t0",), {"t0": 4.0})
    assert book.learned["t0"] > 2.0


def test_what_a_customer_declares_is_corrected_by_what_it_took():
    book = CostModel()
    for _ in range(200):
        book.learn_ratio("minutes", declared=1.0, spent=60.0)
        book.learn_ratio("seconds", declared=60.0, spent=60.0)
    assert book.estimate((), 2.0, "minutes") == pytest.approx(120.0, rel=0.01)
    assert book.estimate((), 60.0, "seconds") == pytest.approx(60.0, rel=0.01)


def test_what_is_not_declared_is_not_corrected_by_what_its_customer_declares():
    book = CostModel({"crawl": 2.0}, {"a": 3.0})
    assert book.estimate(["crawl", "new"], None, "a") == 2.0 + DEFAULT_COST_S


def test_a_new_customer_declares_as_all_do_but_is_not_charged_for_their_fancies():
    book = CostModel()
    for _ in range(200):
        book.learn_ratio("slow", declared=1.0, spent=1.3)
    assert book.estimate((), 1.0, "new") == pytest.approx(1.3, rel=0.01)
    for _ in range(200):
        book.learn_ratio("liar", declared=0.001, spent=10.0)
    assert 1.3 <= book.estimate((), 1.0, "new") <= 2.1


def test_a_customer_who_is_the_first_is_no_measure_for_all():
    book = CostModel()
    for _ in range(200):
        book.learn_ratio("liar", declared=0.001, spent=10.0)
    assert book.estimate((), 1.0, "new") <= 2.1
    for _ in range(200):
        book.learn_ratio("thrifty", declared=10.0, spent=0.001)
    assert book.estimate((), 1.0, "new") >= 0.5


def test_who_declares_alike_is_charged_alike_whatever_chance_did_to_its_last_agendas():
    book = CostModel()
    took = [4.0, 6.0, 9.0, 5.0, 7.0, 5.0]
    for number in range(600):
        book.learn_ratio(f"c{number % 4}", declared=5.0, spent=took[number * 7 % 6])
    own = [book.ratios[f"c{number}"] for number in range(4)]
    assert max(own) > 1.02 * min(own)
    charged = {book.estimate((), 5.0, f"c{number}") for number in range(4)}
    assert len(charged) == 1
    assert charged.pop() == pytest.approx(6.0, rel=0.1)


@pytest.mark.parametrize("spent", [2.5, 0.4])
def test_who_declares_otherwise_is_charged_by_its_own_and_no_measure_for_the_others(spent):
    book = CostModel()
    for _ in range(200):
        for name in ("ann", "bob", "cyd"):
            book.learn_ratio(name, declared=1.0, spent=1.0)
        book.learn_ratio("odd", declared=1.0, spent=spent)
    assert book.estimate((), 1.0, "odd") == pytest.approx(spent, rel=0.01)
    assert book.estimate((), 1.0, "ann") == pytest.approx(1.0, rel=0.01)


def test_what_slows_all_down_is_known_of_a_new_customer_too():
    book = CostModel()
    for took in (1.0, 1.9, 3.6, 0.7):
        for number in range(400):
            book.learn_ratio(f"c{number % 5}", declared=1.0, spent=took)
        assert book.estimate((), 1.0, "new") == pytest.approx(took, rel=0.02)


def test_one_stray_agenda_moves_what_is_declared_little():
    book = CostModel()
    book.learn_ratio("ann", declared=1.0, spent=1e6)
    assert book.ratios["ann"] == pytest.approx(1.0 + 3.0 / 16)


@pytest.mark.parametrize(("declared", "spent"), [(0.0, 0.0), (1e99, 1e-99), (-1.0, 5.0)])
def test_declarations_that_cannot_be_are_bounded(declared, spent):
    book = CostModel()
    book.learn_ratio("ann", declared=declared, spent=spent)
    assert MIN_COST_S <= book.estimate((), declared, "ann") <= MAX_COST_S


def test_what_is_declared_as_less_than_anything_costs_is_taken_for_the_least():
    book = CostModel()
    for _ in range(400):
        book.learn_ratio("tiny", declared=1e-6, spent=1.0)
    assert book.estimate((), 1e-6, "tiny") == pytest.approx(1.0, rel=0.01)


def test_names_that_are_made_up_do_not_fill_the_memory_with_ratios():
    book = CostModel()
    for number in range(MAX_RATIOS + 5):
        book.learn_ratio(f"c{number}", declared=1.0, spent=3.0)
    assert len(book.ratios) <= MAX_RATIOS + 1
    book.learn_ratio("c0", declared=1.0, spent=12.0)
    assert book.ratios["c0"] > 1.2


def test_what_changed_is_reported_once():
    book = CostModel({"cut": 1.0}, {"bob": 1.0})
    book.learn(("mix",), {"mix": 3.0})
    book.learn_ratio("ann", declared=1.0, spent=1.0)
    assert book.drain_changed() == ({"mix": 3.0}, {"ann": 1.0, "": 1.0})
    assert book.drain_changed() == ({}, {})
