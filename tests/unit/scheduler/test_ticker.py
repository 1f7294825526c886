"""When the ticker publishes a tick, and which partitions it wakes."""

from datetime import timedelta

import pytest
from fakes import FixedLags
from scheduler_world import MEDIA, TOPICS, SchedulerWorld

from pop_stream.model.definitions import Customer
from pop_stream.model.events.codec import decode_ready
from pop_stream.model.events.scheduling import InsightTick
from pop_stream.scheduler.round_writer import RecordPosition
from pop_stream.scheduler.ticker import Ticker


@pytest.fixture
def world():
    return SchedulerWorld(MEDIA)


def ticker_of(world, is_stable=lambda: True, **lags):
    return Ticker(
        world.handler,
        FixedLags({one: [lag] for one, lag in lags.items()}),
        world.publisher,
        TOPICS,
        timedelta(milliseconds=250),
        world.clock,
        is_stable=is_stable,
    )


def ticks(world):
    return [decode_ready(one.value)[0] for one in world.publisher.on(TOPICS.ready)]


async def test_gained_partitions_are_woken_once_more_when_the_rebalance_is_over(world):
    over = False
    ticker = ticker_of(world, is_stable=lambda: over)
    ticker.assign({2})
    await ticker._tick()
    [wake] = world.publisher.on(TOPICS.ready)
    await world.handler.handle(RecordPosition(2, 1), wake.value)
    await ticker._tick()
    assert len(ticks(world)) == 1
    over = True  # what Faust read before, it may have dropped
    await ticker._tick()
    await ticker._tick()
    assert [one.partition for one in world.publisher.on(TOPICS.ready)] == [2, 2]


async def test_gained_partitions_are_woken_until_they_are_loaded(world):
    ticker = ticker_of(world)
    ticker.assign({1, 2})
    ticker.revoke({1})
    await ticker._tick()
    [wake] = world.publisher.on(TOPICS.ready)
    assert (wake.partition, ticks(world)[0].insight_id) == (2, "")
    await world.handler.handle(RecordPosition(2, 1), wake.value)
    await ticker._tick()
    assert len(ticks(world)) == 1


async def test_gained_partitions_are_woken_before_a_broker_is_asked_that_may_be_away(world):
    await world.place("ann", 25)
    ticker = ticker_of(world)
    ticker.assign({2})

    async def away(*_, **__):
        assert [wake.partition for wake in world.publisher.on(TOPICS.ready)] == [2]
        raise TimeoutError

    ticker._probe.fetch_lag = away
    with pytest.raises(TimeoutError):
        await ticker._tick()


async def test_a_clock_that_is_set_back_ends_the_ticker(world):
    ticker = ticker_of(world)
    for seconds in (0, 3_600, -4):
        world.clock.move(timedelta(seconds=seconds))
        ticker._check_clock()
    world.clock.move(timedelta(seconds=-3_600))
    with pytest.raises(RuntimeError, match=r"set back by 3604\.0 s"):
        await ticker.run()


async def test_a_fallen_lag_is_published(world):
    await world.place("ann", 25)
    await ticker_of(world, media=3)._tick()
    assert ticks(world) == [InsightTick(insight_id="media", lag=3, emitted=10)]


async def test_a_lag_that_did_not_fall_is_not_published(world):
    await world.place("ann", 25)
    await ticker_of(world, media=10)._tick()
    await ticker_of(world)._tick()
    assert ticks(world) == []


async def test_after_a_restart_the_lag_of_a_full_topic_is_asked_for(world):
    """Were its claims lost, nothing else would ever set it going again."""
    await world.place("ann", 25)
    world.handler = world.new_handler()
    await world.handle(InsightTick(insight_id=""), partition=world.home("media"))
    assert len(world.emitted()) == 10
    await ticker_of(world, media=0)._tick()
    tick = InsightTick(insight_id="media", lag=0, emitted=10, lags=(0,))
    assert ticks(world) == [tick]


async def test_nothing_waiting_nothing_asked(world):
    await world.place("ann", 5)
    await ticker_of(world, media=0)._tick()
    assert ticks(world) == []


async def test_the_ticker_wakes_for_a_token_but_not_for_a_full_topic(world):
    world.define(customers=[Customer(id="ann", rate_per_s=10.0)])
    await world.place("ann", 25)
    ticker = ticker_of(world)
    assert ticker._pause_s() == pytest.approx(0.1)
    world.clock.move(timedelta(seconds=5))
    assert ticker._pause_s() == pytest.approx(0.01)
    world.define(MEDIA.model_copy(update={"target": 1, "low_water": 1}))
    await world.handle(InsightTick(insight_id="media"))
    world.clock.move(timedelta(seconds=5))
    assert ticker._pause_s() == pytest.approx(0.25)
