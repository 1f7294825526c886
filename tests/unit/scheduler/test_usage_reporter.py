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


class Stage:
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
        self.rounds = ReadyEventHandler(
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
            self.rounds,
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
        await self.rounds.handle(RecordPosition(partition, self.offset), encode(event))
        self.offset += 1

    def told(self):
        return {
            one.insight_id: (one.customers, one.is_complete, one.placed)
            for one in self.usage_reporter.drain_reports()
        }


@pytest.fixture
def stage():
    return Stage()


async def test_what_changed_is_told_with_how_far_it_reaches(stage):
    await stage.place("a", "b")
    await stage.place("free", customer="free")
    assert stage.told() == {"media": ({"few": 2}, True, {"3": (1, 0)})}
    assert stage.told() == {}
    await stage.place("c")
    assert stage.told() == {"media": ({"few": 3}, False, {"3": (2, 0)})}
    await stage.place("other", customer="free")
    assert stage.told() == {"media": ({}, False, {"3": (3, 0)})}


async def test_each_insight_is_told_of_alone(stage):
    await stage.place("a")
    await stage.place("x", "y", insight="other")
    assert {one: told[0] for one, told in stage.told().items()} == {
        "media": {"few": 1},
        "other": {"few": 2},
    }


async def test_an_emission_is_told(stage):
    await stage.place("a")
    stage.told()
    known = stage.definitions.current.customers[CustomerId("few")]
    paused = known.model_copy(update={"paused": False})
    stage.definitions.current = stage.definitions.current.updated("customer/few", paused)
    await stage.place("b")
    assert stage.told()["media"][0] == {"few": 0}


async def test_all_is_told_again_now_and_then_while_there_is_any(stage):
    await stage.place("a")
    stage.told()
    stage.clock.move(timedelta(seconds=9))
    assert stage.told() == {}
    stage.clock.move(timedelta(seconds=1))
    assert stage.told()["media"][:2] == ({"few": 1}, True)


async def test_a_backlog_that_was_read_anew_is_told_as_a_whole(stage):
    await stage.place("a")
    stage.told()
    for scheduler in stage.rounds.schedulers():
        stage.rounds.unload(scheduler.partition)
    assert stage.told() == {}
    await stage.place("b")
    assert stage.told()["media"][:2] == ({"few": 2}, True)


async def test_what_may_be_another_workers_by_now_is_not_told(stage):
    await stage.place("a")
    stage.told()
    await stage.place("b")
    stage.is_sure = False
    assert stage.told() == {}
    stage.is_sure = True
    assert stage.told()["media"][:2] == ({"few": 2}, True)


async def test_nothing_is_told_where_nobody_has_a_quota_and_there_is_room():
    stage = Stage()
    stage.definitions.current = Definitions(insights=stage.definitions.current.insights)
    await stage.place("a", "b")
    assert stage.told() == {}


async def test_a_new_quota_is_taken_up(stage):
    await stage.place("a", customer="late")
    stage.told()
    late = Customer(id="late", max_ready=1)
    stage.definitions.current = stage.definitions.current.updated("customer/late", late)
    await stage.place("b")
    # What of `late` was ready is emitted, as nothing holds it.
    assert stage.told()["media"][:2] == ({"few": 1}, True)


async def test_a_worker_that_is_full_says_so_and_when_it_is_not():
    stage = Stage(MemoryLoad(agendas=2, size=1_000_000))
    stage.definitions.current = Definitions(insights=stage.definitions.current.insights)
    await stage.place("a")
    assert stage.usage_reporter.drain_reports() == []
    await stage.place("b", "c")
    [full] = stage.usage_reporter.drain_reports()
    assert (full.fullness.present, full.fullness.limit, full.fullness.is_full) == (3, 2, True)
    assert stage.usage_reporter.drain_reports() == []
    stage.usage_reporter._limit = ROOMY
    [roomy] = stage.usage_reporter.drain_reports()
    assert roomy.fullness is None


async def test_bytes_count_too():
    stage = Stage(MemoryLoad(agendas=1_000, size=300))
    await stage.place("a", "b", "c", "d")
    [full] = [one for one in stage.usage_reporter.drain_reports() if one.fullness]
    assert (full.fullness.what, full.fullness.is_full) == ("bytes", True)
    assert full.fullness.present == sum(
        len(row) for key, row in stage.table.data.items() if "/page/" in key
    )
