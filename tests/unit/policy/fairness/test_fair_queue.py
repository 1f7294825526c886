"""Turns of customers, by the table; what holds for all workloads is in `properties`."""

import pytest
from settling_queue import SettlingQueue

from pop_stream.policy.fairness.algorithms import ALGORITHMS
from pop_stream.policy.fairness.cost_model import Estimate
from pop_stream.policy.fairness.customer_queue import entry_of
from pop_stream.policy.fairness.flow import Aging, Share

EQUAL: dict[str, Share] = {}


def queue_of(shares=EQUAL, algorithm="weighted_fair", aging=None):
    return SettlingQueue(
        ALGORITHMS[algorithm], lambda customer_id: shares.get(customer_id, Share()), aging
    )


def entry(ref, *, priority=5, resumed=False, rank=0):
    return entry_of(priority=priority, resumed=resumed, rank=rank, ref=ref)


def fill(queue, customer_id, refs, key="", **order):
    for ref in refs:
        numbers = {"priority": 5, "resumed": False, "rank": 0} | order
        queue.push(customer_id, queue.algorithm.entry(ref=ref, **numbers), key)


def picked(queue, count, cost=1.0, now=0.0):
    """Customers of the next picks, as one text."""
    cost_of = cost if callable(cost) else lambda _: cost
    picks = (queue.pick(cost_of, now) for _ in range(count))
    return "".join(pick.customer_id if pick else "-" for pick in picks)


def refs(queue, count, cost=1.0, now=0.0):
    cost_of = cost if callable(cost) else lambda _: cost
    return [queue.pick(cost_of, now).ref for _ in range(count)]


# ---- between customers ----


def test_equal_customers_take_turns_and_ties_go_by_id():
    queue = queue_of()
    fill(queue, "b", range(10, 14))
    fill(queue, "a", range(4))
    assert picked(queue, 9) == "abababab-"


def test_weights_are_shares_of_cost():
    queue = queue_of({"a": Share(weight=2.0)})
    fill(queue, "a", range(20))
    fill(queue, "b", range(30, 50))
    assert picked(queue, 9) == "abaabaaba"


def test_a_costly_agenda_is_paid_for_in_turns():
    queue = queue_of()
    fill(queue, "a", [1, 2])
    fill(queue, "b", range(10, 20))
    assert picked(queue, 8, cost=lambda ref: 4.0 if ref < 10 else 1.0) == "abbbbabb"


def test_round_robin_counts_agendas_not_cost_or_weight():
    queue = queue_of({"a": Share(weight=50.0)}, "round_robin")
    fill(queue, "a", [1, 2, 3])
    fill(queue, "b", [11, 12, 13])
    assert picked(queue, 6, cost=float) == "ababab"


def test_fifo_is_by_age_over_customers_priorities_ranks_and_keys():
    queue = queue_of({"b": Share(weight=9.0)}, "fifo")
    fill(queue, "b", [2], priority=1)
    fill(queue, "a", [1], priority=9, rank=7, key="x")
    fill(queue, "a", [3], priority=1, key="y")
    assert refs(queue, 3) == [1, 2, 3]


def test_by_age_what_comes_back_older_than_all_is_next():
    """As an agenda does from a retry, while its customer has others waiting."""
    queue = queue_of(algorithm="fifo")
    fill(queue, "a", [5])
    fill(queue, "b", [3])
    fill(queue, "a", [1])
    assert refs(queue, 3) == [1, 3, 5]


def test_fifo_knows_no_keys():
    queue = queue_of(algorithm="fifo")
    fill(queue, "a", [1, 2], key="x")
    fill(queue, "a", [3, 4], key="y")
    assert refs(queue, 4) == [1, 2, 3, 4]


def test_without_strict_priorities_there_is_one_clock():
    queue = queue_of()
    fill(queue, "a", range(3), priority=7)
    picked(queue, 2)
    assert queue.presents == (1.0,)


def test_nothing_is_picked_from_nothing():
    queue = queue_of()
    assert queue.pick(lambda _: 1.0) is None
    assert queue.due_at is None
    assert queue.next_customers(5) == []
    assert queue.gap() == 0.0
    assert not queue.may_pick(0.0)


def test_an_idle_customer_gains_no_credit():
    queue = queue_of()
    fill(queue, "a", range(100))
    fill(queue, "b", [200])
    assert picked(queue, 50).count("b") == 1
    fill(queue, "b", range(201, 300))
    assert picked(queue, 10) in {"ababababab", "bababababa"}


def test_an_idle_customer_owes_no_debt_once_the_clock_has_passed_it():
    queue = queue_of()
    fill(queue, "a", range(10))
    assert picked(queue, 10) == "a" * 10
    fill(queue, "b", range(20, 60))
    assert picked(queue, 12) == "b" * 12
    fill(queue, "a", range(100, 120))
    assert 5 <= picked(queue, 12).count("a") <= 7


def test_a_customer_cannot_escape_its_last_charge_by_going_idle_for_a_moment():
    queue = queue_of()
    fill(queue, "b", range(10, 30))
    fill(queue, "a", [1])
    assert picked(queue, 1, cost=5.0) == "a"
    fill(queue, "a", [2])
    assert picked(queue, 6) == "bbbbba"


def test_the_end_of_a_busy_period_forgives_all():
    queue = queue_of()
    fill(queue, "a", [1])
    picked(queue, 1, cost=1_000.0)
    queue.end("a")
    assert queue.presents[0] == 1_000.0
    fill(queue, "a", [2, 3])
    fill(queue, "b", [4, 5])
    assert picked(queue, 4) == "abab"


