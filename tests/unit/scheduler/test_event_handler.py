"""Events of `pop.ready`: applied, saved, decided and emitted; and what failures leave."""

from collections import Counter
from datetime import timedelta

import pytest
from backlogs import START, placed, settled
from msgspec import Raw
from scheduler_world import MEDIA, PARTITIONS, TOPICS, SchedulerWorld

from pop_stream.model.definitions import Customer, Definitions, Insight
from pop_stream.model.errors import UnavailableError, UnreadableRecordError
from pop_stream.model.events.codec import (
    decode_lifecycle,
    decode_query_reply,
    decode_ready,
    decode_stop,
    encode,
)
from pop_stream.model.events.lifecycle import AgendaEmitted
from pop_stream.model.events.scheduling import (
    Claim,
    Command,
    InsightAgendasRouted,
    InsightAttemptsReported,
    InsightTick,
    Origin,
    QueueQueried,
)
from pop_stream.model.partitioning import partition_of
from pop_stream.scheduler import event_handler
from pop_stream.scheduler.round_writer import RecordPosition


@pytest.fixture
def world():
    return SchedulerWorld(MEDIA)


# ---- emission ----


async def test_a_page_is_kept_and_the_topic_filled_to_its_target(world):
    await world.place("ann", 25)
    assert world.emitted_ids() == [f"ann-{n}" for n in range(10)]
    assert world.topics_made == ["media"]
    scheduler = world.insight()
    assert (scheduler.backlog.ready, scheduler.backlog.in_flight) == (15, 10)


async def test_an_emitted_agenda_carries_all_a_puller_needs(world):
    await world.place("ann", 1)
    [one] = world.emitted()
    assert (one.insight_id, one.customer_id, one.attempt) == ("media", "ann", 1)
    assert (one.accepted_at, one.emitted_at) == (START, START)
    assert (one.lease_ms, bytes(one.agenda)) == (60_000, b'{"id":"ann-0"}')
    [record] = world.publisher.on(TOPICS.insight("media"))
    assert (record.key, record.partition) == (b"ann-0", partition_of(b"ann-0", PARTITIONS))


async def test_every_emission_is_an_event_of_the_lifecycle(world):
    await world.place("ann", 12)
    published = [
        event
        for record in world.publisher.on(TOPICS.agenda_events)
        for event in decode_lifecycle(record.value)
    ]
    assert {type(event) for event in published} == {AgendaEmitted}
    assert sorted(event.agenda_id for event in published) == sorted(world.emitted_ids())
    for record in world.publisher.on(TOPICS.agenda_events):
        for event in decode_lifecycle(record.value):
            assert record.partition == partition_of(event.agenda_id.encode(), PARTITIONS)


@pytest.mark.parametrize("count", [4, 5, 6, 12])
async def test_an_emission_tells_whether_others_have_no_room_or_soon_may_not(world, count):
    await world.place("ann", count)
    published = {
        event.agenda_id: event.expedite_reports
        for record in world.publisher.on(TOPICS.agenda_events)
        for event in decode_lifecycle(record.value)
    }
    assert published == {f"ann-{number}": count > 5 for number in range(min(count, 10))}


async def test_a_freed_slot_is_filled_at_once(world):
    await world.place("ann", 25)
    await world.end("ann-0", "ann-1")
    assert world.emitted_ids()[10:] == ["ann-10", "ann-11"]


async def test_who_comes_back_from_idleness_does_not_wait_until_the_topic_is_low():
    world = SchedulerWorld(Insight(id="media", target=12))
    await world.place("ann", 25)
    await world.end("ann-0", "ann-1")
    assert len(world.emitted()) == 12, "ten are unclaimed, which is not low"
    await world.place("bob", 3)
    assert world.emitted_ids()[12:] == ["bob-0"]
    assert (world.decisions()[-1].slots, world.decisions()[-1].waiting) == (1, "depth")
    await world.place("cid", 2)
    assert world.emitted_ids()[13:] == ["cid-0"]
    await world.place("dan", 1)
    assert len(world.emitted()) == 14, "the target is reached"


async def test_what_a_record_changes_is_kept_though_its_choice_is_left_to_the_next(world):
    await world.handle(world.page(["ann-0"]), has_next=True)
    assert world.emitted() == []
    world.handler = world.new_handler()
    await world.handle(InsightTick(insight_id="media"))
    assert world.emitted_ids() == ["ann-0"]


async def test_what_waits_behind_is_applied_before_the_choice_also_if_it_publishes(world):
    """The first command's event is published at once; the choice knows of the second."""
    await world.handle(world.page(["ann-0", "ann-1", "ann-2"]), has_next=True)
    for name, action in (("ann-0", "hold"), ("ann-1", "cancel")):
        commands = (Command(agenda_id=name, action=action),)
        await world.handle(
            InsightAttemptsReported(insight_id="media", commands=commands), has_next=True
        )
    assert world.emitted() == []
    assert len(world.publisher.on(TOPICS.agenda_events)) == 2
    await world.handle(InsightTick(insight_id="media"))
    assert world.emitted_ids() == ["ann-2"]


