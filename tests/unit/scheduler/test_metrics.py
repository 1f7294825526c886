"""What the scheduler's gauges say of fairness: share, gap, bound and wait."""

from datetime import timedelta

import pytest
from backlogs import placed
from msgspec import Raw
from pool_world import PoolWorld
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pop_stream.model.definitions import Customer, Insight
from pop_stream.model.events.codec import encode
from pop_stream.model.events.scheduling import InsightAgendasRouted, Origin
from pop_stream.scheduler.metrics import MAX_CUSTOMER_LABELS, SchedulerCollector

NAMES = {
    "pop_insight_gap_seconds",
    "pop_insight_bound_seconds",
    "pop_insight_wait_seconds",
    "pop_customer_share",
    "pop_customer_wait_seconds",
}


def shown(world):
    """By name, and by customer where there is one, what is shown of the insight `a`."""
    registry = CollectorRegistry()
    registry.register(SchedulerCollector(world.handler.insights, world.clock))
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            assert sample.labels["insight"] == "a"
            key = sample.labels.get("customer", "")
            found.setdefault(sample.name, {})[key] = sample.value
    return found


async def place(world, customers):
    """An agenda of 1 s of each, accepted now, all in one page."""
    world.offset += 1
    after = (world.clock.now() - placed("x").accepted_at).total_seconds()
    names = [f"{world.offset}-{number}" for number in range(len(customers))]
    bodies = [
        Raw(encode(placed(name, one, after)))
        for name, one in zip(names, customers, strict=True)
    ]
    origins = [Origin(partition=0, offset=world.offset, index=n) for n in range(len(bodies))]
    await world.handle(
        InsightAgendasRouted(insight_id="a", agendas=tuple(bodies), origins=tuple(origins))
    )


@pytest.fixture
def world():
    return PoolWorld(Insight(id="a", target=1, low_water=1))


async def end_one(world):
    """What was emitted last ends, two seconds later, and the next has its turn."""
    world.clock.move(timedelta(seconds=2))
    await world.end("a", world.out["a"][-1])


async def test_shares_are_of_what_customers_were_given_by_weight(world):
    await place(world, ["ann", "bob"] * 2)
    found = shown(world)
    assert found.keys() >= NAMES
    assert found["pop_customer_share"] == {"ann": 2.0, "bob": 0.0}, "ann had the first turn"
    assert found["pop_insight_wait_seconds"] == {"": 0.0}


async def test_gap_and_bound_are_of_one_turn_each(world):
    world.customer(Customer(id="bob", weight=0.5))
    await place(world, ["ann", "bob"] * 5)
    found = shown(world)
    assert found["pop_insight_gap_seconds"] == {"": 1.0}, "ann had one, of 1 s by weight 1"
    assert found["pop_insight_bound_seconds"] == {"": (1 + 1) * 2 * 1.0}
    await end_one(world)
    found = shown(world)
    [gap] = found["pop_insight_gap_seconds"].values()
    [bound] = found["pop_insight_bound_seconds"].values()
    assert 0.0 < gap <= bound == (1 + 1) * 2 * 1.0


async def test_waits_are_shown_by_insight_and_by_customer(world):
    await place(world, ["ann", "bob", "ann"])
    await end_one(world)
    found = shown(world)
    assert found["pop_customer_wait_seconds"] == {"ann": 0.0, "bob": pytest.approx(2 / 16)}
    assert found["pop_insight_wait_seconds"] == {"": pytest.approx(2 / 64)}
    for number in range(300):
        await place(world, [("ann", "bob")[number % 2]])
        await end_one(world)
    found = shown(world)
    by_customer = found["pop_customer_wait_seconds"].values()
    [of_all] = found["pop_insight_wait_seconds"].values()
    assert 0 < min(by_customer) < of_all < max(by_customer)


async def test_of_many_customers_few_are_named_and_the_rest_are_one(world):
    await place(world, [f"c{number:03}" for number in range(60)])
    found = shown(world)
    for name, values in found.items():
        expected = MAX_CUSTOMER_LABELS + 1 if name.startswith("pop_customer_") else 1
        assert len(values) == expected
    assert found["pop_customer_ready"]["(others)"] == 60 - 1 - MAX_CUSTOMER_LABELS