def test_withdrawing_the_last_that_waits_ends_the_busy_period_too():
    queue = queue_of()
    fill(queue, "a", [1, 2])
    picked(queue, 1, cost=7.0)
    queue.end("a")
    queue.withdraw("a", entry(2))
    assert queue.presents[0] == 7.0
    assert queue.ready == queue.in_flight == 0


def test_what_runs_keeps_the_busy_period_going():
    queue = queue_of()
    fill(queue, "a", [1, 2])
    picked(queue, 2, cost=7.0)
    queue.end("a")
    assert queue.presents[0] == 7.0
    queue.end("a")
    assert queue.presents[0] == 14.0


# ---- corrections ----


def test_a_idle_returner_does_not_wait_for_estimates_that_proved_too_high():
    queue = queue_of()
    fill(queue, "a", range(1_000))
    picked(queue, 500, cost=1.0)
    for _ in range(500):
        queue.end("a", more=-0.99)
    fill(queue, "b", range(2_000, 2_100))
    assert picked(queue, 10, cost=0.01).count("b") >= 4


def test_an_idle_customers_refund_does_not_turn_the_clock_back():
    queue = queue_of()
    fill(queue, "a", [1])
    fill(queue, "b", range(10, 60))
    picked(queue, 1, cost=5.0)
    assert picked(queue, 5) == "bbbbb"
    before = queue.presents[0]
    queue.end("a", more=-5.0)
    assert queue.presents[0] == before


def test_an_agenda_that_cost_more_is_paid_for_later():
    queue = queue_of()
    fill(queue, "a", range(10))
    fill(queue, "b", range(20, 40))
    assert picked(queue, 2) == "ab"
    queue.end("a", more=3.0)
    queue.end("b")
    assert picked(queue, 5) == "bbbab"


# ---- caps, pauses, weights ----


def test_a_cap_holds_back_and_a_freed_slot_lets_go():
    queue = queue_of({"a": Share(max_in_flight=2)})
    fill(queue, "a", range(5))
    assert picked(queue, 3) == "aa-"
    assert queue.flow("a").held_by == "max_in_flight"
    queue.end("a")
    assert picked(queue, 2) == "a-"


def test_a_capped_customer_does_not_hold_up_the_others():
    queue = queue_of({"a": Share(max_in_flight=1)})
    fill(queue, "a", range(5))
    fill(queue, "b", range(10, 13))
    assert picked(queue, 5) == "abbb-"


def test_a_customer_that_was_held_back_returns_at_the_present():
    queue = queue_of({"a": Share(max_in_flight=1)})
    fill(queue, "a", range(10))
    fill(queue, "b", range(20, 80))
    assert picked(queue, 31) == "a" + "b" * 30
    queue.end("a", more=-1.0)
    assert picked(queue, 2) in {"ab", "ba"}
    queue.end("a", more=-1.0)
    assert picked(queue, 2) in {"ab", "ba"}


def test_a_pause_acts_on_the_next_pick_and_its_end_too():
    shares = {}
    queue = queue_of(shares)
    fill(queue, "a", range(10))
    fill(queue, "b", range(20, 40))
    assert picked(queue, 2) == "ab"
    shares["a"] = Share(paused=True)
    queue.refresh_shares()
    assert queue.flow("a").held_by == "paused"
    assert picked(queue, 8) == "b" * 8
    shares["a"] = Share()
    queue.refresh_shares()
    assert 4 <= picked(queue, 10).count("a") <= 6


def test_arrivals_of_a_paused_customer_wait():
    shares = {"a": Share(paused=True)}
    queue = queue_of(shares)
    fill(queue, "a", range(3))
    assert picked(queue, 1) == "-"
    assert not queue.may_pick(0.0)
    assert queue.ready == 3
    shares.clear()
    queue.refresh_shares()
    assert picked(queue, 4) == "aaa-"


def test_a_cap_that_is_raised_or_lowered_acts_on_the_next_pick():
    shares = {"a": Share(max_in_flight=1)}
    queue = queue_of(shares)
    fill(queue, "a", range(10))
    assert picked(queue, 2) == "a-"
    shares["a"] = Share(max_in_flight=3)
    queue.refresh_shares()
    assert picked(queue, 3) == "aa-"
    shares["a"] = Share(max_in_flight=2)
    queue.refresh_shares()
    queue.end("a")
    assert picked(queue, 1) == "-"
    queue.end("a")
    assert picked(queue, 2) == "a-"


def test_a_new_weight_acts_on_the_standing_backlog():
    shares = {}
    queue = queue_of(shares)
    fill(queue, "a", range(100))
    fill(queue, "b", range(200, 300))
    assert picked(queue, 10).count("a") == 5
    shares["a"] = Share(weight=4.0)
    queue.refresh_shares()
    assert picked(queue, 50).count("a") == 40


def test_an_unchanged_share_moves_nobody():
    queue = queue_of()
    fill(queue, "a", range(3))
    queue.refresh_shares()
    assert picked(queue, 4) == "aaa-"


# ---- rate limits ----


def test_a_rate_limit_lets_a_burst_go_and_then_the_rate():
    queue = queue_of({"a": Share(rate_per_s=2.0, burst=3)})
    fill(queue, "a", range(20))
    assert picked(queue, 5, now=100.0) == "aaa--"
    assert queue.flow("a").held_by == "rate"
    assert queue.due_at == pytest.approx(100.5)
    assert not queue.may_pick(100.4)
    assert queue.may_pick(100.5)
    assert picked(queue, 2, now=100.4) == "--"
    assert picked(queue, 2, now=100.5) == "a-"
    assert picked(queue, 9, now=900.0) == "aaa------"


