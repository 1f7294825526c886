"""What can be said of a backlog: positions, shares and waits."""

import pytest
from backlogs import START, backlog, nowhere, placed, settled, several

from pop_stream.core import forecast
from pop_stream.core.flow import HALF_LIFE_S, Share

NOW = START.timestamp() + 10


def fill(target, *customers: tuple[str, int]):
    for customer_id, count in customers:
        agendas = several(customer_id, count)
        target.news(agendas, nowhere(count))
        target.place(agendas)
    return target


def order(target) -> list[str]:
    return [one.agenda_id for one in target.choose(10_000, NOW)]


def where(target, agenda_id: str, rate_per_s: float = 10.0, unclaimed: int = 0):
    return forecast.place(
        target, agenda_id, now=NOW, rate_per_s=rate_per_s, unclaimed=unclaimed
    )


@pytest.mark.parametrize("algorithm", ["weighted_fair", "round_robin"])
def test_a_position_is_where_it_comes_out(algorithm):
    shares = {"big": Share(weight=1.0), "small": Share(weight=2.0)}
    target = fill(backlog(shares, algorithm=algorithm), ("big", 300), ("small", 40))
    told = {one: where(target, one).position for one in ("small-0", "small-39", "big-7")}
    came = order(target)
    for agenda_id, position in told.items():
        # Ties between customers may fall either way.
        assert abs(came.index(agenda_id) + 1 - position) <= 2


def test_with_strict_priorities_the_urgent_are_all_ahead_and_the_others_none():
    target = backlog(aging_s=3_600.0)
    agendas = [
        *several("high", 30, priority=1),
        *several("peer", 5, priority=4),
        *several("low", 40, priority=9),
        *several("mine", 3, priority=4),
    ]
    target.news(agendas, nowhere(len(agendas)))
    target.place(agendas)
    came = order(target)
    again = backlog(aging_s=3_600.0)
    again.place(agendas)
    for name in ("mine-0", "mine-2"):
        assert abs(came.index(name) + 1 - where(again, name).position) <= 1
    assert where(again, "high-7").position == 8


def test_own_agendas_ahead_are_counted_exactly():
    target = backlog()
    agendas = [*several("acme", 5), placed("urgent", "acme", priority=1)]
    target.news(agendas, nowhere(6))
    target.place(agendas)
    assert where(target, "urgent").own_ahead == 0
    assert where(target, "acme-4").own_ahead == 5


def test_the_time_left_follows_from_rate_and_depth():
    target = fill(backlog(), ("acme", 20))
    assert where(target, "acme-9", rate_per_s=5.0, unclaimed=10).eta_s == pytest.approx(4.0)
    assert where(target, "acme-9", rate_per_s=0.0).eta_s is None


def test_nobody_promises_a_time_to_a_customer_that_is_held():
    shares = {"acme": Share(paused=True)}
    told = where(fill(backlog(shares), ("acme", 1)), "acme-0")
    assert told.eta_s is None
    assert told.customer.held_by == "paused"


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
    shown = forecast.shares(target.queue.flows(), mean=mean, now=NOW)
    assert [one.share for one in shown] == pytest.approx([1.0, 1.0], abs=0.05)


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
    assert forecast.shares(target.queue.flows(), mean=mean, now=NOW)[0].share == 1.0


def test_waits_are_remembered_per_customer():
    target = fill(backlog(), ("a", 200))
    target.choose(200, NOW)
    flow = next(iter(target.queue.flows()))
    assert flow.wait_s == pytest.approx(10.0, rel=0.01)
