"""A broker that keeps its connections open and does not answer is skipped."""

import asyncio
from collections import deque
from types import SimpleNamespace

import pytest
import pytest_asyncio
from aiokafka.conn import CloseReason
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError, RequestTimedOutError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest
from deadlines import within
from structlog.testing import capture_logs

from pop_stream.kafka import clients
from pop_stream.kafka.hardening import broker_timeouts
from pop_stream.settings import Settings

BEAT = HeartbeatRequest("group", 1, "member")
JOIN = JoinGroupRequest("group", 6_000, 6_000, "member", None, "consumer", [])
ANSWER_S = 0.02


class Connection:
    """A connection to a broker that answers, or never does."""

    host = "broker"

    def __init__(self, port):
        self.port = port
        self.is_silent = False
        self.times = []
        self.closed = []
        self._requests = deque()
        self._request_timeout = ANSWER_S

    def send(self, request):
        self.times.append(self._request_timeout)
        answer = asyncio.get_running_loop().create_future()
        self._requests.append((len(self.times), request, answer))
        if not self.is_silent:
            answer.set_result("answered")
            self._requests.clear()
        return asyncio.wait_for(answer, self._request_timeout)  # of the wall

    def close(self, reason):
        self.closed.append(reason)
        for _, _, answer in self._requests:
            if not answer.done():
                answer.set_exception(KafkaConnectionError("closed"))
        self._requests.clear()


class Client:
    """As much of the client as the timeouts need; brokers are numbered."""

    def __init__(self):
        self.connections = {one: Connection(one) for one in (1, 2)}
        self.connects_in_s = 0.0
        self.updates = 0
        self.is_closed = False
        self.cluster = SimpleNamespace(broker_metadata=self._known, brokers=self._brokers)

    @property
    def _conns(self):
        return self.connections

    async def _get_conn(self, node, **_):
        await asyncio.sleep(self.connects_in_s)
        return self.connections.get(node)

    async def close(self):
        self.is_closed = True

    def force_metadata_update(self):
        self.updates += 1

    def get_random_node(self):
        return 1

    def _brokers(self):
        return [SimpleNamespace(nodeId=one) for one in self.connections]

    def _known(self, node):
        return SimpleNamespace(host="broker", port=node) if node in self.connections else None


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setattr(broker_timeouts, "_PROBE_INTERVAL_S", 0)
    monkeypatch.setattr(broker_timeouts, "_FORGET_AFTER_S", 0)
    monkeypatch.setattr(broker_timeouts, "ANSWER_TIMEOUT_S", ANSWER_S)
    monkeypatch.setattr(broker_timeouts, "_TIMEOUT_MARGIN_S", 0)
    return Client()


@pytest_asyncio.fixture
async def probes(client):
    """Addresses that were probed, and what each probe is to find."""
    asked, results = asyncio.Queue(), asyncio.Queue()

    async def answers(address):
        asked.put_nowait(address)
        return await results.get()

    broker_timeouts.install_broker_timeouts(client, {}, answers=answers)
    yield SimpleNamespace(asked=asked, results=results, answers=answers)
    await client.close()


async def falls_silent(client):
    client.connections[1].is_silent = True
    with pytest.raises(RequestTimedOutError):
        await client.send(1, BEAT)


async def is_skipped(client, broker):
    before = client.updates
    await client._get_conn(broker)
    return client.updates > before


async def test_an_unresponsive_broker_gets_no_request_until_it_answers(client, probes):
    await falls_silent(client)
    assert client.connections[1].closed == [CloseReason.CONNECTION_TIMEOUT]
    with pytest.raises(NodeNotReadyError):
        await client.send(1, BEAT)
    assert await client._get_conn(1) is None
    assert client.updates == 2
    assert await client.send(2, BEAT) == "answered"
    assert {client.get_random_node() for _ in range(40)} == {2}
    client.connections[1].is_silent = False
    for answer in (False, True):
        assert await probes.asked.get() == "broker:1"
        with pytest.raises(NodeNotReadyError):
            await client.send(1, BEAT)
        probes.results.put_nowait(answer)
    async with within(5):
        while await client._get_conn(1) is None:  # noqa: ASYNC110  # no event
            await asyncio.sleep(0)
    assert await client.send(1, BEAT) == "answered"
    assert {client.get_random_node() for _ in range(40)} == {1, 2}


