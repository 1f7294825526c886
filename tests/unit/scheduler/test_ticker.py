"""When the ticker publishes a tick, and which partitions it wakes."""

from datetime import timedelta

import pytest
from fakes import FixedLags
from scheduler_world import MEDIA, TOPICS, SchedulerWorld, settled

from pop_stream.model.definitions import Customer
from pop_stream.model.events.codec import decode_ready
from pop_stream.model.events.scheduling import (
    Claim,
    IdleRunners,
    InsightAttemptsReported,
    InsightTick,
)
from pop_stream.scheduler.round_writer import RecordPosition
from pop_stream.scheduler.ticker import ARRIVALS_EVERY_S, Ticker


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


class LongRuns:
    """One puller whose runners take two hours for an agenda."""

    RUNNERS = 4

    def __init__(self, world):
        self.world = world
        self.running = []
        self.claimed = 0

    async def end_first(self):
        had_none = not self.unclaimed
        self.world.clock.move(timedelta(hours=2) / self.RUNNERS)
        await self.report(settlements=(settled(self.running.pop(0), cut=7200.0),))
        await self.claim(sync_matched=had_none)

    async def claim(self, *, sync_matched):
        while len(self.running) < self.RUNNERS and self.claimed < len(self.world.emitted()):
            self.world.clock.move(timedelta(seconds=0.02))
            agenda_id = self.world.emitted_ids()[self.claimed]
            self.claimed += 1
            self.running.append(agenda_id)
            idle = IdleRunners("p", self.RUNNERS - len(self.running), insights=1)
            claim = Claim(agenda_id, 1, sync_matched=sync_matched)
            await self.report(claims=(claim,), idle=(idle,))

    async def report(self, **reported):
        await self.world.handle(
            InsightAttemptsReported(
                insight_id="media", relayed_at=self.world.clock.now(), **reported
            )
        )

    @property
    def unclaimed(self):
        return len(self.world.emitted()) - self.claimed


async def test_where_runs_are_long_nothing_lies_out_until_a_runner_is_free_or_a_puller_joins():
    world = SchedulerWorld(
        MEDIA.model_copy(update={"target": "auto", "low_water": None, "lease_ms": 86_400_000})
    )
    await world.place("ann", 60)
    runs = LongRuns(world)
    await runs.claim(sync_matched=True)
    for _ in range(20):
        await runs.end_first()
    assert (len(runs.running), runs.unclaimed) == (runs.RUNNERS, 0)
    await runs.end_first()
    assert (len(runs.running), runs.unclaimed) == (runs.RUNNERS, 0)
    ticker = ticker_of(world)
    await ticker._tick()
    assert ticks(world) == []
    ticker._probe.api_processes = 2
    await ticker._tick()
    assert ticks(world) == []  # it has just looked
    world.clock.move(timedelta(seconds=ARRIVALS_EVERY_S))
    await ticker._tick()
    [tick] = ticks(world)
    assert tick == InsightTick(insight_id="media", has_joined=True)
    await world.handle(tick)
    assert runs.unclaimed > 0
    world.clock.move(timedelta(seconds=ARRIVALS_EVERY_S))
    await ticker._tick()
    assert len(ticks(world)) == 1
