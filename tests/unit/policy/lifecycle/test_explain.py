"""What can be said of a backlog: positions, shares and waits."""

from datetime import timedelta

import msgspec
import pytest
from backlogs import START, backlog, cancel, incomparable_origins, placed, settled, several

from pop_stream.model.events.base import Overdeclared
from pop_stream.model.events.scheduling import Command
from pop_stream.policy.backlog.agenda_index import READY
from pop_stream.policy.fairness.flow import HALF_LIFE_S, Share
from pop_stream.policy.flow_control import forecast

NOW = START.timestamp() + 10


def fill(target, *customers: tuple[str, int]):
    for customer_id, count in customers:
        agendas = several(customer_id, count)
        target.filter_new(agendas, incomparable_origins(count))
        target.place(agendas)
    return target


def order(target) -> list[str]:
    return [one.agenda_id for one in target.choose(10_000, NOW)]


def where(target, agenda_id: str, rate_per_s: float = 10.0, unclaimed: int = 0):
    return forecast.agenda_position(
        target, agenda_id, now=NOW, rate_per_s=rate_per_s, unclaimed=unclaimed
    )


ALGORITHMS = ["weighted_fair", "round_robin", "fifo"]


def mixed(aging_s=None, algorithm="weighted_fair", shares=None):
    """Some that are out, and many of three customers, of several priorities and keys."""
    target = backlog(shares, aging_s=aging_s, algorithm=algorithm)
    agendas = [
        *several("big", 30, priority=5),
        *several("small", 12, priority=1),
        *several("big", 20, 30, priority=2, rank=3),
        *several("late", 9, priority=5),
        *several("small", 25, 12, priority=9),
        *several("late", 7, 9, priority=2),
    ]
    target.place(agendas)
    target.choose(15, NOW)
    return target


