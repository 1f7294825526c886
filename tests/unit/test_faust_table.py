"""How rows get out of the process; the rest of the table is tried on Kafka."""

import asyncio
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
        recovery = SimpleNamespace(active_offsets={})
        self.app = SimpleNamespace(tables=SimpleNamespace(recovery=recovery))

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


@pytest.fixture
def rows(sends, sure):
    rows = FaustReadyTable(sends, sure.__contains__)
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
