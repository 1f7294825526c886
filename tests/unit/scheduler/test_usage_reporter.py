"""What a scheduler tells the doors: each customer's ready agendas, where it is, how full."""

from datetime import timedelta

import pytest
from backlogs import START, placed
from fakes import FixedDefinitions, ManualClock, MemoryPublisher, MemoryReadyTable
from msgspec import Raw

from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Customer, Definitions, Insight
from pop_stream.model.events.codec import encode
from pop_stream.model.events.scheduling import InsightAgendasRouted, Origin
from pop_stream.model.ids import CustomerId, InsightId
from pop_stream.model.partitioning import partition_of
from pop_stream.policy.ingress.usage import MemoryLoad
from pop_stream.scheduler.event_handler import ReadyEventHandler
from pop_stream.scheduler.round_writer import RecordPosition
from pop_stream.scheduler.usage_reporter import UsageReporter

PARTITIONS = 4
ROOMY = MemoryLoad(agendas=1_000, size=1_000_000)


class UsageWorld:
    """A scheduler that emits nothing of `few`, which is paused."""

    def __init__(self, limit=ROOMY, **customers):
        few = Customer(id="few", max_ready=100, paused=True)
        known = {CustomerId(one.id): one for one in (few, *customers.values())}
        insights = {InsightId(one): Insight(id=one) for one in ("media", "other")}
        self.definitions = FixedDefinitions(Definitions(customers=known, insights=insights))
        self.clock = ManualClock(START)
        self.publisher = MemoryPublisher(partition_count=PARTITIONS)
        topics = Topics("t.")

        async def create_topic(_):
            pass

        self.table = MemoryReadyTable()
        self.handler = ReadyEventHandler(
            table=self.table,
            publisher=self.publisher,
            definitions=self.definitions,
            clock=self.clock,
            topics=topics,
            create_topic=create_topic,
            partitions=PARTITIONS,
            owns=lambda _: self.is_sure,
            read_newest=self.publisher.read_newest,
        )
        self.is_sure = True
        self.usage_reporter = UsageReporter(
            self.handler,
            publisher=self.publisher,
            definitions=self.definitions,
            clock=self.clock,
            topics=topics,
            limit=limit,
        )
        self.offset = 0

    async def place(self, *ids, customer="few", insight="media"):
        agendas = [placed(one, customer) for one in ids]
        origins = tuple(
            Origin(partition=3, offset=self.offset, index=n) for n in range(len(ids))
        )
        event = InsightAgendasRouted(
            insight_id=insight,
            agendas=tuple(Raw(encode(one)) for one in agendas),
            origins=origins,
        )
        partition = partition_of(insight.encode(), PARTITIONS)
        await self.handler.handle(RecordPosition(partition, self.offset), encode(event))
        self.offset += 1

    def told(self):
        return {
            one.insight_id: (one.customers, one.is_complete, one.placed)
            for one in self.usage_reporter.drain_reports()
        }


@pytest.fixture
def world():
    return UsageWorld()


async def test_what_changed_is_told_with_how_far_it_reaches(world):
    await world.place("a", "b")
    await world.place("free", customer="free")
    assert world.told() == {"media": ({"few": 2}, True, {"3": (1, 0)})}
    assert world.told() == {}
    await world.place("c")
    assert world.told() == {"media": ({"few": 3}, False, {"3": (2, 0)})}
    await world.place("other", customer="free")
    assert world.told() == {"media": ({}, False, {"3": (3, 0)})}


async def test_each_insight_is_told_of_alone(world):
    await world.place("a")
    await world.place("x", "y", insight="other")
    assert {one: told[0] for one, told in world.told().items()} == {
        "media": {"few": 1},
        "other": {"few": 2},
    }


async def test_an_emission_is_told(world):
    await world.place("a")
    world.told()
    known = world.definitions.current.customers[CustomerId("few")]
    paused = known.model_copy(update={"paused": False})
    world.definitions.current = world.definitions.current.updated("customer/few", paused)
    await world.place("b")
    assert world.told()["media"][0] == {"few": 0}


async def test_all_is_told_again_now_and_then_while_there_is_any(world):
    await world.place("a")
    world.told()
    world.clock.move(timedelta(seconds=9))
    assert world.told() == {}
    world.clock.move(timedelta(seconds=1))
    assert world.told()["media"][:2] == ({"few": 1}, True)


async def test_a_backlog_that_was_read_anew_is_told_as_a_whole(world):
    await world.place("a")
    world.told()
    for scheduler in world.handler.insights():
        world.handler.unload(scheduler.partition)
    assert world.told() == {}
    await world.place("b")
    assert world.told()["media"][:2] == ({"few": 2}, True)


async def test_what_may_be_another_workers_by_now_is_not_told(world):
    await world.place("a")
    world.told()
    await world.place("b")
    world.is_sure = False
    assert world.told() == {}
    world.is_sure = True
    assert world.told()["media"][:2] == ({"few": 2}, True)


async def test_nothing_is_told_where_nobody_has_a_quota_and_there_is_room():
    world = UsageWorld()
    world.definitions.current = Definitions(insights=world.definitions.current.insights)
    await world.place("a", "b")
    assert world.told() == {}


async def test_a_new_quota_is_taken_up(world):
    await world.place("a", customer="late")
    world.told()
    late = Customer(id="late", max_ready=1)
    world.definitions.current = world.definitions.current.updated("customer/late", late)
    await world.place("b")
    # What of `late` was ready is emitted, as nothing holds it.
    assert world.told()["media"][:2] == ({"few": 1}, True)


async def test_a_worker_that_is_full_says_so_and_when_it_is_not():
    world = UsageWorld(MemoryLoad(agendas=2, size=1_000_000))
    world.definitions.current = Definitions(insights=world.definitions.current.insights)
    await world.place("a")
    assert world.usage_reporter.drain_reports() == []
    await world.place("b", "c")
    [full] = world.usage_reporter.drain_reports()
    assert (
        full.capacity_limit.present,
        full.capacity_limit.limit,
        full.capacity_limit.is_full,
    ) == (3, 2, True)
    assert world.usage_reporter.drain_reports() == []
    world.usage_reporter._limit = ROOMY
    [roomy] = world.usage_reporter.drain_reports()
    assert roomy.capacity_limit is None


async def test_bytes_count_too():
    world = UsageWorld(MemoryLoad(agendas=1_000, size=300))
    await world.place("a", "b", "c", "d")
    [full] = [one for one in world.usage_reporter.drain_reports() if one.capacity_limit]
    assert (full.capacity_limit.what, full.capacity_limit.is_full) == ("bytes", True)
    assert full.capacity_limit.present == sum(
        len(row) for key, row in world.table.data.items() if "/page/" in key
    )