def test_a_new_customer_has_a_whole_burst_on_any_clock():
    queue = queue_of({"a": Share(rate_per_s=1.0, burst=3)})
    fill(queue, "a", range(5))
    assert picked(queue, 4, now=0.0) == "aaa-"


@pytest.mark.parametrize(
    ("share", "most"),
    [
        (Share(), 5),
        (Share(paused=True), 0),
        (Share(max_in_flight=4), 4),
        (Share(max_in_flight=9), 5),
        (Share(rate_per_s=1.0, burst=2), 2),
        (Share(rate_per_s=1.0, burst=2, max_in_flight=1), 1),
    ],
)
def test_so_many_may_start_at_once_as_a_customers_own_limits_leave(share, most):
    queue = queue_of({"a": share})
    fill(queue, "a", range(5))
    for left in range(most, 0, -1):
        assert queue.flow("a").eligible_count(0.0) == left, "what is out counts"
        assert picked(queue, 1) == "a"
    assert queue.flow("a").eligible_count(0.0) == 0
    assert picked(queue, 1) == "-"


def test_who_waited_for_a_token_could_start_once_it_is_there():
    queue = queue_of({"a": Share(rate_per_s=1.0, burst=2)})
    fill(queue, "a", range(9))
    assert picked(queue, 3) == "aa-"
    assert [queue.eligible_count(9, now) for now in (0.5, 1.0, 7.0)] == [0, 1, 2]


def test_a_rate_limited_customer_does_not_hold_up_the_others():
    queue = queue_of({"a": Share(rate_per_s=1.0)})
    fill(queue, "a", range(5))
    fill(queue, "b", range(10, 13))
    assert picked(queue, 5, now=7.0) == "abbb-"
    assert picked(queue, 2, now=8.0) == "a-"


def test_going_idle_does_not_refill_the_burst():
    queue = queue_of({"a": Share(rate_per_s=0.001)})
    fill(queue, "a", [1])
    assert picked(queue, 1, now=50.0) == "a"
    queue.end("a")
    queue.forget_idle()
    fill(queue, "a", [2])
    assert picked(queue, 1, now=51.0) == "-"
    assert picked(queue, 1, now=1_050.0) == "a"
    queue.end("a")
    queue.forget_idle()
    assert [*queue.flows()], "still owes the rest of its wait"
    fill(queue, "b", [3])
    picked(queue, 1, now=9_050.0)
    queue.forget_idle()
    assert [flow.customer_id for flow in queue.flows()] == ["b"]


def test_a_limit_that_is_lifted_acts_at_once():
    shares = {"a": Share(rate_per_s=0.001)}
    queue = queue_of(shares)
    fill(queue, "a", range(5))
    assert picked(queue, 2, now=50.0) == "a-"
    shares["a"] = Share(weight=2.0)
    queue.refresh_shares()
    assert picked(queue, 5, now=50.0) == "aaaa-"


def test_a_customer_paused_while_it_waits_for_a_token_stays_paused():
    shares = {"a": Share(rate_per_s=1.0)}
    queue = queue_of(shares)
    fill(queue, "a", range(5))
    assert picked(queue, 2, now=50.0) == "a-"
    shares["a"] = Share(rate_per_s=1.0, paused=True)
    queue.refresh_shares()
    assert picked(queue, 1, now=60.0) == "-"


def test_what_was_withdrawn_while_it_waited_for_a_token_is_not_picked():
    queue = queue_of({"a": Share(rate_per_s=1.0)})
    fill(queue, "a", [1, 2])
    assert picked(queue, 2, now=50.0) == "a-"
    queue.withdraw("a", entry(2))
    assert picked(queue, 1, now=60.0) == "-"
    fill(queue, "a", [3])
    assert picked(queue, 2, now=60.0) == "a-"


def test_a_clock_that_goes_back_gives_no_tokens_twice():
    queue = queue_of({"a": Share(rate_per_s=1.0)})
    fill(queue, "a", range(5))
    assert picked(queue, 1, now=100.0) == "a"
    assert picked(queue, 1, now=40.0) == "-"
    assert picked(queue, 1, now=100.5) == "-"
    assert picked(queue, 1, now=101.0) == "a"


def test_a_customer_that_was_parked_returns_at_the_present():
    shares = {"a": Share(rate_per_s=1.0)}
    queue = queue_of(shares)
    fill(queue, "a", range(100))
    fill(queue, "b", range(200, 400))
    assert picked(queue, 100, now=50.0).count("a") == 1
    shares.clear()
    queue.refresh_shares()
    assert 5 <= picked(queue, 10, now=50.0).count("a") <= 6


# ---- within a customer ----


def test_priority_then_started_then_rank_then_age():
    queue = queue_of()
    fill(queue, "a", [1], priority=9)
    fill(queue, "a", [2], priority=5, rank=3)
    fill(queue, "a", [4, 3], priority=5)
    fill(queue, "a", [5], priority=5, rank=60_000, resumed=True)
    fill(queue, "a", [6], priority=1, rank=9)
    assert refs(queue, 6) == [6, 5, 3, 4, 2, 1]


def test_a_customers_priority_does_not_hurt_the_others():
    queue = queue_of()
    fill(queue, "a", range(5), priority=1)
    fill(queue, "b", range(10, 15), priority=9)
    assert picked(queue, 6) == "ababab"


def test_keys_share_their_customers_turns_by_cost():
    queue = queue_of()
    fill(queue, "a", range(20), key="big")
    fill(queue, "a", range(100, 120), key="small")
    first = refs(queue, 10, cost=lambda ref: 4.0 if ref < 100 else 1.0)
    assert sum(ref < 100 for ref in first) == 2


