"""The simulator step by step: delays, runners, and changes on the way."""

import pytest

from pop_stream.lab.fairness_metrics.audit import service_times
from pop_stream.lab.fairness_metrics.service_log import (
    EMITTED,
    HELD,
    RELEASED,
    REWEIGHTED,
    SETTLED,
    STARTED,
)
from pop_stream.lab.simulator import simulation
from pop_stream.lab.simulator.simulation import SimulatedRunners, simulate
from pop_stream.lab.simulator.workload import (
    Arrival,
    DefinitionChange,
    GroupRebalance,
    SchedulerRestart,
    SimulatedEnvironment,
    SimulationConfig,
)
from pop_stream.model.definitions import Customer, Insight
from pop_stream.policy.insight_scheduler import InsightScheduler

AT_ONCE = SimulatedEnvironment(runners=1, ingest_s=0.0, emission_s=0.0, relay_s=0.0)


def flood(customer="a", count=1, *, at=0.0, runtime=1.0, **fields):
    return [Arrival(at, customer, runtime, fields.pop("cost", runtime), **fields)] * count


def run(*work, environment=AT_ONCE, changes=(), customers=(), **insight):
    config = SimulationConfig(
        insight=Insight(id="x", **insight),
        customers={one.id: one for one in customers},
        environment=environment,
        changes=changes,
    )
    arrivals = sorted((one for some in work for one in some), key=lambda one: one.at)
    return simulate(arrivals, config)


def moments(result, kind, customer=None):
    names = result.log.customers
    return [
        pytest.approx(at)
        for found, at, one, *_ in result.log
        if found == kind and customer in {None, names[one]}
    ]


def test_an_agenda_takes_every_delay_on_its_way():
    environment = SimulatedEnvironment(
        runners=1, ingest_s=0.1, emission_s=0.2, relay_s=0.3, overhead_s=0.5
    )
    result = run(flood(at=1.0, count=2), environment=environment, target=1)
    assert moments(result, EMITTED) == [1.1, 1.6], "the second follows the report of a claim"
    assert moments(result, STARTED) == [1.3, 2.8]
    assert moments(result, SETTLED) == [2.8, 4.3]
    assert [*service_times(result.log).waits["a"]] == [pytest.approx(0.3), pytest.approx(1.8)]
    assert (result.left, result.rounds, result.depth) == (0, 2, 2)


def test_runners_work_side_by_side():
    environment = SimulatedEnvironment(runners=3, ingest_s=0.0, emission_s=0.0, relay_s=0.0)
    result = run(flood(count=7), environment=environment)
    assert moments(result, SETTLED) == [1.0] * 3 + [2.0] * 3 + [3.0]


def test_every_partition_has_runners_of_its_own():
    runners = SimulatedRunners(3, 2)
    for number in range(20):
        runners.deliver(str(number))
    taken = runners.take(0.0)
    assert sorted(one.partition for one in taken) == [0, 0, 1]
    assert runners.take(0.0) == []


def test_two_pullers_end_long_and_short_agendas_as_soon_as_one_line_would():
    """By id, half of all would go to a puller whose runners are busy with long ones."""
    long = [Arrival(0.0, "dear", 0.5, 0.5) for _ in range(16)]
    short = [Arrival(0.0, "cheap", 0.005, 0.005) for _ in range(1600)]
    one_line, two_lines = (
        simulate(
            [*long, *short],
            SimulationConfig(
                Insight(id="x"), environment=SimulatedEnvironment(partitions=partitions)
            ),
        )
        for partitions in (1, 2)
    )
    assert service_times(two_lines.log).seconds <= 1.02 * service_times(one_line.log).seconds


def test_a_partition_without_a_runner_is_refused():
    with pytest.raises(ValueError, match="3 partitions need as many runners, got 2"):
        SimulatedRunners(2, 3)


def test_arrivals_must_be_in_order():
    late = [Arrival(2.0, "a", 1.0), Arrival(1.0, "a", 1.0)]
    with pytest.raises(ValueError, match="at 1 s follows one at 2 s; sort them"):
        simulate(late, SimulationConfig(Insight(id="x")))


def test_nothing_happens_with_nothing_to_do():
    result = simulate([], SimulationConfig(Insight(id="x")))
    assert (len(result.log), result.left) == (0, 0)


def test_a_weight_holds_from_the_next_pick_after_it_is_applied():
    change = DefinitionChange(10.0, Customer(id="b", weight=3))
    result = run(flood("a", 40), flood("b", 40), changes=[change], target=1)
    names = [result.log.customers[one] for kind, _, one, *_ in result.log if kind == EMITTED]
    assert names[:10].count("b") == 5
    assert names[12:32].count("b") == 15
    weighed = [(at, weight) for kind, at, _, weight, _ in result.log if kind == REWEIGHTED]
    assert weighed == [(10.0, 3.0)]


def test_what_ends_counts_by_the_weight_it_was_emitted_with():
    change = DefinitionChange(1.0, Customer(id="a", weight=2))
    result = run(flood(count=3, runtime=4.0), changes=[change], target=1)
    served = [by_weight for kind, _, _, by_weight, _ in result.log if kind == SETTLED]
    assert served == [4.0, 4.0, 2.0], "the second was emitted when the first was claimed"