def reported_and_come(target) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """All that wait with their positions, as explained and as they come out."""
    index = target.index
    waiting = [one for one, ref in index.refs().items() if index.state(ref) == READY]
    explained = {one: where(target, one).position for one in waiting}
    by_turn = sorted(explained.items(), key=lambda one: one[1])
    return by_turn, [(one, number) for number, one in enumerate(order(target), start=1)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("weight", [1.0, 0.25, 2.0])
def test_of_agendas_that_cost_alike_positions_are_exact(algorithm, weight):
    shares = {"big": Share(weight=2.0), "late": Share(weight=weight)}
    explained, came = reported_and_come(mixed(algorithm=algorithm, shares=shares))
    assert explained == came


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("aging_s", [3_600.0, 5.0])
def test_with_strict_priorities_the_urgent_are_all_ahead_and_the_others_none(
    algorithm, aging_s
):
    explained, came = reported_and_come(mixed(aging_s, algorithm))
    assert explained == came


def test_what_costs_more_is_counted_by_its_cost():
    target = backlog()
    target.place([*several("dear", 5, cost_s=4.0), *several("mine", 9)])
    explained, came = reported_and_come(target)
    assert explained == came


@pytest.mark.parametrize("algorithm", ["weighted_fair", "fifo"])
def test_those_that_are_held_are_not_ahead_and_stand_where_they_would_come_back(algorithm):
    shares = {}
    target = fill(backlog(shares, algorithm=algorithm), ("a", 20), ("b", 10), ("c", 10))
    target.choose(9, NOW)
    shares["a"] = Share(paused=True)
    target.reconfigure(target.insight)
    target.choose(4, NOW)
    explained = where(target, "a-15").position
    mine = where(target, "c-9").position
    last = order(target).index("c-9")
    assert mine == last + 1
    shares.clear()
    again = fill(backlog(shares, algorithm=algorithm), ("a", 20), ("b", 10), ("c", 10))
    again.choose(9, NOW)
    shares["a"] = Share(paused=True)
    again.reconfigure(again.insight)
    again.choose(4, NOW)
    shares.clear()
    again.reconfigure(again.insight)
    assert order(again).index("a-15") + 1 == explained


def test_one_that_is_held_would_come_back_at_the_present():
    shares = {"zed": Share(paused=True)}
    target = fill(backlog(shares), ("zed", 5), ("ann", 20), ("bob", 20))
    assert [one.agenda_id for one in target.choose(3, NOW)] == ["ann-0", "bob-0", "ann-1"]
    assert where(target, "zed-0").position == 2, "bob stands at the present too, and ties by id"


def test_what_has_aged_is_ahead_of_what_came_later_with_that_priority():
    """At NOW those of before have waited for five steps, the others for none."""
    target = backlog(aging_s=2.0)
    target.place(
        [
            *several("mine", 3, priority=4),
            *several("mine", 2, 3, priority=7),
            *several("mine", 2, 5, priority=9),
        ]
    )
    target.place([placed(f"new-{one}", "mine", priority=one, after=10.0) for one in (1, 2, 3)])
    new = [where(target, f"new-{one}") for one in (1, 2, 3)]
    assert [(one.own_ahead, one.urgent_ahead) for one in new] == [(3, 0), (6, 4), (7, 7)]
    explained, came = reported_and_come(target)
    assert explained == came


def test_one_of_a_priority_that_has_aged_is_no_sooner_for_it():
    target = backlog(aging_s=2.0)
    target.place(several("mine", 3, priority=4))
    target.place([placed("new", "mine", priority=4, after=10.0)])
    explained = where(target, "new")
    assert (explained.own_ahead, explained.urgent_ahead, explained.position) == (3, 3, 4)


def test_agendas_that_were_withdrawn_are_not_ahead():
    target = fill(backlog(), ("acme", 5))
    cancel(target, "acme-1", NOW)
    cancel(target, "acme-4", NOW)
    place = where(target, "acme-3")
    assert (place.own_ahead, place.position) == (2, 3)
    strict = fill(backlog(aging_s=60.0), ("acme", 5), ("mine", 1))
    cancel(strict, "acme-1", NOW)
    cancel(strict, "mine-0", NOW)
    strict.place([placed("last", "mine", priority=9)])
    assert where(strict, "last").position == 5


def test_own_agendas_ahead_are_counted_exactly():
    target = backlog()
    agendas = [*several("acme", 5), placed("urgent", "acme", priority=1)]
    target.filter_new(agendas, incomparable_origins(6))
    target.place(agendas)
    assert where(target, "urgent").own_ahead == 0
    assert where(target, "acme-4").own_ahead == 5


def test_the_time_left_follows_from_rate_and_depth():
    target = fill(backlog(), ("acme", 20))
    assert where(target, "acme-9", rate_per_s=5.0, unclaimed=10).eta_s == pytest.approx(4.0)
    assert where(target, "acme-9", rate_per_s=0.0).eta_s is None


def test_nobody_promises_a_time_to_a_customer_that_is_held():
    shares = {"acme": Share(paused=True)}
    explained = where(fill(backlog(shares), ("acme", 1)), "acme-0")
    assert explained.eta_s is None
    assert explained.customer.held_by == "paused"


def test_a_rate_limit_makes_the_time_left_longer():
    """With a token in hand it is not held, and all the same its others wait for theirs."""
    shares = {"acme": Share(rate_per_s=0.5, burst=2)}
    target = fill(backlog(shares), ("acme", 20), ("other", 20))
    assert where(target, "acme-0", rate_per_s=100.0).eta_s == pytest.approx(0.01)
    assert where(target, "acme-9", rate_per_s=100.0).eta_s == pytest.approx(16.0)
    assert where(target, "acme-9", rate_per_s=0.1).eta_s > 100.0
    order(target)
    explained = where(target, "acme-9", rate_per_s=100.0)
    assert explained.customer.held_by == "rate"
    assert explained.eta_s == pytest.approx(16.0)


def test_states_on_the_way():
    target = fill(backlog(), ("acme", 1))
    target.choose(1, NOW)
    assert where(target, "acme-0").state == "emitted"
    target.claim("acme-0", 1)
    assert where(target, "acme-0").state == "claimed"
    assert where(target, "acme-0").eta_s == 0.0
    target.settle(settled("acme-0"))
    assert where(target, "acme-0").state == "unknown"


def test_shares_show_what_was_had_per_weight():
    shares = {"a": Share(weight=1.0), "b": Share(weight=3.0)}
    target = fill(backlog(shares), ("a", 100), ("b", 100))
    target.choose(80, NOW)
    mean = forecast.mean_service(target, NOW)
    shown = forecast.customer_shares(target.queue.flows(), mean=mean, now=NOW)
    assert [one.share for one in shown] == pytest.approx([1.0, 1.0], abs=0.05)


def test_who_may_not_go_is_no_part_of_the_mean():
    target = fill(backlog({"a": Share(paused=True)}), ("a", 9), ("b", 9), ("c", 9))
    target.choose(6, NOW)
    mean = forecast.mean_service(target, NOW)
    shown = forecast.customer_shares(target.queue.flows(), mean=mean, now=NOW)
    assert [(one.customer_id, one.share) for one in shown] == [("a", 0), ("b", 1), ("c", 1)]


def test_service_fades():
    target = fill(backlog(), ("a", 10))
    target.choose(4, NOW)
    flow = next(iter(target.queue.flows()))
    assert flow.served_by(NOW) == pytest.approx(4.0)
    assert flow.served_by(NOW + HALF_LIFE_S) == pytest.approx(2.0)


def test_with_nothing_waiting_every_share_reads_as_fair():
    target = fill(backlog(), ("a", 1))
    target.choose(1, NOW)
    mean = forecast.mean_service(target, NOW)
    assert mean == 0.0
    assert forecast.customer_shares(target.queue.flows(), mean=mean, now=NOW)[0].share == 1.0


def test_waits_are_remembered_per_customer():
    target = fill(backlog(), ("a", 200))
    target.choose(200, NOW)
    flow = next(iter(target.queue.flows()))
    assert flow.wait_s == pytest.approx(10.0, rel=0.01)


def test_what_waits_says_for_what_and_until_when():
    target = fill(backlog(), ("a", 2))
    target.place([placed("later", "a", not_before=START + timedelta(seconds=40))])
    explained = where(target, "later")
    assert (explained.state, explained.why, explained.position, explained.eta_s) == (
        "waiting",
        "not_before",
        0,
        None,
    )
    assert explained.until.timestamp() == NOW + 30
    assert (explained.own_ahead, explained.urgent_ahead, explained.rises_at) == (0, 0, None)
    ready = where(target, "a-0")
    assert (ready.why, ready.until) == (None, None)
    target.apply_command(Command(agenda_id="a-1", action="hold"), NOW)
    explained = where(target, "a-1")
    assert (explained.state, explained.why, explained.until, explained.eta_s) == (
        "held",
        None,
        None,
        None,
    )


def test_one_that_is_out_is_claimed_when_those_before_it_are():
    target = fill(backlog(), ("a", 5))
    target.choose(2, NOW)
    assert where(target, "a-1", rate_per_s=3.0, unclaimed=2).eta_s == 0.667
    assert where(target, "a-1", rate_per_s=0.5, unclaimed=2).eta_s == 4.0
    assert where(target, "a-1", rate_per_s=0.0, unclaimed=2).eta_s is None


def test_with_strict_priorities_it_says_how_many_go_first_for_theirs_and_until_when():
    target = backlog(aging_s=60.0)
    target.place(
        [
            *several("other", 7, priority=1),
            *several("mine", 4, priority=2),
            *several("peer", 4, priority=4),
            *several("mine", 2, 4, priority=4),
            *several("late", 3, priority=9),
        ]
    )
    explained = where(target, "mine-5")
    assert (explained.urgent_ahead, explained.own_ahead) == (11, 5)
    assert explained.rises_at.timestamp() == START.timestamp() + 60
    first = where(target, "other-0")
    assert (first.urgent_ahead, first.rises_at) == (0, None)
    target.choose(12, NOW)
    assert (where(target, "peer-0").state, where(target, "peer-0").rises_at) == (
        "emitted",
        None,
    )
    assert where(backlog_of_one(), "one").rises_at is None


def backlog_of_one():
    target = backlog()
    target.place([placed("one", priority=9)])
    return target


def test_those_asked_for_are_listed_if_they_are_here():
    target = fill(backlog(), ("a", 2))
    target.choose(1, NOW)
    found = forecast.held_agendas(target, ["a-1", "nobody", "a-0"])
    assert [(one.agenda_id, one.state, one.attempt) for one in found] == [
        ("a-1", "ready", 1),
        ("a-0", "emitted", 1),
    ]


def test_shares_tell_what_a_round_chose_and_figures_of_a_sensible_length():
    shares = {"a": Share(weight=3.0)}
    target = fill(backlog(shares), ("a", 9), ("b", 3), ("idle", 0))
    target.choose(4, NOW)
    flows = [target.queue.flow(one) for one in ("b", "a")]
    flows[0].wait_s = 1.23456789
    b, a = forecast.customer_shares(flows, mean=1.1, now=NOW, chosen={"a": 3})
    assert (a.chosen, a.ready, a.in_flight, a.weight) == (3, 6, 3, 3.0)
    assert (b.customer_id, b.chosen, b.share, b.wait_s) == ("b", 0, 0.9091, 1.234568)
    plain = forecast.customer_shares(flows, mean=1.1, now=NOW)
    assert [one.chosen for one in plain] == [0, 0]


@pytest.mark.parametrize("with_delivered", [True, False])
def test_what_was_delivered_is_in_a_record_only_where_it_is_wanted(with_delivered):
    target = fill(backlog(), ("a", 2))
    flow = target.queue.flow("a")
    flow.delivered_s = 1.23456789
    shares = forecast.customer_shares([flow], mean=1.0, now=NOW, with_delivered=with_delivered)
    record = msgspec.json.decode(msgspec.json.encode(shares[0]))
    assert record.get("delivered_s") == (1.234568 if with_delivered else None)
    assert where(target, "a-0").customer.delivered_s == 1.234568


def test_the_mean_is_of_those_with_work_waiting_by_weight():
    shares = {"a": Share(weight=3.0)}
    target = fill(backlog(shares), ("a", 9), ("b", 9), ("gone", 1))
    target.choose(10, NOW)
    assert target.queue.flow("gone").served == 1.0
    assert forecast.mean_service(target, NOW) == pytest.approx(9.0 / 4.0)


def test_a_cost_far_beyond_the_usual_is_shown_with_what_it_counts_as():
    target = fill(backlog(), ("big", 1))
    order(target)
    target.settle(settled("big-0", noop=2.0), NOW)
    target.place([placed("absurd", "big", cost_s=1e6), placed("usual", "big", cost_s=8.0)])
    assert where(target, "usual").overdeclared is None
    assert where(target, "absurd").overdeclared == Overdeclared(1e6, 8.0)
    target.place([placed("learned", "big", cost_s=None)])
    assert where(target, "learned").overdeclared is None
