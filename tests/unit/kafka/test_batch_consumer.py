"""Which batches are handed over, when they are committed, and what is kept apart."""

import asyncio
from dataclasses import dataclass, field

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError
from deadlines import within

from pop_stream.kafka.batch_consumer import BatchPacer, OffsetCommitter, handle_batches

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass
class Record:
    offset: int
    value: bytes | None = b"{}"
    timestamp: int = 0


@dataclass
class Consumer:
    """Returns prepared batches, then nothing, and sets `stop` once that was asked for."""

    batches: list = field(default_factory=list)
    mine: set = field(default_factory=lambda: {HERE, THERE})
    committed: list = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    rests: int = 1
    error: Exception | None = None

    async def getmany(self, *, timeout_ms, max_records):
        if self.batches:
            return self.batches.pop(0)
        self.rests -= 1
        if not self.rests:
            self.stop.set()
        return {}

    def assignment(self):
        return self.mine

    def highwater(self, partition):
        return None

    async def commit(self, offsets):
        if self.error:
            raise self.error
        self.committed.append(offsets)


def batch(*offsets, at=HERE):
    return {at: [Record(offset) for offset in offsets]}


async def handled(consumer, **more):
    seen = []

    async def handle(records):
        seen.append([one.offset for one in records])

    async with within(5):
        await handle_batches(
            consumer, handle, max_records=9, stop=consumer.stop, group="g", **more
        )
    return seen


async def test_first_batch_is_committed_at_once_and_those_that_follow_together():
    consumer = Consumer([batch(0, 1), batch(2), batch(3, at=THERE), batch(4)])
    assert await handled(consumer) == [[0, 1], [2], [3], [4]]
    assert consumer.committed == [{HERE: 2}, {HERE: 5, THERE: 4}]


async def test_what_is_handled_is_committed_before_stopping():
    consumer = Consumer([batch(0), batch(1)])

    async def handle(records):
        if records[0].offset == 1:
            consumer.stop.set()

    async with within(5):
        await handle_batches(consumer, handle, max_records=9, stop=consumer.stop, group="g")
    assert consumer.committed == [{HERE: 1}, {HERE: 2}]


async def test_stop_ends_a_loop_at_rest_at_once():
    class Resting(Consumer):
        async def getmany(self, *, timeout_ms, max_records):
            asyncio.get_running_loop().call_soon(self.stop.set)
            await asyncio.Event().wait()

    assert await handled(Resting()) == []


async def test_error_of_a_read_at_rest_leaves_the_loop():
    class Failing(Consumer):
        async def getmany(self, *, timeout_ms, max_records):
            raise CommitFailedError

    with pytest.raises(CommitFailedError):
        await handled(Failing())


async def test_batch_that_failed_is_not_committed():
    consumer = Consumer([batch(0), batch(1)])

    async def handle(records):
        if records[0].offset == 1:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await handle_batches(consumer, handle, max_records=9, stop=consumer.stop, group="g")
    assert consumer.committed == [{HERE: 1}]


async def test_partition_that_moved_keeps_no_other_from_being_committed():
    consumer = Consumer()
    commits = OffsetCommitter(consumer)
    await commits.mark_processed({HERE: 1})
    await commits.mark_processed({HERE: 2, THERE: 7})
    consumer.mine = {THERE}
    await commits.flush()
    assert consumer.committed == [{HERE: 1}, {THERE: 7}]
    await commits.flush()
    assert len(consumer.committed) == 2


async def test_commit_that_is_overtaken_is_no_failure():
    consumer = Consumer([batch(0)], error=CommitFailedError())
    assert await handled(consumer) == [[0]]


async def test_a_pacer_keeps_batches_apart_and_delays_none_after_a_pause():
    loop = asyncio.get_running_loop()
    pacer = BatchPacer(0.05)
    begun = loop.time()
    await pacer.wait()
    assert loop.time() - begun < 0.04
    pacer.begin()
    assert not pacer.is_due
    begun = loop.time()
    await pacer.wait()
    assert loop.time() - begun > 0.04
    assert pacer.is_due


async def test_an_expedited_batch_waits_less():
    now = 0.0
    pacer = BatchPacer(0.1, 0.1, relaxed_interval_s=0.3, now=lambda: now)
    assert pacer.is_due, "the first after a rest"
    pacer.begin()
    now = 0.2
    assert not pacer.is_due
    pacer.expedite(1.0)
    assert pacer.is_due, "what has begun already is in a hurry, too"
    pacer.begin()
    now = 0.25
    assert not pacer.is_due
    now = 1.3
    pacer.begin()
    now = 1.5
    assert not pacer.is_due, "the hurry is over"


async def test_batches_are_kept_further_apart_the_larger_they_are():
    now = 0.0
    pacer = BatchPacer(0.1, 0.5, 1_000, now=lambda: now)
    for size, until in ((0, 0.1), (500, 0.3), (1_000, 0.5), (10**9, 0.5)):
        pacer.begin(size)
        now += until - 0.001
        assert not pacer.is_due
        now += 0.002
        assert pacer.is_due


async def test_batches_that_take_long_are_kept_further_apart_and_then_nearer_again():
    now = 0.0
    pacer = BatchPacer(0.1, 0.5, adaptive_factor=3.0, now=lambda: now)

    def pauses(took_s):
        """The last of many that took so long each: from its begin to the next one's."""
        nonlocal now
        for _ in range(50):
            pacer.begin(records=3)
            pause_s = pacer.pause_s
            now += took_s
            pacer.end()
            now += max(0.0, pacer.pause_s)
        return pause_s

    assert pauses(0.01) == pytest.approx(0.1), "no nearer than ever"
    assert pauses(0.1) == pytest.approx(0.3)
    assert pauses(30.0) == pytest.approx(0.5), "an outage is no reason to wait for longer"
    assert pauses(0.05) == pytest.approx(0.15)


async def test_a_batch_of_many_bytes_is_not_kept_nearer_for_being_quick():
    now = 0.0
    pacer = BatchPacer(0.1, 0.5, 1_000, adaptive_factor=3.0, now=lambda: now)
    pacer.begin(1_000)
    assert pacer.pause_s == pytest.approx(0.5)


async def test_the_batch_loop_adapts_its_pace():
    consumer, now = Consumer([batch(0), batch(1, 2, 3)]), 0.0
    pacer = BatchPacer(0.0, 30.0, 10**9, adaptive_factor=3.0, now=lambda: now)
    pauses = []

    async def handle(_):
        nonlocal now
        pauses.append(pacer.pause_s)
        now += 10.0

    await handle_batches(
        consumer, handle, max_records=9, stop=consumer.stop, group="g", pacer=pacer
    )
    assert pauses == [pytest.approx(0.0, abs=1e-3), pytest.approx(0.3 * 3.0 * 10.0, rel=1e-3)]
    for records, pause_s in ((1, 0.0), (2, 0.0), (3, 0.51 * 3.0 * 10.0)):
        pacer.begin(records=records)
        assert pacer.pause_s == pytest.approx(pause_s), "few wait for nobody"
