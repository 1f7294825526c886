"""Events of `pop.ready`: applied, saved, decided and emitted."""

from dataclasses import replace
from datetime import timedelta

import pytest
from backlogs import START, settled
from msgspec import Raw
from scheduler_world import MEDIA, PARTITIONS, TOPICS, SchedulerWorld

from pop_stream.model.definitions import Customer, Definitions, Insight
from pop_stream.model.errors import UnreadableRecordError
from pop_stream.model.events.codec import (
    decode_lifecycle,
    decode_query_reply,
    decode_ready,
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
from pop_stream.model.template import AgendaTemplate
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


async def test_a_template_that_changes_makes_nobody_look_at_customers(world, monkeypatch):
    await world.place("ann", 25)
    taken_up = []
    monkeypatch.setattr(
        "pop_stream.scheduler.insight.OwnedInsight.follow",
        lambda owned, insight: taken_up.append((owned.insight_id, insight)),
    )
    before = world.definitions.current
    template = AgendaTemplate(id="t", agenda={})
    world.definitions.current = replace(before.updated("template/t", template), version=9)
    assert not world.handler.may_emit(world.insight())
    await world.handle(InsightTick(insight_id="media"))
    assert taken_up == []
    world.definitions.current = before.updated("customer/eve", Customer(id="eve"))
    assert world.handler.may_emit(world.insight())
    await world.handle(InsightTick(insight_id="media"))
    assert [insight_id for insight_id, _ in taken_up] == ["media"]


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
