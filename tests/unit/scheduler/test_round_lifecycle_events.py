"""What rounds publish besides emissions, and when the ticker wakes them for it."""

import base64
from datetime import timedelta

import msgspec
import pytest
from backlogs import START, cancel, failed, placed
from fakes import FixedLags
from msgspec import Raw
from msgspec.structs import replace
from scheduler_stage import MEDIA, TOPICS, Stage

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
def stage():
    return Stage(STEADY)


async def bring(stage, *agendas):
    stage.offset += 1
    await stage.tell(
        InsightAgendasRouted(
            insight_id="media",
            agendas=tuple(Raw(encode(one)) for one in agendas),
            origins=tuple(
                Origin(partition=0, offset=stage.offset, index=n) for n in range(len(agendas))
            ),
        )
    )


async def noted(stage, **news):
    await stage.tell(InsightAttemptsReported(insight_id="media", **news))


def claims(*names, attempt=1):
    return tuple(Claim(agenda_id=one, attempt=attempt) for one in names)


def lifecycle(stage):
    return [
        event
        for record in stage.publisher.on(TOPICS.agenda_events)
        for event in decode_lifecycle(record.value)
    ]


def kinds(stage):
    return [type(event) for event in lifecycle(stage)]


def forget(stage):
    stage.publisher.records.clear()


# ---- what is published ----


async def test_a_failure_is_told_as_a_wait_and_then_emitted_again(stage):
    await bring(stage, placed("a", operation_types=("cut", "mix")))
    forget(stage)
    await noted(stage, claims=claims("a"), settlements=(failed("a"),))
    assert kinds(stage) == [AgendaWaiting]
    assert stage.emitted() == []
    stage.clock.move(timedelta(seconds=10))
    await stage.tell(InsightTick(insight_id="media"))
    assert kinds(stage) == [AgendaWaiting, AgendaReady, AgendaEmitted]
    [again] = stage.emitted()
    assert (again.attempt, again.resumes) == (2, True)


async def test_an_agenda_of_one_operation_has_nothing_to_resume(stage):
    await bring(stage, placed("a", attempt=2), placed("b", operation_types=("cut", "mix")))
    assert [one.resumes for one in stage.emitted()] == [False, False]


async def test_what_is_given_up_is_buried_with_its_body(stage):
    await bring(stage, placed("a", max_attempts=1))
    forget(stage)
    await noted(stage, settlements=(failed("a"),))
    assert kinds(stage) == [AgendaExhausted]
    [record] = stage.publisher.on(TOPICS.dead_letters)
    letter = msgspec.json.decode(record.value, type=RecordRefused)
    assert record.key == b"a"
    assert (letter.code, letter.part) == ("attempts_exhausted", "scheduler")
    assert (letter.topic, letter.partition) == (TOPICS.insight("media"), -1)
    assert base64.b64decode(letter.value_base64) == b'{"id":"a"}'
    assert letter.reason == "attempt 1: no luck"


async def test_an_attempt_tells_which_one_its_run_began_with(stage):
    await bring(stage, placed("a"), placed("b", attempt=3))
    await noted(stage, settlements=(failed("a"), failed("b", attempt=3)))
    stage.clock.move(timedelta(seconds=60))
    await stage.tell(InsightTick(insight_id="media"))
    told = {(one.agenda_id, one.attempt): one.run_from for one in stage.emitted()}
    assert told == {("a", 1): 0, ("a", 2): 1, ("b", 3): 3, ("b", 4): 3}


async def test_stops_go_to_every_puller(stage):
    await bring(stage, placed("a"))
    forget(stage)
    await noted(stage, commands=(Command(agenda_id="a", action="cancel"),))
    assert kinds(stage) == [AgendaStopping]
    [record] = stage.publisher.on(TOPICS.controls)
    assert record.key == b"a"
    assert decode_stop(record.value).reason == "cancelled"


