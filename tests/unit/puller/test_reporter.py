"""Adaptive batches: what is published when, and that nothing is lost."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from deadlines import within
from fakes import MemoryPublisher
from puller_fakes import AT

from pop_stream.model.errors import RecordTooLargeError, UnavailableError
from pop_stream.model.events.codec import decode_lifecycle
from pop_stream.model.events.lifecycle import AgendaHeartbeat
from pop_stream.puller.reporting import reporter as module
from pop_stream.puller.reporting.reporter import BATCH_EVENTS, MAX_PENDING_EVENTS, Reporter

TOO_LARGE = RecordTooLargeError("a record", 2, 1)


class GatedPublisher(MemoryPublisher):
    """Acknowledges a publication when the test lets it."""

    def __init__(self):
        super().__init__(partition_count=1)
        self.batches = []
        self.in_progress = asyncio.Semaphore(0)
        self.gate = asyncio.Semaphore(0)

    async def publish(self, records):
        self.batches.append([e.agenda_id for r in records for e in decode_lifecycle(r.value)])
        self.in_progress.release()
        await self.gate.acquire()
        await super().publish(records)


def event(agenda_id):
    return AgendaHeartbeat(
        agenda_id=agenda_id, at=AT, insight_id="i", attempt=1, puller_id="p", lease_ms=1
    )


@pytest.fixture(autouse=True)
async def bounded():
    async with within(10):
        yield


@asynccontextmanager
async def running(publisher):
    reporter = Reporter(publisher, "events")
    task = asyncio.create_task(reporter.run())
    try:
        yield reporter
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_lone_event_is_published_at_once_and_a_flood_in_the_next_batch():
    publisher = GatedPublisher()
    async with running(publisher) as reporter:
        reporter.add([event("a")])
        await publisher.in_progress.acquire()
        for i in range(100):
            reporter.add([event(f"b{i}")])
        publisher.gate.release()
        await publisher.in_progress.acquire()
        publisher.gate.release()
        await reporter.wait_acknowledged()
    assert [len(batch) for batch in publisher.batches] == [1, 100]


async def test_acknowledged_waits_for_what_was_added_before_only():
    publisher = GatedPublisher()
    async with running(publisher) as reporter:
        reporter.add([event("a")])
        await publisher.in_progress.acquire()
        first = asyncio.create_task(reporter.wait_acknowledged())
        await asyncio.sleep(0)
        reporter.add([event("b")])
        assert not first.done()
        publisher.gate.release()
        await first
        await publisher.in_progress.acquire()
    assert len(publisher.records) == 1


async def test_events_are_kept_while_the_broker_is_away(monkeypatch):
    publisher = MemoryPublisher(partition_count=1)
    publisher.failures = [UnavailableError("away"), UnavailableError("still away")]
    async with running(publisher) as reporter:
        reporter.add([event("a"), event("b")])
        await reporter.wait_acknowledged()
    (record,) = publisher.records
    assert [one.agenda_id for one in decode_lifecycle(record.value)] == ["a", "b"]


async def test_topic_that_is_not_there_yet_is_waited_for(monkeypatch):
    class Late(MemoryPublisher):
        asked = 0

        async def partitions(self, topic):
            self.asked += 1
            if self.asked < 3:
                raise UnavailableError(topic)
            return 1

    monkeypatch.setattr(module, "_RETRY_S", 0)
    publisher = Late()
    async with running(publisher) as reporter:
        reporter.add([event("a")])
        await reporter.wait_acknowledged()
    assert len(publisher.records) == 1


async def test_record_too_large_keeps_no_other_back():
    class Narrow(MemoryPublisher):
        async def publish(self, records):
            if any(r.key == b"big" for r in records):
                raise TOO_LARGE
            await super().publish(records)

    publisher = Narrow(partition_count=1000)
    async with running(publisher) as reporter:
        reporter.add([event("a"), event("big"), event("c")])
        await reporter.wait_acknowledged()
    assert {record.key for record in publisher.records} == {b"a", b"c"}


async def test_full_reporter_says_so_and_publishes_in_bounded_batches():
    publisher = GatedPublisher()
    async with running(publisher) as reporter:
        reporter.add([event("a")] * (MAX_PENDING_EVENTS + 1))
        assert reporter.is_full
        for _ in range(100):
            publisher.gate.release()
        await reporter.wait_acknowledged()
        assert not reporter.is_full
    assert max(map(len, publisher.batches)) == BATCH_EVENTS


async def test_publications_are_kept_apart_so_that_more_gathers_for_each(monkeypatch):
    monkeypatch.setattr(module, "_MIN_INTERVAL_S", 0.05)
    publisher = MemoryPublisher(partition_count=1)
    async with running(publisher) as reporter:
        began = asyncio.get_running_loop().time()
        for number in range(3):
            reporter.add([event(f"{number}")])
            await reporter.wait_acknowledged()
        assert asyncio.get_running_loop().time() - began >= 2 * 0.05
