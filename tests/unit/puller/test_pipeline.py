"""What is published, committed and started when, and what a rebalance leaves of it."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiokafka import TopicPartition
from deadlines import within
from fakes import ManualClock, MemoryPublisher
from puller_fakes import AT, emitted

from pop_stream.kafka.topics import Topics
from pop_stream.model.events.codec import decode_lifecycle, encode
from pop_stream.puller.claiming.capacity import Capacity
from pop_stream.puller.claiming.claims import AttemptWindow, Claimer
from pop_stream.puller.claiming.pipeline import BUFFER_RECORDS, ClaimContext, ClaimPipeline

MEDIA = TopicPartition("t.insight.media", 0)


@pytest.fixture(autouse=True)
async def bounded():
    async with within(10):
        yield


@dataclass
class Taken:
    value: bytes
    offset: int
    partition: int = 0
    topic: str = "t.insight.media"
    key: bytes | None = None
    headers: tuple = ()


@dataclass
class Reports:
    is_full: bool = False


class Gate:
    """Lets calls through one by one, and tells how many wait."""

    def __init__(self):
        self._open = asyncio.Semaphore(0)
        self._arrivals = asyncio.Semaphore(0)

    async def __call__(self):
        self._arrivals.release()
        await self._open.acquire()

    async def arrival(self):
        await self._arrivals.acquire()

    def let(self, count=1):
        for _ in range(count):
            self._open.release()


class GatedPublisher(MemoryPublisher):
    def __init__(self):
        super().__init__(partition_count=1)
        self.gate = Gate()

    async def publish(self, records):
        await self.gate()
        await super().publish(records)


@dataclass
class World:
    capacity: Capacity
    publisher: GatedPublisher = field(default_factory=GatedPublisher)
    commits: Gate = field(default_factory=Gate)
    committed: list = field(default_factory=list)
    commit_succeeds: bool = True
    started: list = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def commit(self, offsets):
        await self.commits()
        if not self.commit_succeeds:
            return False
        self.committed.append(offsets)
        return True

    def start(self, one, *, claimed_s):
        self.started.append(one.agenda_id)
        self.changed.set()

    async def until_started(self, count):
        while len(self.started) < count:
            self.changed.clear()
            await self.changed.wait()


@asynccontextmanager
async def pipeline(runners=4, insights=1):
    world = World(Capacity(runners))
    clock = ManualClock(AT)
    claimer = Claimer(
        world.publisher, Topics("t."), clock, puller_id="p1", window=AttemptWindow()
    )
    context = ClaimContext(claimer, world, Reports(), world.capacity, insights)
    async with ClaimPipeline(context, world.commit, end_within_s=1.0) as one:
        yield world, one
        world.publisher.gate.let(99)
        world.commits.let(99)


def records(*offsets):
    return [Taken(encode(emitted(agenda_id=f"a{offset}")), offset) for offset in offsets]


async def test_nothing_is_committed_before_its_claim_or_started_before_its_commit():
    async with pipeline() as (world, one):
        one.add(records(0, 1))
        await world.publisher.gate.arrival()
        assert (world.committed, world.started) == ([], [])
        world.publisher.gate.let()
        await world.commits.arrival()
        assert world.started == []
        world.commits.let()
        await world.until_started(2)
    assert world.committed == [{MEDIA: 2}]
    assert world.started == ["a0", "a1"]


async def test_next_claim_is_published_while_the_one_before_is_committed():
    async with pipeline() as (world, one):
        one.add(records(0))
        world.publisher.gate.let(3)
        await world.commits.arrival()
        one.add(records(1))
        for _ in range(2):
            await world.publisher.gate.arrival()
        one.add(records(2))
        await world.publisher.gate.arrival()
        world.commits.let(2)
        await world.until_started(3)
        # What was claimed during a commit shares the next one.
        assert world.committed == [{MEDIA: 1}, {MEDIA: 3}]
    assert world.started == ["a0", "a1", "a2"]


async def test_no_more_is_claimed_than_there_are_slots():
    async with pipeline(runners=2) as (world, one):
        one.add(records(0, 1, 2))
        world.publisher.gate.let(9)
        world.commits.let(9)
        await world.until_started(2)
        assert world.committed == [{MEDIA: 2}]
        world.capacity.release_slots()
        await world.until_started(3)
    assert world.committed[-1] == {MEDIA: 3}


async def test_claims_tell_for_how_many_of_them_a_runner_stood_idle():
    async with pipeline(runners=2) as (world, one):
        world.publisher.gate.let(9)
        world.commits.let(9)
        await asyncio.sleep(0)  # the pipeline begins to wait
        one.add(records(0))
        await world.until_started(1)
        one.add(records(1, 2))
        await world.until_started(2)
        world.capacity.release_slots()
        await world.until_started(3)
        claims = [decode_lifecycle(record.value)[0] for record in world.publisher.records]
    # One was free for the second; the third lay in hand when a runner became free.
    assert [(claim.agenda_id, claim.sync_matched) for claim in claims] == [
        ("a0", True),
        ("a1", True),
        ("a2", False),
    ]


@pytest.mark.parametrize(("insights", "left"), [(1, [6, 4, 4]), (3, [2, 1, 1])])
async def test_claims_tell_how_many_runners_are_left_for_the_insight(insights, left):
    async with pipeline(runners=7, insights=insights) as (world, one):
        world.publisher.gate.let(9)
        world.commits.let(9)
        one.add(records(0))
        await world.until_started(1)
        one.add(records(1, 2))
        await world.until_started(3)
        claims = [
            claim
            for record in world.publisher.records
            for claim in decode_lifecycle(record.value)
        ]
    assert [claim.idle for claim in claims] == left
    assert {claim.insights for claim in claims} == {insights}


async def test_claims_that_were_not_committed_are_not_started_and_may_come_again():
    async with pipeline() as (world, one):
        world.publisher.gate.let(9)
        world.commits.let(9)
        world.commit_succeeds = False
        one.add(records(0))
        await world.commits.arrival()
        await one.drain(1.0)
        assert (world.started, world.capacity.free) == ([], 4)
        world.commit_succeeds = True
        one.add(records(0))
        await world.until_started(1)


async def test_draining_waits_for_the_claim_in_progress_and_drops_what_is_in_hand():
    async with pipeline(runners=1) as (world, one):
        one.add(records(0, 1))
        await world.publisher.gate.arrival()
        settling = asyncio.create_task(one.drain(5.0))
        world.publisher.gate.let()
        await world.commits.arrival()
        assert not settling.done()
        world.commits.let()
        await settling
        assert world.started == ["a0"]
        world.capacity.release_slots()
        one.add(records(2))
        world.publisher.gate.let()
        world.commits.let()
        await world.until_started(2)
    assert world.started == ["a0", "a2"]


async def test_claim_that_outlasts_the_draining_comes_to_nothing():
    async with pipeline() as (world, one):
        one.add(records(0))
        await world.publisher.gate.arrival()
        await one.drain(0.0)
        world.publisher.gate.let()
        one.add(records(1))
        world.publisher.gate.let()
        await world.commits.arrival()
        world.commits.let()
        await world.until_started(1)
    assert world.started == ["a1"]
    assert world.committed == [{MEDIA: 2}]
    assert world.capacity.free == 3


async def test_what_is_read_again_while_its_claim_outlasts_the_draining_is_started():
    async with pipeline() as (world, one):
        one.add(records(0))
        await world.publisher.gate.arrival()
        await one.drain(0.0)
        one.add(records(0))
        world.publisher.gate.let(2)
        world.commits.let()
        await world.until_started(1)
    assert (world.started, world.committed) == (["a0"], [{MEDIA: 1}])


async def test_what_is_read_again_while_its_commit_outlasts_the_draining_is_started():
    async with pipeline() as (world, one):
        world.commit_succeeds = False
        world.publisher.gate.let(2)
        one.add(records(0))
        await world.commits.arrival()
        await one.drain(0.0)
        one.add(records(0))
        world.commits.let()
        await world.commits.arrival()
        world.commit_succeeds = True
        world.commits.let()
        await world.until_started(1)
    assert (world.started, world.committed) == (["a0"], [{MEDIA: 1}])


@pytest.mark.parametrize("is_claimed", [False, True])
async def test_what_a_feed_leaves_behind_is_started_by_the_next_one_that_reads_it(is_claimed):
    async with pipeline() as (world, one):
        one.add(records(0))
        await world.publisher.gate.arrival()
        if is_claimed:
            world.publisher.gate.let()
            await world.commits.arrival()
        for stage in one._stage_tasks:  # as when the feed's task is cancelled
            stage.cancel()
        await asyncio.wait(one._stage_tasks)
    async with ClaimPipeline(one._claim_context, world.commit, end_within_s=1.0) as following:
        following.add(records(0))
        await world.until_started(1)
    assert world.started == ["a0"]


async def test_commit_that_succeeds_after_the_draining_still_starts_what_nobody_else_will():
    async with pipeline() as (world, one):
        one.add(records(0))
        world.publisher.gate.let()
        await world.commits.arrival()
        await one.drain(0.0)
        world.commits.let()
        await world.until_started(1)
    assert world.started == ["a0"]


async def test_nothing_is_kept_alive_that_was_started_given_up_or_left_behind():
    async with pipeline() as (world, one):
        claimer = one._claim_context.claimer
        world.publisher.gate.let(9)
        one.add(records(0))
        await world.commits.arrival()
        assert [claimed.emitted.agenda_id for claimed in claimer] == ["a0"]
        world.commits.let()
        await world.until_started(1)
        assert [*claimer] == []
        one.add(records(1))
        await world.commits.arrival()
        one.add(records(2))
        while len([*claimer]) < 2:  # noqa: ASYNC110  # no event tells
            await asyncio.sleep(0)  # two stages take turns
        for stage in one._stage_tasks:  # as when the feed's task is cancelled
            stage.cancel()
        await asyncio.wait(one._stage_tasks)
    assert [*claimer] == []


async def test_leaving_ends_the_claims_under_way_and_gives_unused_slots_back():
    async with pipeline(runners=2) as (world, one):
        one.add(records(0, 1, 2))
        await world.publisher.gate.arrival()
    assert world.started == ["a0", "a1"]
    world.capacity.release_slots(2)
    assert world.capacity.free == 2


async def test_cancelled_feed_gives_the_slots_of_its_claims_back():
    async def feed():
        async with pipeline(runners=2) as (world, one):
            one.add(records(0, 1))
            await world.publisher.gate.arrival()
            worlds.append(world)
            await asyncio.Event().wait()

    worlds = []
    task = asyncio.create_task(feed())
    while not worlds:
        await asyncio.wait([task], timeout=0.01)
    task.cancel()
    await asyncio.wait([task])
    assert (worlds[0].started, worlds[0].capacity.free) == ([], 2)


async def test_fault_of_a_stage_is_seen_and_raised_on_leaving():
    async def feed():
        async with pipeline() as (world, one):
            world.commits = None  # so that calling it is a fault
            world.publisher.gate.let()
            one.add(records(0))
            await one.wait_failed()
            world.commits = Gate()

    with pytest.raises(TypeError):
        await feed()


async def test_full_hand_is_not_read_into():
    async with pipeline(runners=1) as (_, one):
        assert await one.wait_for_room(0.0)
        one.add(records(*range(BUFFER_RECORDS + 1)))
        assert not await one.wait_for_room(0.0)
        await one.drain(0.0)
        assert await one.wait_for_room(0.0)
