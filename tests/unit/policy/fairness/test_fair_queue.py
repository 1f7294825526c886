"""Turns of customers, by the table; what holds for all workloads is in `properties`."""

import pytest

from pop_stream.policy.fairness.algorithms import ALGORITHMS
from pop_stream.policy.fairness.customer_queue import CustomerQueue, entry_of
from pop_stream.policy.fairness.flow import Aging, Share
from pop_stream.policy.fairness.queue import FairQueue

EQUAL: dict[str, Share] = {}


def queue_of(shares=EQUAL, algorithm="weighted_fair", aging=None):
    return FairQueue(
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


def test_what_an_agenda_cost_more_is_over_the_weight_it_was_charged_with():
    fair = ALGORITHMS["weighted_fair"]
    charge = fair.charge(cost=2.0, weight=4.0)
    assert charge + fair.correction(spent=6.0, cost=2.0, charge=charge) == 6.0 / 4.0


def test_round_robin_counts_agendas_not_cost_or_weight():
    queue = queue_of({"a": Share(weight=50.0)}, "round_robin")
    fill(queue, "a", [1, 2, 3])
    fill(queue, "b", [11, 12, 13])
    assert picked(queue, 6, cost=float) == "ababab"


def test_by_round_robin_nothing_is_owed_for_what_an_agenda_cost_more():
    turns = ALGORITHMS["round_robin"]
    assert turns.correction(spent=9.0, cost=1.0, charge=1.0) == 0.0


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
    assert queue.clock == (1.0,)


def test_nothing_is_picked_from_nothing():
    queue = queue_of()
    assert queue.pick(lambda _: 1.0) is None
    assert queue.due_at is None
    assert queue.next_customers(5) == []
    assert queue.tag_gap() == 0.0
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
    queue.settle("a")
    assert queue.virtual_time == 1_000.0
    fill(queue, "a", [2, 3])
    fill(queue, "b", [4, 5])
    assert picked(queue, 4) == "abab"


def test_the_end_of_a_busy_period_looks_only_at_those_served_in_it():
    """Else every agenda that comes alone would cost a look at all customers ever seen."""
    queue = queue_of()
    for number in range(100):
        fill(queue, f"c{number}", [number])
        assert len(picked(queue, 1)) > 1
        queue.settle(f"c{number}")
        assert len(queue._gap_bound.served) == 0
    assert len([*queue.flows()]) == 100
    assert queue.virtual_time == 100.0


def test_withdrawing_the_last_that_waits_ends_the_busy_period_too():
    queue = queue_of()
    fill(queue, "a", [1, 2])
    picked(queue, 1, cost=7.0)
    queue.settle("a")
    queue.withdraw("a", entry(2))
    assert queue.virtual_time == 7.0
    assert queue.ready == queue.in_flight == 0


def test_what_runs_keeps_the_busy_period_going():
    queue = queue_of()
    fill(queue, "a", [1, 2])
    picked(queue, 2, cost=7.0)
    queue.settle("a")
    assert queue.virtual_time == 7.0
    queue.settle("a")
    assert queue.virtual_time == 14.0


# ---- corrections ----


def test_a_idle_returner_does_not_wait_for_estimates_that_proved_too_high():
    queue = queue_of()
    fill(queue, "a", range(1_000))
    picked(queue, 500, cost=1.0)
    for _ in range(500):
        queue.settle("a", correction=-0.99)
    fill(queue, "b", range(2_000, 2_100))
    assert picked(queue, 10, cost=0.01).count("b") >= 4


def test_an_idle_customers_refund_does_not_turn_the_clock_back():
    queue = queue_of()
    fill(queue, "a", [1])
    fill(queue, "b", range(10, 60))
    picked(queue, 1, cost=5.0)
    assert picked(queue, 5) == "bbbbb"
    before = queue.virtual_time
    queue.settle("a", correction=-5.0)
    assert queue.virtual_time == before


def test_an_agenda_that_cost_more_is_paid_for_later():
    queue = queue_of()
    fill(queue, "a", range(10))
    fill(queue, "b", range(20, 40))
    assert picked(queue, 2) == "ab"
    queue.settle("a", correction=3.0)
    queue.settle("b")
    assert picked(queue, 5) == "bbbab"


# ---- caps, pauses, weights ----


def test_a_cap_holds_back_and_a_freed_slot_lets_go():
    queue = queue_of({"a": Share(max_in_flight=2)})
    fill(queue, "a", range(5))
    assert picked(queue, 3) == "aa-"
    assert queue.flow("a").held_by == "max_in_flight"
    queue.settle("a")
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
    queue.settle("a", correction=-1.0)
    assert picked(queue, 2) in {"ab", "ba"}
    queue.settle("a", correction=-1.0)
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
    queue.settle("a")
    assert picked(queue, 1) == "-"
    queue.settle("a")
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
    queue.settle("a")
    queue.forget_idle()
    fill(queue, "a", [2])
    assert picked(queue, 1, now=51.0) == "-"
    assert picked(queue, 1, now=1_050.0) == "a"
    queue.settle("a")
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


def test_a_new_key_need_not_make_up_for_what_others_were_given_at_another_priority():
    queue = queue_of()
    fill(queue, "a", range(100), priority=1, key="x")
    fill(queue, "a", range(100, 200), priority=1, key="y")
    fill(queue, "a", range(200, 300), key="z")
    assert max(refs(queue, 200)) < 200
    fill(queue, "a", range(300, 400), key="new")
    assert 4 <= sum(ref >= 300 for ref in refs(queue, 10)) <= 6


def test_a_key_that_comes_back_has_saved_nothing_up():
    queue = queue_of()
    fill(queue, "a", [0], key="x")
    fill(queue, "a", range(1, 60), key="y")
    fill(queue, "a", range(60, 120), key="z")
    refs(queue, 50)
    fill(queue, "a", range(200, 250), key="x")
    assert 3 <= sum(ref >= 200 for ref in refs(queue, 12)) <= 5


def test_a_keys_turn_is_one_for_all_priorities():
    queue = queue_of()
    fill(queue, "a", range(10), priority=1, key="x")
    fill(queue, "a", range(10, 20), priority=1, key="y")
    fill(queue, "a", range(20, 30), priority=5, key="x")
    fill(queue, "a", range(30, 40), priority=5, key="y")
    order = refs(queue, 40, cost=lambda ref: 3.0 if ref // 10 in {0, 2} else 1.0)
    assert sorted(order[:20]) == [*range(20)]
    assert sum(ref < 30 for ref in order[20:28]) == 2


def test_the_memory_of_idle_keys_is_bounded():
    queue = queue_of()
    fill(queue, "a", range(1_000, 1_200), key="busy")
    for number in range(100):
        fill(queue, "a", [2 * number], key=f"k{number}")
        refs(queue, 2)
    queue.forget_idle()
    assert len(queue.flow("a").customer_queue.tags) <= 3


def test_a_line_that_runs_empty_keeps_no_keys():
    queue = queue_of()
    for number in range(100):
        fill(queue, "a", [2 * number], key=f"k{number}")
        fill(queue, "a", [2 * number + 1], key=f"l{number}")
        refs(queue, 2)
    assert queue.flow("a").customer_queue.tags == {}


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


def test_a_key_that_comes_back_before_its_old_turn_was_noticed_has_one_turn():
    line = CustomerQueue()
    line.push(entry(1), "x")
    line.push(entry(2), "y")
    line.withdraw(entry(1), "x")
    line.push(entry(3), "x")
    taken = []
    while line.ready:
        taken.append(line.head())
        line.pop(taken[-1], lambda _: 1.0)
    assert taken == [entry(3), entry(2)]


def test_a_key_that_comes_back_behind_the_others_has_one_turn():
    line = CustomerQueue()
    line.push(entry(1), "x")
    line.push(entry(2), "x")
    line.push(entry(3), "y")
    line.push(entry(4), "y")
    line.pop(line.head(), lambda _: 1.0)
    line.withdraw(entry(2), "x")
    line.push(entry(5), "x")
    taken = []
    while line.ready:
        taken.append(line.head())
        line.pop(taken[-1], lambda _: 1.0)
    assert taken == [entry(3), entry(5), entry(4)]


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


def test_the_first_to_move_up_is_waited_for():
    queue = queue_of(aging=aging({1: 0.0, 2: 4.0, 3: 0.0}))
    fill(queue, "a", [1], priority=9)
    fill(queue, "a", [2], priority=5)
    assert queue.due_at == pytest.approx(10.0)
    picked(queue, 1, now=12.0)
    assert queue.due_at == pytest.approx(20.0)
    fill(queue, "b", [3], priority=1)
    queue.withdraw("a", entry(1, priority=9))
    picked(queue, 1, now=13.0)
    assert queue.due_at == pytest.approx(20.0)
    assert picked(queue, 1, now=20.0) == "-"
    assert queue.due_at is None


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
    assert queue.clock[:3] == (400.0, 1.0, 0.0)


def test_steps_too_short_to_count_are_over_at_once():
    """1e9 seconds are more steps of 1e-300 than a float can tell."""
    assert aging({1: 0.0}, step_s=1e-300).urgency(9, 1, 1e9) == 1


# ---- state ----


def test_an_agenda_taken_out_of_turn_is_paid_for():
    queue = queue_of()
    fill(queue, "a", range(5))
    fill(queue, "b", range(10, 15))
    pick = queue.pick_out_of_turn("a", entry(3), cost=2.0)
    assert (pick.customer_id, pick.ref, pick.cost, pick.charge) == ("a", 3, 2.0, 2.0)
    assert (queue.ready, queue.in_flight) == (9, 1)
    assert picked(queue, 4) == "bbab"


def test_what_is_taken_out_of_turn_does_not_move_the_present():
    queue = queue_of()
    fill(queue, "a", range(5))
    fill(queue, "b", range(10, 15))
    assert picked(queue, 1, cost=10.0) == "a"
    queue.pick_out_of_turn("a", entry(3), cost=1.0)
    assert (queue.virtual_time, queue.flow("a").tag) == (0.0, 11.0)


def test_a_paused_idle_returners_agenda_that_is_taken_is_paid_for_from_the_present_on():
    queue = queue_of({"b": Share(paused=True)})
    fill(queue, "a", range(20))
    picked(queue, 11)
    fill(queue, "b", [100])
    queue.pick_out_of_turn("b", entry(100), cost=3.0)
    assert queue.flow("b").tag == queue.virtual_time + 3.0


def test_taking_the_last_one_leaves_nothing_to_pick():
    queue = queue_of()
    fill(queue, "a", [1])
    queue.pick_out_of_turn("a", entry(1), cost=2.0)
    assert queue.pick(lambda _: 1.0) is None


def test_forgotten_customers_rejoin_at_the_present():
    queue = queue_of()
    fill(queue, "a", range(5))
    picked(queue, 5)
    for _ in range(5):
        queue.settle("a")
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
    queue.settle("a")
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


def test_the_gap_stays_below_its_bound():
    queue = queue_of()
    fill(queue, "a", range(50))
    fill(queue, "b", range(100, 150))
    gaps = []
    for _ in range(50):
        picked(queue, 1, cost=lambda ref: 7.0 if ref < 100 else 1.0)
        gaps.append(queue.tag_gap())
        assert gaps[-1] <= queue.bound()
    assert max(gaps) == queue.bound() == 7.0


def test_the_bound_remembers_how_many_were_out_and_what_they_were_off_by():
    queue = queue_of()
    fill(queue, "a", range(20))
    fill(queue, "b", range(40, 60))
    picked(queue, 10, cost=0.1)
    for _ in range(5):
        queue.settle("a", correction=5.0)
    picked(queue, 3, cost=0.1)
    assert queue.tag_gap() > 20.0
    assert queue.tag_gap() <= queue.bound() == 2 * 10 * 5.0


def test_the_bound_forgets_what_all_have_been_passed_since():
    """Two were charged 10 s for 10 ms before it was known; now they are charged rightly."""
    queue = queue_of()
    fill(queue, "a", range(100))
    fill(queue, "b", range(100, 200))
    picked(queue, 4, cost=10.0)
    for customer_id in "abab":
        queue.settle(customer_id, correction=-9.99)
    assert queue.bound() == pytest.approx(2 * 4 * 9.99)
    for number in range(80):
        picked(queue, 1, cost=0.01)
        queue.settle("ab"[number % 2])
    assert queue.tag_gap() <= queue.bound()
    assert queue.bound() == pytest.approx(0.01)


def test_who_comes_late_adds_nothing_to_the_bound():
    queue = queue_of()
    fill(queue, "a", range(50))
    picked(queue, 40, cost=1.0)
    fill(queue, "b", range(100, 110))
    assert queue.virtual_time == 39.0
    assert queue.bound() == 1.0


def test_the_bound_covers_who_came_before_the_present_went_back():
    queue = queue_of()
    fill(queue, "a", range(100))
    fill(queue, "b", range(100, 200))
    picked(queue, 4, cost=10.0)
    fill(queue, "c", [200])
    for customer_id in "abab":
        queue.settle(customer_id, correction=-9.99)
    for number in range(80):
        picked(queue, 1, cost=0.01)
        queue.settle("ab"[number % 2])
    assert 9.0 < queue.tag_gap() <= queue.bound(), "c still waits where it began"


@pytest.mark.parametrize("correction", [5.0, -0.05])
def test_what_one_took_while_nobody_else_wanted_it_is_no_debt_to_who_comes_later(correction):
    queue = queue_of()
    fill(queue, "a", range(20))
    picked(queue, 10, cost=0.1)
    fill(queue, "b", range(40, 60))
    assert [queue.flow("a").uncontested, queue.flow("b").uncontested] == [10, 0]
    for _ in range(10):
        queue.settle("a", correction=correction)
    assert queue.tag_gap() <= 0.1 + 1e-9
    picked(queue, 4, cost=0.1)
    assert queue.flow("b").in_flight == 2
    queue.settle("a", correction=5.0)  # emitted while b competed
    assert queue.tag_gap() > 4.5


def test_who_comes_back_with_work_out_or_third_changes_no_debts():
    queue = queue_of()
    fill(queue, "a", range(20))
    fill(queue, "b", [40])
    picked(queue, 5, cost=0.1)
    fill(queue, "b", [41])  # its first is still out
    assert queue.flow("a").uncontested == 0
    fill(queue, "c", [50])
    assert queue.flow("a").uncontested == 0


def test_more_work_of_one_who_waits_already_changes_no_debts():
    queue = queue_of()
    fill(queue, "a", range(20))
    fill(queue, "b", [40])
    assert picked(queue, 1) == "a", "at a tie, so b is still where a joining customer would be"
    fill(queue, "b", [41])
    assert queue.flow("a").uncontested == 0


def test_who_comes_back_with_debts_begins_no_contest():
    queue = queue_of()
    fill(queue, "a", range(20))
    fill(queue, "b", [100])
    picked(queue, 2, cost=9.0)
    queue.settle("b")
    fill(queue, "b", [101])
    assert queue.flow("b").tag > queue.virtual_time
    assert queue.flow("a").uncontested == 0


def test_who_comes_with_another_urgency_begins_no_contest():
    queue = queue_of(aging=Aging(1e9, lambda _: 0.0))
    fill(queue, "a", range(20))
    picked(queue, 3)
    fill(queue, "b", [100], priority=6)
    assert queue.flow("a").uncontested == 0
    fill(queue, "c", [200])
    assert queue.flow("a").uncontested == 0, "b is a third"


def test_the_present_keeps_its_distance_from_the_least_tag_that_moves_on():
    queue = queue_of()
    fill(queue, "a", range(20))
    fill(queue, "b", range(100, 120))
    assert picked(queue, 2, cost=0.5) == "ab"
    queue.settle("a", correction=0.25)
    assert queue.virtual_time == 0.0, "b has not moved"
    queue.settle("b", correction=0.375)
    assert queue.virtual_time == 0.25, "the least went from 0.5 to 0.75"


def test_the_present_of_an_urgency_goes_on_with_its_own_least_tag():
    queue = queue_of(aging=aging({}, step_s=1e9))
    fill(queue, "a", range(20), priority=5)
    fill(queue, "b", range(100, 120), priority=5)
    assert picked(queue, 2, cost=0.5) == "ab"
    queue.settle("a", correction=0.25)
    queue.settle("b", correction=0.375)
    assert queue.clock == (0.25,) * 5 + (0.0,) * 4


def test_with_all_at_rest_the_bound_starts_anew():
    queue = queue_of()
    fill(queue, "a", [1])
    picked(queue, 1, cost=50.0)
    queue.settle("a")
    assert queue.bound() == 0.0


def test_refunds_leave_no_litter_of_outdated_turns():
    queue = queue_of()
    for number in range(5_000):
        fill(queue, "a", [2 * number])
        fill(queue, "b", [2 * number + 1])
        picked(queue, 2, cost=1e7)
        queue.settle("a", correction=-1e7 + 1)
        queue.settle("b", correction=-1e7 + 1)
        fill(queue, "a", [1_000_000 + number])
    assert len(queue._eligible._heap._heap) < 200


def test_aging_leaves_no_litter_of_instants():
    queue = queue_of(aging=aging({}, step_s=3_600.0))
    fill(queue, "a", range(3_000))
    fill(queue, "b", range(3_000, 6_000))
    picked(queue, 5_000)
    assert len(queue._eligible._dues._heap) < 200


def test_far_out_on_the_clock_small_charges_still_count():
    queue = queue_of()
    queue.restore(clock=(1e15,), tags={}, entries={}, in_flight={})
    fill(queue, "a", range(10))
    fill(queue, "b", range(20, 30))
    assert picked(queue, 6, cost=1e-4) == "ababab"


def test_after_a_year_of_a_thousand_workers_shares_are_still_by_weight():
    """A clock of 3e10 s leaves a grid of 4e-6 s for tags."""
    queue = queue_of({"a": Share(weight=3.0)})
    queue.restore(clock=(3.2e10,), tags={}, entries={}, in_flight={})
    fill(queue, "a", range(4_000))
    fill(queue, "b", range(10_000, 14_000))
    assert picked(queue, 4_000, cost=0.005).count("a") == pytest.approx(3_000, abs=6)


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


def test_who_is_ahead_by_what_it_was_given_is_no_idle_returner():
    queue = flooded()
    fill(queue, "b", [100])
    picked(queue, 1, cost=3.0)
    fill(queue, "b", [101])
    assert queue.idle_returners() == 0
    picked(queue, 4)
    assert queue.flow("b").tag > queue.virtual_time
    fill(queue, "c", [102])
    assert queue.idle_returners() == 1


def test_who_is_refunded_while_its_part_is_out_is_no_idle_returner():
    queue = flooded()
    queue.settle("a", correction=-3.0)
    assert queue.flow("a").tag == queue.virtual_time, "by tag alone it would be one"
    assert queue.idle_returners() == 0
    fill(queue, "b", [100])
    assert queue.idle_returners() == 1, "b has nothing out"


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
    assert queue.virtual_time > 100, "so by its tag and its age b would be one"
    assert queue.idle_returners() == 0


@pytest.mark.parametrize(
    ("total", "costs", "out", "idle_returners"),
    [(8, (3.0, 4.0), 3, 0), (8, (2.0, 5.0), 2, 1), (14, (5.0, 8.0), 5, 1)],
)
def test_three_quarters_of_an_equal_part_are_not_little(total, costs, out, idle_returners):
    """An equal part of the two is half of all that are out; b ties with the virtual time."""
    queue = queue_of()
    fill(queue, "a", range(50))
    fill(queue, "b", range(100, 150))
    picked(queue, total, cost=lambda ref: costs[ref >= 100])
    assert queue.flow("b").tag == queue.virtual_time
    assert (queue.flow("b").in_flight, queue.idle_returners()) == (out, idle_returners)


def test_who_is_less_urgent_is_no_idle_returner():
    queue = flooded(aging=Aging(10.0, lambda _: 0.0))
    fill(queue, "b", [100], priority=6)
    assert queue.idle_returners() == 0
    fill(queue, "c", [101], priority=1)
    assert queue.idle_returners() == 1
    assert picked(queue, 1) == "c"


# ---- levels of urgency, and who is let go of ----


def at_two_levels(shares=EQUAL):
    """The urgent were given 400 s, the others little: two very different presents."""
    queue = queue_of(shares, aging=aging({}, step_s=1e9))
    fill(queue, "a", range(10), priority=1)
    picked(queue, 5, cost=100.0)
    for _ in range(5):
        queue.withdraw("a", queue.flow("a").customer_queue.head())
    return queue


def test_a_debt_is_what_one_is_ahead_of_the_present_of_its_own_urgency():
    shares = {}
    queue = at_two_levels(shares)
    fill(queue, "b", range(20, 30), priority=5)
    fill(queue, "c", range(40, 60), priority=5)
    assert picked(queue, 2, cost=lambda ref: 8.0 if ref < 40 else 1.0) == "bc"
    shares["b"] = Share(weight=8.0)
    queue.refresh_shares()
    assert picked(queue, 1) == "b", "8 s are 1 at its new weight, and c is as far"
    assert queue.clock[0] > queue.flow("b").tag


def test_who_is_ahead_at_a_lesser_urgency_is_not_forgotten():
    queue = at_two_levels()
    fill(queue, "b", [20], priority=5)
    fill(queue, "c", range(40, 60), priority=5)
    assert picked(queue, 2, cost=5.0) == "bc"
    queue.settle("b")
    queue.forget_idle()
    assert queue.clock[-1] < queue.flow("b").tag == 5.0 < queue.clock[0]


def test_who_has_something_out_is_not_forgotten_though_nothing_of_it_waits():
    queue = queue_of()
    fill(queue, "a", [1])
    fill(queue, "b", range(10, 20))
    picked(queue, 5)
    assert queue.flow("a").tag <= queue.virtual_time
    queue.forget_idle()
    assert queue.flow("a").in_flight == 1


def test_who_was_forgotten_is_not_asked_for_when_the_busy_period_ends():
    queue = queue_of()
    fill(queue, "a", [1])
    fill(queue, "b", range(10, 14))
    picked(queue, 5)
    queue.settle("a")
    queue.forget_idle()
    assert [flow.customer_id for flow in queue.flows()] == ["b"]
    for _ in range(4):
        queue.settle("b")
    assert queue.virtual_time == 4.0


def test_who_is_still_without_tokens_is_not_forgotten():
    queue = queue_of({"a": Share(rate_per_s=0.1, burst=4)})
    fill(queue, "a", [1])
    fill(queue, "b", range(10, 20))
    picked(queue, 5)
    queue.settle("a")
    for now, names in ((9.0, "ab"), (10.0, "b")):
        queue.advance_to(now)
        queue.forget_idle()
        assert "".join(flow.customer_id for flow in queue.flows()) == names


def test_who_rises_to_another_urgency_with_a_correction_takes_no_present_along():
    queue = queue_of(aging=aging({1: 0.0, 2: 0.0, 10: 20.0}))
    fill(queue, "a", [1, 2], priority=5)
    fill(queue, "b", [10], priority=5)
    assert picked(queue, 1) == "a"
    before = queue.clock
    queue.advance_to(10.0)
    queue.settle("a", correction=50.0)
    assert queue.flow("a").level == 4
    assert queue.clock == before


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
