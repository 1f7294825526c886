"""What rounds publish besides emissions, and when the ticker wakes them for it."""

import base64
from datetime import timedelta

import msgspec
import pytest
from backlogs import START, cancel, failed, placed
from fakes import FixedLags
from msgspec import Raw
from msgspec.structs import replace
from scheduler_world import MEDIA, TOPICS, SchedulerWorld

from pop_stream.model.events.codec import (
    decode_lifecycle,
    decode_query_reply,
    decode_ready,
    decode_stop,
    encode,
)
from pop_stream.model.events.lifecycle import (
    AgendaEmitted,
    AgendaExhausted,
    AgendaReady,
    AgendaStopping,
    AgendaWaiting,
)
from pop_stream.model.events.scheduling import (
    Claim,
    Command,
    InsightAgendasRouted,
    InsightAttemptsReported,
    InsightTick,
    Origin,
    QueueQueried,
    RecordRefused,
    Settlement,
)
from pop_stream.model.retry import Backoff
from pop_stream.scheduler.ticker import ApiPresence, Ticker

STEADY = MEDIA.model_copy(
    update={"backoff": Backoff(first_s=10.0, jitter=0.0), "max_attempts": 2, "lease_ms": 60_000}
)


@pytest.fixture
def world():
    return SchedulerWorld(STEADY)


async def bring(world, *agendas):
    world.offset += 1
    await world.handle(
        InsightAgendasRouted(
            insight_id="media",
            agendas=tuple(Raw(encode(one)) for one in agendas),
            origins=tuple(
                Origin(partition=0, offset=world.offset, index=n) for n in range(len(agendas))
            ),
        )
    )


async def noted(world, **reported):
    await world.handle(InsightAttemptsReported(insight_id="media", **reported))


def claims(*names, attempt=1):
    return tuple(Claim(agenda_id=one, attempt=attempt) for one in names)


def lifecycle(world):
    return [
        event
        for record in world.publisher.on(TOPICS.agenda_events)
        for event in decode_lifecycle(record.value)
    ]


def kinds(world):
    return [type(event) for event in lifecycle(world)]


def forget(world):
    world.publisher.records.clear()


# ---- what is published ----


async def test_a_failure_is_published_as_a_wait_and_then_emitted_again(world):
    await bring(world, placed("a", operation_types=("cut", "mix")))
    forget(world)
    await noted(world, claims=claims("a"), settlements=(failed("a"),))
    assert kinds(world) == [AgendaWaiting]
    assert world.emitted() == []
    world.clock.move(timedelta(seconds=10))
    await world.handle(InsightTick(insight_id="media"))
    assert kinds(world) == [AgendaWaiting, AgendaReady, AgendaEmitted]
    [again] = world.emitted()
    assert again.attempt == 2


async def test_an_exhausted_agenda_is_dead_lettered_with_its_body(world):
    await bring(world, placed("a", max_attempts=1))
    forget(world)
    await noted(world, settlements=(failed("a"),))
    assert kinds(world) == [AgendaExhausted]
    [record] = world.publisher.on(TOPICS.dead_letters)
    letter = msgspec.json.decode(record.value, type=RecordRefused)
    assert record.key == b"a"
    assert (letter.code, letter.part) == ("attempts_exhausted", "scheduler")
    assert (letter.topic, letter.partition) == (TOPICS.insight("media"), -1)
    assert base64.b64decode(letter.value_base64) == b'{"id":"a"}'
    assert letter.reason == "attempt 1: no luck"


async def test_an_attempt_tells_which_one_its_run_began_with(world):
    await bring(world, placed("a"), placed("b", attempt=3))
    await noted(world, settlements=(failed("a"), failed("b", attempt=3)))
    world.clock.move(timedelta(seconds=60))
    await world.handle(InsightTick(insight_id="media"))
    found = {(one.agenda_id, one.attempt): one.run_from for one in world.emitted()}
    assert found == {("a", 1): 0, ("a", 2): 1, ("b", 3): 3, ("b", 4): 3}