async def test_what_is_to_be_told_is_told_before_it_is_kept(stage):
    """Else a crash right after would lose the words, as its record is taken for handled."""
    await bring(stage, placed("a"))
    forget(stage)
    news = InsightAttemptsReported(insight_id="media", settlements=(failed("a"),))
    await stage.tell(news, has_next=True)
    assert kinds(stage) == [AgendaWaiting]


async def test_a_crash_before_the_table_repeats_the_words(stage):
    await bring(stage, placed("a"))
    stage.table.keep()
    forget(stage)
    await noted(stage, settlements=(failed("a"),))
    stage.table.crash()
    stage.rounds = stage.new_rounds()
    await noted(stage, settlements=(failed("a"),))
    first, second = [one for one in lifecycle(stage) if isinstance(one, AgendaWaiting)]
    assert first == second


async def test_signs_of_life_alone_write_nothing(stage):
    await bring(stage, placed("a"))
    await noted(stage, claims=claims("a"))
    forget(stage)
    writes = stage.table.writes
    await noted(stage, heartbeats=claims("a"))
    assert (stage.table.writes, stage.publisher.records) == (writes, [])


async def test_a_question_about_many_says_which_are_held_here(stage):
    await bring(stage, placed("a"), placed("b", held=True))
    ids = ("a", "nobody", "b")
    await stage.tell(QueueQueried(insight_id="media", query_id="q", agenda_ids=ids))
    [record] = stage.publisher.on(TOPICS.answers)
    answer = decode_query_reply(record.value)
    assert [(one.agenda_id, one.state, one.attempt) for one in answer.holds] == [
        ("a", "emitted", 1),
        ("b", "held", 1),
    ]
    assert (answer.ready, answer.held, answer.delayed) == (0, 1, 0)


async def test_all_that_is_held_here_is_told_by_portions(stage, monkeypatch):
    monkeypatch.setattr("pop_stream.scheduler.insight.MOST_ASKED", 2)
    await bring(stage, placed("a"), placed("b", held=True))
    await bring(stage, placed("c"), placed("d", held=True), placed("e"))
    await noted(stage, settlements=(Settlement(agenda_id="c", attempt=1, outcome="succeeded"),))
    told, after, portions = [], -1, 0
    while after is not None:
        forget(stage)
        portions += 1
        await stage.tell(QueueQueried(insight_id="media", query_id="q", tracked_after=after))
        [record] = stage.publisher.on(TOPICS.answers)
        answer = decode_query_reply(record.value)
        assert len(answer.holds) <= 2
        told += [(one.agenda_id, one.state) for one in answer.holds]
        after = answer.tracked_up_to
    assert told == [("a", "emitted"), ("b", "held"), ("d", "held"), ("e", "emitted")]
    assert portions == 2  # none that is empty


async def test_decisions_count_what_waits_for_something_else(stage):
    later = START + timedelta(hours=1)
    await bring(stage, placed("a"), placed("b", held=True), placed("c", not_before=later))
    [decision] = stage.decisions()
    assert (decision.ready, decision.held, decision.delayed) == (0, 1, 1)


async def test_leases_begin_anew_when_a_partition_is_taken_over(stage):
    await bring(stage, placed("a"))
    await noted(stage, claims=claims("a"))
    stage.clock.move(timedelta(hours=1))
    stage.rounds = stage.new_rounds()
    heard = stage.clock.now()
    await stage.tell(InsightTick(insight_id="media", relayed_until=heard))
    assert AgendaWaiting not in kinds(stage)
    stage.clock.move(timedelta(seconds=61))
    heard = stage.clock.now()
    await stage.tell(InsightTick(insight_id="media", relayed_until=heard))
    assert kinds(stage)[-1] is AgendaWaiting


async def test_a_tick_of_another_clock_ends_no_lease(stage):
    await bring(stage, placed("a"))
    await noted(stage, claims=claims("a"))
    ahead = stage.clock.now() + timedelta(hours=1)
    await stage.tell(InsightTick(insight_id="media", relayed_until=ahead))
    assert AgendaWaiting not in kinds(stage)


# ---- the ticker ----


