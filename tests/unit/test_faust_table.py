"""How rows get out of the process; the rest of the table is tried on Kafka."""

import asyncio
from collections import defaultdict
from types import SimpleNamespace

import pytest

from pop_stream.scheduler.table import FaustReadyTable


class Sends:
    """A Faust table whose sends end when the test says so."""

    def __init__(self):
        self.sent = []
        self._any = asyncio.Event()
        self.data = Data()
        self.changelog_topic = SimpleNamespace(get_topic_name=lambda: "changelog")
        self.app = SimpleNamespace(rebalancing_count=1)

    def send_changelog(self, partition, key, value, *, value_serializer):
        assert value_serializer == "raw"
        self.sent.append((partition, key, value, asyncio.get_running_loop().create_future()))
        self._any.set()
        return self.sent[-1][3]

    async def begun(self):
        async with asyncio.timeout(5):
            await self._any.wait()


class Data(dict):
    @property
    def data(self):
        return self


@pytest.fixture
def sends():
    return Sends()


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

    async def read_on(self, starts):
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
def rows(sends, sure, changelog):
    rows = FaustReadyTable(sends, changelog.read_on, sure.__contains__)
    rows.settle({3})
    return rows


async def is_kept(rows, written=None):
    waiting = asyncio.ensure_future(rows.kept(written))
    for _ in range(5):
        await asyncio.sleep(0)
    done = waiting.done()
    waiting.cancel()
    return done


async def test_rows_are_kept_once_all_are_acknowledged(rows, sends):
    assert await is_kept(rows)
    rows.put("3/media/head", b"one")
    rows.put("3/media/page/0", b"two")
    rows.delete("3/media/page/0")
    rows.send()
    for partition, _, _, send in sends.sent:
        assert partition == 3
        assert not await is_kept(rows)
        send.set_result(None)
    assert await is_kept(rows)
    assert [value for _, _, value, _ in sends.sent] == [b"one", b"two", None]


async def test_a_row_that_failed_is_sent_again_as_it_is_by_then(rows, sends):
    rows.put("3/media/head", b"one")
    rows.put("3/media/head", b"two")
    rows.send()
    sends.sent[0][3].set_exception(OSError("away"))
    sends.sent[1][3].set_result(None)
    assert not await is_kept(rows)
    assert [value for _, _, value, _ in sends.sent] == [b"one", b"two", b"two"]
    sends.sent[2][3].set_result(None)
    assert await is_kept(rows)


async def test_a_row_of_a_lost_partition_is_not_sent_again(rows, sends):
    rows.put("3/media/head", b"one")
    rows.send()
    rows.settle(set())
    sends.sent[0][3].set_exception(OSError("away"))
    assert await is_kept(rows)
    assert len(sends.sent) == 1


async def test_what_was_written_since_need_not_be_waited_for(rows, sends):
    rows.put("3/media/journal/1", b"one")
    rows.put("3/media/journal/2", b"two")
    rows.send()
    before = rows.written
    rows.put("3/media/page/0", b"three")
    assert not await is_kept(rows, before)
    sends.sent[0][3].set_result(None)
    sends.sent[1][3].set_exception(OSError("away"))
    assert not await is_kept(rows, before)
    sends.sent[2][3].set_result(None)  # the second, once more
    assert await is_kept(rows, before)
    assert [value for _, _, value, _ in sends.sent] == [b"one", b"two", b"two"]
    assert not await is_kept(rows)


async def test_rows_gather_for_a_moment_and_are_sent_in_order(rows, sends):
    rows.put("3/media/page/0", b"one")
    rows.put("3/media/head", b"two")
    assert sends.sent == []
    await sends.begun()
    assert [value for _, _, value, _ in sends.sent] == [b"one", b"two"]


async def test_rows_of_a_partition_in_doubt_wait_until_it_is_sure(rows, sends, sure):
    sure.clear()
    rows.put("3/media/head", b"one")
    rows.send()
    assert not await is_kept(rows)
    assert sends.sent == []
    sure.add(3)
    await sends.begun()
    sends.sent[0][3].set_result(None)
    assert await is_kept(rows)


async def test_rows_of_a_lost_partition_that_were_not_sent_are_dropped(rows, sends, sure):
    sure.clear()
    rows.put("3/media/head", b"one")
    rows.settle(set())
    sure.add(3)
    rows.send()
    assert await is_kept(rows)
    assert sends.sent == []


# ---- recovery ----


def settle(rows, sends, partitions):
    sends.app.rebalancing_count += 1
    rows.settle(partitions)


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
    assert not rows.is_whole
    assert await rows.recover()
    assert rows.is_whole
    assert (found(rows, 3), rows.recovered) == ({"3/media/head": b"two"}, 5)
    assert await rows.recover()
    assert len(changelog.asked) == 1


async def test_only_what_is_new_is_read_of_a_partition_that_stays(rows, sends, changelog):
    changelog.written[3] = [(b"3/media/head", b"one"), (b"3/media/page/0", b"page")]
    await rows.recover()
    changelog.written[3] += [(b"3/media/page/0", None), (b"3/media/head", b"theirs")]
    changelog.written[4] = [(b"4/scans/head", b"four")]
    settle(rows, sends, {3, 4})
    assert await rows.recover()
    assert changelog.asked == [{3: 0}, {3: 2, 4: 0}]
    assert (found(rows, 3), found(rows, 4)) == (
        {"3/media/head": b"theirs"},
        {"4/scans/head": b"four"},
    )
    settle(rows, sends, {4})
    settle(rows, sends, {3, 4})
    assert await rows.recover()
    assert changelog.asked[-1] == {3: 0, 4: 1}
    assert found(rows, 3) == {"3/media/head": b"theirs"}


async def test_a_rebalance_need_not_wait_for_a_long_recovery(rows, sends, changelog):
    changelog.written[3] = [(b"3/media/head", str(n).encode()) for n in range(7)]

    def begin_another():
        sends.app.rebalancing_count = 2

    changelog.on_lot = begin_another
    assert not await rows.recover()
    assert not rows.is_whole
    changelog.on_lot = lambda: None
    rows.settle({3})
    assert await rows.recover()
    assert changelog.asked == [{3: 0}, {3: 2}]
    assert found(rows, 3) == {"3/media/head": b"6"}
