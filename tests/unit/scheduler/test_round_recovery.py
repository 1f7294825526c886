"""Rounds and their rows are written side by side: what is made good when one is missing."""

from datetime import timedelta

import pytest
from fakes import MemoryPublisher
from scheduler_world import MEDIA, PARTITIONS, TOPICS, SchedulerWorld

from pop_stream.model.definitions import Definitions, Insight
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.codec import decode_lifecycle, encode
from pop_stream.model.events.lifecycle import AgendaEmitted
from pop_stream.model.events.scheduling import InsightTick
from pop_stream.ports.publisher import Record


class Killed(BaseException):
    """The process is no more."""


class DyingPublisher(MemoryPublisher):
    """Once it is to die, so many records of the next publication arrive.

    Attributes:
        calls: What was published together.
    """

    def __init__(self):
        super().__init__(partition_count=PARTITIONS)
        self.arriving = None
        self.calls = []

    async def publish(self, records):
        self.calls.append(records)
        if self.arriving is not None:
            await super().publish(records[: self.arriving])
            raise Killed
        return await super().publish(records)


class Scene(SchedulerWorld):
    def __init__(self, *insights):
        super().__init__(*insights)
        self.publisher = DyingPublisher()
        self.asked = []
        self.handler = self.new_handler()

    def new_handler(self):
        rounds = super().new_handler()
        rounds._round_writer._emitted_reader._read_newest = self.read_newest
        return rounds

    async def read_newest(self, most, read):
        self.asked.append(most)
        return await self.publisher.read_newest(most, read)

    async def die(self, *ready_events, arriving):
        """Killed with all rows kept, and of the round so many records written."""
        self.publisher.arriving = arriving
        with pytest.raises(Killed):
            await self.handle(*ready_events)
        self.publisher.arriving = None
        self.handler = self.new_handler()

    async def wake(self):
        await self.handle(InsightTick(insight_id=""), partition=self.home("media"))

    def published(self):
        return [
            event.agenda_id
            for record in self.publisher.on(TOPICS.agenda_events)
            for event in decode_lifecycle(record.value)
            if isinstance(event, AgendaEmitted)
        ]


NAMES = [f"ann-{number}" for number in range(6)]


@pytest.fixture
def scene():
    return Scene(MEDIA)


async def test_a_round_that_was_kept_and_not_emitted_is_emitted_by_who_reads_its_row(scene):
    await scene.die(scene.page(NAMES), arriving=0)
    decided_at, offset = scene.clock.now(), scene.offset
    scene.clock.move(timedelta(minutes=1))
    await scene.wake()
    assert scene.emitted_ids() == NAMES
    assert {(one.attempt, one.emitted_at) for one in scene.emitted()} == {(1, decided_at)}
    [decision] = scene.decisions()
    assert (decision.at, decision.round, decision.offset) == (decided_at, 1, offset)
    assert (list(decision.chosen), decision.slots, decision.in_flight) == (NAMES, 10, 0)
    assert sorted(scene.published()) == NAMES
    assert scene.insight().backlog.emitted == len(NAMES)


async def test_what_is_on_its_topic_is_not_emitted_again(scene):
    await scene.die(scene.page(NAMES), arriving=4)
    await scene.wake()
    assert scene.emitted_ids() == NAMES
    assert sorted(scene.published()) == NAMES


async def test_a_round_that_is_out_is_repeated_by_nobody_however_often_it_is_read(scene):
    await scene.handle(scene.page(NAMES))
    for _ in range(3):
        scene.handler = scene.new_handler()
        await scene.wake()
    assert scene.emitted_ids() == NAMES


async def test_later_rows_say_that_a_round_is_out(scene):
    """So nobody looks for what was claimed, or emitted long ago."""
    await scene.handle(scene.page(NAMES))
    await scene.end("ann-0")
    scene.handler = scene.new_handler()
    scene.asked.clear()
    await scene.wake()
    assert scene.asked == []


async def test_rounds_of_one_record_go_out_side_by_side():
    home = Scene(MEDIA).home("media")
    other = next(one for one in map("i{}".format, range(99)) if Scene(MEDIA).home(one) == home)
    scene = Scene(MEDIA, Insight(id=other))
    events = [scene.page(["ann-0"]), scene.page(["bob-0"], other)]
    await scene.handle(*events, partition=home)
    [together] = scene.publisher.calls
    assert {one.topic for one in together} > {TOPICS.insight("media"), TOPICS.insight(other)}


async def test_of_an_insight_without_a_definition_it_waits_until_that_is_known(scene):
    await scene.die(scene.page(NAMES), arriving=0)
    known = scene.definitions.current
    scene.definitions.current = Definitions(version=7)
    await scene.wake()
    await scene.handle(scene.page(["bob-0"]), partition=scene.home("media"))
    assert scene.emitted() == []
    scene.handler = scene.new_handler()
    await scene.wake()
    scene.definitions.current = known
    await scene.wake()
    assert scene.emitted_ids() == [*NAMES, "bob-0"]


async def test_a_snapshot_too_tells_of_the_round_it_was_written_with(scene, monkeypatch):
    monkeypatch.setattr("pop_stream.scheduler.state.backlog_store.JOURNAL_ROWS", 1)
    await scene.die(scene.page(NAMES), arriving=1)
    for key in [key for key in scene.table.data if "/journal/" in key]:
        scene.table.delete(key)
    await scene.wake()
    assert scene.emitted_ids() == NAMES


async def test_topics_that_cannot_be_read_yet_fail_the_event_and_lose_nothing(scene):
    await scene.die(scene.page(NAMES), arriving=0)

    async def unreadable(*_):
        msg = "no broker"
        raise UnavailableError(msg)

    scene.handler._round_writer._emitted_reader._read_newest = unreadable
    with pytest.raises(UnavailableError):
        await scene.wake()
    scene.handler.unload(scene.home("media"))
    scene.handler._round_writer._emitted_reader._read_newest = scene.read_newest
    await scene.wake()
    assert scene.emitted_ids() == NAMES


async def test_garbage_on_the_topic_is_no_emission(scene):
    await scene.die(scene.page(["ann-0"]), arriving=0)
    topic = TOPICS.insight("media")
    for value in (b"{", encode(InsightTick(insight_id="media"))):
        scene.publisher.records.append(Record(topic, b"ann-0", value))
    await scene.wake()
    assert len(scene.publisher.on(topic)) == 3
