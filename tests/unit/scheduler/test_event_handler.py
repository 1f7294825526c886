"""One event at a time: kept, decided, emitted, kept again; and what failures leave behind."""

import asyncio
import base64
from collections import Counter, deque
from datetime import timedelta
from itertools import count
from time import monotonic
from types import SimpleNamespace

import msgspec
import pytest
from aiokafka import TopicPartition
from backlogs import START, placed, settled
from fakes import FixedLags
from msgspec import Raw
from msgspec.structs import replace as replace_struct
from scheduler_world import MEDIA, PARTITIONS, TOPICS, SchedulerWorld, scheduler_on

from pop_stream.model.definitions import Customer, Definitions, Insight
from pop_stream.model.errors import UnavailableError, UnreadableRecordError
from pop_stream.model.events.codec import (
    decode_lifecycle,
    decode_query_reply,
    decode_ready,
    decode_stop,
    encode,
    frame,
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
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.policy.insight_scheduler import PlannedRound
from pop_stream.scheduler import event_handler
from pop_stream.scheduler.round_writer import RecordPosition
from pop_stream.scheduler.ticker import Ticker


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


async def test_every_emission_is_told_to_the_lifecycle(world):
    await world.place("ann", 12)
    told = [
        event
        for record in world.publisher.on(TOPICS.agenda_events)
        for event in decode_lifecycle(record.value)
    ]
    assert {type(event) for event in told} == {AgendaEmitted}
    assert sorted(event.agenda_id for event in told) == sorted(world.emitted_ids())
    for record in world.publisher.on(TOPICS.agenda_events):
        for event in decode_lifecycle(record.value):
            assert record.partition == partition_of(event.agenda_id.encode(), PARTITIONS)


@pytest.mark.parametrize("count", [4, 5, 6, 12])
async def test_an_emission_tells_whether_others_have_no_room_or_soon_may_not(world, count):
    await world.place("ann", count)
    told = {
        event.agenda_id: event.expedite_reports
        for record in world.publisher.on(TOPICS.agenda_events)
        for event in decode_lifecycle(record.value)
    }
    assert told == {f"ann-{number}": count > 5 for number in range(min(count, 10))}


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
    """What is told of the first command is told at once; the choice knows of the second."""
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


async def test_measured_lag_makes_room_when_claims_are_not_heard(world):
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


# ---- decisions ----


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
    """Definitions are taken up once, for all desks; those without a topic must go on too."""
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


# ---- what is not for this desk ----


@pytest.mark.parametrize("value", [None, b"", b"{", b"\xff", b"7", b'{"type":"?"}'])
async def test_an_unreadable_record_is_told_and_nothing_done(world, value):
    with pytest.raises(UnreadableRecordError):
        await world.handler.handle(RecordPosition(0, 1), value)
    assert world.table.data == {}
    assert world.handler.loaded() == set()


async def test_a_page_with_an_unreadable_agenda_is_told(world):
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


async def test_shares_are_told_as_they_are_when_asked(world):
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


async def test_a_round_that_a_crash_made_forgotten_is_chosen_again_and_not_sent_again(world):
    """Sent again it might go to another partition, and so to another puller."""
    await world.place("ann", 3)
    world.table.keep()
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
    world.table.keep()
    names = [f"ann-{n}" for n in range(1_000)]
    pages = [world.page(names[:500]), world.page(names[500:])]
    await world.handle(*pages)
    world.table.crash()
    world.handler = world.new_handler()
    await world.handle(*pages)
    assert sorted(world.emitted_ids()) == sorted(names)


async def test_what_a_crash_kept_from_being_sent_of_a_forgotten_round_is_sent(world):
    world.table.keep()
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
    world.table.keep()
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


async def test_claims_of_a_round_that_a_crash_made_forgotten_are_believed(world):
    """The target is smaller after a restart: the rest of the lost round must not run twice."""
    world.table.keep()
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


# ---- the agent's loop ----


async def test_an_event_is_tried_again_until_the_broker_is_back(world):
    world.topic_failures = [UnavailableError("no controller")]
    page = world.page(["ann-0", "ann-1"])
    record_position = RecordPosition(world.home("media"), 7)
    scheduler, begun = scheduler_on(world), monotonic()
    assert scheduler._ownership.held_since(begun)
    await scheduler._processor._handle(record_position, encode(page))
    assert world.emitted_ids() == ["ann-0", "ann-1"]
    assert scheduler._ownership.held_since(begun) is False  # what the first try had begun
    assert world.publisher.on(TOPICS.dead_letters) == []


class Stream:
    """What Faust hands to an agent, with the queue behind it."""

    def __init__(self, *messages):
        waiting = deque(SimpleNamespace(message=message) for message in messages)
        self.channel = SimpleNamespace(queue=SimpleNamespace(_queue=waiting))

    async def events(self):
        while self.channel.queue._queue:
            yield self.channel.queue._queue.popleft()


def message(value, partition, offset=1):
    known = {"topic": TOPICS.ready, "partition": partition, "offset": offset}
    return type("Message", (), {**known, "key": b"media", "value": value, "headers": ()})


async def test_what_cannot_be_handled_is_dead_lettered_and_the_next_event_goes_on(world):
    home = world.home("media")
    good = encode(world.page(["ann-0"]))
    await scheduler_on(world)._consume(Stream(message(b"{", home), message(good, home, 2)))
    [letter] = world.publisher.on(TOPICS.dead_letters)
    found = msgspec.json.decode(letter.value)
    assert (found["code"], found["part"], found["offset"]) == (
        "unreadable_record",
        "scheduler",
        1,
    )
    assert world.emitted_ids() == ["ann-0"]


async def test_records_at_hand_share_a_round_whatever_lies_between_them(world):
    home = world.home("media")
    pages = [encode(world.page([f"{name}-0"])) for name in ("ann", "bob", "cem")]
    ann, bob, cem = (message(page, home, offset) for offset, page in enumerate(pages))
    elsewhere = message(encode(InsightTick(insight_id="")), (home + 1) % PARTITIONS)
    await scheduler_on(world)._consume(Stream(ann, elsewhere, bob, cem))
    [decision] = world.decisions()
    assert (sorted(decision.chosen), decision.offset) == (["ann-0", "bob-0", "cem-0"], 2)


def held(world, name):
    commands = (Command(agenda_id=name, action="hold"),)
    return encode(InsightAttemptsReported(insight_id="media", commands=commands))


async def written_before(world, *, now=monotonic):
    """Two placed, and held by a record that comes long after; the partition is gained first."""
    home = world.home("media")
    scheduler = scheduler_on(world)
    scheduler._app.transport.end_offset = lambda topic, partition: 200
    scheduler._processor._now = now
    await scheduler._consume(Stream(message(encode(world.page(["ann-0", "ann-1"])), home, 0)))
    tick = encode(InsightTick(insight_id="media"))
    for offset in range(1, 199):  # each before the next is at hand
        await scheduler._consume(Stream(message(tick, home, offset)))
    await scheduler._consume(Stream(message(held(world, "ann-0"), home, 199)))
    return scheduler


async def test_what_was_written_before_a_partition_was_gained_is_read_before_a_choice(world):
    await written_before(world)
    assert world.emitted_ids() == ["ann-1"]


async def test_a_choice_does_not_wait_for_more_than_seconds_worth_of_what_was_written(world):
    await written_before(world, now=count().__next__)
    assert sorted(world.emitted_ids()) == ["ann-0", "ann-1"]


async def test_records_that_faust_skipped_are_read_again(world):
    home = world.home("media")
    first, missed, last = (encode(world.page([f"{n}-0"])) for n in ("ann", "bob", "cem"))
    scheduler = scheduler_on(world, (5, missed))
    await scheduler._consume(Stream(message(first, home, 4), message(last, home, 6)))
    assert sorted(world.emitted_ids()) == ["ann-0", "bob-0", "cem-0"]


async def test_what_was_skipped_in_a_restart_is_known_by_the_table(world):
    home = world.home("media")
    first, missed, last = (encode(world.page([f"{n}-0"])) for n in ("ann", "bob", "cem"))
    await scheduler_on(world)._consume(Stream(message(first, home, 4)))
    world.handler.unload(home)
    await scheduler_on(world, (4, first), (5, missed))._consume(Stream(message(last, home, 6)))
    assert sorted(world.emitted_ids()) == ["ann-0", "bob-0", "cem-0"]


async def test_a_gained_partition_goes_on_where_its_table_says(world):
    home = world.home("media")
    first, missed, last = (encode(world.page([f"{n}-0"])) for n in ("ann", "bob", "cem"))
    scheduler = scheduler_on(world, (5, missed))
    await scheduler._consume(Stream(message(first, home, 4)))
    gained = TopicPartition(TOPICS.ready, home)
    scheduler._processor._next[home] = 6  # it was under way when the partition was lost
    world.handler.unload(home)
    await scheduler._on_assigned(None, {gained})
    await scheduler._consume(Stream(message(last, home, 6)))
    assert sorted(world.emitted_ids()) == ["ann-0", "bob-0", "cem-0"]


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


async def test_a_record_of_a_partition_that_is_lost_is_left_to_its_next_owner(world):
    home = world.home("media")
    scheduler = scheduler_on(world)
    world.not_owned = {home}
    page = encode(world.page(["ann-0"]))
    handling = asyncio.create_task(scheduler._consume(Stream(message(page, home))))
    await asyncio.sleep(0)
    assert not handling.done()
    scheduler._ownership.revoke({home})
    await asyncio.wait_for(handling, 5)
    assert world.emitted_ids() == []
    assert world.publisher.on(TOPICS.dead_letters) == []


async def test_a_partition_is_released_once_the_record_in_hand_is_done(world):
    home = world.home("media")
    scheduler = scheduler_on(world)
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def slow(*_, **__):
        entered.set()
        await go_on.wait()
        assert scheduler._ownership.owns(home)

    scheduler._processor._handle = slow
    handling = asyncio.create_task(scheduler._consume(Stream(message(b"[]", home))))
    await entered.wait()
    revoked = {TopicPartition(TOPICS.ready, home)}
    letting_go = asyncio.create_task(scheduler._on_revoked(None, revoked))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait_for(asyncio.gather(handling, letting_go), 5)
    assert not scheduler._ownership.owns(home)


async def test_a_bad_record_that_was_passed_over_holds_nothing_up(world):
    home = world.home("media")
    scheduler = scheduler_on(world, (5, b"{"))
    good = encode(world.page(["ann-0"]))
    tick = encode(InsightTick(insight_id=""))
    await scheduler._consume(Stream(message(tick, home, 4), message(good, home, 6)))
    assert world.emitted_ids() == ["ann-0"]
    assert len(world.publisher.on(TOPICS.dead_letters)) == 1


def letters(world):
    """What was buried: code, and the value of the record or of the part of it."""
    buried = [msgspec.json.decode(one.value) for one in world.publisher.on(TOPICS.dead_letters)]
    return [(one["code"], base64.b64decode(one["value_base64"])) for one in buried]


async def test_of_a_page_only_the_agenda_that_cannot_be_read_is_dead_lettered(world):
    page = world.page([f"ann-{n}" for n in range(9)])
    agendas = (*page.agendas[:4], Raw(b'{"agenda_id":5}'), *page.agendas[5:])
    value = encode([replace_struct(page, agendas=agendas), world.page(["bob-0"])])
    scheduler, home = scheduler_on(world), world.home("media")
    wake = message(encode(InsightTick(insight_id="")), home, 2)
    await scheduler._consume(Stream(message(value, home), wake))
    assert sorted(world.emitted_ids()) == sorted(
        ["bob-0", *(f"ann-{n}" for n in range(9) if n != 4)]
    )
    [(code, part)] = letters(world)
    assert (code, b'{"agenda_id":5}' in part, b"ann" in part) == (
        "unreadable_record",
        True,
        False,
    )


async def test_of_a_frame_only_the_event_of_an_unknown_kind_is_dead_lettered(world):
    pages = [encode(world.page([name])) for name in ("ann-0", "bob-0")]
    unknown = b'{"type":"insight.painted","insight_id":"media"}'
    value = frame([pages[0], unknown, pages[1]])
    scheduler, home = scheduler_on(world), world.home("media")
    wake = message(encode(InsightTick(insight_id="")), home, 2)
    await scheduler._consume(Stream(message(value, home), wake))
    assert sorted(world.emitted_ids()) == ["ann-0", "bob-0"]
    [(code, part)] = letters(world)
    assert (code, msgspec.json.decode(part)) == (
        "unreadable_record",
        msgspec.json.decode(unknown),
    )


@pytest.mark.parametrize("culprits", [("ann-3",), ("ann-0", "ann-7")])
async def test_of_many_reports_only_those_that_raise_are_dead_lettered(
    world, monkeypatch, culprits
):
    """The others are taken once, whatever was half done when it failed."""
    await world.place("ann", 25)
    settle = Backlog.settle

    def fail_at_times(self, settlement, now=0.0):
        settle(self, settlement, now)
        if settlement.agenda_id in culprits:
            raise ZeroDivisionError(settlement.agenda_id)

    monkeypatch.setattr(Backlog, "settle", fail_at_times)
    names = [f"ann-{n}" for n in range(10)]
    noted = InsightAttemptsReported(
        insight_id="media",
        claims=tuple(Claim(agenda_id=one, attempt=1) for one in names),
        settlements=tuple(settled(one) for one in names),
    )
    scheduler, home = scheduler_on(world), world.home("media")
    wake = message(encode(InsightTick(insight_id="")), home, world.offset + 2)
    await scheduler._consume(Stream(message(encode(noted), home, world.offset + 1), wake))
    buried = letters(world)
    assert [code for code, _ in buried] == ["internal"] * len(culprits)
    assert [decode_ready(part)[0].settlements[0].agenda_id for _, part in buried] == [*culprits]
    backlog, out = world.insight().backlog, len(culprits)
    assert (backlog.in_flight, backlog.ready) == (10 + out, 5)
    assert len(set(world.emitted_ids())) == len(world.emitted_ids()) == 20
    world.handler = world.new_handler()
    await world.handle(InsightTick(insight_id=""), partition=home)
    assert world.insight().backlog.in_flight == 10 + out


async def test_a_record_of_which_nothing_can_be_used_is_not_parted_for_ever(world, monkeypatch):
    await world.place("ann", 25)
    monkeypatch.setattr("pop_stream.scheduler.partition_processor.MAX_SPLIT_FAILURES", 4)
    tried = []

    def fail(_, settlement, __=0.0):
        tried.append(settlement)
        raise ZeroDivisionError

    monkeypatch.setattr(Backlog, "settle", fail)
    noted = InsightAttemptsReported(
        insight_id="media", settlements=tuple(settled(f"ann-{n}") for n in range(10))
    )
    scheduler, home = scheduler_on(world), world.home("media")
    await scheduler._consume(Stream(message(encode(noted), home, world.offset + 1)))
    told = [decode_ready(part)[0].settlements for _, part in letters(world)]
    assert [one.agenda_id for some in told for one in some] == [f"ann-{n}" for n in range(10)]
    assert len(told) < len(tried) < 12


async def test_after_an_error_the_table_is_what_counts(world):
    await world.place("ann", 25)
    home = world.home("media")
    scheduler = scheduler_on(world)
    pages = {key: row for key, row in world.table.data.items() if "/page/" in key}
    for key in pages:
        del world.table.data[key]
    noted = InsightAttemptsReported(insight_id="media", settlements=(settled("ann-0"),))
    await scheduler._consume(Stream(message(encode(noted), home)))
    [letter] = world.publisher.on(TOPICS.dead_letters)
    assert msgspec.json.decode(letter.value)["code"] == "internal"
    assert world.handler.loaded() == set()
    assert scheduler._ticker._assigned == {home}
    world.table.data |= pages
    await world.handle(InsightTick(insight_id=""), partition=home)
    assert world.insight().backlog.ready == 15


# ---- the ticker ----


def ticker_of(world, is_stable=lambda: True, **lags):
    return Ticker(
        world.handler,
        FixedLags({one: [lag] for one, lag in lags.items()}),
        world.publisher,
        TOPICS,
        timedelta(milliseconds=250),
        world.clock,
        is_stable=is_stable,
    )


def ticks(world):
    return [decode_ready(one.value)[0] for one in world.publisher.on(TOPICS.ready)]


async def test_gained_partitions_are_woken_once_more_when_the_rebalance_is_over(world):
    over = False
    ticker = ticker_of(world, is_stable=lambda: over)
    ticker.assign({2})
    await ticker._tick()
    [wake] = world.publisher.on(TOPICS.ready)
    await world.handler.handle(RecordPosition(2, 1), wake.value)
    await ticker._tick()
    assert len(ticks(world)) == 1
    over = True  # what Faust read before, it may have dropped
    await ticker._tick()
    await ticker._tick()
    assert [one.partition for one in world.publisher.on(TOPICS.ready)] == [2, 2]


async def test_gained_partitions_are_woken_until_they_are_loaded(world):
    ticker = ticker_of(world)
    ticker.assign({1, 2})
    ticker.revoke({1})
    await ticker._tick()
    [wake] = world.publisher.on(TOPICS.ready)
    assert (wake.partition, ticks(world)[0].insight_id) == (2, "")
    await world.handler.handle(RecordPosition(2, 1), wake.value)
    await ticker._tick()
    assert len(ticks(world)) == 1


async def test_gained_partitions_are_woken_before_a_broker_is_asked_that_may_be_away(world):
    await world.place("ann", 25)
    ticker = ticker_of(world)
    ticker.assign({2})

    async def away(*_, **__):
        assert [wake.partition for wake in world.publisher.on(TOPICS.ready)] == [2]
        raise TimeoutError

    ticker._probe.fetch_lag = away
    with pytest.raises(TimeoutError):
        await ticker._tick()


async def test_a_clock_that_is_set_back_ends_the_ticker(world):
    ticker = ticker_of(world)
    for seconds in (0, 3_600, -4):
        world.clock.move(timedelta(seconds=seconds))
        ticker._check_clock()
    world.clock.move(timedelta(seconds=-3_600))
    with pytest.raises(RuntimeError, match=r"set back by 3604\.0 s"):
        await ticker.run()


async def test_a_fallen_lag_is_told(world):
    await world.place("ann", 25)
    await ticker_of(world, media=3)._tick()
    assert ticks(world) == [InsightTick(insight_id="media", lag=3, emitted=10)]


async def test_a_lag_that_did_not_fall_is_not_told(world):
    await world.place("ann", 25)
    await ticker_of(world, media=10)._tick()
    await ticker_of(world)._tick()
    assert ticks(world) == []


async def test_after_a_restart_the_lag_of_a_full_topic_is_asked_for(world):
    """Were its claims lost, nothing else would ever set it going again."""
    await world.place("ann", 25)
    world.handler = world.new_handler()
    await world.handle(InsightTick(insight_id=""), partition=world.home("media"))
    assert len(world.emitted()) == 10
    await ticker_of(world, media=0)._tick()
    tick = InsightTick(insight_id="media", lag=0, emitted=10, lags=(0,))
    assert ticks(world) == [tick]


async def test_nothing_waiting_nothing_asked(world):
    await world.place("ann", 5)
    await ticker_of(world, media=0)._tick()
    assert ticks(world) == []


async def test_the_ticker_wakes_for_a_token_but_not_for_a_full_topic(world):
    world.define(customers=[Customer(id="ann", rate_per_s=10.0)])
    await world.place("ann", 25)
    ticker = ticker_of(world)
    assert ticker._pause_s() == pytest.approx(0.1)
    world.clock.move(timedelta(seconds=5))
    assert ticker._pause_s() == pytest.approx(0.01)
    world.define(MEDIA.model_copy(update={"target": 1, "low_water": 1}))
    await world.handle(InsightTick(insight_id="media"))
    world.clock.move(timedelta(seconds=5))
    assert ticker._pause_s() == pytest.approx(0.25)


@pytest.mark.parametrize(("customers", "looks"), [(20, 10), (300, 4), (2_000, 1)])
async def test_who_has_many_customers_looks_at_them_all_the_more_seldom(
    world, monkeypatch, customers, looks
):
    """Else each of 200 insights, picked from now and then, would pay for all its customers."""
    for first in range(0, customers, 500):
        names = [f"c{number}-0" for number in range(first, min(customers, first + 500))]
        await world.handle(world.page(names))
    queue, seen = world.insight().backlog.queue, []
    monkeypatch.setattr(type(queue), "tag_gap", lambda _: seen.append(world.clock.now()) or 0.0)
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
