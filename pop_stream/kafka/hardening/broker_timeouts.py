"""Passes over a broker that says nothing, until it answers again.

A dead broker refuses connections. One that is frozen, or behind a network that swallows all,
keeps them open, and whoever asks it waits. Left to itself the client asks it for 40 s, and
then once more, even for who leads by now what the silent one led.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from secrets import choice
from threading import Lock
from time import monotonic
from typing import Any, Final
from weakref import WeakSet

import structlog
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.conn import CloseReason
from aiokafka.errors import KafkaError, NodeNotReadyError, RequestTimedOutError
from aiokafka.protocol.admin import (
    AlterConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.group import JoinGroupRequest, SyncGroupRequest

ANSWER_TIMEOUT_S: Final = 4.0
"""By then a broker has answered whatever it need not wait with. It is less than who asks for
lag or progress waits, so that none of them gives up first and leaves it asking."""

_TIMEOUT_MARGIN_S: Final = 2.0
_LONG_REQUEST_TIMEOUT_S: Final = 40.0
_LONG_REQUESTS: Final = frozenset(
    one.API_KEY
    for one in (
        JoinGroupRequest,  # until all members have come
        SyncGroupRequest,
        AlterConfigsRequest,  # until it is carried out
        CreatePartitionsRequest,
        CreateTopicsRequest,
        DeleteRecordsRequest,
        DeleteTopicsRequest,
    )
)
_PROBE_TIMEOUT_S: Final = 1.0
_PROBE_INTERVAL_S: Final = 0.2
_FORGET_AFTER_S: Final = 60.0
"""Since the others gave a broker up; clients that have yet to hear of it still ask it."""


_log = structlog.get_logger()

_unresponsive: Final[set[str]] = set()
"""Addresses; known to all clients of the process, or each would wait for itself."""

_clients: Final["WeakSet[_BrokerTimeouts]"] = WeakSet()
_clients_lock: Final = Lock()

BrokerProbe = Callable[[str], Awaitable[bool]]
"""Whether a broker answers within a moment, by its address as host:port."""


def install_broker_timeouts(
    client: AIOKafkaClient,
    connection: Mapping[str, Any],
    *,
    fetch_wait_ms: int = 0,
    answers: BrokerProbe | None = None,
) -> None:
    """Have a client ask only brokers that answer.

    What a silent broker is asked fails at once, as if it were dead, so that its client looks
    for another one. It is asked again by nobody but `answers`, until that is true.

    Args:
        client: Of a consumer, a producer or an admin client, not yet started.
        connection: Arguments by which a client reaches the cluster.
        fetch_wait_ms: How long a broker may hold what the client asks it.
        answers: Looks whether one does; by default a client for each look.
    """
    within_s = max(ANSWER_TIMEOUT_S, fetch_wait_ms / 1000 + _TIMEOUT_MARGIN_S)
    broker_timeouts = _BrokerTimeouts(client, answers or _asking(connection), within_s)
    with _clients_lock:
        _clients.add(broker_timeouts)
    client.broker_timeouts = broker_timeouts  # as long as the client is there


class _BrokerTimeouts:
    def __init__(self, client: Any, answers: BrokerProbe, answer_s: float) -> None:  # noqa: ANN401
        self._client = client
        self._answers = answers
        self._answer_s = answer_s
        self._connect: Callable[..., Awaitable[Any]] = client._get_conn  # noqa: SLF001
        self._close: Callable[[], Awaitable[None]] = client.close
        self._any: Callable[[], int | None] = client.get_random_node
        self._loop: asyncio.AbstractEventLoop | None = None
        self._probing: dict[str, asyncio.Task[None]] = {}
        # There are no arguments for these. The time is that of metadata and of connecting too.
        client._request_timeout_ms = int(answer_s * 1000)  # noqa: SLF001
        client._get_conn = self._connected  # noqa: SLF001
        client.send = self._send
        client.close = self._closed
        client.get_random_node = self._any_node

    async def _connected(self, node: Any, **how: Any) -> Any:  # noqa: ANN401
        self._loop = asyncio.get_running_loop()
        if self._is_unresponsive(node):
            self._client.force_metadata_update()
            return None
        asked_at = monotonic()
        connection = await self._connect(node, **how)
        if connection is None and monotonic() - asked_at >= self._answer_s:
            self._suspect(node)
        return connection

    def _any_node(self) -> int | None:
        nodes = [one.nodeId for one in self._client.cluster.brokers()]
        speaking = [one for one in nodes if not self._is_unresponsive(one)]
        return choice(speaking) if speaking else self._any()

    def _is_unresponsive(self, node: Any) -> bool:  # noqa: ANN401
        address = self._address(node)
        return address in _unresponsive or address in self._probing

    async def _send(
        self,
        node: int,
        request: Any,  # noqa: ANN401  # aiokafka is untyped
        *,
        group: ConnectionGroup = ConnectionGroup.DEFAULT,
    ) -> Any:  # noqa: ANN401
        connection = await self._connected(node, group=group)
        if connection is None:
            msg = f"broker {node} is away, or says nothing"
            raise NodeNotReadyError(msg)
        try:
            return await self._send_with_timeout(connection, request)
        except TimeoutError as error:
            connection.close(reason=CloseReason.CONNECTION_TIMEOUT)
            self._suspect(node)
            raise RequestTimedOutError from error

    def _send_with_timeout(self, connection: Any, request: Any) -> Awaitable[Any]:  # noqa: ANN401
        # A broker answers one request of a connection after the other.
        asked = (request, *(one for _, one, _ in connection._requests))  # noqa: SLF001
        held = any(one is not None and one.API_KEY in _LONG_REQUESTS for one in asked)
        usual = connection._request_timeout  # noqa: SLF001
        within_s = _LONG_REQUEST_TIMEOUT_S if held else max(usual, _fetched_within_s(request))
        connection._request_timeout = within_s  # noqa: SLF001
        try:
            answer: Awaitable[Any] = connection.send(request)
        finally:
            connection._request_timeout = usual  # noqa: SLF001
        return answer

    def _suspect(self, node: int) -> None:
        address = self._address(node)
        if address is not None and address not in self._probing:
            look = self._probe_until_answer(node, address)
            self._probing[address] = asyncio.create_task(look)

    async def _probe_until_answer(self, node: int, address: str) -> None:
        began = known_at = monotonic()
        try:
            while not await self._answers(address):
                if address not in _unresponsive:
                    _log.warning("broker.unresponsive", broker=node, address=address)
                    _unresponsive.add(address)
                    _cut_off(address)
                await asyncio.sleep(_PROBE_INTERVAL_S)
                if self._address(node) == address:
                    known_at = monotonic()
                elif monotonic() - known_at > _FORGET_AFTER_S:
                    break
        finally:
            del self._probing[address]
            if address in _unresponsive:
                _unresponsive.discard(address)
                _log.info("broker.responsive", broker=node, silent_s=monotonic() - began)

    def cut_off(self, address: str) -> None:
        """Wait for no answer of this broker any more; called in any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hang_up, address)

    def _hang_up(self, address: str) -> None:
        for one in [*self._client._conns.values()]:  # noqa: SLF001
            if f"{one.host}:{one.port}" == address:
                one.close(reason=CloseReason.CONNECTION_TIMEOUT)

    def _address(self, node: Any) -> str | None:  # noqa: ANN401
        known = self._client.cluster.broker_metadata(node)
        return None if known is None else f"{known.host}:{known.port}"

    async def _closed(self) -> None:
        looking = [*self._probing.values()]
        for one in looking:
            one.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
        await self._close()


def _fetched_within_s(request: Any) -> float:  # noqa: ANN401  # aiokafka is untyped
    """How long to wait for the answer, by how long the broker may hold it; 0 if it may not."""
    if not isinstance(request, FetchRequest):
        return 0.0
    return float(request._max_wait_ms) / 1000 + _TIMEOUT_MARGIN_S  # noqa: SLF001


def _cut_off(address: str) -> None:
    with _clients_lock:
        known = [*_clients]
    for one in known:
        one.cut_off(address)


def _asking(connection: Mapping[str, Any]) -> BrokerProbe:
    async def answers(address: str) -> bool:
        arguments = {**connection, "bootstrap_servers": address}
        client = AIOKafkaClient(**arguments, request_timeout_ms=int(_PROBE_TIMEOUT_S * 1000))
        try:
            await client.bootstrap()
        except (KafkaError, OSError):
            return False
        finally:
            await client.close()
        return True

    return answers
