"""A process that is started in a dead one's place, on a real broker: who waits for whom."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from time import monotonic

import pytest
from consumer_group_members import WITHIN_S, until_assigned, work_topic
from deadlines import within

from pop_stream.kafka import clients, group_members

SESSION_S = 600


@pytest.fixture
async def topic(settings):
    return await work_topic(settings)


@asynccontextmanager
async def member(settings, topic, instance):
    """One that, at the end, falls silent without a word, as a killed one does."""
    mine = settings.model_copy(
        update={"instance": instance, "session_timeout": timedelta(seconds=SESSION_S)}
    )
    one = clients.consumer(
        mine, topic, client_id="m", group_id=f"{topic}.g", heartbeat_interval_ms=200
    )
    await one.start()
    try:
        yield one
    finally:
        coordinator = one._coordinator
        coordinator.generation = -1  # then it does not say that it leaves
        await one.stop()


@pytest.mark.parametrize("others", [0, 1])
async def test_who_bears_a_dead_ones_name_takes_its_place_at_once(settings, topic, others):
    async with within(2 * WITHIN_S):
        if others:
            async with member(settings, topic, "b") as other:
                async with member(settings, topic, "a") as dead:
                    await asyncio.gather(until_assigned(dead, 1), until_assigned(other, 1))
                async with member(settings, topic, "a") as next_one:
                    await asyncio.gather(until_assigned(next_one, 1), until_assigned(other, 1))
        else:
            async with member(settings, topic, "a") as dead:
                await until_assigned(dead, 2)
            async with member(settings, topic, "a") as next_one:
                await until_assigned(next_one, 2)


async def test_who_is_seen_to_die_is_out_of_all_groups_before_anybody_takes_its_place(
    settings, topic
):
    async with within(2 * WITHIN_S), member(settings, topic, "b") as other:
        async with member(settings, topic, "a") as dead:
            await asyncio.gather(until_assigned(dead, 1), until_assigned(other, 1))
        await group_members.evict_instance(clients.admin(settings, client_id="t"), "a")
        await until_assigned(other, 2)


async def test_a_death_that_nobody_can_be_notified_of_costs_a_moment(settings):
    away = settings.model_copy(update={"kafka_bootstrap": "127.0.0.1:1"})
    began = monotonic()
    await group_members.evict_instance(clients.admin(away, client_id="t"), "a")
    assert monotonic() - began < SESSION_S / 2


async def test_nobody_elses_member_is_removed(settings, topic):
    async with member(settings, topic, "a") as one:
        await until_assigned(one, 2)
        async with member(settings, topic, "ab") as two, member(settings, topic, None) as three:
            while {len(each.assignment()) for each in (one, two, three)} != {0, 1}:
                await asyncio.gather(
                    *(each.getmany(timeout_ms=50) for each in (one, two, three))
                )
        ids = {each._coordinator.member_id for each in (one,)}
        assert ids == {one._coordinator.member_id}


async def test_a_group_without_coordinator_holds_nobody_up_for_ever(settings, monkeypatch):
    monkeypatch.setattr(group_members, "EVICTION_TIMEOUT_S", 0.5)

    async def no_answer(admin, group, client_id):
        return False

    monkeypatch.setattr(group_members, "_is_done", no_answer)
    began = monotonic()
    await group_members.evict_predecessor(
        clients.admin(settings, client_id="t"), "nobody", "m@a"
    )
    assert monotonic() - began < SESSION_S / 2


async def test_a_broker_that_is_away_is_for_the_client_to_meet(settings):
    away = settings.model_copy(update={"kafka_bootstrap": "127.0.0.1:1"})
    await group_members.evict_predecessor(clients.admin(away, client_id="t"), "nobody", "m@a")
