"""What a scheduler reports of each customer's ready agendas, and of its own capacity."""

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
from pop_stream.policy.ingress.usage import MemoryLoad, insight_account
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

    def reports(self):
        return {
            one.insight_id: (one.customers, one.is_complete, one.placed)
            for one in self.usage_reporter.drain_reports()
        }


@pytest.fixture
def world():
    return UsageWorld()


async def test_what_changed_is_reported_with_how_far_it_reaches(world):
    await world.place("a", "b")
    await world.place("free", customer="free")
    assert world.reports() == {"media": ({"few": 2}, True, {"3": (1, 0)})}
    assert world.reports() == {}
    await world.place("c")
    assert world.reports() == {"media": ({"few": 3}, False, {"3": (2, 0)})}
    await world.place("other", customer="free")
    assert world.reports() == {"media": ({}, False, {"3": (3, 0)})}


async def test_each_insight_is_reported_alone(world):
    await world.place("a")
    await world.place("x", "y", insight="other")
    assert {one: report[0] for one, report in world.reports().items()} == {
        "media": {"few": 1},
        "other": {"few": 2},
    }


async def test_an_emission_is_reported(world):
    await world.place("a")
    world.reports()
    known = world.definitions.current.customers[CustomerId("few")]
    paused = known.model_copy(update={"paused": False})
    world.definitions.current = world.definitions.current.updated("customer/few", paused)
    await world.place("b")
    assert world.reports()["media"][0] == {"few": 0}


async def test_all_is_reported_again_from_time_to_time_while_there_is_any(world):
    await world.place("a")
    world.reports()
    world.clock.move(timedelta(seconds=9))
    assert world.reports() == {}
    world.clock.move(timedelta(seconds=1))
    assert world.reports()["media"][:2] == ({"few": 1}, True)


async def test_a_loaded_backlog_is_reported_completely(world):
    await world.place("a")
    world.reports()
    for scheduler in world.handler.insights():
        world.handler.unload(scheduler.partition)
    assert world.reports() == {}
    await world.place("b")
    assert world.reports()["media"][:2] == ({"few": 2}, True)


async def test_what_may_be_another_workers_by_now_is_not_reported(world):
    await world.place("a")
    world.reports()
    await world.place("b")
    world.is_sure = False
    assert world.reports() == {}
    world.is_sure = True
    assert world.reports()["media"][:2] == ({"few": 2}, True)


async def test_nothing_is_reported_where_nobody_has_a_quota_and_there_is_room():
    world = UsageWorld()
    world.definitions.current = Definitions(insights=world.definitions.current.insights)
    await world.place("a", "b")
    assert world.reports() == {}


async def test_a_new_quota_is_taken_up(world):
    await world.place("a", customer="late")
    world.reports()
    late = Customer(id="late", max_ready=1)
    world.definitions.current = world.definitions.current.updated("customer/late", late)
    await world.place("b")
    # What of `late` was ready is emitted, as nothing holds it.
    assert world.reports()["media"][:2] == ({"few": 1}, True)


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


async def test_what_an_insight_with_a_limit_has_is_reported_of_all_customers_together():
    world = UsageWorld()
    limited = Insight(id="media", max_ready=5)
    world.definitions.current = world.definitions.current.updated("insight/media", limited)
    await world.place("a", "b")
    await world.place("x", customer="free")  # emitted at once
    account = insight_account("media")
    assert world.reports()["media"] == ({"few": 2, account: 2}, True, {"3": (1, 0)})
    await world.place("c")
    assert world.reports()["media"][0] == {"few": 3, account: 3}
    await world.place("y", insight="other")
    assert world.reports()["other"][0] == {"few": 1}
