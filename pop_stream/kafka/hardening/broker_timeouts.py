"""A broker that does not answer is skipped by every client of the process, until it does.

A dead broker refuses connections. One that is frozen, or behind a network that swallows all,
keeps them open, and whoever asks it waits. Left to itself the client waits for 40 s, and asks
the same broker again: even for metadata, which would say who leads its partitions by now
(https://github.com/aio-libs/aiokafka/issues/576).

A broker that let one request time out is suspected, and probed by a client of its own; found
unresponsive, its connections are closed in all clients, whose requests to it fail at once, as
if it were dead. Once a probe is answered it is asked again. The timeouts are those of requests
that a broker answers at once; what it may hold (fetches, joining a group, admin requests) is
waited for longer.
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

from pop_stream.kafka.hardening import internals
from pop_stream.kafka.hardening.cancellation import shield_bootstrap
from pop_stream.kafka.hardening.internals import ClientInternals, ConnectionInternals

ANSWER_TIMEOUT_S: Final = 4.0
"""Within it a broker answers whatever it may not hold. It is shorter than the timeout of the
lag probe, which would give up first and leave the request open."""

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
"""After the last metadata that name a broker; until then clients may still ask it."""


_log = structlog.get_logger()

_unresponsive: Final[set[str]] = set()
"""Addresses; shared by all clients of the process, or each would wait for itself."""

_clients: Final["WeakSet[_BrokerTimeouts]"] = WeakSet()
_clients_lock: Final = Lock()

BrokerProbe = Callable[[str], Awaitable[bool]]
"""Whether the broker at host:port answers within a second."""


def install_broker_timeouts(
    client: AIOKafkaClient,
    connection: Mapping[str, Any],
    *,
    fetch_wait_ms: int = 0,
    answers: BrokerProbe | None = None,
) -> None:
    """Have a client skip brokers that do not answer.

    A request to an unresponsive broker fails at once, as if it were dead, so that the client
    looks for another one. Nobody but `answers` asks the broker anything until that is true.

    Args:
        client: Of a consumer, a producer or an admin client, not yet started.
        connection: Arguments by which a client reaches the cluster.
        fetch_wait_ms: How long a broker may hold what the client asks it.
        answers: The probe; by default it connects a client of its own each time.
    """
    within_s = max(ANSWER_TIMEOUT_S, fetch_wait_ms / 1000 + _TIMEOUT_MARGIN_S)
    broker_timeouts = _BrokerTimeouts(client, answers or _probe(connection), within_s)
    with _clients_lock:
        _clients.add(broker_timeouts)
    client.broker_timeouts = broker_timeouts  # as long as the client is there


class _BrokerTimeouts:
    def __init__(self, client: Any, answers: BrokerProbe, answer_s: float) -> None:  # noqa: ANN401
        self._client = client
        self._answers = answers
        self._answer_s = answer_s
        self._close: Callable[[], Awaitable[None]] = client.close
        self._any: Callable[[], int | None] = client.get_random_node
        self._loop: asyncio.AbstractEventLoop | None = None
        self._probing: dict[str, asyncio.Task[None]] = {}
        self._connect: Callable[..., Awaitable[Any]]
        self._internals = ClientInternals(client)
        self._internals.set_request_timeout_ms(int(answer_s * 1000))
        self._internals.wrap_connect(self._wrap_connect)
        client.send = self._send
        client.close = self._closed
        client.get_random_node = self._any_node

    def _wrap_connect(self, connect: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        self._connect = connect
        return self._connected

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
        responsive = [one for one in nodes if not self._is_unresponsive(one)]
        return choice(responsive) if responsive else self._any()

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
            msg = f"broker {node} is down, or does not answer"
            raise NodeNotReadyError(msg)
        try:
            return await self._send_with_timeout(connection, request)
        except TimeoutError as error:
            connection.close(reason=CloseReason.CONNECTION_TIMEOUT)
            self._suspect(node)
            raise RequestTimedOutError from error

    def _send_with_timeout(self, connection: Any, request: Any) -> Awaitable[Any]:  # noqa: ANN401
        # A broker answers one request of a connection after the other.
        members = ConnectionInternals(connection)
        asked = (request, *members.unanswered)
        is_held = any(one is not None and one.API_KEY in _LONG_REQUESTS for one in asked)
        usual_s = members.timeout_s
        members.timeout_s = (
            _LONG_REQUEST_TIMEOUT_S if is_held else max(usual_s, _fetch_timeout_s(request))
        )
        try:
            answer: Awaitable[Any] = connection.send(request)
        finally:
            members.timeout_s = usual_s
        return answer

    def _suspect(self, node: int) -> None:
        address = self._address(node)
        if address is not None and address not in self._probing:
            probe = self._probe_until_answer(node, address)
            self._probing[address] = asyncio.create_task(probe)

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
                _log.info("broker.responsive", broker=node, unresponsive_s=monotonic() - began)

    def cut_off(self, address: str) -> None:
        """Close the connections to this broker; may be called in any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hang_up, address)

    def _hang_up(self, address: str) -> None:
        for one in [*self._internals.connections.values()]:
            if f"{one.host}:{one.port}" == address:
                one.close(reason=CloseReason.CONNECTION_TIMEOUT)

    def _address(self, node: Any) -> str | None:  # noqa: ANN401
        known = self._client.cluster.broker_metadata(node)
        return None if known is None else f"{known.host}:{known.port}"

    async def _closed(self) -> None:
        probes = [*self._probing.values()]
        for one in probes:
            one.cancel()
        await asyncio.gather(*probes, return_exceptions=True)
        await self._close()


def _fetch_timeout_s(request: Any) -> float:  # noqa: ANN401  # aiokafka is untyped
    """How long the answer to a fetch may take, which the broker may hold; 0 for any other."""
    if not isinstance(request, FetchRequest):
        return 0.0
    return internals.fetch_wait_ms_of(request) / 1000 + _TIMEOUT_MARGIN_S


def _cut_off(address: str) -> None:
    with _clients_lock:
        known = [*_clients]
    for one in known:
        one.cut_off(address)


def _probe(connection: Mapping[str, Any]) -> BrokerProbe:
    async def answers(address: str) -> bool:
        arguments = {**connection, "bootstrap_servers": address}
        client = AIOKafkaClient(**arguments, request_timeout_ms=int(_PROBE_TIMEOUT_S * 1000))
        shield_bootstrap(client)
        try:
            await client.bootstrap()
        except (KafkaError, OSError):
            return False
        finally:
            await client.close()
        return True

    return answers
