"""What it costs to know the lag of pullers, counted in requests and calls."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition
from fakes import FixedLags
from scheduler_world import TOPICS, SchedulerWorld

from pop_stream.kafka import lag
from pop_stream.kafka.lag import KafkaLagProbe
from pop_stream.model.definitions import Customer, Insight
from pop_stream.model.events.codec import decode_ready
from pop_stream.model.ids import InsightId
from pop_stream.scheduler.ticker import Ticker

BROKERS = 3
PARTITIONS = 4


class Cluster:
    """Three brokers that coordinate a third of the groups each; every request is counted."""

    def __init__(self):
        self.requests = 0
        self._client = self

    async def describe_topics(self, names):
        self.requests += 1
        return [{"topic": one, "partitions": [*range(PARTITIONS)]} for one in names]

    async def find_coordinator(self, group):
        self.requests += 1
        return sum(group.encode()) % BROKERS

    async def send(self, node, request):
        self.requests += 1
        offsets = [(number, 4, -1, "", 0, {}) for number in range(PARTITIONS)]
        return SimpleNamespace(
            groups=[(one, [(one, offsets, {})], 0, {}) for one in request._groups]
        )

    async def beginning_offsets(self, places):
        self.requests += 1
        return {TopicPartition(one.topic, one.partition): 0 for one in places}

    async def end_offsets(self, places):
        self.requests += 1
        return {TopicPartition(one.topic, one.partition): 7 for one in places}


async def requests_per_call(insights):
    cluster = Cluster()
    probe = KafkaLagProbe(TOPICS, cluster, cluster)
    names = [InsightId(f"i{number}") for number in range(insights)]
    found = []
    for _ in range(3):
        before = cluster.requests
        assert (await probe.fetch_lag(names)).lags == {one: [3] * PARTITIONS for one in names}
        found.append(cluster.requests - before)
    return found


async def test_lag_takes_a_request_per_broker_however_many_insights_there_are(monkeypatch):
    """But for the first, which asks once for every group who coordinates it."""
    monkeypatch.setattr(lag, "_LOG_START_INTERVAL_S", 0)
    assert (await requests_per_call(1))[1:] == [1 + 2] * 2
    first, *others = await requests_per_call(200)
    assert first == 1 + 200 + BROKERS + 2
    assert others == [BROKERS + 2] * 2, "what is committed, where topics start, and end"


async def calls_in_ten_seconds(customers, insights):
    """Of a ticker that sleeps as long as it says; every customer is due now and then."""
    names = [f"i{number}" for number in range(insights)]
    world = SchedulerWorld(*(Insight(id=one, target=5_000, low_water=5_000) for one in names))
    lags = FixedLags()
    every = timedelta(milliseconds=250)
    ticker = Ticker(world.handler, lags, world.publisher, TOPICS, every, world.clock)
    for number in range(customers):
        limited = Customer(id=f"c{number}", rate_per_s=1.0)
        world.define(customers=[limited])
        await world.place(limited.id, 30, insight_id=names[number % insights])
        world.clock.move(timedelta(milliseconds=7))
    until, ticks, read = world.clock.now() + timedelta(seconds=10), 0, 0
    while world.clock.now() < until:
        await ticker._tick()
        ticks += 1
        records = world.publisher.on(TOPICS.ready)[read:]
        read += len(records)
        for record in records:
            await world.handle(*decode_ready(record.value))
        world.clock.move(timedelta(seconds=ticker._pause_s()))
    assert all(one in asked for asked, _ in lags.asked for one in names)
    return len([asked for asked, _ in lags.asked if asked]), ticks


@pytest.mark.parametrize(("customers", "insights"), [(1, 1), (100, 1), (100, 20)])
async def test_lags_are_read_no_more_often_for_more_customers_or_insights(customers, insights):
    calls, ticks = await calls_in_ten_seconds(customers, insights)
    assert calls <= 1 + 10 / 0.25
    if customers > 1:
        assert ticks > 2 * calls, "it was woken for more than that"