class Watch:
    """A ticker whose ticks are handled at once."""

    def __init__(self, stage):
        self.stage = stage
        self.lags = FixedLags()
        self.ticker = Ticker(
            stage.rounds,
            self.lags,
            stage.publisher,
            TOPICS,
            timedelta(milliseconds=250),
            stage.clock,
        )

    async def tick(self, *, handled=True):
        forget(self.stage)
        await self.ticker._tick()
        records = self.stage.publisher.on(TOPICS.ready)
        events = [event for one in records for event in decode_ready(one.value)]
        if handled and events:
            await self.stage.tell(*events)
        return events

    async def pass_time(self, seconds):
        """Tick as often as is needed for the clock of what was heard."""
        for _ in range(int(seconds)):
            self.stage.clock.move(timedelta(seconds=1))
            await self.tick()

    def attempts(self):
        return self.stage.scheduler().backlog.attempts


@pytest.fixture
def watch(stage):
    return Watch(stage)


async def test_a_topic_grows_with_its_definition_while_nothing_waits(stage, watch):
    await bring(stage, placed("a"))
    assert stage.topics_made == ["media"]
    stage.define(MEDIA.model_copy(update={"partitions": MEDIA.partitions + 2}))
    assert len(await watch.tick()) == 1
    assert stage.topics_made == ["media", "media"]
    assert await watch.tick() == []


async def test_it_does_so_too_after_a_restart_since_which_nothing_was_emitted(stage):
    await bring(stage, placed("a"))
    await noted(stage, claims=claims("a"))
    stage.rounds = stage.new_rounds()
    await stage.tell(InsightTick(insight_id="media"))
    watch = Watch(stage)
    assert await watch.tick() == []
    assert stage.topics_made == ["media"]
    stage.define(MEDIA.model_copy(update={"partitions": MEDIA.partitions + 2}))
    assert len(await watch.tick()) == 1
    assert stage.topics_made == ["media", "media"]
    assert await watch.tick() == []


async def test_the_ticker_wakes_for_a_due_and_no_sooner(stage, watch):
    await bring(stage, placed("a", not_before=START + timedelta(milliseconds=300)))
    assert await watch.tick() == []
    assert watch.ticker._pause_s() == pytest.approx(0.25)
    stage.clock.move(timedelta(milliseconds=250))
    assert await watch.tick() == []
    assert watch.ticker._pause_s() == pytest.approx(0.05)
    stage.clock.move(timedelta(milliseconds=50))
    assert await watch.tick() == [InsightTick(insight_id="media", emitted=0)]
    assert stage.emitted_ids() == ["a"]


async def test_a_due_that_is_on_its_way_is_not_told_in_a_flood(stage, watch):
    await bring(stage, placed("a", not_before=START + timedelta(seconds=1)))
    stage.clock.move(timedelta(seconds=1))
    assert await watch.tick(handled=False)
    assert watch.ticker._pause_s() == pytest.approx(0.25)
    assert not await watch.tick(handled=False)
    stage.clock.move(timedelta(seconds=1))
    assert await watch.tick(handled=False)


async def test_nothing_is_asked_while_nothing_is_out(stage, watch):
    await bring(stage, placed("a", held=True))
    await watch.pass_time(3)
    assert watch.lags.asked == []


async def test_what_was_heard_is_asked_for_once_a_second_while_something_runs(stage, watch):
    await bring(stage, placed("a"))
    await noted(stage, claims=claims("a"))
    for _ in range(8):
        await watch.tick()
        stage.clock.move(timedelta(milliseconds=250))
    assert watch.lags.asked == [((), True)] * 2


async def test_a_lease_ends_on_the_clock_of_what_was_heard(stage, watch):
    await bring(stage, placed("a"))
    await noted(stage, claims=claims("a"))
    await watch.pass_time(60)
    assert watch.attempts().lost == 0
    await watch.pass_time(3)
    assert watch.attempts().lost == 1


async def test_signs_of_life_keep_a_lease(stage, watch):
    await bring(stage, placed("a"))
    await noted(stage, claims=claims("a"))
    for _ in range(10):
        await watch.pass_time(30)
        await noted(stage, heartbeats=claims("a"))
    assert watch.attempts().lost == 0


