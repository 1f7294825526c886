"""What failures of brokers, tables and workers leave of the events of `pop.ready`."""

from collections import Counter

import pytest
from backlogs import placed, settled
from msgspec import Raw
from scheduler_world import MEDIA, PARTITIONS, TOPICS, SchedulerWorld

from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.codec import (
    decode_stop,
    encode,
)
from pop_stream.model.events.scheduling import (
    Command,
    InsightAgendasRouted,
    InsightAttemptsReported,
    InsightTick,
    Origin,
)
from pop_stream.scheduler import event_handler


@pytest.fixture
def world():
    return SchedulerWorld(MEDIA)


# ---- failures ----


async def test_a_broker_that_is_away_is_waited_for_and_the_round_counted_once(world):
    world.publisher.failures = [UnavailableError("away"), UnavailableError("still")]
    await world.place("ann", 25)
    assert world.emitted_ids() == [f"ann-{n}" for n in range(10)]
    assert world.insight().backlog.emitted == 10
    assert len(world.decisions()) == 1


async def test_agendas_go_where_the_fewest_wait(world):
    """A partition whose puller is busy is not filled any further."""
    await world.place("ann", 25)
    topic = TOPICS.insight("media")
    sent = [(one.key.decode(), one.partition) for one in world.publisher.on(topic)]
    counts = Counter(partition for _, partition in sent)
    assert set(counts) == set(range(PARTITIONS))
    busy, most = counts.most_common(1)[0]
    await world.end(*[name for name, partition in sent if partition != busy])
    later = Counter(one.partition for one in world.publisher.on(topic)[len(sent) :])
    assert sum(later.values()) == len(sent) - most
    assert (
        max(later.values()) - min(later[one] for one in range(PARTITIONS) if one != busy) <= 1
    )
    assert later[busy] + most <= max(later.values())


async def test_a_partition_goes_on_where_it_was_left(world):
    await world.place("ann", 25)
    await world.place("bob", 5)
    await world.end("ann-0")
    world.handler.unload(world.home("media"))
    assert world.handler.loaded() == set()
    await world.handle(InsightTick(insight_id=""), partition=world.home("media"))
    scheduler = world.insight()
    assert (scheduler.backlog.ready, scheduler.backlog.in_flight) == (19, 10)
    before = len(world.emitted())
    await world.end("ann-1", "ann-2")
    assert sorted(world.emitted_ids()[before:]) == ["ann-10", "bob-1"]


async def test_an_unloaded_partition_is_loaded_by_its_next_event(world):
    world.handler.unload(3)
    await world.place("ann", 25)
    world.handler.unload(world.home("media"))
    await world.end("ann-0")
    assert len(world.emitted()) == 11


async def test_how_far_records_were_handled_is_recorded_though_they_change_nothing(world):
    at = world.home("media")
    await world.handle(world.page(["anna-1"]))
    written = world.offset
    for _ in range(event_handler.PROGRESS_EVERY_RECORDS - 2):
        await world.handle(InsightTick(insight_id="media"))
    assert world.new_handler().handled_until(at) == written + 1
    await world.handle(InsightTick(insight_id="media"))
    assert world.new_handler().handled_until(at) == world.offset + 1
    world.handler = world.new_handler()
    await world.handle(world.page(["anna-2"]))
    assert world.emitted_ids() == ["anna-1", "anna-2"]


async def test_who_has_just_had_a_row_is_not_written_whole_to_tell_how_far_records_were_handled(
    world,
):
    await world.handle(world.page(["anna-1"]))
    for _ in range(event_handler.PROGRESS_EVERY_RECORDS - 3):
        await world.handle(InsightTick(insight_id="media"))
    await world.handle(world.page(["anna-2"]))
    written, writes = world.offset, world.table.writes
    for _ in range(event_handler.PROGRESS_EVERY_RECORDS - 2):
        await world.handle(InsightTick(insight_id="media"))
    assert world.table.writes == writes
    await world.handle(InsightTick(insight_id="media"))
    assert world.table.writes > writes
    at = world.home("media")
    assert world.new_handler().handled_until(at) == world.offset + 1 > written + 1


async def test_another_worker_takes_a_partition_over(world):
    await world.place("ann", 25)
    other = world.new_handler()
    world.handler = other
    await world.end("ann-0", "ann-1", "ann-2")
    assert sorted(world.emitted_ids()) == sorted(f"ann-{n}" for n in range(13))


