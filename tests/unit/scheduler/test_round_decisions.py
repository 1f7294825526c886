"""What a round's decision says: who was chosen, and what keeps the others waiting."""

from datetime import timedelta

import msgspec
import pytest
from backlogs import START, settled
from scheduler_world import MEDIA, TOPICS, SchedulerWorld

from pop_stream.model.definitions import Customer
from pop_stream.model.events.base import HealthValue
from pop_stream.model.events.codec import decode_query_reply
from pop_stream.model.events.scheduling import InsightHealth, InsightTick, QueueQueried
from pop_stream.policy.rounds import PlannedRound


@pytest.fixture
def world():
    return SchedulerWorld(MEDIA)


async def test_a_decision_says_who_was_chosen_and_why_others_wait(world):
    world.define(customers=[Customer(id="ann", weight=3.0), Customer(id="cid", paused=True)])
    names = [f"{one}-{n}" for n in range(20) for one in ("ann", "bob", "cid")]
    await world.handle(world.page(names))
    [one] = world.decisions()
    assert (one.insight_id, one.at, one.round, one.algorithm) == (
        "media",
        START,
        1,
        "weighted_fair",
    )
    assert (one.lag, one.in_flight, one.slots, one.ready) == (0, 0, 10, 50)
    assert [*one.chosen] == world.emitted_ids()
    shares = {share.customer_id: share for share in one.customers}
    assert (shares["ann"].chosen, shares["bob"].chosen) == (7, 3)
    assert (shares["ann"].ready, shares["ann"].in_flight, shares["ann"].weight) == (13, 7, 3.0)
    assert (shares["cid"].ready, shares["cid"].held_by) == (20, "paused")
    assert one.waiting == "depth"
    assert (one.partition, one.offset) == (world.home("media"), world.offset)
    assert one.definitions == 2
    assert 0.0 <= one.gap <= one.bound


@pytest.mark.parametrize(
    ("limit", "held_by"),
    [({"max_in_flight": 4}, "max_in_flight"), ({"rate_per_s": 1.0, "burst": 4}, "rate")],
)
async def test_a_decision_says_what_holds_a_customer(world, limit, held_by):
    world.define(customers=[Customer(id="ann", **limit)])
    await world.place("ann", 20)
    [one] = world.decisions()
    [ann] = one.customers
    assert (ann.chosen, ann.ready, ann.held_by) == (4, 16, held_by)
    assert one.waiting == "customer_caps"
    await world.place("bob", 1)
    shares = {share.customer_id: share for share in world.decisions()[-1].customers}
    assert (shares["bob"].chosen, shares["ann"].held_by) == (1, held_by)


async def test_a_decision_says_that_the_insights_cap_is_reached(world):
    world.define(MEDIA.model_copy(update={"max_in_flight": 3}))
    await world.place("ann", 20)
    assert world.decisions()[-1].waiting == "max_in_flight"


async def test_of_many_that_are_held_a_decision_names_ten(world):
    held = [Customer(id=f"c{number}", paused=True) for number in range(70)]
    world.define(customers=held)
    await world.handle(world.page([f"{one.id}-0" for one in held] + ["ann-0", "ann-1"]))
    [one] = world.decisions()
    assert [share.held_by for share in one.customers] == ["", *["paused"] * 10]
    world.define(customers=[one.model_copy(update={"paused": False}) for one in held[1:]])
    await world.place("ann", 1, first=2)
    shares = {share.customer_id: share.held_by for share in world.decisions()[-1].customers}
    assert {one for one, held_by in shares.items() if held_by} == {"c0"}


async def test_gap_and_bound_are_of_one_moment(world):
    """The bound starts anew when all is done: beside an older gap it would cry wolf."""
    names = [f"{one}-{n}" for n in range(20) for one in ("ann", "bob")]
    await world.handle(world.page(names))
    scheduler = world.insight().scheduler

    def figures():
        found = scheduler.figures(world.clock.now().timestamp())
        return found.gap, found.bound

    scheduler.backlog.choose(1)
    world.clock.move(timedelta(seconds=2))
    gap, bound = figures()
    assert 0.0 < gap <= bound
    while scheduler.backlog.in_flight:
        for name in names:
            scheduler.backlog.settle(settled(name))
        scheduler.backlog.choose(40)
    gap, bound = figures()
    assert gap <= bound
    world.clock.move(timedelta(seconds=2))
    assert figures() == (0.0, 0.0)


async def test_when_only_held_customers_wait_the_decision_says_so(world):
    world.define(customers=[Customer(id="ann", max_in_flight=2)])
    await world.place("ann", 5)
    [one] = world.decisions()
    assert (one.waiting, one.slots, len(one.chosen)) == ("customer_caps", 10, 2)
    assert one.customers[0].held_by == "max_in_flight"


