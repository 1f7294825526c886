"""The port `LagProbe`: lags set by hand, and lags of consumer groups on a real Kafka."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import pytest
import pytest_asyncio
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from deadlines import within
from fakes import FixedLags

from pop_stream.kafka import clients, connections, topics
from pop_stream.kafka.lag import KafkaLagProbe
from pop_stream.kafka.publisher import KafkaPublisher
from pop_stream.kafka.topics import Topics, TopicSpec
from pop_stream.model.ids import InsightId
from pop_stream.ports.lag import LagProbe
from pop_stream.ports.publisher import Record
from pop_stream.settings import Settings

MEDIA, VIDEO, NOBODY = InsightId("media"), InsightId("video"), InsightId("nobody")
PARTITIONS = 2
EVENT_PARTITIONS = 3


class Queues(Protocol):
    """Topics of insights, as pullers work them off."""

    probe: LagProbe

    async def emit(self, insight_id: InsightId, count: int) -> None:
        """Write so many records, turn and turn about over the partitions."""

    async def commit(self, insight_id: InsightId, offsets: Mapping[int, int]) -> None:
        """The insight's pullers have come so far, by partition."""

    async def remove(self, insight_id: InsightId, offsets: Mapping[int, int]) -> None:
        """What lies before is removed, by partition, as for its age."""

    async def publish_events(
        self, offsets: Mapping[int, int], *, relayed: Mapping[int, int]
    ) -> None:
        """So much of the lifecycle was published, and relayed, by partition."""


class MemoryQueues:
    def __init__(self) -> None:
        self.probe = FixedLags()
        self._ends: dict[InsightId, int] = {}
        self._done: dict[InsightId, dict[int, int]] = {}
        self.probe.end_offsets = dict.fromkeys(range(EVENT_PARTITIONS), 0)
        self.probe.relay_offsets = {}

    async def publish_events(
        self, offsets: Mapping[int, int], *, relayed: Mapping[int, int]
    ) -> None:
        self.probe.end_offsets |= offsets
        self.probe.relay_offsets |= relayed

    async def emit(self, insight_id: InsightId, count: int) -> None:
        self._ends[insight_id] = self._ends.get(insight_id, 0) + count
        self._set(insight_id)

    async def commit(self, insight_id: InsightId, offsets: Mapping[int, int]) -> None:
        self._done.setdefault(insight_id, {}).update(offsets)
        self._set(insight_id)

    async def remove(self, insight_id: InsightId, offsets: Mapping[int, int]) -> None:
        done = self._done.setdefault(insight_id, {})
        done |= {number: max(at, done.get(number, 0)) for number, at in offsets.items()}
        self._set(insight_id)

    def _set(self, insight_id: InsightId) -> None:
        if insight_id in self._done:
            sent = self._ends.get(insight_id, 0)
            self.probe.by_insight[insight_id] = [
                len(range(number, sent, PARTITIONS)) - self._done[insight_id].get(number, 0)
                for number in range(PARTITIONS)
            ]