def test_splitting_work_into_keys_wins_nothing_from_other_customers():
    queue = queue_of()
    for number in range(40):
        fill(queue, "a", [number], key=f"k{number}")
    fill(queue, "b", range(100, 140))
    assert picked(queue, 40).count("a") == 20


def test_a_new_key_joins_at_the_present():
    queue = queue_of()
    fill(queue, "a", range(50), key="old")
    fill(queue, "a", range(50, 100), key="older")
    refs(queue, 60)
    fill(queue, "a", range(200, 250), key="new")
    assert 3 <= sum(ref >= 200 for ref in refs(queue, 12)) <= 5


def test_a_key_that_comes_back_has_saved_nothing_up():
    queue = queue_of()
    fill(queue, "a", [0], key="x")
    fill(queue, "a", range(1, 60), key="y")
    fill(queue, "a", range(60, 120), key="z")
    refs(queue, 50)
    fill(queue, "a", range(200, 250), key="x")
    assert 3 <= sum(ref >= 200 for ref in refs(queue, 12)) <= 5


def test_withdrawn_agendas_are_skipped_wherever_they_stand():
    queue = queue_of()
    fill(queue, "a", range(6))
    for ref in (0, 3, 5):
        queue.withdraw("a", entry(ref))
    assert queue.ready == 3
    assert refs(queue, 3) == [1, 2, 4]
    assert queue.pick(lambda _: 1.0) is None


def test_a_withdrawn_agenda_may_come_back():
    queue = queue_of()
    fill(queue, "a", range(3))
    queue.withdraw("a", entry(1))
    fill(queue, "a", [1])
    assert refs(queue, 3) == [0, 1, 2]


def test_ahead_counts_what_goes_first():
    queue = queue_of()
    fill(queue, "a", range(5))
    fill(queue, "a", [9], priority=1, key="x")
    line = queue.flow("a").customer_queue
    assert line.ahead(lambda _: entry(3)) == 4
    assert line.ahead(lambda _: entry(9, priority=1)) == 0


# ---- strict priorities with aging ----


def aging(arrivals, step_s=10.0):
    return Aging(step_s, lambda ref: arrivals.get(ref, 0.0))


def test_with_aging_the_urgent_go_first_whosever_they_are():
    queue = queue_of(aging=aging({}))
    fill(queue, "a", [1, 2], priority=5)
    fill(queue, "b", [3, 4], priority=2)
    assert picked(queue, 4) == "bbaa"


def test_with_aging_turns_are_fair_among_the_equally_urgent():
    queue = queue_of(aging=aging({}))
    fill(queue, "a", [1, 2], priority=5)
    fill(queue, "b", [3, 4], priority=5)
    assert picked(queue, 4) == "abab"


def test_what_waits_moves_up_a_priority_at_every_step():
    arrivals = {1: 0.0, 2: 39.0}
    queue = queue_of(aging=aging(arrivals))
    fill(queue, "a", [1], priority=5)
    fill(queue, "b", [2], priority=2)
    assert picked(queue, 2, now=40.0) == "ab"


def test_one_step_too_early_it_still_waits():
    queue = queue_of(aging=aging({1: 0.0, 2: 29.0}))
    fill(queue, "a", [1], priority=5)
    fill(queue, "b", [2], priority=2)
    assert picked(queue, 2, now=29.0) == "ba"


def test_within_a_customer_an_aged_agenda_overtakes_an_urgent_one():
    queue = queue_of(aging=aging({1: 0.0, 2: 45.0}))
    fill(queue, "a", [1], priority=5)
    fill(queue, "a", [2], priority=3)
    assert refs(queue, 2, now=50.0) == [1, 2]


def test_a_move_up_between_picks_is_noticed():
    queue = queue_of(aging=aging({1: 0.0, **dict.fromkeys(range(10, 20), 100.0)}))
    fill(queue, "a", [1], priority=9)
    fill(queue, "b", range(10, 20), priority=4)
    assert picked(queue, 1, now=1.0) == "b"
    assert queue.due_at == pytest.approx(10.0)
    assert picked(queue, 1, now=39.0) == "b"
    assert picked(queue, 1, now=60.0) == "a"


def test_the_instant_of_a_move_up_is_no_trap():
    """0.7 + 0.1 is a hair less than a whole step after 0.7: looking again must make headway."""
    one = aging({1: 0.7}, step_s=0.1)
    due = one.changes_at(5, 1, 0.75)
    assert one.changes_at(5, 1, due) > due
    queue = queue_of(aging=one)
    fill(queue, "a", [1], priority=5)
    fill(queue, "b", [2], priority=9)
    assert picked(queue, 2, now=due) in {"ab", "ba"}


def test_an_urgent_arrival_moves_its_customer_up_at_once():
    queue = queue_of(aging=aging({}))
    fill(queue, "a", [1], priority=5)
    fill(queue, "b", [2], priority=4)
    fill(queue, "a", [3], priority=1)
    assert refs(queue, 3) == [3, 2, 1]


def test_a_clock_that_goes_back_takes_no_urgency_away():
    queue = queue_of(aging=aging({1: 0.0, 2: 39.0, 3: 0.0}))
    fill(queue, "c", [3], priority=1)
    fill(queue, "a", [1], priority=5)
    fill(queue, "b", [2], priority=2)
    assert picked(queue, 2, now=40.0) == "ac"
    assert picked(queue, 1, now=5.0) == "b"
    fill(queue, "b", [2], priority=2)
    fill(queue, "a", [4], priority=3)
    assert picked(queue, 2, now=5.0) == "ab"


def test_at_the_top_nothing_changes_any_more():
    assert aging({}).changes_at(1, 1, 5.0) is None
    assert aging({}).changes_at(9, 1, 80.0) is None


