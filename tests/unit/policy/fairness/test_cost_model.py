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
    assert book.estimate(types, declared, "ann").cost_s == pytest.approx(expected)


def test_sums_of_estimates_are_bounded_too():
    assert CostModel({"long": 9e6}).estimate(("long", "long"), None, "ann").cost_s == MAX_COST_S


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


@pytest.mark.parametrize("customer_id", ["ann", "new"])
def test_what_is_beyond_four_times_the_usual_is_overdeclared_and_counts_for_less(customer_id):
    book = CostModel()
    assert not book.is_overdeclared(1e7, customer_id)
    book.learn_usual("ann", 5.0)
    assert not book.is_overdeclared(20.0, customer_id)
    assert book.is_overdeclared(20.1, customer_id)
    assert book.estimate((), 20.1, customer_id).cost_s == 20.0


def test_overdeclared_attempts_are_counted():
    book = CostModel()
    book.learn_usual("ann", 5.0)
    book.learn_ratio("ann", declared=20.0, spent=5.0)
    assert book.overdeclared == 0
    book.learn_ratio("ann", declared=1e7, spent=5.0)
    assert book.overdeclared == 1


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
    assert book.learned["cut"] == pytest.approx(8 ** (1 / 4))


def test_a_stray_outlier_moves_it_as_little_downwards():
    book = CostModel({"cut": 1.0})
    book.learn(("cut",), {"cut": 0.001})
    assert book.learned["cut"] == pytest.approx(8 ** (-1 / 4))


@pytest.mark.parametrize("factor", [4.0, 0.25, 10.0, 0.1, 1_000.0, 0.001])
def test_a_lasting_change_is_followed_within_a_dozen_or_two(factor):
    book = CostModel({"cut": 1.0}, {"ann": 1.0})
    for _ in range(14):
        book.learn(("cut",), {"cut": factor})
        book.learn_ratio("ann", declared=1.0, spent=factor)
    assert factor / 2 <= book.learned["cut"] <= 2 * factor
    assert factor / 2 <= book.ratios["ann"] <= 2 * factor


def test_a_book_does_not_write_in_what_it_was_given():
    given = {"cut": 1.0}
    CostModel(given).learn(("cut",), {"cut": 2.0})
    assert given == {"cut": 1.0}


def test_made_up_types_do_not_fill_the_book():
    book = CostModel()
    for number in range(MAX_TYPES + 5):
        book.learn((f"t{number}",), {f"t{number}": 2.0})
    assert len(book.learned) == MAX_TYPES
    assert book.estimate((f"t{MAX_TYPES + 1}",), None, "ann").cost_s == DEFAULT_COST_S
    book.learn(("t0",), {"t0": 4.0})
    assert book.learned["t0"] > 2.0


def test_what_a_customer_declares_is_corrected_by_what_it_took():
    book = CostModel()
    for _ in range(40):
        book.learn_ratio("minutes", declared=1.0, spent=60.0)
        book.learn_ratio("seconds", declared=60.0, spent=60.0)
    assert book.estimate((), 2.0, "minutes").cost_s == pytest.approx(120.0, rel=0.01)
    assert book.estimate((), 60.0, "seconds").cost_s == pytest.approx(60.0, rel=0.01)


def test_what_is_not_declared_is_not_corrected_by_what_its_customer_declares():
    book = CostModel({"crawl": 2.0}, {"a": 3.0})
    assert book.estimate(["crawl", "new"], None, "a").cost_s == 2.0 + DEFAULT_COST_S


def known(**usual):
    book = CostModel()
    for name, seconds in usual.items():
        for _ in range(60):
            book.learn_usual(name, seconds)
    return book


@pytest.mark.parametrize(
    ("declared", "cost_s", "sure_s"),
    [(1e7, 20.0, 5.0), (12.0, 12.0, 5.0), (5.0, 5.0, 5.0), (2.0, 2.0, 2.0), (1e-3, 1e-3, 1e-3)],
)
def test_what_is_declared_counts_as_a_few_times_what_is_usual_at_most(declared, cost_s, sure_s):
    found = known(ann=5.0).estimate(("cut",), declared, "ann")
    assert found == pytest.approx((cost_s, sure_s))