async def test_a_rerun_repeated_after_a_restart_is_run_once(world):
    """By who did not know of the first, for nothing of it had come to Postgres."""

    async def tell_rerun(offset, attempt):
        again = placed("ann-0", "ann", attempt=attempt)
        place = Origin(partition=-2, offset=offset)
        event = InsightAgendasRouted(
            insight_id="media", agendas=(Raw(encode(again)),), origins=(place,)
        )
        await world.handle(event)

    await tell_rerun(1, 2)
    await world.handle(
        InsightAttemptsReported(insight_id="media", settlements=(settled("ann-0", 2),))
    )
    world.handler = world.new_handler()
    await tell_rerun(2, 2)
    assert [one.attempt for one in world.emitted()] == [2]
    await tell_rerun(3, 3)
    assert [one.attempt for one in world.emitted()] == [2, 3]


async def test_the_records_behind_a_missing_row_are_read_again():
    """Else what was done is out again, and done once more when its lease has ended."""
    world = SchedulerWorld(
        *(MEDIA.model_copy(update={"id": one, "pool": "p"}) for one in ("media", "files"))
    )
    await world.place("ann", 25)
    ends = []
    for name in ("ann-0", "ann-1"):
        before = set(world.table.data)
        await world.end(name)
        ends.append((world.offset, name, [*(set(world.table.data) - before)]))
    [(first, _, [row]), (last, _, _)] = ends
    await world.handle(world.page(["ann-99"], "files"))
    world.table.delete(row)
    world.handler, at = world.new_handler(), world.home("media")
    assert world.handler.handled_until(at) <= first
    for world.offset, name in ((first - 1, "ann-0"), (last - 1, "ann-1")):
        await world.end(name)
    await world.handle(InsightTick(insight_id="media"))
    scheduler = world.insight()
    assert (scheduler.backlog.ready, scheduler.backlog.in_flight) == (13, 10)
    assert [scheduler.backlog.position_of(name) for name in ("ann-0", "ann-1")] == [None, None]
    assert len(set(world.emitted_ids())) == len(world.emitted_ids()) == 12


async def test_a_row_that_the_table_lost_is_no_silent_loss(world):
    await world.place("ann", 25)
    for key in [key for key in world.table.data if "/page/" in key]:
        world.table.delete(key)
    with pytest.raises(LookupError):
        await world.end("ann-0")


async def test_a_topic_that_cannot_be_made_yet_fails_the_event(world):
    world.topic_failures = [UnavailableError("no controller")]
    with pytest.raises(UnavailableError):
        await world.place("ann", 3)
    assert world.emitted() == []


async def test_a_stop_tells_of_which_agenda_under_its_id_it_is(world):
    await world.place("ann", 1)
    wanted = Command(agenda_id="ann-0", action="cancel")
    await world.handle(InsightAttemptsReported(insight_id="media", commands=(wanted,)))
    [stop] = [decode_stop(one.value) for one in world.publisher.on(TOPICS.controls)]
    assert (stop.attempt, stop.accepted_at) == (1, world.emitted()[0].accepted_at)


# ---- ownership ----


async def test_who_may_have_lost_a_partition_writes_nothing(world):
    world.not_owned = {world.home("media")}
    with pytest.raises(UnavailableError, match="another scheduler"):
        await world.place("ann", 3)
    assert (world.publisher.records, world.table.data) == ([], {})


async def test_a_partition_lost_while_a_round_waits_for_the_one_before_gets_neither(world):
    """Not its emissions, and not its row: the next owner decides."""

    async def lost_meanwhile(_=None):
        world.not_owned = {world.home("media")}

    world.table.wait_durable = lost_meanwhile
    with pytest.raises(UnavailableError):
        await world.place("ann", 3)
    assert world.publisher.records == []
    assert [key for key in world.table.data if "/page/" not in key] == []


async def test_a_round_that_was_given_up_is_not_sent_again_by_who_may_have_lost_its_partition(
    world, monkeypatch
):
    """As after a freeze longer than the session: its next owner decides."""
    publish, home = world.publisher.publish, world.home("media")

    async def give_up(records):
        world.not_owned = {home}
        monkeypatch.setattr(world.publisher, "publish", publish)
        msg = "Kafka did not acknowledge within 10 s"
        raise UnavailableError(msg)

    monkeypatch.setattr(world.publisher, "publish", give_up)
    with pytest.raises(UnavailableError, match="another scheduler"):
        await world.place("ann", 3)
    assert world.publisher.records == []