async def test_while_the_relay_is_behind_no_lease_ends(stage, watch):
    await bring(stage, placed("a"))
    await noted(stage, claims=claims("a"))
    watch.lags.end_offsets, watch.lags.relay_offsets = {0: 5}, {0: 4}
    await watch.pass_time(300)
    assert watch.attempts().lost == 0
    watch.lags.relay_offsets = {0: 5}
    await watch.pass_time(2)
    assert watch.attempts().lost == 1


async def test_an_outage_of_the_broker_gives_every_lease_its_whole_length_again(stage, watch):
    await bring(stage, placed("a"))
    await noted(stage, claims=claims("a"))
    await watch.pass_time(50)
    watch.lags.end_offsets = None
    await watch.pass_time(300)
    watch.lags.end_offsets = {}
    await watch.pass_time(59)
    assert watch.attempts().lost == 0
    await watch.pass_time(5)
    assert watch.attempts().lost == 1


async def test_an_outage_of_the_api_gives_who_speaks_through_it_their_whole_leases_again(
    stage, watch
):
    await bring(stage, placed("a"), placed("b"))
    [by_http] = claims("a")
    await noted(stage, claims=(replace(by_http, by_http=True), *claims("b")))
    watch.lags.api_processes = 0
    await watch.pass_time(200)
    assert watch.attempts().lost == 1, "the one that was claimed from Kafka"
    watch.lags.api_processes = 2
    await watch.pass_time(60)
    assert watch.attempts().lost == 1
    await watch.pass_time(65)
    assert watch.attempts().lost == 2


@pytest.mark.parametrize("processes", [1, None])
async def test_while_the_api_is_there_or_cannot_be_asked_for_leases_end(
    stage, watch, processes
):
    await bring(stage, placed("a"))
    [by_http] = claims("a")
    await noted(stage, claims=(replace(by_http, by_http=True),))
    watch.lags.api_processes = processes
    await watch.pass_time(63)
    assert watch.attempts().lost == 1


async def test_an_api_that_is_gone_for_good_keeps_nothing_from_others():
    lags = FixedLags(api_processes=0)
    doorway = ApiPresence(lags, "pulls")
    assert not doorway.excuses_silence(0, lease_s=30)
    await doorway.look(0)
    await doorway.look(3_000)
    assert doorway.excuses_silence(3_599, lease_s=30)
    assert not doorway.excuses_silence(3_600, lease_s=30)
    lags.api_processes = 1
    await doorway.look(4_000)
    assert doorway.excuses_silence(4_029, lease_s=30), "workers have yet to find out"
    assert not doorway.excuses_silence(4_030, lease_s=30)


async def test_a_scheduler_that_stood_still_ends_no_lease_at_once(stage, watch):
    await bring(stage, placed("a"))
    await noted(stage, claims=claims("a"))
    await watch.pass_time(5)
    stage.clock.move(timedelta(minutes=10))
    await watch.pass_time(50)
    assert watch.attempts().lost == 0


async def test_what_pullers_went_past_comes_back(stage, watch):
    await bring(stage, placed("a"))
    watch.lags.by_insight["media"] = [0, 0, 0, 0]
    await watch.pass_time(60)
    assert watch.attempts().lost == 0
    await watch.pass_time(10)
    assert watch.attempts().lost == 1


async def test_what_no_puller_has_read_yet_may_wait_for_ever(stage, watch):
    await bring(stage, placed("a"))
    watch.lags.by_insight["media"] = [1, 1, 1, 1]
    await watch.pass_time(600)
    assert watch.attempts().lost == 0


async def test_a_cancel_of_what_nobody_claimed_is_done_within_seconds(stage, watch):
    await bring(stage, placed("a"))
    cancel(stage.scheduler().backlog, "a", stage.clock.now().timestamp())
    await watch.pass_time(6)
    assert stage.scheduler().backlog.in_flight == 0
