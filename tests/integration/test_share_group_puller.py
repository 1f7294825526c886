"""Pullers of one share group on a real broker: more of them than the topic has partitions."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from deadlines import within
from puller_world import agenda, open_world, serving, work

from pop_stream.kafka import clients
from pop_stream.kafka.group_members import count_members
from pop_stream.kafka.lag import KafkaLagProbe
from pop_stream.kafka.share_consumer import ShareGroupConsumer
from pop_stream.model.events.lifecycle import AgendaClaimed, AgendaSucceeded
from pop_stream.model.ids import InsightId
from pop_stream.puller import Puller
from pop_stream.puller.consuming import subscription
from pop_stream.puller.handlers.builtin import builtin

MEDIA = InsightId("media")
WITHIN_S = 30


@pytest.fixture
async def world(settings):
    async with open_world(settings) as opened:
        await opened.create(group_type="share")
        yield opened


def member(world):
    topic = world.topics.insight(MEDIA, "share")
    group = world.topics.puller_group(MEDIA, "share")
    return ShareGroupConsumer(world.settings, topic=topic, group=group)


async def taken(one):
    async with within(WITHIN_S):
        while not (records := await one.poll(0.2)):
            pass
    return records


async def lag(world):
    offsets = clients.consumer(world.settings, client_id="lag", group_id=None)
    async with offsets:
        probe = KafkaLagProbe(world.topics, world.admin, offsets)
        return (await probe.fetch_lag([], shared=[MEDIA])).lags.get(MEDIA)


async def test_more_pullers_than_partitions_run_work_at_the_same_time(world):
    await world.emit(*[agenda(f"a{i}", work()) for i in range(3)], group_type="share")
    full = asyncio.Barrier(3)
    ran_by = {}

    def puller(name):
        one = Puller("media", settings=world.settings, concurrency=1)

        @one.handler("work")
        async def work(operation):
            if operation.agenda_id != "last":
                ran_by[operation.agenda_id] = name
                await full.wait()  # until all three have one

        return one

    async with AsyncExitStack() as stack:
        for name in ("p1", "p2", "p3"):
            await stack.enter_async_context(serving(puller(name)))
        await world.until_ended(3)
        # Of acceptances in one moment the broker may count some only with the next one.
        await world.emit(agenda("last", work()), group_type="share")
        await world.until_ended(4)
    assert sorted(world.ids(AgendaSucceeded)) == ["a0", "a1", "a2", "last"]
    assert sorted(world.ids(AgendaClaimed)) == ["a0", "a1", "a2", "last"]
    assert sorted(ran_by.values()) == ["p1", "p2", "p3"]
    assert await lag(world) == [0]


async def test_a_full_puller_keeps_nothing_from_the_others(world):
    await world.emit(*[agenda(f"a{i}", work()) for i in range(2)], group_type="share")
    full, go_on = asyncio.Event(), asyncio.Event()
    first = Puller("media", settings=world.settings, concurrency=1)

    @first.handler("work")
    async def hold(operation):
        full.set()
        await go_on.wait()

    async with serving(first):
        await full.wait()
        await world.emit(*[agenda(f"b{i}", work()) for i in range(20)], group_type="share")
        second = Puller("media", settings=world.settings, concurrency=1)

        @second.handler("work")
        async def quick(operation):
            pass

        async with serving(second):
            await world.until_ended(21)
        go_on.set()
        await world.until_ended(22)
    assert len(set(world.ids(AgendaSucceeded))) == len(world.ids(AgendaClaimed)) == 22


async def test_a_record_is_done_with_only_once_its_claim_can_be_read(world, monkeypatch):
    acknowledge, seen = ShareGroupConsumer.acknowledge, []

    async def check(one, accepted, released=()):
        await world.until(lambda: len(world.of(AgendaClaimed)) >= 1)
        seen.append(world.ids(AgendaSucceeded))
        return await acknowledge(one, accepted, released)

    monkeypatch.setattr(ShareGroupConsumer, "acknowledge", check)
    await world.emit(agenda("a1"), group_type="share")
    puller = Puller("media", handlers=builtin(world.settings), settings=world.settings)
    async with serving(puller):
        await world.until_ended(1)
    assert seen == [[]]
    assert await lag(world) == [0]


async def test_what_the_broker_does_not_let_go_is_not_started_but_claimed_by_the_next(
    world, monkeypatch
):
    acknowledge, refusals = ShareGroupConsumer.acknowledge, []

    async def refuse_once(one, accepted, released=()):
        if refusals:
            return await acknowledge(one, accepted, released)
        refusals.append(1)
        await acknowledge(one, (), [*accepted, *released])  # others may have them
        return False

    monkeypatch.setattr(ShareGroupConsumer, "acknowledge", refuse_once)
    await world.emit(agenda("a1"), group_type="share")
    puller = Puller("media", handlers=builtin(world.settings), settings=world.settings)
    async with serving(puller):
        await world.until_ended(1)
    assert world.ids(AgendaClaimed) == ["a1", "a1"]
    assert world.ids(AgendaSucceeded) == ["a1"]


async def test_foreign_records_go_to_the_dead_letters_and_the_rest_goes_on(world):
    await world.emit(b"no agenda", agenda("a1"), group_type="share")
    puller = Puller("media", handlers=builtin(world.settings), settings=world.settings)
    async with serving(puller):
        await world.until_ended(1)
    [letter] = await world.dead_letters()
    assert letter["topic"] == world.topics.insight(MEDIA, "share")
    assert world.ids(AgendaSucceeded) == ["a1"]


async def test_one_poll_takes_one_record_and_what_a_member_leaves_goes_to_another(world):
    await world.emit(*[agenda(f"a{i}") for i in range(20)], group_type="share")
    async with member(world) as first:
        assert [one.offset for one in await taken(first)] == [0]
        async with member(world) as second:
            [one] = await taken(second)
            assert one.offset == 1
            assert await second.acknowledge([one])
        # All but the first one are free, and nobody is done with it.
        assert await lag(world) == [20]
    async with member(world) as third:
        [one] = await taken(third)
        assert one.offset == 0
        assert await third.acknowledge([], released=[one])
        assert [again.offset for again in await taken(third)] == [0]


async def test_members_of_a_share_group_are_counted(world):
    group = world.topics.puller_group(MEDIA, "share")
    assert await count_members(world.admin, group, "share") is None
    async with member(world) as first, member(world) as second:
        for one in (first, second):
            await one.poll(0.1)
        async with within(WITHIN_S):
            while await count_members(world.admin, group, "share") != 2:
                pass
    async with within(WITHIN_S):
        while await count_members(world.admin, group, "share") != 0:
            pass


async def test_a_puller_waits_for_its_topic_and_notices_that_of_the_other_kind(
    settings, monkeypatch
):
    monkeypatch.setattr(subscription, "_OTHER_KIND_POLL_S", 0.1)
    async with open_world(settings) as world:
        puller = Puller("media", handlers=builtin(world.settings), settings=world.settings)
        async with serving(puller):
            for count, kind in enumerate(("share", "consumer"), start=1):
                await world.create(group_type=kind)
                await world.emit(agenda(f"a{count}"), group_type=kind)
                await world.until_ended(count)
    assert world.ids(AgendaSucceeded) == ["a1", "a2"]


async def test_lag_of_a_group_that_never_read_is_unknown(world):
    await world.emit(agenda("a1"), group_type="share")
    assert await lag(world) is None