async def test_stops_go_to_every_puller(world):
    await bring(world, placed("a"))
    forget(world)
    await noted(world, commands=(Command(agenda_id="a", action="cancel"),))
    assert kinds(world) == [AgendaStopping]
    [record] = world.publisher.on(TOPICS.controls)
    assert record.key == b"a"
    assert decode_stop(record.value).reason == "cancelled"


async def test_events_are_published_before_their_row_is_written(world):
    """Else a crash right after would lose the words, as its record is taken for handled."""
    await bring(world, placed("a"))
    forget(world)
    reported = InsightAttemptsReported(insight_id="media", settlements=(failed("a"),))
    await world.handle(reported, has_next=True)
    assert kinds(world) == [AgendaWaiting]


async def test_a_crash_before_the_table_repeats_the_words(world):
    await bring(world, placed("a"))
    world.table.save()
    forget(world)
    await noted(world, settlements=(failed("a"),))
    world.table.crash()
    world.handler = world.new_handler()
    await noted(world, settlements=(failed("a"),))
    first, second = [one for one in lifecycle(world) if isinstance(one, AgendaWaiting)]
    assert first == second


async def test_signs_of_life_alone_write_nothing(world):
    await bring(world, placed("a"))
    await noted(world, claims=claims("a"))
    forget(world)
    writes = world.table.writes
    await noted(world, heartbeats=claims("a"))
    assert (world.table.writes, world.publisher.records) == (writes, [])


async def test_a_question_about_many_says_which_are_held_here(world):
    await bring(world, placed("a"), placed("b", held=True))
    ids = ("a", "nobody", "b")
    await world.handle(QueueQueried(insight_id="media", query_id="q", agenda_ids=ids))
    [record] = world.publisher.on(TOPICS.query_replies)
    answer = decode_query_reply(record.value)
    assert [(one.agenda_id, one.state, one.attempt) for one in answer.holds] == [
        ("a", "emitted", 1),
        ("b", "held", 1),
    ]
    assert (answer.ready, answer.held, answer.delayed) == (0, 1, 0)


async def test_all_that_is_held_here_is_reported_by_portions(world, monkeypatch):
    monkeypatch.setattr("pop_stream.policy.flow_control.forecast.MAX_QUERIED_AGENDAS", 2)
    await bring(world, placed("a"), placed("b", held=True))
    await bring(world, placed("c"), placed("d", held=True), placed("e"))
    await noted(world, settlements=(Settlement(agenda_id="c", attempt=1, outcome="succeeded"),))
    found, after, portions = [], -1, 0
    while after is not None:
        forget(world)
        portions += 1
        await world.handle(QueueQueried(insight_id="media", query_id="q", tracked_after=after))
        [record] = world.publisher.on(TOPICS.query_replies)
        answer = decode_query_reply(record.value)
        assert len(answer.holds) <= 2
        found += [(one.agenda_id, one.state) for one in answer.holds]
        after = answer.tracked_up_to
    assert found == [("a", "emitted"), ("b", "held"), ("d", "held"), ("e", "emitted")]
    assert portions == 2  # none that is empty


async def test_decisions_count_what_waits_for_something_else(world):
    later = START + timedelta(hours=1)
    await bring(world, placed("a"), placed("b", held=True), placed("c", not_before=later))
    [decision] = world.decisions()
    assert (decision.ready, decision.held, decision.delayed) == (0, 1, 1)


async def test_leases_begin_anew_when_a_partition_is_taken_over(world):
    await bring(world, placed("a"))
    await noted(world, claims=claims("a"))
    world.clock.move(timedelta(hours=1))
    world.handler = world.new_handler()
    until = world.clock.now()
    await world.handle(InsightTick(insight_id="media", relayed_until=until))
    assert AgendaWaiting not in kinds(world)
    world.clock.move(timedelta(seconds=61))
    until = world.clock.now()
    await world.handle(InsightTick(insight_id="media", relayed_until=until))
    assert kinds(world)[-1] is AgendaWaiting


