"""Insights of one pool on one scheduler: lending, taking back, and being asked."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from backlogs import placed
from msgspec import Raw
from pool_world import PARTITIONS, TOPICS, PoolWorld
from prometheus_client import CollectorRegistry, generate_latest

from pop_stream.model.definitions import Customer, Insight, ResourcePool
from pop_stream.model.events.codec import decode_query_reply, encode
from pop_stream.model.events.scheduling import (
    InsightAgendasRouted,
    InsightTick,
    Origin,
    QueueQueried,
)
from pop_stream.model.ids import InsightId
from pop_stream.policy.flow_control.pool_sharing import LENT_AFTER_S
from pop_stream.scheduler.metrics import SchedulerCollector


def pooled(insight_id: str, **changes) -> Insight:
    return Insight(id=insight_id, pool="gpu", target=100, low_water=100, **changes)


async def test_an_insight_alone_borrows_the_whole_pool():
    world = PoolWorld(pooled("a"), pooled("b"))
    await world.place("a", 30)
    assert len(world.out["a"]) == 10


async def test_a_paused_insight_leaves_the_pool_to_the_others_and_says_so():
    world = PoolWorld(pooled("a", paused=True), pooled("b"))
    await world.place("a", 30)
    await world.place("b", 30)
    assert (len(world.out["a"]), len(world.out["b"])) == (0, 10)
    assert await limited_by(world, "a") == "paused"


async def test_freed_capacity_goes_back_to_its_owner_at_once():
    world = PoolWorld(pooled("a"), pooled("b"))
    await world.place("a", 30)
    await world.place("b", 30)
    assert world.out["b"] == []
    await world.end("a", *world.out["a"][:5])
    assert (len(world.out["a"]), len(world.out["b"])) == (10, 5)
    await world.end("b", *world.out["b"][:1])
    assert (len(world.out["a"]), len(world.out["b"])) == (10, 6)


async def test_what_comes_back_goes_first_to_who_lacks_its_minimum():
    world = PoolWorld(pooled("a"), pooled("b", pool_weight=50), pooled("c", pool_minimum=3))
    await world.place("a", 30)
    await world.place("b", 30)
    await world.place("c", 30)
    for ended, expected in ((3, (0, 3)), (6, (3, 3))):
        await world.end("a", *world.out["a"][ended - 3 : ended])
        assert (len(world.out["b"]), len(world.out["c"])) == expected


async def test_what_one_does_not_want_goes_on_to_the_other():
    world = PoolWorld(pooled("a"), pooled("b"))
    await world.place("b", 2)
    await world.place("a", 30)
    assert (len(world.out["a"]), len(world.out["b"])) == (8, 2)


@pytest.mark.parametrize(
    ("limit", "to_b"),
    [
        ({"paused": True}, 0),
        ({"max_in_flight": 1}, 1),
        ({"rate_per_s": 1.0, "burst": 2}, 2),
    ],
)
async def test_what_a_customers_own_limit_holds_is_lent_to_the_others(limit, to_b):
    world = PoolWorld(pooled("a"), pooled("b"))
    world.customer(Customer(id="held", **limit))
    await world.place("b", 30, "held")
    await world.place("a", 30)
    assert (len(world.out["a"]), len(world.out["b"])) == (10 - to_b, to_b)


async def test_a_customer_that_has_a_token_again_is_wanted_for():
    world = PoolWorld(pooled("a"), pooled("b"))
    world.customer(Customer(id="held", rate_per_s=1.0))
    await world.place("b", 30, "held")
    await world.place("a", 30)
    assert len(world.out["b"]) == 1
    await world.end("a", *world.out["a"][:1])
    world.clock.move(timedelta(seconds=1))
    await world.handle(InsightTick(insight_id="b"))
    assert len(world.out["b"]) == 1, "its pool is full"
    await world.end("a", *world.out["a"][1:3])
    assert len(world.out["b"]) == 2


async def test_weights_divide_what_both_want():
    world = PoolWorld(pooled("a", pool_weight=4), pooled("b"))
    await world.place("a", 30)
    await world.place("b", 30)
    await world.end("a", *world.out["a"][:10])
    assert (len(world.out["a"]), len(world.out["b"])) == (18, 2)


async def test_a_minimum_is_kept_against_any_weight():
    world = PoolWorld(pooled("a", pool_weight=1000), pooled("b", pool_minimum=3))
    await world.place("a", 30)
    await world.place("b", 30)
    await world.end("a", *world.out["a"][:10])
    assert (len(world.out["a"]), len(world.out["b"])) == (17, 3)


async def test_an_insight_that_nobody_pulls_lends_the_slots_of_its_topic():
    world = PoolWorld(pooled("a"), pooled("b"))
    await world.place("a", 30)
    await world.place("b", 30)
    assert (len(world.out["a"]), len(world.out["b"])) == (10, 0)
    world.clock.move(timedelta(seconds=LENT_AFTER_S))
    await world.handle(InsightTick(insight_id="b"))
    assert (len(world.out["a"]), len(world.out["b"])) == (10, 10)
    await world.end("a", world.out["a"][0])
    assert (len(world.out["a"]), len(world.out["b"])) == (10, 10), "19 are out of 10"


async def test_one_customer_in_many_insights_has_one_share_of_the_pool():
    world = PoolWorld(
        pooled("a"), pooled("b"), pooled("c"), capacity=12, divided_among="customers"
    )
    for insight_id, customer in (("a", "one"), ("b", "one"), ("c", "one"), ("c", "two")):
        await world.place(insight_id, 90, customer)
    for insight_id, changed in world.handler.changed_divisions().items():
        await world.handle(InsightTick(insight_id=insight_id, divisions=dict(changed)))
    assert world.handler.changed_divisions() == {}
    for _ in range(12):
        world.clock.move(timedelta(seconds=1.5))
        for insight_id in "abc":
            await world.end(insight_id, *world.waiting(insight_id), noop=1.5)
    by_customer = Counter(world.customers[one] for one in world.ended)
    assert by_customer["two"] / by_customer.total() == pytest.approx(1 / 2, abs=0.05)


async def test_a_pool_that_is_not_divided_among_customers_any_more_has_whole_weights():
    world = PoolWorld(pooled("a"), pooled("b"), divided_among="customers")
    for insight_id in "ab":
        await world.place(insight_id, 30)
        await world.handle(InsightTick(insight_id=insight_id, divisions={"acme": 2}))
    assert world.handler.changed_divisions() == {}
    pools = {"gpu": ResourcePool(id="gpu", max_in_flight=10)}
    world.definitions.current = replace(world.definitions.current, pools=pools, version=2)
    assert world.handler.changed_divisions() == {"a": {"acme": 1}, "b": {"acme": 1}}


async def test_insights_of_a_pool_share_a_partition():
    world = PoolWorld(pooled("a"), pooled("b"), Insight(id="c"))
    assert world.home("a") == world.home("b")
    assert world.definitions.current.routing_key("c") == b"c"


async def test_an_event_sent_astray_is_sent_on():
    world = PoolWorld(pooled("a"))
    elsewhere = (world.home("a") + 1) % PARTITIONS
    await world.handle(InsightTick(insight_id="a"), partition=elsewhere)
    [sent_on] = world.publisher.on(TOPICS.ready)
    assert sent_on.partition == world.home("a")


async def test_nothing_is_emitted_for_an_insight_that_is_not_defined():
    world = PoolWorld(pooled("a"))
    await world.place("ghost", 3)
    assert not world.publisher.on(TOPICS.insight("ghost"))
    known = world.definitions.current.insights | {InsightId("ghost"): Insight(id="ghost")}
    world.definitions.current = replace(world.definitions.current, insights=known, version=2)
    await world.handle(InsightTick(insight_id=""), partition=world.home("ghost"))
    assert len(world.publisher.on(TOPICS.insight("ghost"))) == 3


@pytest.fixture
async def busy() -> PoolWorld:
    world = PoolWorld(pooled("a"))
    await world.place("a", 30)
    return world


async def test_a_question_about_an_agenda_is_answered(busy):
    await busy.handle(QueueQueried(insight_id="a", query_id="q", agenda_id="a-29"))
    [record] = busy.publisher.on(TOPICS.query_replies)
    answer = decode_query_reply(record.value)
    assert (answer.query_id, answer.ready, answer.in_flight) == ("q", 20, 10)
    assert (answer.agenda.state, answer.agenda.position) == ("ready", 20)
    assert answer.customers[0].customer_id == "acme"


async def test_a_question_about_the_insight_alone_is_answered(busy):
    await busy.handle(QueueQueried(insight_id="a", query_id="q"))
    assert decode_query_reply(busy.publisher.on(TOPICS.query_replies)[0].value).agenda is None


async def limited_by(world: PoolWorld, insight_id: str) -> str:
    await world.handle(QueueQueried(insight_id=insight_id, query_id="q"))
    return decode_query_reply(world.publisher.on(TOPICS.query_replies)[-1].value).limited_by


async def test_an_insight_that_may_not_emit_says_what_limits_it():
    world = PoolWorld(pooled("a"), pooled("b", max_in_flight=1), Insight(id="c", target=1))
    await world.place("a", 9)
    assert await limited_by(world, "a") == "", "nothing waits"
    await world.place("b", 3)
    assert await limited_by(world, "b") == "max_in_flight"
    await world.end("b", "b-0", "b-1", "b-2")
    await world.place("a", 20)
    await world.place("a", 20)
    assert await limited_by(world, "a") == "pool"
    await world.place("c", 3)
    assert await limited_by(world, "c") == "", "its topic is full, as it should be"


async def test_gauges_show_what_waits_and_what_is_out(busy):
    registry = CollectorRegistry()
    registry.register(SchedulerCollector(busy.handler.insights, busy.clock))
    shown = generate_latest(registry).decode()
    assert 'pop_insight_ready{insight="a"} 20.0' in shown
    assert 'pop_insight_in_flight{insight="a"} 10.0' in shown
    assert 'pop_agendas_emitted_total{insight="a"} 10.0' in shown
    assert 'pop_customer_ready{customer="acme",insight="a"} 20.0' in shown


async def test_gauges_name_few_customers_and_sum_the_rest():
    world = PoolWorld(Insight(id="a", target=1, low_water=1))
    bodies = [Raw(encode(placed(f"x{number}", f"c{number:03}"))) for number in range(60)]
    origins = [Origin(partition=0, offset=1, index=number) for number in range(60)]
    await world.handle(
        InsightAgendasRouted(insight_id="a", agendas=tuple(bodies), origins=tuple(origins))
    )
    registry = CollectorRegistry()
    registry.register(SchedulerCollector(world.handler.insights, world.clock))
    lines = generate_latest(registry).decode().splitlines()
    ready = [line for line in lines if line.startswith("pop_customer_ready{")]
    assert len(ready) == 21
    assert sum(float(line.rsplit(" ", 1)[1]) for line in ready) == 59