async def test_every_insight_whose_choice_was_put_off_gets_it():
    world = SchedulerWorld(MEDIA, *(Insight(id=f"i{n}") for n in range(9)))
    home = world.home("media")
    other = next(
        one
        for one in world.definitions.current.insights
        if one != "media" and world.home(one) == home
    )
    await world.handle(world.page(["ann-0"], other), has_next=True)
    await world.place("ann", 1)
    assert (len(world.emitted(other)), len(world.emitted())) == (1, 1)


async def test_choice_is_not_put_off_for_ever(world):
    for n in range(event_handler.MAX_DEFERRED_RECORDS):
        await world.handle(world.page([f"ann-{n}"]), has_next=True)
    assert world.emitted() == []
    await world.handle(world.page(["bob-0"]), has_next=True)
    assert len(world.emitted()) == 10


async def test_claims_alone_make_room_too(world):
    await world.place("ann", 25)
    claims = (Claim(agenda_id="ann-0", attempt=1),)
    await world.handle(InsightAttemptsReported(insight_id="media", claims=claims))
    assert len(world.emitted()) == 11


async def test_a_cap_on_the_insight_counts_what_runs():
    world = SchedulerWorld(MEDIA.model_copy(update={"max_in_flight": 3}))
    await world.place("ann", 25)
    assert len(world.emitted()) == 3
    claims = tuple(Claim(agenda_id=f"ann-{n}", attempt=1) for n in range(3))
    await world.handle(InsightAttemptsReported(insight_id="media", claims=claims))
    assert len(world.emitted()) == 3
    await world.end("ann-0")
    assert len(world.emitted()) == 4


async def test_measured_lag_makes_room_when_no_claims_arrive(world):
    await world.place("ann", 25)
    await world.handle(InsightTick(insight_id="media", lag=4, emitted=10))
    assert len(world.emitted()) == 16


async def test_what_was_emitted_since_the_lag_was_measured_counts(world):
    await world.place("ann", 40)
    await world.end("ann-0", "ann-1")
    assert len(world.emitted()) == 12
    await world.handle(InsightTick(insight_id="media", lag=3, emitted=10))
    assert len(world.emitted()) == 12 + 5


async def test_a_lag_from_before_a_crash_lets_no_more_go_than_the_target(world):
    await world.place("ann", 100)
    await world.handle(InsightTick(insight_id="media", lag=0, emitted=5_000))
    assert len(world.emitted()) == 20


async def test_a_repeated_page_is_emitted_once(world):
    page = world.page(["ann-0", "ann-1", "ann-2"], offset=7)
    await world.handle(page)
    await world.handle(page)
    await world.handle(world.page(["ann-1", "ann-2", "ann-3"], offset=8))
    assert sorted(world.emitted_ids()) == ["ann-0", "ann-1", "ann-2", "ann-3"]


async def test_several_events_of_a_record_are_taken_in_order(world):
    page = world.page([f"ann-{n}" for n in range(12)])
    claims = (Claim(agenda_id="ann-0", attempt=1),)
    noted = InsightAttemptsReported(
        insight_id="media", claims=claims, settlements=(settled("ann-0"),)
    )
    await world.handle(page, noted)
    assert "ann-0" not in world.emitted_ids()
    assert len(world.emitted()) == 10


async def test_a_huge_target_is_filled_in_rounds_that_fit_their_records(monkeypatch):
    monkeypatch.setattr("pop_stream.scheduler.round_writer.MAX_ROUND_SIZE", 8)
    world = SchedulerWorld(MEDIA.model_copy(update={"target": 100, "low_water": 100}))
    await world.place("ann", 30)
    assert len(world.emitted()) == 8
    assert world.handler.may_emit(world.insight())
    for _ in range(3):
        await world.handle(InsightTick(insight_id="media"))
    assert len(world.emitted()) == 30
    assert not world.handler.may_emit(world.insight())
    assert max(len(one.chosen) for one in world.decisions()) == 8


# ---- definitions ----


async def test_an_unknown_insight_keeps_its_backlog_until_it_is_defined():
    world = SchedulerWorld()
    await world.place("ann", 3)
    assert world.emitted() == []
    assert world.insight().backlog.ready == 3
    world.define(MEDIA)
    assert world.handler.may_emit(world.insight())
    await world.handle(InsightTick(insight_id="media"))
    assert len(world.emitted()) == 3


async def test_a_definition_that_came_with_another_insights_event_is_not_overlooked():
    """Definitions are taken up once, for all insights; those without a topic must go on too."""
    world = SchedulerWorld(Insight(id="video", target=5))
    await world.place("ann", 3)
    await world.place("bob", 1, insight_id="video")
    world.define(MEDIA)
    await world.place("bob", 1, first=1, insight_id="video")
    world.handler.loaded()
    await world.handle(InsightTick(insight_id="video"))
    assert world.handler.may_emit(world.insight())


