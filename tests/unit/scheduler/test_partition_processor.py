"""Records that Faust skips, that brokers delay or nobody can handle; lost partitions."""

import asyncio
import base64
from collections import deque
from itertools import count
from time import monotonic
from types import SimpleNamespace

import msgspec
import pytest
from aiokafka import TopicPartition
from backlogs import settled
from deadlines import within
from msgspec import Raw
from msgspec.structs import replace as replace_struct
from scheduler_world import MEDIA, PARTITIONS, TOPICS, SchedulerWorld, scheduler_on

from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.codec import decode_ready, encode, frame
from pop_stream.model.events.scheduling import (
    Claim,
    Command,
    InsightAttemptsReported,
    InsightTick,
)
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.scheduler.round_writer import RecordPosition


@pytest.fixture
def world():
    return SchedulerWorld(MEDIA)


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


async def test_a_record_of_a_partition_that_is_lost_is_left_to_its_next_owner(world):
    home = world.home("media")
    scheduler = scheduler_on(world)
    world.not_owned = {home}
    page = encode(world.page(["ann-0"]))
    handling = asyncio.create_task(scheduler._consume(Stream(message(page, home))))
    await asyncio.sleep(0)
    assert not handling.done()
    scheduler._ownership.revoke({home})
    async with within(5):
        await handling
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
    async with within(5):
        await asyncio.gather(handling, letting_go)
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
    """The dead letters: code, and the value of the record or of the part of it."""
    dead_lettered = [
        msgspec.json.decode(one.value) for one in world.publisher.on(TOPICS.dead_letters)
    ]
    return [(one["code"], base64.b64decode(one["value_base64"])) for one in dead_lettered]


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

    def fail_at_times(self, settlement, *instants):
        settle(self, settlement, *instants)
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
    dead_lettered = letters(world)
    assert [code for code, _ in dead_lettered] == ["internal"] * len(culprits)
    assert [decode_ready(part)[0].settlements[0].agenda_id for _, part in dead_lettered] == [
        *culprits
    ]
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

    def fail(_, settlement, *__):
        tried.append(settlement)
        raise ZeroDivisionError

    monkeypatch.setattr(Backlog, "settle", fail)
    noted = InsightAttemptsReported(
        insight_id="media", settlements=tuple(settled(f"ann-{n}") for n in range(10))
    )
    scheduler, home = scheduler_on(world), world.home("media")
    await scheduler._consume(Stream(message(encode(noted), home, world.offset + 1)))
    parts = [decode_ready(part)[0].settlements for _, part in letters(world)]
    assert [one.agenda_id for some in parts for one in some] == [f"ann-{n}" for n in range(10)]
    assert len(parts) < len(tried) < 12


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
