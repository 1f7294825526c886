"""Insights of a pool in virtual time: what is lent, and taken back at once."""

from pop_stream.lab.fairness_metrics.service_log import STARTED
from pop_stream.lab.simulator.simulation import simulate, simulate_pool
from pop_stream.lab.simulator.workload import Arrival, SimulatedEnvironment, SimulationConfig
from pop_stream.model.definitions import Insight

PLANT = SimulatedEnvironment(runners=4, ingest_s=0, emission_s=0, relay_s=0)


def work(name, *arrivals, **defined):
    insight = Insight(id=name, target=4, low_water=4, pool="all", **defined)
    return [Arrival(at, name, runtime) for at, runtime in arrivals], SimulationConfig(
        insight=insight, environment=PLANT
    )


def started_at(run):
    return [at for kind, at, *_ in run.log if kind == STARTED]


LENDER = [(0, 10.0), (0, 11.0), (0, 12.0), (0, 13.0), (0, 100.0), (0, 100.0)]
"""Four that end one after the other, and two that wait for them."""


def test_what_is_lent_is_taken_back_with_every_end():
    """Equal weights and a pool of 4: `b` comes at 5 and is due 2, the first two that end."""
    works = {"a": work("a", *LENDER), "b": work("b", *[(5, 10.0)] * 3)}
    runs = simulate_pool(works, 4)
    assert started_at(runs["a"]) == [0, 0, 0, 0, 12, 13]
    assert started_at(runs["b"]) == [10, 11, 20]


def test_a_minimum_comes_before_weights():
    works = {
        "a": work("a", *LENDER, pool_weight=50.0),
        "b": work("b", *[(5, 10.0)] * 3, pool_minimum=3),
    }
    runs = simulate_pool(works, 4)
    assert started_at(runs["b"]) == [10, 11, 12]
    assert started_at(runs["a"]) == [0, 0, 0, 0, 13, 20]


def test_what_an_insight_does_not_want_is_lent_by_weight():
    """Of 6, `a` is due 4 and `b` 2; once `a` has nothing left, `b` has its four runners."""
    works = {
        "a": work("a", *[(0, 10.0)] * 4, pool_weight=2.0),
        "b": work("b", *[(0, 20.0)] * 6),
    }
    runs = simulate_pool(works, 6)
    assert started_at(runs["a"]) == [0, 0, 0, 0]
    assert started_at(runs["b"]) == [0, 0, 10, 10, 20, 20]


def test_a_pool_that_has_room_for_all_changes_nothing():
    works = {"a": work("a", *LENDER), "b": work("b", *[(5, 10.0)] * 3)}
    pooled = simulate_pool(works, 100)
    for name, (arrivals, config) in works.items():
        assert started_at(pooled[name]) == started_at(simulate(arrivals, config))


def test_the_order_of_insights_makes_no_difference():
    works = {"a": work("a", *LENDER), "b": work("b", *[(0, 10.0)] * 5)}
    one = simulate_pool(works, 4)
    other = simulate_pool(dict(reversed(works.items())), 4)
    assert {name: started_at(one[name]) for name in "ab"} == {
        name: started_at(other[name]) for name in "ab"
    }