async def test_a_definition_that_is_removed_stops_emission_and_keeps_the_backlog(world):
    await world.place("ann", 25)
    world.definitions.current = Definitions(version=9)
    await world.end("ann-0", "ann-1")
    assert len(world.emitted()) == 10
    assert not world.handler.may_emit(world.insight())
    assert world.insight().backlog.ready == 15


async def test_a_pause_and_its_end_act_on_the_standing_backlog(world):
    await world.place("ann", 20)
    world.define(customers=[Customer(id="ann", paused=True)])
    await world.end("ann-0", "ann-1")
    assert len(world.emitted()) == 10
    assert not world.handler.may_emit(world.insight())
    world.define(customers=[Customer(id="ann")])
    assert world.handler.may_emit(world.insight())
    await world.handle(InsightTick(insight_id="media"))
    assert len(world.emitted()) == 12


# ---- events ----


@pytest.mark.parametrize("value", [None, b"", b"{", b"\xff", b"7", b'{"type":"?"}'])
async def test_an_unreadable_record_raises_and_nothing_is_done(world, value):
    with pytest.raises(UnreadableRecordError):
        await world.handler.handle(RecordPosition(0, 1), value)
    assert world.table.data == {}
    assert world.handler.loaded() == set()


async def test_a_page_with_an_unreadable_agenda_raises(world):
    page = InsightAgendasRouted(
        insight_id="media",
        agendas=(Raw(b'{"agenda_id":5}'),),
        origins=(Origin(partition=0, offset=1),),
    )
    with pytest.raises(UnreadableRecordError):
        await world.handle(page)
    assert world.table.data == {}


@pytest.mark.parametrize("insight_id", ["nobody", "no id at all", "x" * 500])
async def test_notes_about_an_insight_that_never_was_leave_no_trace(world, insight_id):
    """Anyone may write claims: they must neither fail a partition nor fill its memory."""
    claims = (Claim(agenda_id="a", attempt=1),)
    for event in (
        InsightAttemptsReported(insight_id=insight_id, claims=claims),
        InsightTick(insight_id=insight_id, lag=3, emitted=1),
    ):
        await world.handle(event)
    assert world.handler.insights() == []
    assert world.publisher.records == []
    assert world.table.data == {}


async def test_an_event_gone_astray_is_sent_on_to_where_it_belongs(world):
    here = (world.home("media") + 1) % PARTITIONS
    page = world.page(["ann-0"])
    await world.handle(page, partition=here)
    assert world.handler.insights() == []
    [record] = world.publisher.on(TOPICS.ready)
    assert record.partition == world.home("media")
    [event] = decode_ready(record.value)
    assert event.insight_id == "media"
    await world.handler.handle(RecordPosition(record.partition, 1), record.value)
    assert world.emitted_ids() == ["ann-0"]


async def test_a_question_about_a_known_insight_is_answered(world):
    await world.place("ann", 25)
    await world.handle(QueueQueried(insight_id="media", query_id="q", agenda_id="ann-12"))
    [record] = world.publisher.on(TOPICS.query_replies)
    answer = decode_query_reply(record.value)
    assert (answer.query_id, answer.ready, answer.in_flight) == ("q", 15, 10)
    assert (answer.agenda.state, answer.agenda.own_ahead) == ("ready", 2)


async def test_a_wait_is_reckoned_with_how_fast_the_backlog_is_worked_off(world):
    """Two at a time, six seconds each: both claims come at once, and then none."""
    world.define(MEDIA.model_copy(update={"max_in_flight": 2}))
    await world.place("ann", 25)
    for done in range(0, 10, 2):
        pair = world.emitted_ids()[done : done + 2]
        claims = tuple(Claim(agenda_id=one, attempt=1) for one in pair)
        world.clock.move(timedelta(seconds=0.01))
        await world.handle(InsightAttemptsReported(insight_id="media", claims=claims))
        for _ in range(6):
            world.clock.move(timedelta(seconds=1))
            await world.handle(InsightTick(insight_id="media"))
        await world.end(*pair)
    await world.handle(QueueQueried(insight_id="media", query_id="q", agenda_id="ann-24"))
    answer = decode_query_reply(world.publisher.on(TOPICS.query_replies)[-1].value)
    assert (answer.agenda.position, answer.lag) == (13, 2)
    assert answer.agenda.eta_s == pytest.approx(15 * 3.0, rel=0.01)


async def test_a_query_is_answered_with_present_shares(world):
    """Looking at every customer is spared the rounds, for a second; not a person who asks."""

    async def shares():
        await world.handle(QueueQueried(insight_id="media", query_id="q"))
        answer = decode_query_reply(world.publisher.on(TOPICS.query_replies)[-1].value)
        return [one.share for one in answer.customers if one.ready]

    await world.place("ann", 25)
    assert await shares() == [1.0]
    await world.place("bob", 25)
    await world.end(*(f"ann-{n}" for n in range(4)))
    assert sum(await shares()) / 2 == pytest.approx(1.0, abs=1e-3)


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
