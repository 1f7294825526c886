"""What is eligible, and how many pullers it asks for."""

import pytest
from backlogs import START, backlog, incomparable_origins, placed, several

from pop_stream.model.definitions import Insight
from pop_stream.model.events.scheduling import Command
from pop_stream.policy.fairness.flow import Share
from pop_stream.policy.flow_control.worker_demand import WorkerDemand, worker_demand

NOW = START.timestamp()


def filled(shares=None, *, each=10, cost_s=3.0, customers=("ann", "bob"), **insight):
    one = backlog(shares, **insight)
    for customer in customers:
        one.place(several(customer, each, cost_s=cost_s), NOW)
    return one


def eligible(one, now=NOW, **more):
    demand = worker_demand(one, now, **more)
    return demand.eligible, pytest.approx(demand.eligible_s)


def test_all_that_is_ready_is_eligible_if_nothing_keeps_it():
    assert eligible(filled()) == (20, 60.0)


@pytest.mark.parametrize(
    ("share", "left"),
    [
        (Share(paused=True), 0),
        (Share(max_in_flight=4), 4),
        (Share(rate_per_s=0.001, burst=3), 3),
    ],
)
def test_what_its_customer_keeps_back_is_not_eligible(share, left):
    assert eligible(filled({"bob": share})) == (10 + left, 3.0 * (10 + left))


def test_a_cap_counts_what_is_out():
    one = filled({"bob": Share(max_in_flight=4)})
    chosen = one.choose(4, NOW)
    out = sum(choice.customer_id == "bob" for choice in chosen)
    assert out == 2
    assert eligible(one) == (8 + 2, 30.0)


def test_what_waits_for_an_instant_or_is_held_is_not_eligible():
    one = filled(each=1, customers=("ann",))
    one.place([placed("held", held=True), placed("later", not_before=START.replace(year=2027))])
    one.apply_command(Command(agenda_id="ann-0", action="hold", by="", reason=""), NOW)
    assert eligible(one) == (0, 0.0)


def test_the_cap_of_the_insight_and_a_pool_that_is_full_leave_no_more():
    assert eligible(filled(max_in_flight=5)) == (5, 15.0)
    assert eligible(filled(), limited_by="pool") == (0, 0.0)


def test_costs_of_a_large_backlog_are_estimated_from_a_sample_of_it():
    one = backlog()
    for page in range(20):
        agendas = [placed(f"{page}-{n}", cost_s=1.0 + n % 2 * 2) for n in range(500)]
        assert one.filter_new(agendas, incomparable_origins(500)) == [*range(500)]
        one.place(agendas, NOW)
    demand = worker_demand(one, NOW)
    assert demand.eligible == 10_000
    assert demand.eligible_s == pytest.approx(20_000, rel=0.2)


def test_what_is_emitted_and_not_claimed_waits_for_runners_too():
    one = filled(each=4, customers=("ann",))
    ids = [choice.agenda_id for choice in one.choose(4, NOW)]
    assert worker_demand(one, NOW).unclaimed_s == pytest.approx(12.0)
    one.claim(ids[0], 1, NOW)
    demand = worker_demand(one, NOW)
    assert (demand.running, demand.unclaimed_s) == (1, pytest.approx(9.0))


INSIGHT = Insight(id="media", wanted_drain_s=60, puller_runners=10)


@pytest.mark.parametrize(
    ("demand", "replicas"),
    [
        (WorkerDemand(), 0),
        (WorkerDemand(eligible=1, eligible_s=0.5), 1),
        (WorkerDemand(eligible=9, eligible_s=6_000.0), 10),
        (WorkerDemand(eligible=9, eligible_s=6_000.1), 11),
        (WorkerDemand(unclaimed_s=1.0), 1),
        (WorkerDemand(running=1), 1),
        (WorkerDemand(running=95), 10),
        (WorkerDemand(eligible=9, eligible_s=6_000.0, running=95), 10),
        (WorkerDemand(eligible=9, eligible_s=1e18), 1_000_000),
    ],
)
def test_replicas_work_off_what_waits_in_time_and_keep_what_runs(demand, replicas):
    assert demand.replicas(INSIGHT) == replicas


def test_a_fleet_that_is_saturated_is_not_grown_by_what_it_runs():
    """A backlog that is within the wanted time keeps as many pullers as run now."""
    running = 4 * INSIGHT.puller_runners
    demand = WorkerDemand(eligible=100, eligible_s=4 * 600.0, running=running)
    assert demand.replicas(INSIGHT) == 4


def test_the_oldest_wait_is_of_what_is_ready():
    one = backlog()
    one.place([placed("old", after=0.0), placed("new", after=30.0)], NOW + 30)
    assert one.oldest_wait_s(NOW + 40) == 40.0
    one.apply_command(Command(agenda_id="old", action="cancel", by="", reason=""), NOW + 40)
    assert one.oldest_wait_s(NOW + 40) == 10.0
    one.choose(5, NOW + 40)
    assert one.oldest_wait_s(NOW + 40) == 0.0


def test_waits_count_from_the_instant_that_was_asked_for_and_first_attempts_only():
    one = backlog()
    later = START.replace(minute=1)
    agendas = [
        placed("now"),
        placed("later", not_before=later),
        placed("held", held=True),
        placed("again", attempt=2),
    ]
    one.place(agendas, NOW)
    one.apply_command(Command(agenda_id="held", action="release", by="", reason=""), NOW)
    one.apply_due(NOW + 70)
    waits = {choice.agenda_id: choice.wait_s for choice in one.choose(4, NOW + 70)}
    assert waits == {"now": 70.0, "later": 10.0, "held": None, "again": None}
    for agenda_id, attempt in (("now", 1), ("later", 1), ("held", 1), ("again", 2)):
        assert one.claim(agenda_id, attempt, NOW + 75)
    assert one.drain_start_waits() == [("now", 75.0), ("later", 15.0)]
    assert one.drain_start_waits() == []