def test_a_new_customer_may_be_as_large_as_a_few_of_the_others_and_as_small_as_it_says():
    book = known(ann=5.0)
    assert book.estimate(("cut",), 1e7, "new") == pytest.approx((20.0, 5.0))
    assert book.estimate(("cut",), 0.01, "new") == pytest.approx((0.01, 0.01))


def test_where_nothing_is_known_a_declaration_counts_but_is_not_sure():
    assert CostModel().estimate(("cut",), 50.0, "new") == (50.0, DEFAULT_COST_S)


def test_a_type_that_was_never_seen_is_taken_to_cost_what_is_usual():
    """So ever new names of types gain nothing."""
    assert known(ann=5.0).estimate(("brand-new",), None, "ann") == pytest.approx((5.0, 5.0))


def test_one_stray_attempt_moves_what_is_usual_little():
    book = known(ann=1.0)
    book.learn_usual("ann", 1e6)
    assert book.usual["ann"] == pytest.approx(1.0 + 7.0 / 8)


def test_one_stray_agenda_moves_what_is_declared_little():
    book = CostModel()
    book.learn_ratio("ann", declared=1.0, spent=1e6)
    assert book.ratios["ann"] == pytest.approx(8 ** (1 / 4))


@pytest.mark.parametrize(("declared", "spent"), [(0.0, 0.0), (1e99, 1e-99), (-1.0, 5.0)])
def test_declarations_that_cannot_be_are_bounded(declared, spent):
    book = CostModel()
    book.learn_ratio("ann", declared=declared, spent=spent)
    assert MIN_COST_S <= book.estimate((), declared, "ann").cost_s <= MAX_COST_S


def test_what_is_declared_as_less_than_anything_costs_is_taken_for_the_least():
    book = CostModel()
    for _ in range(400):
        book.learn_ratio("tiny", declared=1e-6, spent=1.0)
    assert book.estimate((), 1e-6, "tiny").cost_s == pytest.approx(1.0, rel=0.01)


def test_names_that_are_made_up_do_not_fill_the_memory_with_ratios():
    book = CostModel()
    for number in range(MAX_RATIOS + 5):
        book.learn_ratio(f"c{number}", declared=1.0, spent=3.0)
        book.learn_usual(f"c{number}", 3.0)
    assert len(book.ratios) <= MAX_RATIOS
    assert len(book.usual) <= MAX_RATIOS + 1
    book.learn_ratio("c0", declared=1.0, spent=12.0)
    assert book.ratios["c0"] > 1.2


def test_what_changed_is_reported_once():
    book = CostModel({"cut": 1.0}, {"bob": 1.0})
    book.learn(("mix",), {"mix": 3.0})
    book.learn_ratio("ann", declared=1.0, spent=1.0)
    book.learn_usual("ann", 2.0)
    assert book.drain_changed() == ({"mix": 3.0}, {"ann": 1.0}, {"ann": 2.0, "": 2.0})
    assert book.drain_changed() == ({}, {}, {})


def test_to_look_and_wait_teaches_little_of_what_the_work_takes():
    book = CostModel()
    for _ in range(20):
        book.learn_usual("ann", 0.02, succeeded=False)
        book.learn_ratio("ann", declared=8.0, spent=0.02, succeeded=False)
        book.learn_usual("ann", 8.0)
        book.learn_ratio("ann", declared=8.0, spent=8.0)
    assert book.usual["ann"] == pytest.approx(8.0, rel=0.01)
    assert book.estimate(("new",), 8.0, "ann").cost_s == pytest.approx(8.0, rel=0.05)


def test_attempts_that_never_succeed_teach_what_they_take():
    book = CostModel()
    for name in ("ann", "new"):
        for _ in range(20):
            book.learn_usual(name, 8.0, succeeded=False)
    assert book.usual["ann"] == book.usual["new"] == 8.0


def test_who_only_looks_is_known_in_the_end():
    book = CostModel(usual={"ann": 8.0})
    for _ in range(2_000):
        book.learn_usual("ann", 1.0, succeeded=False)
    assert book.usual["ann"] == pytest.approx(1.0, rel=0.01)