async def test_when_none_waits_the_decision_gives_no_reason(world):
    await world.place("ann", 3)
    assert [one.waiting for one in world.decisions()] == [""]


async def test_a_round_that_chooses_nobody_is_no_decision(world):
    await world.place("ann", 25)
    await world.handle(InsightTick(insight_id="media"))
    assert len(world.decisions()) == 1


async def test_a_decision_names_fifty_customers_at_most(world):
    await world.handle(world.page([f"c{n}-0" for n in range(200)]))
    [one] = world.decisions()
    assert len(one.customers) == 50
    assert {share.customer_id for share in one.customers if share.chosen} == {
        name.split("-")[0] for name in one.chosen
    }


@pytest.mark.parametrize(("customers", "looks"), [(20, 10), (300, 4), (2_000, 1)])
async def test_who_has_many_customers_looks_at_them_all_the_more_seldom(
    world, monkeypatch, customers, looks
):
    """Else each of 200 insights, picked from now and then, would pay for all its customers."""
    for first in range(0, customers, 500):
        names = [f"c{number}-0" for number in range(first, min(customers, first + 500))]
        await world.handle(world.page(names))
    queue, seen = world.insight().backlog.queue, []
    monkeypatch.setattr(type(queue), "gap", lambda _: seen.append(world.clock.now()) or 0.0)
    world.clock.move(timedelta(seconds=20))
    before = len(world.decisions())
    for _ in range(10):
        await world.end(world.emitted_ids()[len(world.decisions()) - before])
        world.clock.move(timedelta(seconds=1))
    assert len(world.decisions()) == before + 10
    assert len(seen) == looks


async def test_metrics_and_answers_are_a_second_old_at_most(world):
    """What decisions keep for longer is reckoned anew for whoever asks."""
    await world.handle(world.page([f"c{number}-0" for number in range(500)]))
    scheduler, bounds = world.insight().scheduler, []
    for _ in range(4):
        world.clock.move(timedelta(seconds=1))
        now = world.clock.now().timestamp()
        scheduler.decision(PlannedRound(now, 0, scheduler.depth, ()))
        bounds.append(scheduler.figures(now).at == now)
    assert all(bounds)


async def queue_of(world):
    await world.handle(QueueQueried(insight_id="media", query_id="q"))
    return decode_query_reply(world.publisher.on(TOPICS.query_replies)[-1].value)


async def test_a_paused_insight_emits_nothing_until_it_goes_on(world):
    world.define(MEDIA.model_copy(update={"paused": True}))
    await world.place("ann", 5)
    assert world.emitted_ids() == []
    assert (await queue_of(world)).limited_by == "paused"
    world.define(MEDIA)
    await world.handle(InsightTick(insight_id="media"))
    assert len(world.emitted_ids()) == 5


async def test_a_reported_health_lowers_the_cap_at_once_and_is_shown(world):
    world.define(MEDIA.model_copy(update={"max_in_flight": 8}))
    until = (START + timedelta(seconds=60)).timestamp()
    value = HealthValue(0.5, until, "the disk is slow")
    await world.handle(InsightHealth(insight_id="media", source="disk", value=value))
    await world.place("ann", 20)
    [one] = world.decisions()
    assert (len(one.chosen), one.waiting) == (4, "health")
    assert (one.health, one.health_by) == (0.5, "disk")
    shown = await queue_of(world)
    assert (shown.limited_by, shown.health, shown.health_by) == ("health", 0.5, "disk")
    assert (shown.health_reason, shown.health_until.timestamp()) == ("the disk is slow", until)


async def test_a_reported_health_survives_a_restart_and_is_void_after_its_time(world):
    world.define(MEDIA.model_copy(update={"max_in_flight": 8}))
    value = HealthValue(0.0, (START + timedelta(seconds=60)).timestamp())
    await world.handle(InsightHealth(insight_id="media", source="disk", value=value))
    world.handler = world.new_handler()
    await world.place("ann", 20)
    assert world.emitted_ids() == []
    assert not world.handler.may_emit(world.insight())
    world.clock.move(timedelta(seconds=61))
    assert world.handler.may_emit(world.insight())  # so the ticker wakes it
    await world.handle(InsightTick(insight_id="media"))
    assert len(world.emitted_ids()) == 8


async def test_decisions_of_an_insight_that_is_well_do_not_mention_it(world):
    value = HealthValue(1.0, (START + timedelta(seconds=60)).timestamp())
    await world.handle(InsightHealth(insight_id="media", source="disk", value=value))
    await world.place("ann", 5)
    [record] = world.publisher.on(TOPICS.decisions)
    assert "health" not in msgspec.json.decode(record.value)
