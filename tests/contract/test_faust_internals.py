"""What the scheduler reaches into, and the faults that it mends, are still as they were.

Nobody promises anything about private members of a client. When one of these tests fails, its
wrapper in `scheduler/faust/` is to be read again with the client's new source.
"""

import asyncio
import inspect
from dataclasses import dataclass
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState
from deadlines import within
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode.threads import ServiceThread
from mode.utils.queues import ThrowableQueue

from pop_stream.scheduler.faust import client_internals
from pop_stream.scheduler.faust.app import faust_app
from pop_stream.settings import Settings

PARTITION = TP("ready", 5)
PINNED = {"faust-streaming": "0.15.3", "mode-streaming": "0.7.1", "aiokafka": "0.14.0"}

MEMBERS = [
    (driver.AIOKafkaConsumerThread, "_create_consumer", ["loop"]),
    (driver.Consumer, "_new_offset", ["tp"]),
    (driver.Consumer, "_add_gap", ["tp", "offset_from", "offset_to"]),
    (driver.Consumer, "_new_consumer_thread", []),
    (Recovery, "need_recovery", []),
    (Recovery, "_build_highwaters", ["consumer", "tps", "destination", "title"]),
    (Recovery, "_build_offsets", ["consumer", "tps", "destination", "title"]),
    (Recovery, "_seek_offsets", ["consumer", "tps", "offsets", "title"]),
    (TableManager, "_update_channels", []),
    (ThrowableQueue, "_put", ["item"]),
    (ThrowableQueue, "_get", []),
    (Fetcher, "_get_actions_per_node", ["assignment"]),
    (GroupCoordinator, "_do_heartbeat", []),
    (GroupCoordinator, "_push_error_to_user", ["exc"]),
    (GroupCoordinator, "reset_generation", []),
    (GroupCoordinator, "request_rejoin", []),
]


@pytest.mark.parametrize("package", PINNED)
def test_the_clients_are_those_that_were_read(package):
    assert version(package) == PINNED[package]


@pytest.mark.parametrize(("owner", "name", "parameters"), MEMBERS)
def test_a_member_is_called_as_before(owner, name, parameters):
    _, *found = inspect.signature(getattr(owner, name)).parameters
    assert found == parameters


@dataclass(eq=False)
class Handled:
    """As much of one of Faust's messages as its consumer looks at."""

    tp: TP
    offset: int
    topic: str = "ready"
    key: bytes = b""
    value: bytes = b""
    acked: bool = False


@pytest_asyncio.fixture
async def consumer():
    app = faust_app(Settings())
    app.finalize()
    app.topics._acking_topics.add("ready")
    app.consumer._committed_offset[PARTITION] = 20
    return app.consumer


async def test_faust_alone_commits_nothing_after_a_record_that_it_lost(consumer):
    """20 and 21 were dropped from its queues."""
    for offset in (22, 23):
        consumer.ack(Handled(PARTITION, offset))
    assert driver.Consumer._new_offset(consumer, PARTITION) is None
    assert client_internals.take_newest_acknowledged(consumer, PARTITION) == 23
    assert client_internals.take_newest_acknowledged(consumer, PARTITION) is None


async def test_a_seek_while_faust_hands_on_a_record_is_undone(consumer):
    """Faust notes the record as read when the hand-over returns, after the seek's own note.

    So what lies before the record is fetched again and dropped. That is why the scheduler reads
    records that Faust skipped beside Faust, and does not have it seek to them.
    """
    fetcher, batches = SimpleNamespace(_stopped=asyncio.Event()), [[30], [20, 21, 31]]
    handed_on, seeks = [], []

    async def fetch(**_):
        if not batches:
            fetcher._stopped.set()
            return
        for offset in batches.pop(0):
            yield PARTITION, Handled(PARTITION, offset)

    async def seek(_, offset):
        seeks.append(offset)

    async def hand_on(message):
        handed_on.append(message.offset)
        if message.offset == 30:
            await consumer.seek(PARTITION, 20)

    consumer._read_offset[PARTITION] = 20
    consumer.getmany, consumer._seek, consumer.callback = fetch, seek, hand_on
    async with within(5):
        await consumer._drain_messages(fetcher)
    assert (seeks, handed_on) == ([20], [30, 31])


async def test_faust_cannot_wait_until_no_fetch_is_out(consumer):
    """The event that tells of one is set on both sides of it, and cleared nowhere."""
    consumer.flow_active = True
    consumer._get_active_partitions = lambda: {PARTITION}
    answer = asyncio.Event()

    async def fetch(**_):
        await answer.wait()
        return {}

    consumer._getmany = fetch
    fetching = asyncio.create_task(consumer._wait_next_records(1.0))
    await asyncio.sleep(0)
    async with within(1):
        await consumer.wait_for_stopped_flow()
    assert not fetching.done()
    answer.set()
    await fetching


async def test_the_client_waits_until_somebody_takes_its_error():
    coordinator = GroupCoordinator.__new__(GroupCoordinator)
    coordinator._subscription = SimpleNamespace(abort_waiters=lambda _: None)
    coordinator._closing = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(coordinator._push_error_to_user(ValueError("of the group")))
    await asyncio.sleep(0)
    assert not waiting.done()
    coordinator._closing.set_result(None)
    await waiting


async def test_a_consumer_has_the_parts_that_are_hardened():
    consumer = AIOKafkaConsumer(group_id="g")
    assert client_internals.client_of(consumer).cluster is not None
    await consumer.stop()
    assert "self._fetcher = Fetcher(" in inspect.getsource(AIOKafkaConsumer.start)
    assert "self._coordinator = GroupCoordinator(" in inspect.getsource(AIOKafkaConsumer.start)


async def test_a_revoked_partition_has_no_highwater():
    subscription = SubscriptionState()
    coordinator = SimpleNamespace(_subscription=subscription)
    assert client_internals.highwater(coordinator, PARTITION) is None
    subscription.subscribe(topics={"ready"})
    subscription.assign_from_subscribed([])
    assert client_internals.highwater(coordinator, PARTITION) is None
    subscription.assign_from_subscribed([PARTITION])
    assert client_internals.highwater(coordinator, PARTITION) is None  # not fetched yet
    state = subscription.subscription.assignment.state_value(PARTITION)
    state.highwater = 7
    assert client_internals.highwater(coordinator, PARTITION) == 7


def test_a_thread_closes_the_loop_that_it_was_given_only_if_asked_to():
    loop = asyncio.new_event_loop()
    thread = ServiceThread.__new__(ServiceThread)
    source = inspect.getsource(ServiceThread)
    assert "self._close_thread_loop_on_stop = thread_loop is None" in source
    assert "if self._close_thread_loop_on_stop:" in source
    client_internals.close_loop_with_thread(thread)
    assert thread._close_thread_loop_on_stop
    loop.close()


async def test_a_queue_shows_what_is_in_it(consumer):
    queue = consumer.app.FlowControlQueue(4)
    queue.put_nowait(event := SimpleNamespace(message=SimpleNamespace(value=b"1")))
    stream = SimpleNamespace(channel=SimpleNamespace(queue=queue))
    assert [*client_internals.next_events(stream, 3)] == [event]
    assert queue.get_nowait() is event
