"""A round that is on its topic and in no row is chosen again, and not published again."""

import pytest
from scheduler_world import MEDIA, SchedulerWorld

from pop_stream.model.events.scheduling import InsightTick


@pytest.fixture
def world():
    return SchedulerWorld(MEDIA)


async def test_a_round_that_a_crash_made_forgotten_is_chosen_again_and_not_sent_again(world):
    """Sent again it might go to another partition, and so to another puller."""
    await world.place("ann", 3)
    world.table.save()
    page = world.page([f"bob-{n}" for n in range(20)])
    await world.handle(page)
    first = [(one.agenda_id, one.attempt) for one in world.emitted()[3:]]
    world.table.crash()
    world.handler = world.new_handler()
    await world.handle(page)
    assert world.emitted()[3 + len(first) :] == []
    _, decided, _, again = world.decisions()
    assert [*again.chosen] == [*decided.chosen] == [agenda_id for agenda_id, _ in first]
    scheduler = world.insight()
    assert (scheduler.backlog.ready, scheduler.backlog.unclaimed) == (13, 10)
    assert scheduler.emitted_before == set()


async def test_of_a_large_forgotten_round_nothing_is_sent_again(world):
    world.define(MEDIA.model_copy(update={"target": 1_200, "low_water": 1}))
    world.table.save()
    names = [f"ann-{n}" for n in range(1_000)]
    pages = [world.page(names[:500]), world.page(names[500:])]
    await world.handle(*pages)
    world.table.crash()
    world.handler = world.new_handler()
    await world.handle(*pages)
    assert sorted(world.emitted_ids()) == sorted(names)


async def test_what_a_crash_kept_from_being_sent_of_a_forgotten_round_is_sent(world):
    world.table.save()
    page = world.page([f"ann-{n}" for n in range(20)])
    await world.handle(page)
    world.publisher.records[:] = [
        record for record in world.publisher.records if record.key not in {b"ann-3", b"ann-7"}
    ]
    world.table.crash()
    world.handler = world.new_handler()
    await world.handle(page)
    assert world.emitted_ids()[8:] == ["ann-3", "ann-7"]


async def test_what_runs_again_under_the_id_of_a_forgotten_round_is_sent(world):
    """What is known of a topic counts once."""
    world.table.save()
    await world.handle(page := world.page(["ann-0"]))
    world.table.crash()
    world.handler = world.new_handler()
    await world.handle(page)
    await world.end("ann-0")
    await world.handle(world.page(["ann-0"]))
    assert world.emitted_ids() == ["ann-0", "ann-0"]


async def test_a_forgotten_round_is_looked_for_once_and_only_where_there_is_something_to_send(
    world,
):
    asked = []

    async def read_newest(most, read):
        asked.append(most)
        return await world.publisher.read_newest(most, read)

    world.handler._round_writer._emitted_reader._read_newest = read_newest
    await world.handle(InsightTick(insight_id=""), partition=world.home("media"))
    assert asked == []
    await world.place("ann", 25)
    await world.end("ann-0", "ann-1", "ann-2")
    assert [[*one] for one in asked] == [["t.insight.media"]]


async def test_claims_of_a_round_that_a_crash_made_forgotten_are_believed(world):
    """The target is smaller after a restart: the rest of the lost round must not run twice."""
    world.table.save()
    page = world.page([f"ann-{n}" for n in range(20)])
    await world.handle(page)
    assert len(world.emitted()) == 10
    world.table.crash()
    world.define(MEDIA.model_copy(update={"target": 2, "low_water": 2}))
    world.handler = world.new_handler()
    await world.handle(page)
    assert world.emitted_ids()[10:] == [], "they are on the topic"
    await world.end(*[f"ann-{n}" for n in range(10)])
    scheduler = world.insight()
    assert (scheduler.backlog.in_flight, scheduler.backlog.unclaimed) == (2, 2)
    assert world.emitted_ids()[10:] == ["ann-10", "ann-11"]
