"""How rows get out of the process; the rest of the table is tried on Kafka."""

import asyncio
from collections import defaultdict
from types import SimpleNamespace

import pytest
from deadlines import within

from pop_stream.background import BackgroundTaskError
from pop_stream.kafka.publisher import CHUNK_BYTES
from pop_stream.model.errors import UnavailableError
from pop_stream.scheduler.faust.table import FaustReadyTable


class Table:
    """As much of a Faust table as is asked for."""

    def __init__(self):
        self.data = Data()
        self.changelog_topic = SimpleNamespace(get_topic_name=lambda: "changelog")
        self.app = SimpleNamespace(rebalancing_count=1)


class Brokers:
    """A publisher whose lots of rows are acknowledged, or fail, when the test says so."""

    def __init__(self):
        self.lots = []
        self._any = asyncio.Event()

    async def publish(self, records):
        assert {one.topic for one in records} == {"changelog"}
        self.lots.append((records, asyncio.get_running_loop().create_future()))
        self._any.set()
        await self.lots[-1][1]

    async def begun(self, count=1):
        async with within(5):
            while len(self.lots) < count:
                self._any.clear()
                await self._any.wait()

    @property
    def values(self):
        return [[one.value for one in records] for records, _ in self.lots]

    def acknowledge(self):
        self.lots[-1][1].set_result(None)

    def fail(self):
        self.lots[-1][1].set_exception(UnavailableError("away"))


class Data(dict):
    @property
    def data(self):
        return self


@pytest.fixture
def faust():
    return Table()


@pytest.fixture
async def brokers():
    made = Brokers()
    yield made
    for _, answer in made.lots:
        answer.cancel()  # who still waits for one ends with its test


@pytest.fixture
def sure():
    """Partitions that are surely this worker's."""
    return {3}


class Changelog:
    """Rows by partition, in the order in which they were written; read two at a time."""

    def __init__(self):
        self.written = defaultdict(list)
        self.asked = []
        self.on_lot = lambda: None

    async def read_to_end(self, starts):
        self.asked.append({one.partition: offset for one, offset in starts.items()})
        for one, start in starts.items():
            assert one.topic == "changelog"
            there = self.written[one.partition]
            for begin in range(start, len(there), 2):
                lot = there[begin : begin + 2]
                rows = [SimpleNamespace(key=key, value=value) for key, value in lot]
                yield one.partition, rows, begin + len(lot)
                self.on_lot()


@pytest.fixture
def changelog():
    return Changelog()


@pytest.fixture
def rows(faust, brokers, sure, changelog):
    rows = FaustReadyTable(faust, brokers, changelog.read_to_end, sure.__contains__)
    rows.assign({3})
    return rows


async def is_kept(rows, written=None):
    waiting = asyncio.ensure_future(rows.wait_durable(written))
    for _ in range(5):
        await asyncio.sleep(0)
    done = waiting.done()
    waiting.cancel()
    return done


async def test_rows_are_kept_once_they_are_acknowledged(rows, brokers):
    assert await is_kept(rows)
    rows.put("3/media/head", b"one")
    rows.put("3/media/page/0", b"two")
    rows.delete("3/media/page/0")
    rows.send_now()
    await brokers.begun()
    assert not await is_kept(rows)
    brokers.acknowledge()
    assert await is_kept(rows)
    assert brokers.values == [[b"one", b"two", None]]
    assert {one.partition for one in brokers.lots[0][0]} == {3}


async def test_no_row_overtakes_another(rows, brokers):
    rows.put("3/media/journal/1", b"one")
    rows.send_now()
    await brokers.begun()
    rows.put("3/media/journal/2", b"two")
    rows.send_now()
    assert not await is_kept(rows)
    assert brokers.values == [[b"one"]]
    brokers.acknowledge()
    await brokers.begun(2)
    assert brokers.values == [[b"one"], [b"two"]]
    brokers.acknowledge()
    assert await is_kept(rows)


async def test_rows_that_failed_are_sent_again_as_they_are_by_then(rows, brokers):
    rows.put("3/media/head", b"one")
    rows.put("3/media/page/0", b"page")
    rows.send_now()
    await brokers.begun()
    rows.put("3/media/head", b"two")
    brokers.fail()
    await brokers.begun(2)
    assert not await is_kept(rows, 2)
    assert brokers.values == [[b"one", b"page"], [b"two", b"page"]]
    brokers.acknowledge()
    await brokers.begun(3)
    assert await is_kept(rows, 2)
    assert not await is_kept(rows)
    brokers.acknowledge()
    assert await is_kept(rows)
    assert brokers.values[2:] == [[b"two"]]


async def test_rows_of_a_lost_partition_are_not_sent_again(rows, brokers, sure):
    sure.add(4)
    rows.assign({3, 4})
    rows.put("3/media/head", b"lost")
    rows.put("4/scans/head", b"stays")
    rows.send_now()
    await brokers.begun()
    rows.assign({4})
    brokers.fail()
    await brokers.begun(2)
    brokers.acknowledge()
    assert await is_kept(rows)
    assert brokers.values == [[b"lost", b"stays"], [b"stays"]]


async def test_who_loses_all_partitions_waits_for_no_row(rows, brokers):
    rows.put("3/media/head", b"one")
    rows.send_now()
    await brokers.begun()
    rows.assign(set())
    brokers.fail()
    async with within(5):
        await rows.wait_durable()
    assert len(brokers.lots) == 1