async def test_a_fetch_is_waited_for_as_long_as_the_broker_may_hold_it(client, probes):
    fetch = FetchRequest(60_000, 1, 1, 0, [])
    assert await client.send(1, fetch) == "answered"
    assert await client.send(1, BEAT) == "answered"
    assert client.connections[1].times == [60.0, ANSWER_S]


async def test_requests_of_other_clients_to_an_unresponsive_broker_fail_too(client, probes):
    other = Client()
    broker_timeouts.install_broker_timeouts(
        other, {}, fetch_wait_ms=3_600_000, answers=probes.answers
    )
    other.connections[1].is_silent, other.connections[1]._request_timeout = True, 60
    waiting = asyncio.create_task(other.send(1, BEAT))
    await falls_silent(client)
    assert not await is_skipped(other, 1)
    probes.results.put_nowait(False)
    async with within(5):
        with pytest.raises(KafkaConnectionError):
            await waiting
    assert await is_skipped(other, 1)
    assert not await is_skipped(other, 2)
    probes.results.put_nowait(True)
    async with within(5):
        while await is_skipped(other, 1):  # noqa: ASYNC110  # no event
            await asyncio.sleep(0)


async def test_a_broker_that_accepts_no_connection_is_unresponsive(client, probes):
    del client.connections[2]
    client.connects_in_s = 2 * ANSWER_S
    client.cluster.broker_metadata = lambda node: SimpleNamespace(host="broker", port=node)
    assert await client._get_conn(2) is None
    async with within(5):
        assert await probes.asked.get() == "broker:2"


async def test_a_broker_that_refuses_connections_is_not_unresponsive(client, probes):
    del client.connections[2]
    for _ in range(3):
        with pytest.raises(NodeNotReadyError):
            await client.send(2, BEAT)
    assert probes.asked.empty()
    client.connections[2] = Connection(2)
    assert await client.send(2, BEAT) == "answered"


async def test_a_broker_that_left_the_cluster_is_not_probed_for_ever(client, probes):
    await falls_silent(client)
    gone = client.connections.pop(1)
    with capture_logs() as logs:
        probes.results.put_nowait(False)
        async with within(5):
            while len(logs) < 2:  # noqa: ASYNC110  # no event
                await asyncio.sleep(0)
    assert [one["event"] for one in logs] == ["broker.unresponsive", "broker.responsive"]
    client.connections[1], gone.is_silent = gone, False
    assert await client.send(1, BEAT) == "answered"
    assert probes.asked.qsize() == 1


async def test_what_a_broker_may_hold_is_waited_for_and_so_is_what_comes_after_it(
    client, probes
):
    connection = client.connections[1]
    connection.is_silent = True
    held = [asyncio.create_task(client.send(1, one)) for one in (JOIN, BEAT)]
    while len(connection.times) < 2:  # noqa: ASYNC110  # no event
        await asyncio.sleep(0)
    assert connection.times == [broker_timeouts._LONG_REQUEST_TIMEOUT_S] * 2
    for _, _, answer in connection._requests:
        answer.set_result("answered")
    assert await asyncio.gather(*held) == ["answered"] * 2
    assert probes.asked.empty()
    assert connection._request_timeout == ANSWER_S


async def test_a_closed_client_probes_no_more(client, probes):
    await falls_silent(client)
    await probes.asked.get()
    before = asyncio.all_tasks()
    await client.close()
    assert client.is_closed
    assert len(before - asyncio.all_tasks()) == 1


async def test_every_client_waits_longer_than_a_broker_holds_what_it_asks(monkeypatch):
    waits_ms = []

    def noted(client, connection, **how):
        install_broker_timeouts(client, connection, **how)
        waits_ms.append(client._request_timeout_ms)

    install_broker_timeouts = broker_timeouts.install_broker_timeouts
    monkeypatch.setattr(broker_timeouts, "install_broker_timeouts", noted)
    settings, held_ms = Settings(), clients.LONG_FETCH_WAIT_MS
    async with within(5):
        made = [
            clients.consumer(settings, client_id="a", group_id=None, fetch_max_wait_ms=held_ms),
            clients.producer(settings, client_id="a"),
        ]
        clients.admin(settings, client_id="a")
        for one in made:
            await one.stop()
    assert waits_ms == [held_ms + 2_000, 4_000, 4_000]