def test_a_paused_customer_is_not_moved_up():
    shares = {}
    queue = queue_of(shares, aging=aging({}))
    fill(queue, "a", [1], priority=5)
    fill(queue, "b", [2], priority=5)
    shares["b"] = Share(paused=True)
    queue.refresh_shares()
    assert picked(queue, 2, now=15.0) == "a-"
    shares.clear()
    queue.refresh_shares()
    assert picked(queue, 2, now=16.0) == "b-"


def test_withdrawing_all_ends_the_way_up():
    queue = queue_of(aging=aging({}))
    fill(queue, "a", [1], priority=5)
    queue.withdraw("a", entry(1))
    queue.forget_idle()
    assert [*queue.flows()] == []
    assert picked(queue, 1, now=15.0) == "-"


def test_nothing_is_waited_for_once_only_the_most_urgent_is_left():
    queue = queue_of(aging=aging({1: 0.0, 2: 0.0}))
    fill(queue, "a", [2], priority=1)
    fill(queue, "a", [1], priority=2)
    queue.withdraw("a", entry(1, priority=2))
    assert queue.due_at is None


def test_what_has_aged_goes_before_what_comes_later_with_that_priority():
    queue = queue_of(aging=aging({1: 0.0, **dict.fromkeys(range(10, 20), 80.0)}))
    fill(queue, "a", [1], priority=9)
    fill(queue, "a", range(10, 20), priority=1)
    assert refs(queue, 2, now=80.0) == [1, 10]


def test_an_aged_arrival_moves_its_customer_up_though_it_is_not_the_head():
    """As one that comes back from a retry: its wait counts from its acceptance."""
    queue = queue_of(aging=aging({1: 95.0, 2: 95.0, 3: 0.0, 4: 95.0}))
    fill(queue, "c", [4], priority=1)
    fill(queue, "a", [1], priority=5)
    fill(queue, "b", [2], priority=3)
    assert picked(queue, 1, now=96.0) == "c"
    fill(queue, "a", [3], priority=9)
    assert refs(queue, 3, now=96.0) == [3, 2, 1]


def test_who_comes_to_another_urgency_starts_at_its_present():
    """Service of the urgent is no credit of who waited, and no debt of who joins."""
    arrivals = {**dict.fromkeys(range(10, 20), 0.0), 30: 0.0}
    queue = queue_of(aging=aging(arrivals))
    fill(queue, "a", range(10, 15), priority=1)
    fill(queue, "b", [15, 16, 17, 18], priority=2)
    assert picked(queue, 5, cost=100.0) == "aaaaa"
    fill(queue, "c", [19, 30], priority=2)
    assert picked(queue, 4) == "bcbc"
    assert queue.presents[:3] == (400.0, 1.0, 0.0)


def test_steps_too_short_to_count_are_over_at_once():
    """1e9 seconds are more steps of 1e-300 than a float can tell."""
    assert aging({1: 0.0}, step_s=1e-300).urgency(9, 1, 1e9) == 1


# ---- state ----


def test_forgotten_customers_rejoin_at_the_present():
    queue = queue_of()
    fill(queue, "a", range(5))
    picked(queue, 5)
    for _ in range(5):
        queue.end("a")
    fill(queue, "b", [10, 11])
    queue.forget_idle()
    assert [flow.customer_id for flow in queue.flows()] == ["b"]
    fill(queue, "a", [20, 21])
    assert picked(queue, 4) == "abab"


def test_a_customer_ahead_of_the_clock_is_not_forgotten():
    queue = queue_of()
    fill(queue, "a", [1])
    fill(queue, "b", range(10, 20))
    picked(queue, 1, cost=5.0)
    queue.end("a")
    queue.forget_idle()
    fill(queue, "a", [2])
    assert picked(queue, 6) == "bbbbba"


def test_upcoming_names_the_next_customers():
    queue = queue_of()
    for customer_id in "dcba":
        fill(queue, customer_id, range(3))
    assert [flow.customer_id for flow in queue.next_customers(2)] == ["a", "b"]
    picked(queue, 1)
    assert [flow.customer_id for flow in queue.next_customers(2)] == ["b", "c"]


def test_with_all_at_rest_the_bound_starts_anew():
    queue = queue_of()
    fill(queue, "a", [1])
    picked(queue, 1, cost=50.0)
    queue.end("a")
    assert queue.bound() == 0.0


def test_aging_leaves_no_litter_of_instants():
    queue = queue_of(aging=aging({}, step_s=3_600.0))
    fill(queue, "a", range(3_000))
    fill(queue, "b", range(3_000, 6_000))
    picked(queue, 5_000)
    assert len(queue._eligible._dues._heap) < 200


def test_a_key_that_is_emptied_and_filled_again_before_its_turn_has_one_turn():
    queue = queue_of()
    fill(queue, "a", [1, 2], key="left")
    fill(queue, "a", [11], key="right")
    queue.withdraw("a", entry(11), "right")
    fill(queue, "a", [12, 13], key="right")
    assert refs(queue, 4) == [1, 12, 2, 13]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(0.01, 1.0, "bababab"), (1.0, 0.01, "bbbbbbb"), (1.0, 1.0, "bababab")],
)
def test_a_debt_is_of_worker_seconds_whatever_they_weighed(before, after, expected):
    """a was just given one agenda more than b."""
    shares = {"a": Share(weight=before)}
    queue = queue_of(shares)
    fill(queue, "a", range(20))
    assert picked(queue, 1) == "a"
    fill(queue, "b", range(100, 120))
    shares["a"] = Share(weight=after)
    queue.refresh_shares()
    assert picked(queue, 7) == expected


