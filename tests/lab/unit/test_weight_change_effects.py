"""How soon a new weight shows, of orders that can be counted by hand."""

import pytest

from pop_stream.lab.fairness_metrics.reweight import (
    WeightChangeEffect,
    since_announced,
    weight_change_effects,
)
from pop_stream.lab.fairness_metrics.service_log import ServiceLog


def order(before, after, *, backlog=100, spent=1.0):
    """Customers emitted in this order, one a second; between the two `b` comes to weigh 4."""
    log = ServiceLog()
    for name in "abc":
        for _ in range(backlog):
            log.arrived(0.0, log.index(name))
    for at, name in enumerate(before + "=" + after):
        if name == "=":
            log.weighed(at, log.index("b"), 4.0)
        else:
            log.emitted(at, log.index(name), charged=1.0, spent=spent)
    return log


def only(log):
    [found] = weight_change_effects(log)
    return found


@pytest.mark.parametrize(
    ("after", "emissions"),
    [
        ("bbabcb" * 5, 1),
        ("acbbbb" + "bbabcb" * 4, 5),  # 2 of 4 is as near to 1/3 as to 2/3, 3 of 5 is nearer
        ("abc" * 9 + "bbabcb" * 20, 57),
        ("abc" * 20, None),
        ("bbb" + "abc" * 20, None),
        ("bbb" + "ac" * 3 + "bbb" + "bbabcb" * 9, 13),
    ],
)
def test_it_is_visible_from_where_the_share_stays_nearer_to_the_new_one(after, emissions):
    found = only(order("abc" * 5, after))
    assert (found.customer_id, found.at, found.emissions) == ("b", 15.0, emissions)
    assert found.watched == len(after)


def test_a_weight_taken_back_is_a_change_like_any_other():
    log = order("abc" * 5, "bbabcb" * 5)
    log.weighed(50.0, log.index("b"), 1.0)
    for at, name in enumerate("abc" * 9, start=50):
        log.emitted(at, log.index(name), charged=1.0, spent=1.0)
    first, second = weight_change_effects(log)
    assert (first.emissions, first.watched) == (1, 30)
    assert (second.at, second.emissions, second.watched) == (50.0, 3, 27)


def test_it_is_watched_until_one_who_competed_has_nothing_left():
    found = only(order("abc" * 5, "bbabcb" * 20, backlog=25))
    assert found.watched == 30, "b has 20 left, four of six are its own"


def test_worker_seconds_count_and_not_agendas():
    log = order("abc" * 5, "")
    for at, name in enumerate("bacbac" * 5, start=20):
        spent = 4.0 if name == "b" else 1.0
        log.emitted(at, log.index(name), charged=spent, spent=spent)
    assert only(log).emissions == 1


def test_idle_returners_after_the_change_are_left_out_of_it():
    log = order("abc" * 5, "")
    late = log.index("late")
    for at, name in enumerate("bbabcb" * 5, start=20):
        log.arrived(at, late)
        log.emitted(at, late, charged=1.0, spent=1.0)
        log.emitted(at, log.index(name), charged=1.0, spent=1.0)
    assert (only(log).emissions, only(log).watched) == (1, 30)


@pytest.mark.parametrize("weight", [1.0, 4.0])
def test_who_does_not_compete_or_weighs_as_before_changes_nothing(weight):
    log = ServiceLog()
    a, b = log.index("a"), log.index("b")
    log.arrived(0.0, a)
    if weight == 1.0:
        log.arrived(0.0, b)
    log.weighed(1.0, a, weight)
    log.weighed(1.0, b, weight)
    assert [*weight_change_effects(log)] == []


def test_who_has_nothing_waiting_while_others_compete_changes_nothing():
    log = ServiceLog()
    a, b, c = (log.index(name) for name in "abc")
    for customer in (a, b):
        log.arrived(0.0, customer)
    log.weighed(1.0, c, 4.0)
    assert [*weight_change_effects(log)] == []


@pytest.mark.parametrize(
    ("emissions", "watched", "expected"),
    [
        (5, 100, 0.5),
        (5, 6, 0.5),
        (30, 100, 3.0),
        (None, 100, 10.0),
        (None, 10, 1.0),
        (None, 9, None),
    ],
)
def test_what_was_not_visible_within_the_depth_is_known_if_it_was_watched_so_long(
    emissions, watched, expected
):
    assert WeightChangeEffect("b", 0.0, emissions, watched).within(10) == expected


def test_what_was_emitted_before_the_scheduler_applied_it_counts_from_its_definition():
    log = order("abc" * 5, "bbabcb" * 5)
    [late] = since_announced([only(log)], log, [3.0, 11.5])
    assert (late.at, late.emissions, late.watched) == (11.5, 1 + 3, 30 + 3)
    [never] = since_announced([only(order("abc" * 5, "abc" * 9))], log, [11.5])
    assert (never.emissions, never.watched) == (None, 27 + 3)
    [as_it_was] = since_announced([only(log)], log, [15.5])
    assert as_it_was == only(log)