async def test_a_tick_of_another_clock_ends_no_lease(world):
    await bring(world, placed("a"))
    await noted(world, claims=claims("a"))
    ahead = world.clock.now() + timedelta(hours=1)
    await world.handle(InsightTick(insight_id="media", relayed_until=ahead))
    assert AgendaWaiting not in kinds(world)


# ---- the ticker ----


class Watch:
    """A ticker whose ticks are handled at once."""

    def __init__(self, world):
        self.world = world
        self.lags = FixedLags()
        self.ticker = Ticker(
            world.handler,
            self.lags,
            world.publisher,
            TOPICS,
            timedelta(milliseconds=250),
            world.clock,
        )

    async def tick(self, *, handled=True):
        forget(self.world)
        await self.ticker._tick()
        records = self.world.publisher.on(TOPICS.ready)
        events = [event for one in records for event in decode_ready(one.value)]
        if handled and events:
            await self.world.handle(*events)
        return events

    async def pass_time(self, seconds):
        """Tick as often as is needed for the watermark of the relay."""
        for _ in range(int(seconds)):
            self.world.clock.move(timedelta(seconds=1))
            await self.tick()

    def attempts(self):
        return self.world.insight().backlog.attempts


@pytest.fixture
def watch(world):
    return Watch(world)


async def test_a_topic_grows_with_its_definition_while_nothing_waits(world, watch):
    await bring(world, placed("a"))
    assert world.topics_made == ["media"]
    world.define(MEDIA.model_copy(update={"partitions": MEDIA.partitions + 2}))
    assert len(await watch.tick()) == 1
    assert world.topics_made == ["media", "media"]
    assert await watch.tick() == []


async def test_it_does_so_too_after_a_restart_since_which_nothing_was_emitted(world):
    await bring(world, placed("a"))
    await noted(world, claims=claims("a"))
    world.handler = world.new_handler()
    await world.handle(InsightTick(insight_id="media"))
    watch = Watch(world)
    assert await watch.tick() == []
    assert world.topics_made == ["media"]
    world.define(MEDIA.model_copy(update={"partitions": MEDIA.partitions + 2}))
    assert len(await watch.tick()) == 1
    assert world.topics_made == ["media", "media"]
    assert await watch.tick() == []


async def test_the_ticker_wakes_for_a_due_and_no_sooner(world, watch):
    await bring(world, placed("a", not_before=START + timedelta(milliseconds=300)))
    assert await watch.tick() == []
    assert watch.ticker._pause_s() == pytest.approx(0.25)
    world.clock.move(timedelta(milliseconds=250))
    assert await watch.tick() == []
    assert watch.ticker._pause_s() == pytest.approx(0.05)
    world.clock.move(timedelta(milliseconds=50))
    assert await watch.tick() == [InsightTick(insight_id="media", emitted=0)]
    assert world.emitted_ids() == ["a"]


async def test_one_tick_is_published_for_an_instant_until_it_is_handled(world, watch):
    await bring(world, placed("a", not_before=START + timedelta(seconds=1)))
    world.clock.move(timedelta(seconds=1))
    assert await watch.tick(handled=False)
    assert watch.ticker._pause_s() == pytest.approx(0.25)
    assert not await watch.tick(handled=False)
    world.clock.move(timedelta(seconds=1))
    assert await watch.tick(handled=False)


async def test_nothing_is_asked_while_nothing_is_out(world, watch):
    await bring(world, placed("a", held=True))
    await watch.pass_time(3)
    assert watch.lags.asked == []


async def test_the_relay_is_polled_once_a_second_while_something_runs(world, watch):
    await bring(world, placed("a"))
    await noted(world, claims=claims("a"))
    for _ in range(8):
        await watch.tick()
        world.clock.move(timedelta(milliseconds=250))
    assert watch.lags.asked == [((), True)] * 2


async def test_a_lease_ends_by_the_watermark_of_the_relay(world, watch):
    await bring(world, placed("a"))
    await noted(world, claims=claims("a"))
    await watch.pass_time(60)
    assert watch.attempts().leases_expired == 0
    await watch.pass_time(3)
    assert watch.attempts().leases_expired == 1