@pytest.mark.parametrize(("before", "after"), [(0.01, 100.0), (1.0, 0.01)])
def test_turns_without_weights_are_not_scaled(before, after):
    shares = {"a": Share(weight=before)}
    queue = queue_of(shares, "round_robin")
    fill(queue, "a", range(20))
    fill(queue, "b", range(100, 120))
    picked(queue, 1)
    shares["a"] = Share(weight=after)
    queue.refresh_shares()
    assert picked(queue, 4) == "baba"


# ---- customers that join ----


def flooded(**known):
    """A queue of which customer a has had 5 of 50."""
    queue = queue_of(**known)
    fill(queue, "a", range(50))
    picked(queue, 5)
    return queue


def test_who_comes_back_from_idleness_is_a_idle_returner_until_its_next_pick():
    queue = flooded()
    assert queue.idle_returners() == 0
    fill(queue, "b", [100, 101])
    fill(queue, "c", [102])
    assert queue.idle_returners() == 2
    assert picked(queue, 1) == "b"
    assert queue.idle_returners() == 1
    assert picked(queue, 1) == "c"
    assert queue.idle_returners() == 0, "b has been given something, and its next agenda waits"


def test_idle_returners_are_next():
    queue = flooded()
    fill(queue, "c", [100])
    fill(queue, "b", [101])
    idle_returners = queue.idle_returners()
    assert sorted(picked(queue, idle_returners)) == ["b", "c"]


def test_those_who_tie_are_idle_returners_only_while_little_of_theirs_is_out():
    queue = queue_of()
    for number, name in enumerate("abc"):
        fill(queue, name, range(100 * number, 100 * number + 50))
    picked(queue, 4)
    assert queue.idle_returners() == 0, "b and c tie, and each has a part like any"
    fill(queue, "d", [900])
    assert queue.idle_returners() == 1


def test_who_has_nothing_left_or_may_not_go_is_no_idle_returner():
    shares = {}
    queue = flooded(shares=shares)
    fill(queue, "b", [100])
    fill(queue, "c", [101])
    queue.withdraw("b", entry(100))
    assert queue.idle_returners() == 1
    shares["c"] = Share(paused=True)
    queue.refresh_shares()
    assert queue.idle_returners() == 0
    shares["c"] = Share()
    queue.refresh_shares()
    assert queue.idle_returners() == 1


def test_who_waits_for_a_token_is_no_idle_returner_until_it_has_one():
    queue = flooded(shares={"b": Share(rate_per_s=1.0, burst=1)})
    fill(queue, "b", [100, 101])
    assert picked(queue, 3) == "baa"
    assert queue.idle_returners() == 0
    picked(queue, 5, now=0.5)
    assert queue.idle_returners() == 0
    assert picked(queue, 1, now=2.0) == "b"


def test_by_age_nobody_is_a_idle_returner():
    queue = flooded(algorithm="fifo")
    picked(queue, 2, cost=1_000.0)
    fill(queue, "b", [100])
    assert queue.presents[0] > 100, "so by its tag and its age b would be one"
    assert queue.idle_returners() == 0


# ---- levels of urgency, and who is let go of ----


def at_two_levels(shares=EQUAL):
    """The urgent were given 400 s, the others little: two very different presents."""
    queue = queue_of(shares, aging=aging({}, step_s=1e9))
    fill(queue, "a", range(10), priority=1)
    picked(queue, 5, cost=100.0)
    for _ in range(5):
        queue.withdraw("a", queue.flow("a").customer_queue.head())
    return queue


def test_who_was_forgotten_is_not_asked_for_when_the_busy_period_ends():
    queue = queue_of()
    fill(queue, "a", [1])
    fill(queue, "b", range(10, 14))
    picked(queue, 5)
    queue.end("a")
    queue.forget_idle()
    assert [flow.customer_id for flow in queue.flows()] == ["b"]
    for _ in range(4):
        queue.end("b")
    assert queue.presents[0] == 4.0


def test_who_is_still_without_tokens_is_not_forgotten():
    queue = queue_of({"a": Share(rate_per_s=0.1, burst=4)})
    fill(queue, "a", [1])
    fill(queue, "b", range(10, 20))
    picked(queue, 5)
    queue.end("a")
    for now, names in ((9.0, "ab"), (10.0, "b")):
        queue.advance_to(now)
        queue.forget_idle()
        assert "".join(flow.customer_id for flow in queue.flows()) == names


def test_who_has_aged_starts_at_the_present_of_those_it_comes_to():
    """Else it would be given all that they had while it was less urgent."""
    queue = queue_of(aging=aging({}))
    fill(queue, "a", range(10), priority=1)
    fill(queue, "b", range(20, 30), priority=2)
    assert picked(queue, 5, cost=100.0) == "aaaaa"
    assert picked(queue, 4, cost=100.0, now=10.0) == "baba"


def test_those_held_longest_are_named_first_whatever_comes_for_them_meanwhile():
    queue = queue_of({one: Share(paused=True) for one in "ab"})
    for number, customer_id in enumerate("bab"):
        fill(queue, customer_id, [number])
    assert [flow.customer_id for flow in queue.held(1)] == ["b"]


# ---- what runs, and what was declared of it ----


def declared(cost_s, usual_s):
    """Of one whose customer declares more than is usual with it."""
    return lambda _: Estimate(cost_s, min(cost_s, usual_s))


def test_what_runs_for_longer_than_was_thought_counts_while_it_runs():
    queue = queue_of()
    fill(queue, "a", range(20))
    fill(queue, "b", range(30, 50))
    assert picked(queue, 4) == "abab"
    for _ in range(2):
        queue.heartbeat("a", 10.0)
    queue.heartbeat("a", 5.0)  # an older one says nothing new
    assert queue.flow("a").position == 11.0
    assert picked(queue, 9) == "b" * 9, "until b has as much"


