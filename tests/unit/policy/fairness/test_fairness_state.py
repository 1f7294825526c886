"""Whoever's place on the clock changed is reported, so that it is kept: step by step."""

import pytest
from settling_queue import SettlingQueue

from pop_stream.policy.fairness.algorithms import ALGORITHMS
from pop_stream.policy.fairness.customer_queue import entry_of
from pop_stream.policy.fairness.flow import Share


class KeyedHeap:
    """A queue whose agendas cost 1 s each; every step returns who was reported."""

    def __init__(self):
        self.shares = {}
        self.made = 0
        self.queue = SettlingQueue(
            ALGORITHMS["weighted_fair"], lambda one: self.shares.get(one, Share())
        )

    def reported(self):
        return self.queue.drain_moved()

    def push(self, customer):
        self.made += 1
        self.queue.push(customer, self.entry(self.made))
        return self.reported()

    def entry(self, ref):
        return entry_of(priority=5, resumed=False, rank=0, ref=ref)

    def pick(self):
        self.queue.pick(lambda _: 1.0)
        return self.reported()

    def settle(self, customer, correction=0.0):
        self.queue.end(customer, more=correction)
        return self.reported()

    def refresh_shares(self, customer, **share):
        self.shares[customer] = Share(**share)
        self.queue.refresh_shares()
        return self.reported()


@pytest.fixture
def turns():
    turns = KeyedHeap()
    for _ in range(3):
        turns.push("a")
    return turns


def test_who_was_picked_is_reported_once(turns):
    assert {one: (saved.tag, saved.level) for one, saved in turns.pick().items()} == {
        "a": (0.0, 1)
    }
    assert turns.reported() == {}


def test_who_waits_already_or_has_yet_to_join_is_not_reported_for_one_more(turns):
    assert turns.push("a") == {}
    assert turns.push("b") == {}
    assert {*turns.pick()} == {"a", "b"}, "both join with the pick"


def test_who_was_withdrawn_from_is_reported(turns):
    turns.queue.withdraw("a", turns.entry(1))
    assert {*turns.reported()} == {"a"}


def test_what_was_delivered_moves_its_customer(turns):
    turns.pick()
    assert {one: saved.tag for one, saved in turns.settle("a").items()} == {"a": 1.0}
    turns.pick()
    assert {one: saved.tag for one, saved in turns.settle("a", 0.5).items()} == {"a": 2.5}


def test_who_may_go_no_more_is_reported_and_begins_at_the_present(turns):
    turns.push("b")
    turns.push("b")
    turns.pick()
    turns.pick()
    assert {
        one: saved.level for one, saved in turns.refresh_shares("b", paused=True).items()
    } == {"b": 0}
    turns.pick()
    assert turns.refresh_shares("b") == {}
    turns.push("b")
    turns.pick()
    assert turns.queue.flow("b").level == 1


def test_a_new_weight_is_reported_with_the_next_pick_also_of_who_was_given_nothing(turns):
    turns.push("b")
    turns.pick()
    assert turns.refresh_shares("b", weight=2.0) == {}
    reported = turns.pick()
    assert {one: saved.weight for one, saved in reported.items()} == {"b": 2.0}


def test_who_has_nothing_waiting_any_more_is_held_by_nothing(turns):
    turns.push("b")
    turns.refresh_shares("b", paused=True)
    assert [flow.customer_id for flow in turns.queue.held(9)] == ["b"]
    turns.queue.withdraw("b", turns.entry(4))
    assert turns.queue.held(9) == []