class KafkaQueues:
    def __init__(
        self, settings: Settings, probe: KafkaLagProbe, publisher: KafkaPublisher
    ) -> None:
        self.probe = probe
        self._settings = settings
        self._topics = Topics(settings.topic_prefix)
        self._publisher = publisher

    async def emit(self, insight_id: InsightId, count: int) -> None:
        topic = self._topics.insight(insight_id)
        await self._publisher.publish(
            [Record(topic, None, b"{}", number % PARTITIONS) for number in range(count)]
        )

    async def publish_events(
        self, offsets: Mapping[int, int], *, relayed: Mapping[int, int]
    ) -> None:
        topic = self._topics.agenda_events
        await self._publisher.publish(
            [
                Record(topic, None, b"{}", number)
                for number, count in offsets.items()
                for _ in range(count)
            ]
        )
        await self._commit(topic, self._topics.group("relay"), relayed)

    async def commit(self, insight_id: InsightId, offsets: Mapping[int, int]) -> None:
        topic, group = self._topics.insight(insight_id), self._topics.puller_group(insight_id)
        await self._commit(topic, group, offsets)

    async def remove(self, insight_id: InsightId, offsets: Mapping[int, int]) -> None:
        topic = self._topics.insight(insight_id)
        async with connections.admin_client(self._settings) as admin:
            await admin.delete_records(
                {TopicPartition(topic, n): RecordsToDelete(at) for n, at in offsets.items()}
            )

    async def _commit(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        consumer = clients.consumer(self._settings, client_id="pull", group_id=group)
        async with consumer:
            consumer.assign([TopicPartition(topic, number) for number in offsets])
            await consumer.commit({TopicPartition(topic, n): at for n, at in offsets.items()})


@pytest.fixture
def memory_queues() -> Queues:
    return MemoryQueues()


@pytest_asyncio.fixture
async def kafka_queues(settings: Settings) -> AsyncIterator[Queues]:
    names = Topics(settings.topic_prefix)
    offsets = clients.consumer(settings, client_id="lag", group_id=None)
    async with (
        connections.admin_client(settings) as admin,
        connections.publisher(settings, client_id="lag") as publisher,
        offsets,
    ):
        specs = [topics.insight_spec(names, one, PARTITIONS) for one in (MEDIA, VIDEO)]
        specs.append(TopicSpec(names.agenda_events, EVENT_PARTITIONS))
        await topics.ensure(admin, specs, replication_factor=1)
        yield KafkaQueues(settings, KafkaLagProbe(names, admin, offsets), publisher)


@pytest.fixture(params=["memory_queues", "kafka_queues"])
def queues(request: pytest.FixtureRequest) -> Queues:
    return request.getfixturevalue(request.param)


async def lags(queues: Queues, *insights: InsightId) -> Mapping[InsightId, list[int]]:
    return {one: [*some] for one, some in (await queues.probe.fetch_lag(insights)).lags.items()}


async def test_without_a_commit_the_lag_is_unknown(queues):
    await queues.emit(MEDIA, 4)
    assert await lags(queues, MEDIA, VIDEO) == {}
    assert await lags(queues) == {}


async def test_the_lag_is_what_lies_past_the_commit_of_each_partition(queues):
    await queues.emit(MEDIA, 10)
    await queues.commit(MEDIA, {0: 2, 1: 5})
    assert await lags(queues, MEDIA) == {MEDIA: [3, 0]}
    await queues.emit(MEDIA, 6)
    await queues.commit(MEDIA, {0: 8})
    assert await lags(queues, MEDIA) == {MEDIA: [0, 3]}
    await queues.commit(MEDIA, {1: 8})
    assert await lags(queues, MEDIA) == {MEDIA: [0, 0]}


async def test_a_partition_never_committed_counts_from_its_start(queues):
    await queues.emit(MEDIA, 10)
    await queues.commit(MEDIA, {0: 5})
    assert await lags(queues, MEDIA) == {MEDIA: [0, 5]}


async def test_what_was_removed_is_as_good_as_read(queues):
    await queues.emit(MEDIA, 10)
    await queues.commit(MEDIA, {0: 2, 1: 4})
    await queues.remove(MEDIA, {0: 3, 1: 2})
    assert await lags(queues, MEDIA) == {MEDIA: [2, 1]}


async def test_so_is_what_was_removed_before_anyone_came(queues):
    await queues.emit(MEDIA, 10)
    await queues.remove(MEDIA, {0: 5, 1: 4})
    assert await lags(queues, MEDIA, VIDEO) == {MEDIA: [0, 1]}


async def test_each_insight_has_its_own_lag_and_unknown_ones_are_absent(queues):
    await queues.emit(MEDIA, 4)
    await queues.emit(VIDEO, 6)
    await queues.commit(MEDIA, {0: 1, 1: 1})
    await queues.commit(VIDEO, {0: 0, 1: 0})
    assert await lags(queues, VIDEO, NOBODY, MEDIA) == {MEDIA: [1, 1], VIDEO: [3, 3]}
    assert await lags(queues, VIDEO) == {VIDEO: [3, 3]}


async def test_how_many_are_in_a_group(kafka_queues):
    settings, probe = kafka_queues._settings, kafka_queues.probe
    group = Topics(settings.topic_prefix).group("pulls")
    assert await probe.fetch_member_count(group) == 0
    member = clients.consumer(
        settings, Topics(settings.topic_prefix).agenda_events, client_id="a", group_id=group
    )
    async with member, within(60):
        while await probe.fetch_member_count(group) != 1:  # noqa: ASYNC110  # it joins meanwhile
            await asyncio.sleep(0.05)
    async with within(60):
        while await probe.fetch_member_count(group) != 0:  # noqa: ASYNC110  # it left
            await asyncio.sleep(0.05)


async def test_what_was_published_and_what_was_relayed(queues):
    await queues.publish_events({0: 4, 1: 2}, relayed={0: 3})
    await queues.emit(MEDIA, 4)
    await queues.commit(MEDIA, {0: 1, 1: 1})
    found = await queues.probe.fetch_lag([MEDIA], relay=True)
    assert found.end_offsets == {0: 4, 1: 2, 2: 0}
    assert found.relay_offsets == {0: 3}
    assert found.lags[MEDIA] == [1, 1]
    assert (await queues.probe.fetch_lag([MEDIA])).end_offsets is None