def test_a_heartbeat_within_what_was_reserved_changes_nothing():
    queue = queue_of()
    fill(queue, "a", range(2))
    picked(queue, 1, cost=10.0)
    queue.drain_moved()
    queue.heartbeat("a", 9.0)
    assert queue.drain_moved() == {}
    assert queue.flow("a").position == 10.0


def test_by_round_robin_an_agenda_is_a_turn_whatever_it_takes():
    queue = queue_of(algorithm="round_robin")
    fill(queue, "a", range(9))
    fill(queue, "b", range(10, 19))
    assert picked(queue, 2) == "ab"
    queue.heartbeat("a", 50.0)
    queue.end("a", taken=70.0)
    queue.end("b", taken=0.0)
    assert picked(queue, 4) == "abab"


def test_who_declares_too_much_lets_others_go_first_and_is_refunded():
    queue = queue_of()
    fill(queue, "a", range(9))
    fill(queue, "b", range(10, 29))
    assert picked(queue, 1, cost=declared(4.0, 1.0)) == "a"
    assert picked(queue, 4) == "bbbb"
    queue.end("a", taken=1.0)
    assert picked(queue, 5) == "aaaab"


def test_a_late_customer_does_not_wait_for_what_another_declared_beyond_the_usual():
    """The customer that was alone declared months, and ends after seconds."""
    queue = queue_of()
    fill(queue, "a", range(100))
    assert picked(queue, 8, cost=declared(1e7, 5.0)) == "a" * 8
    fill(queue, "b", range(200, 300))
    assert picked(queue, 1, cost=5.0) == "b"
    for _ in range(8):
        queue.end("a", taken=5.0)
    assert queue.flow("b").position - queue.flow("a").position <= 8 * 5.0
    assert picked(queue, 40, cost=5.0).count("b") >= 16


def test_a_late_customer_waits_for_one_agenda_of_the_first_at_most():
    queue = queue_of()
    fill(queue, "a", range(100))
    picked(queue, 8, cost=3.0)
    fill(queue, "b", range(200, 300))
    assert picked(queue, 6, cost=1.0) == "bbbaba", "at the start of a's last agenda"


def test_all_that_join_with_one_pick_join_at_one_present():
    queue = queue_of()
    fill(queue, "m", range(50))
    picked(queue, 10)
    for number, one in enumerate("zyx"):
        fill(queue, one, range(100 * number + 100, 100 * number + 110))
    assert sorted(picked(queue, 3)) == ["x", "y", "z"]
    tags = {queue.flow(one).account.tag for one in "xyz"}
    assert len(tags) == 1


def test_who_rejoins_at_once_keeps_what_it_was_given_less_for():
    """A customer whose last agenda was emitted, and the next of which comes a moment later."""
    queue = queue_of()
    fill(queue, "a", range(20))
    fill(queue, "b", [100])
    assert picked(queue, 2) == "ab"
    queue.end("a", taken=30.0)
    queue.end("b", taken=1.0)
    fill(queue, "b", range(101, 150))
    assert picked(queue, 29) == "b" * 29, "until it has as much"


def test_what_one_took_while_nobody_waited_is_no_debt_to_who_comes_later():
    """But for one agenda: that is where the last one of the other began."""
    queue = queue_of()
    fill(queue, "a", range(8))
    picked(queue, 8)
    for _ in range(8):
        queue.heartbeat("a", 50.0)
        queue.out["a"].append(queue.out["a"].pop(0))
    fill(queue, "b", range(100, 300))
    fill(queue, "a", range(10, 90))
    assert 48 <= picked(queue, 100).index("a") <= 51


def test_what_ends_without_having_run_was_delivered_to_nobody():
    queue = queue_of()
    fill(queue, "a", range(9))
    fill(queue, "b", range(10, 19))
    assert picked(queue, 2, cost=6.0) == "ab"
    queue.end("a", taken=0.0)
    assert picked(queue, 6) == "aaaaaa"


def test_a_freed_slot_goes_to_a_capped_customer_that_has_less():
    queue = queue_of({"a": Share(max_in_flight=2)})
    fill(queue, "a", range(50))
    fill(queue, "b", range(100, 200))
    assert picked(queue, 8) == "ababbbbb"
    for _ in range(10):
        queue.end("a")
        assert picked(queue, 1) == "a"
        for _ in range(3):
            queue.end("b")
        assert picked(queue, 3) == "bbb"


@pytest.mark.parametrize("heavy", [0.001, 1.0, 50.0])
def test_a_new_weight_makes_nobody_wait_for_what_came_before(heavy):
    """However much of it was out, and however long it takes beyond what was thought."""
    shares = {"a": Share(weight=heavy)}
    queue = queue_of(shares)
    fill(queue, "a", range(200))
    fill(queue, "b", range(300, 500))
    picked(queue, 24)
    shares["a"] = Share()
    queue.refresh_shares()
    picked(queue, 1)
    while queue.out["a"]:
        queue.end("a", more=1.0)
    while queue.out["b"]:
        queue.end("b")
    assert 10 <= picked(queue, 100).count("b") <= 90


def test_far_ahead_of_all_shares_are_still_by_weight():
    """After a year of a thousand workers a tag has a grid of 4e-6 s."""
    queue = queue_of({"a": Share(weight=3.0)})
    queue.restore(presents=(3.2e10,), depth=0, saved={}, entries={}, out={})
    fill(queue, "a", range(4_000))
    fill(queue, "b", range(10_000, 14_000))
    assert picked(queue, 4_000, cost=0.005).count("a") == pytest.approx(3_000, abs=6)