def test_keys_take_turns():
    work = [
        flood(count=3, runtime=cost, fairness_key=key) for key, cost in (("x", 1), ("y", 2))
    ]
    result = run(*work, target=1)
    spent = [cost for kind, _, _, _, cost in result.log if kind == EMITTED]
    assert spent == [1, 2, 1, 1, 2, 2]


def test_who_declares_too_little_is_charged_what_its_agendas_take():
    result = run(flood(count=80, cost=0.1), target=1)
    charged = [cost for kind, _, _, cost, _ in result.log if kind == EMITTED]
    assert charged[0] == 0.1
    assert charged[-1] == pytest.approx(1.0, rel=0.1)
    assert {spent for kind, _, _, _, spent in result.log if kind == EMITTED} == {1.0}


def test_an_insight_can_be_redefined():
    change = DefinitionChange(4.5, Insight(id="x", algorithm="fifo", target=1))
    result = run(flood("a", 8), flood("b", 8), changes=[change], target=1)
    names = "".join(
        result.log.customers[one] for kind, _, one, *_ in result.log if kind == EMITTED
    )
    assert names.startswith("ababab")
    assert names[6:].lstrip("ab") == ""
    assert names[7:].startswith("aaaa")


def test_a_paused_customer_waits_and_goes_on():
    pause = DefinitionChange(2.5, Customer(id="a", paused=True))
    resume = DefinitionChange(9.9, Customer(id="a"))
    result = run(flood("a", 6), changes=[pause, resume], target=1)
    assert moments(result, HELD) == [2.75]
    assert moments(result, RELEASED) == [10.0]
    assert not [at for at in moments(result, EMITTED) if 3 < at.expected < 10]
    assert result.left == 0


def test_who_is_paused_for_ever_is_left():
    paused = Customer(id="a", paused=True)
    result = run(flood("a", 3), flood("b", 2), customers=[paused])
    assert result.left == 3
    assert len(moments(result, SETTLED)) == 2


def test_a_cap_is_kept_and_the_rest_goes_to_others():
    capped = Customer(id="a", max_in_flight=1)
    environment = SimulatedEnvironment(runners=4, ingest_s=0.0, emission_s=0.0, relay_s=0.0)
    result = run(
        flood("a", 4), flood("b", 9), environment=environment, customers=[capped], target=1
    )
    assert moments(result, SETTLED, "a") == [1.0, 2.0, 3.0, 4.0]
    assert moments(result, SETTLED, "b") == [1.0] * 3 + [2.0] * 3 + [3.0] * 3


def test_a_rate_limit_wakes_the_scheduler_when_a_token_is_due():
    limited = Customer(id="a", rate_per_s=0.5)
    result = run(flood("a", 3, runtime=0.1), customers=[limited])
    assert moments(result, STARTED) == [0.0, 2.0, 4.0]
    assert (moments(result, HELD), moments(result, RELEASED)) == ([0.0], [4.0])


def test_aging_lets_old_agendas_go_first():
    urgent = flood("a", 30, priority=1)
    result = run(flood("b", 1, priority=3), urgent, target=1, aging_s=5.0)
    assert 9 <= service_times(result.log).waits["b"][0] <= 12


def test_a_reloaded_scheduler_is_away_and_then_goes_on():
    result = run(flood("a", 4), changes=[SchedulerRestart(0.5, 5.0)], target=1)
    assert moments(result, STARTED) == [0.0, 1.0, 5.5, 6.5]


def test_who_takes_over_looks_at_once():
    """It knows no pace yet, so more may be out than the one before it would have had."""
    result = run(flood("a", 40, runtime=10.0), changes=[SchedulerRestart(31.0, 2.5)])
    assert 33.5 in moments(result, EMITTED)


def test_claims_tell_whether_a_runner_stood_idle_for_them_and_how_many_are_left(monkeypatch):
    reported = []

    class Recording(InsightScheduler):
        def apply(self, event, now, **options):
            idle = sum(one.runners for one in event.idle)
            reported.extend((claim.sync_matched, idle) for claim in event.claims)
            return super().apply(event, now, **options)

    monkeypatch.setattr(simulation, "InsightScheduler", Recording)
    environment = SimulatedEnvironment(runners=2, ingest_s=0.0, emission_s=0.1, relay_s=0.0)
    run(flood(count=3), flood(at=9.0), environment=environment)
    assert reported == [(True, 0), (True, 0), (False, 1), (True, 1)]


def test_what_is_far_from_over_can_be_reloaded():
    result = run(
        flood("a", 400, runtime=0.01),
        changes=[SchedulerRestart(3.0, 0.0), SchedulerRestart(3.9, 0.0)],
        target=2,
    )
    assert len(moments(result, SETTLED)) == 400


def test_pullers_that_rebalance_take_nothing_new():
    result = run(flood("a", 3), changes=[GroupRebalance(0.5, 2.0)])
    assert moments(result, STARTED) == [0.0, 2.5, 3.5]
    assert moments(result, SETTLED)[0] == 1.0, "what runs goes on"


def test_costs_that_nobody_declared_are_learned():
    known = run(flood("a", 60, runtime=0.01), flood("b", 30, runtime=0.02), target=1)
    unknown = run(
        flood("a", 60, runtime=0.01, cost=None, operation_type="short"),
        flood("b", 30, runtime=0.02, cost=None, operation_type="long"),
        target=1,
    )
    first = [service_times(one.log).waits["b"][20] for one in (known, unknown)]
    assert first[1] == pytest.approx(first[0], rel=0.2)