async def test_what_was_written_since_need_not_be_waited_for(rows, brokers):
    rows.put("3/media/journal/1", b"one")
    rows.send_now()
    before = rows.written
    rows.put("3/media/page/0", b"two")
    await brokers.begun()
    assert not await is_kept(rows, before)
    brokers.acknowledge()
    async with within(5):
        await rows.wait_durable(before)
    assert not await is_kept(rows)


async def test_a_large_lot_goes_in_portions(rows, brokers):
    for number in range(3):
        rows.put(f"3/media/page/{number}", bytes(CHUNK_BYTES // 2))
    rows.send_now()
    await brokers.begun()
    brokers.acknowledge()
    await brokers.begun(2)
    brokers.acknowledge()
    assert await is_kept(rows)
    assert [len(records) for records, _ in brokers.lots] == [2, 1]


async def test_rows_gather_for_a_moment_and_are_sent_in_order(rows, brokers):
    rows.put("3/media/page/0", b"one")
    await asyncio.sleep(0)
    rows.put("3/media/head", b"two")
    assert brokers.lots == []
    await brokers.begun()
    assert brokers.values == [[b"one", b"two"]]


async def test_rows_of_a_partition_in_doubt_wait_until_it_is_sure(rows, brokers, sure):
    sure.add(4)
    sure.remove(3)
    rows.assign({3, 4})
    rows.put("3/media/head", b"in doubt")
    rows.put("4/scans/head", b"sure")
    rows.send_now()
    await brokers.begun()
    brokers.acknowledge()
    assert not await is_kept(rows)
    assert brokers.values == [[b"sure"]]
    sure.add(3)
    await brokers.begun(2)
    brokers.acknowledge()
    assert await is_kept(rows)
    assert brokers.values == [[b"sure"], [b"in doubt"]]


async def test_rows_of_a_lost_partition_that_were_not_sent_are_dropped(rows, brokers, sure):
    sure.clear()
    rows.put("3/media/head", b"one")
    rows.send_now()
    waiting = asyncio.ensure_future(rows.wait_durable())
    assert not await is_kept(rows)
    rows.assign(set())
    sure.add(3)
    async with within(5):
        await waiting
    assert await is_kept(rows)
    assert brokers.lots == []


# ---- recovery ----


def settle(rows, faust, partitions):
    faust.app.rebalancing_count += 1
    rows.assign(partitions)


def found(rows, partition):
    return dict(rows.rows(partition))


async def test_rows_are_what_the_changelog_says_last(rows, changelog):
    changelog.written[3] = [
        (b"3/media/head", b"one"),
        (b"3/media/page/0", b"page"),
        (b"3/media/head", b"two"),
        (b"3/media/page/0", None),
        (b"3/media/page/9", None),
    ]
    assert not rows.is_recovered
    assert await rows.recover()
    assert rows.is_recovered
    assert (found(rows, 3), rows.rows_recovered) == ({"3/media/head": b"two"}, 5)
    assert await rows.recover()
    assert len(changelog.asked) == 1


async def test_only_what_is_new_is_read_of_a_partition_that_stays(rows, faust, changelog):
    changelog.written[3] = [(b"3/media/head", b"one"), (b"3/media/page/0", b"page")]
    await rows.recover()
    changelog.written[3] += [(b"3/media/page/0", None), (b"3/media/head", b"theirs")]
    changelog.written[4] = [(b"4/scans/head", b"four")]
    settle(rows, faust, {3, 4})
    assert await rows.recover()
    assert changelog.asked == [{3: 0}, {3: 2, 4: 0}]
    assert (found(rows, 3), found(rows, 4)) == (
        {"3/media/head": b"theirs"},
        {"4/scans/head": b"four"},
    )
    settle(rows, faust, {4})
    settle(rows, faust, {3, 4})
    assert await rows.recover()
    assert changelog.asked[-1] == {3: 0, 4: 1}
    assert found(rows, 3) == {"3/media/head": b"theirs"}


async def test_a_rebalance_need_not_wait_for_a_long_recovery(rows, faust, changelog):
    changelog.written[3] = [(b"3/media/head", str(n).encode()) for n in range(7)]

    def begin_another():
        faust.app.rebalancing_count = 2

    changelog.on_lot = begin_another
    assert not await rows.recover()
    assert not rows.is_recovered
    changelog.on_lot = lambda: None
    rows.assign({3})
    assert await rows.recover()
    assert changelog.asked == [{3: 0}, {3: 2}]
    assert found(rows, 3) == {"3/media/head": b"6"}


async def test_a_row_that_cannot_be_sent_for_good_ends_the_wait_for_that_and_nothing_follows_it(
    rows, brokers
):
    rows.put("3/media/page/0", b"one")
    rows.send_now()
    await brokers.begun()
    brokers.lots[-1][1].set_exception(ZeroDivisionError("it fell over"))
    async with within(5):
        with pytest.raises(BackgroundTaskError, match=r"changelog.*it fell over"):
            await rows.wait_failed()
    rows.put("3/media/page/0", b"two")
    assert not await is_kept(
        rows
    )  # a later row must not stand in a changelog without the first
    assert len(brokers.lots) == 1


@pytest.mark.parametrize("holds_up", ["owner", "brokers", "linger"])
async def test_nothing_is_left_of_a_table_that_is_closed(rows, brokers, sure, holds_up):
    if holds_up == "owner":
        sure.clear()  # it was frozen, say, and others may have its partition
    before = asyncio.all_tasks()
    rows.put("3/page/a", b"1")
    if holds_up != "linger":
        rows.send_now()
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) > len(before)
    async with within(5):
        await rows.close()
    assert asyncio.all_tasks() == before
    sent = len(brokers.lots)
    later = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, later.set)  # longer than rows linger
    await later.wait()
    assert len(brokers.lots) == sent