def test_the_gap_stays_below_its_bound():
    queue = queue_of()
    fill(queue, "a", range(60))
    fill(queue, "b", range(100, 160))
    for _ in range(20):
        picked(queue, 3, cost=lambda ref: 7.0 if ref < 100 else 1.0)
        queue.end(max("ab", key=lambda one: len(queue.out.get(one, ()))), more=2.0)
        assert 0.0 <= queue.gap() <= queue.bound()


def test_what_is_declared_does_not_widen_the_bound():
    queue = queue_of()
    fill(queue, "a", range(9))
    fill(queue, "b", range(10, 19))
    picked(queue, 4, cost=declared(1e7, 2.0))
    assert queue.bound() <= (4 + 1) * 2 * 4 * 2.0


def test_turns_that_are_put_again_and_again_leave_no_litter():
    queue = queue_of()
    for number in range(5_000):
        fill(queue, "a", [2 * number])
        fill(queue, "b", [2 * number + 1])
        picked(queue, 2, cost=1e3)
        queue.end("a", taken=1.0)
        queue.end("b", taken=1.0)
        fill(queue, "a", [1_000_000 + number])
    assert len(queue._eligible._turns[0]._heap) < 200


def test_an_agenda_taken_out_of_turn_counts():
    queue = queue_of()
    fill(queue, "a", range(5))
    fill(queue, "b", range(10, 15))
    pick = queue.pick_out_of_turn("a", entry(3), estimate=Estimate(2.0, 2.0))
    assert (pick.customer_id, pick.ref) == ("a", 3)
    assert (queue.ready, queue.in_flight) == (9, 1)
    assert picked(queue, 4) == "bbab"


def test_taking_the_last_one_out_of_turn_leaves_nothing_to_pick():
    queue = queue_of()
    fill(queue, "a", [1])
    queue.pick_out_of_turn("a", entry(1), estimate=Estimate(2.0, 2.0))
    assert queue.pick(lambda _: 1.0) is None


# ---- keys ----


def shares_of_keys(queue, picks, cost_of=lambda _: 1.0, taken=None):
    """How many of the next agendas, each to its end, are of keys x and y: below 1000 is x."""
    counts = {"x": 0.0, "y": 0.0}
    for _ in range(picks):
        pick = queue.pick(cost_of)
        spent = cost_of(pick.ref) if taken is None else taken(pick.ref)
        counts["x" if pick.ref < 1_000 else "y"] += spent
        queue.end("a", taken=spent)
    return counts


def test_no_key_gains_by_calling_its_agendas_urgent():
    queue = queue_of()
    fill(queue, "a", range(200), key="x", priority=1)
    fill(queue, "a", range(1_000, 1_200), key="y", priority=9)
    assert shares_of_keys(queue, 100) == {"x": 50.0, "y": 50.0}


def test_no_key_gains_by_retries():
    queue = queue_of()
    fill(queue, "a", range(200), key="x", resumed=True)
    fill(queue, "a", range(1_000, 1_200), key="y")
    assert shares_of_keys(queue, 100) == {"x": 50.0, "y": 50.0}


def test_no_key_gains_by_declaring_little():
    queue = queue_of()
    fill(queue, "a", range(400), key="x")
    fill(queue, "a", range(1_000, 1_400), key="y")
    found = shares_of_keys(
        queue, 200, lambda ref: 0.01 if ref < 1_000 else 1.0, taken=lambda _: 1.0
    )
    assert found["x"] == pytest.approx(found["y"], abs=2.0)


def test_with_strict_priorities_keys_take_turns_within_a_priority():
    queue = queue_of(aging=Aging(1e9, lambda _: 0.0))
    fill(queue, "a", range(5), key="x", priority=1)
    fill(queue, "a", range(1_000, 1_010), key="y", priority=2)
    fill(queue, "a", range(10, 20), key="x", priority=2)
    order = refs(queue, 15)
    assert order[:5] == [0, 1, 2, 3, 4]
    assert sum(ref >= 1_000 for ref in order[5:]) >= 5


def test_the_memory_of_keys_without_work_is_bounded():
    queue = queue_of()
    fill(queue, "a", range(10_000, 10_400), key="busy")
    for number in range(100):
        fill(queue, "a", [2 * number], key=f"k{number}")
        for _ in range(2):
            queue.pick(lambda _: 1.0)
            queue.end("a")
    assert len(queue.flow("a").customer_queue.keys()) <= 4


def test_a_customer_at_rest_keeps_no_keys():
    queue = queue_of()
    for number in range(100):
        fill(queue, "a", [2 * number], key=f"k{number}")
        fill(queue, "a", [2 * number + 1], key=f"l{number}")
        picked(queue, 2)
        queue.end("a")
        queue.end("a")
    assert queue.flow("a").customer_queue.keys() == {}


# ---- idle returners, and who is forgotten ----


def test_who_was_given_more_is_no_idle_returner():
    queue = flooded()
    fill(queue, "b", [100])
    picked(queue, 1, cost=30.0)
    fill(queue, "b", [101])
    assert queue.idle_returners() == 0
    fill(queue, "c", [102])
    assert queue.idle_returners() == 1


def test_who_has_something_out_is_not_forgotten_though_nothing_of_it_waits():
    queue = queue_of()
    fill(queue, "a", [1])
    fill(queue, "b", range(10, 20))
    picked(queue, 5)
    queue.forget_idle()
    assert queue.flow("a").in_flight == 1


def test_who_was_given_more_is_not_forgotten():
    queue = queue_of()
    fill(queue, "a", [1])
    fill(queue, "b", range(10, 20))
    picked(queue, 2, cost=5.0)
    queue.end("a", taken=50.0)
    queue.forget_idle()
    assert queue.flow("a").account.tag == 50.0