async def test_signs_of_life_keep_a_lease(world, watch):
    await bring(world, placed("a"))
    await noted(world, claims=claims("a"))
    for _ in range(10):
        await watch.pass_time(30)
        await noted(world, heartbeats=claims("a"))
    assert watch.attempts().leases_expired == 0


async def test_while_the_relay_is_behind_no_lease_ends(world, watch):
    await bring(world, placed("a"))
    await noted(world, claims=claims("a"))
    watch.lags.end_offsets, watch.lags.relay_offsets = {0: 5}, {0: 4}
    await watch.pass_time(300)
    assert watch.attempts().leases_expired == 0
    watch.lags.relay_offsets = {0: 5}
    await watch.pass_time(2)
    assert watch.attempts().leases_expired == 1


async def test_an_outage_of_the_broker_gives_every_lease_its_whole_length_again(world, watch):
    await bring(world, placed("a"))
    await noted(world, claims=claims("a"))
    await watch.pass_time(50)
    watch.lags.end_offsets = None
    await watch.pass_time(300)
    watch.lags.end_offsets = {}
    await watch.pass_time(59)
    assert watch.attempts().leases_expired == 0
    await watch.pass_time(5)
    assert watch.attempts().leases_expired == 1


async def test_an_outage_of_the_api_gives_who_speaks_through_it_their_whole_leases_again(
    world, watch
):
    await bring(world, placed("a"), placed("b"))
    [by_http] = claims("a")
    await noted(world, claims=(replace(by_http, by_http=True), *claims("b")))
    watch.lags.api_processes = 0
    await watch.pass_time(200)
    assert watch.attempts().leases_expired == 1, "the one that was claimed from Kafka"
    watch.lags.api_processes = 2
    await watch.pass_time(60)
    assert watch.attempts().leases_expired == 1
    await watch.pass_time(65)
    assert watch.attempts().leases_expired == 2


@pytest.mark.parametrize("processes", [1, None])
async def test_while_the_api_is_there_or_cannot_be_asked_for_leases_end(
    world, watch, processes
):
    await bring(world, placed("a"))
    [by_http] = claims("a")
    await noted(world, claims=(replace(by_http, by_http=True),))
    watch.lags.api_processes = processes
    await watch.pass_time(63)
    assert watch.attempts().leases_expired == 1


async def test_an_api_that_is_gone_for_good_keeps_nothing_from_others():
    lags = FixedLags(api_processes=0)
    presence = ApiPresence(lags, "pulls")
    assert not presence.excuses_silence(0, lease_s=30)
    await presence.poll(0)
    await presence.poll(3_000)
    assert presence.excuses_silence(3_599, lease_s=30)
    assert not presence.excuses_silence(3_600, lease_s=30)
    lags.api_processes = 1
    await presence.poll(4_000)
    assert presence.excuses_silence(4_029, lease_s=30), "workers have yet to find out"
    assert not presence.excuses_silence(4_030, lease_s=30)


async def test_a_scheduler_that_stood_still_ends_no_lease_at_once(world, watch):
    await bring(world, placed("a"))
    await noted(world, claims=claims("a"))
    await watch.pass_time(5)
    world.clock.move(timedelta(minutes=10))
    await watch.pass_time(50)
    assert watch.attempts().leases_expired == 0


async def test_what_pullers_went_past_comes_back(world, watch):
    await bring(world, placed("a"))
    watch.lags.by_insight["media"] = [0, 0, 0, 0]
    await watch.pass_time(60)
    assert watch.attempts().leases_expired == 0
    await watch.pass_time(10)
    assert watch.attempts().leases_expired == 1


async def test_what_no_puller_has_read_yet_may_wait_for_ever(world, watch):
    await bring(world, placed("a"))
    watch.lags.by_insight["media"] = [1, 1, 1, 1]
    await watch.pass_time(600)
    assert watch.attempts().leases_expired == 0


async def test_a_cancel_of_what_nobody_claimed_is_done_within_seconds(world, watch):
    await bring(world, placed("a"))
    cancel(world.insight().backlog, "a", world.clock.now().timestamp())
    await watch.pass_time(6)
    assert world.insight().backlog.in_flight == 0
