"""What the probe makes of coordinators that die; what else it tells, the contract shows."""

from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import NodeNotReadyError

from pop_stream.kafka import lag
from pop_stream.kafka.lag import KafkaLagProbe
from pop_stream.kafka.topics import Topics
from pop_stream.model.ids import InsightId

TOPICS, MEDIA = Topics("t."), InsightId("media")


class Cluster:
    """Two brokers, of which one coordinates all groups; 7 records, of which 4 are committed."""

    def __init__(self):
        self.alive = {1, 2}
        self.coordinator = 1
        self.first = self.asked_for_starts = 0
        self._client = self

    async def describe_topics(self, names):
        return [{"topic": one, "partitions": [0]} for one in names]

    async def find_coordinator(self, group):
        return self.coordinator

    async def send(self, node, request):
        if node not in self.alive:
            raise NodeNotReadyError
        offsets = [(0, 4, -1, "", 0, {})]
        topics = [(TOPICS.insight(MEDIA), offsets, {}), (TOPICS.agenda_events, offsets, {})]
        return SimpleNamespace(groups=[(one, topics, 0, {}) for one in request._groups])

    async def beginning_offsets(self, places):
        self.asked_for_starts += 1
        return {TopicPartition(one.topic, one.partition): self.first for one in places}

    async def end_offsets(self, places):
        return {TopicPartition(one.topic, one.partition): 7 for one in places}


@pytest.fixture
def cluster():
    return Cluster()


async def test_a_coordinator_that_died_is_looked_for_anew_and_not_waited_for(cluster):
    probe = KafkaLagProbe(TOPICS, cluster, cluster)
    assert (await probe.fetch_lag([MEDIA])).lags == {MEDIA: [3]}
    cluster.alive = {2}
    assert (await probe.fetch_lag([MEDIA])).lags == {}
    cluster.coordinator = 2  # the old one never comes back, so it never says so
    assert (await probe.fetch_lag([MEDIA])).lags == {MEDIA: [3]}


async def test_group_offsets_are_asked_of_the_new_coordinator_too(cluster):
    probe = KafkaLagProbe(TOPICS, cluster, cluster)
    group, topic = TOPICS.group("relay"), TOPICS.agenda_events
    assert (await probe.fetch_group_offsets(group, topic)).committed == {0: 4}
    cluster.alive, cluster.coordinator = {2}, 2
    assert await probe.fetch_group_offsets(group, topic) is None
    assert (await probe.fetch_group_offsets(group, topic)).committed == {0: 4}


async def test_log_starts_are_not_asked_for_with_every_call(cluster, monkeypatch):
    probe = KafkaLagProbe(TOPICS, cluster, cluster)
    assert (await probe.fetch_lag([MEDIA])).lags == {MEDIA: [3]}
    cluster.first = 6
    assert (await probe.fetch_lag([MEDIA])).lags == {MEDIA: [3]}
    assert cluster.asked_for_starts == 1
    monkeypatch.setattr(lag, "_LOG_START_INTERVAL_S", 0)
    assert (await probe.fetch_lag([MEDIA])).lags == {MEDIA: [1]}
