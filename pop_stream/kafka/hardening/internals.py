"""Every private member of aiokafka that this folder touches: one wrapper each, here alone.

The client is pinned to one version, and `tests/contract/test_client_internals.py` compares what
is assumed here with that version, member by member.
"""
# ruff: noqa: SLF001, ANN401  # here private members are named, of a client without types

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes what is called instead of a method from the method itself."""


def client_of(owner: Any) -> Any:
    """The network client of a consumer or an admin client.

    Only a producer shows its own. Without it nothing can be asked of a certain broker.
    """
    return owner._client


def fetcher_of(consumer: Any) -> Any:
    """What fetches for a started consumer; None before it is started.

    The consumer has no argument for anything that `fetcher` mends.
    """
    return consumer._fetcher


def coordinator_of(consumer: Any) -> Any:
    """What speaks to the coordinator of a started consumer's group."""
    return consumer._coordinator


def subscription_of(consumer: Any) -> Any:
    """What a consumer is subscribed to, and which partitions it was given."""
    return consumer._subscription


def group_of(consumer: Any) -> str | None:
    """The group of a consumer, if it has one."""
    group: str | None = consumer._group_id
    return group


def wrap_send_commit(coordinator: Any, wrap: Wrap) -> None:
    """Replace what sends offsets of an assignment, and is called for each repetition."""
    coordinator._do_commit_offsets = wrap(coordinator._do_commit_offsets)


async def send_when_ready(admin: Any, node: int, request: Any) -> Any:
    """The answer of a broker, connected to first; the admin client has no such method."""
    return await admin._send_request_to_node(node, request)


class FetcherInternals:
    """The private members of one fetcher.

    Args:
        fetcher: Of a started consumer.
    """

    __slots__ = ("_fetcher",)

    def __init__(self, fetcher: Any) -> None:
        self._fetcher = fetcher

    def wrap_next_actions(self, wrap: Wrap) -> None:
        """Replace what says, for an assignment, which brokers to ask for what next.

        It returns the fetches by broker, the offsets to reset, how long to wait at most,
        whether a partition has no leader, and the partitions that were resumed.
        """
        self._fetcher._get_actions_per_node = wrap(self._fetcher._get_actions_per_node)

    def wrap_fetch(self, wrap: Wrap) -> None:
        """Replace what sends one fetch and returns whether it brought records."""
        self._fetcher._proc_fetch_request = wrap(self._fetcher._proc_fetch_request)

    def set_client(self, client: Any) -> None:
        """Have fetches sent through another client."""
        self._fetcher._client = client

    @property
    def max_wait_ms(self) -> int:
        """How long a broker may hold the next fetch that finds nothing."""
        wait_ms: int = self._fetcher._fetch_max_wait_ms
        return wait_ms

    @max_wait_ms.setter
    def max_wait_ms(self, wait_ms: int) -> None:
        self._fetcher._fetch_max_wait_ms = wait_ms

    def set_prefetch_backoff(self, seconds: float) -> None:
        """How long a broker is not asked for more while its last records are not taken."""
        self._fetcher._prefetch_backoff = seconds

    def set_idle_timeout(self, seconds: float) -> None:
        """How long the fetcher sleeps at most while nothing wakes it."""
        self._fetcher._fetcher_timeout = seconds

    @property
    def in_flight(self) -> set[int]:
        """The brokers, by node id, that are asked for something."""
        nodes: set[int] = self._fetcher._in_flight
        return nodes

    @in_flight.setter
    def in_flight(self, nodes: set[int]) -> None:
        self._fetcher._in_flight = nodes

    def wake(self) -> None:
        """Have it look for something to fetch at once."""
        self._fetcher._notify(self._fetcher._wait_consume_future)

    def cancel(self) -> None:
        """Cancel the task that fetches; harmless once it has ended."""
        self._fetcher._fetch_task.cancel()


class ClientInternals:
    """The private members of one network client.

    Args:
        client: Of a consumer, a producer or an admin client.
    """

    __slots__ = ("_client",)

    def __init__(self, client: Any) -> None:
        self._client = client

    def wrap_connect(self, wrap: Wrap) -> None:
        """Replace what returns a connection to a broker, opened if need be, or None."""
        self._client._get_conn = wrap(self._client._get_conn)

    def set_request_timeout_ms(self, timeout_ms: int) -> None:
        """How long answers, metadata and connecting may take."""
        self._client._request_timeout_ms = timeout_ms

    @property
    def connections(self) -> MutableMapping[tuple[int, Any], Any]:
        """Open connections by broker and purpose."""
        connections: MutableMapping[tuple[int, Any], Any] = self._client._conns
        return connections

    @property
    def awaits_metadata(self) -> bool:
        """Whether new metadata were asked for and have not come."""
        return self._client._md_update_fut is not None


class ConnectionInternals:
    """The private members of one connection to a broker."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def unanswered(self) -> tuple[Any, ...]:
        """The requests that wait for an answer, oldest first; None is one of its handshake."""
        return tuple(request for _, request, _ in self._connection._requests)

    @property
    def timeout_s(self) -> float:
        """How long the answer to the next request may take."""
        seconds: float = self._connection._request_timeout
        return seconds

    @timeout_s.setter
    def timeout_s(self, seconds: float) -> None:
        self._connection._request_timeout = seconds


def fetch_wait_ms_of(request: Any) -> int:
    """How long a broker may hold this fetch."""
    wait_ms: int = request._max_wait_ms
    return wait_ms


def fetch_arguments_of(request: Any) -> tuple[Any, ...]:
    """What a fetch was made with, but for its topics: wait, bytes, isolation."""
    return (
        request._max_wait_ms,
        request._min_bytes,
        request._max_bytes,
        request._isolation_level,
    )


class SenderInternals:
    """The private members of what sends for one producer.

    Args:
        producer: Not yet started.
    """

    __slots__ = ("_sender",)

    def __init__(self, producer: Any) -> None:
        self._sender = producer._sender

    def wrap_send(self, wrap: Wrap) -> None:
        """Replace what sends batches, by partition, to one broker, repetitions too."""
        self._sender._send_produce_req = wrap(self._sender._send_produce_req)

    def end_batch(self, partition: Any) -> None:
        """A batch of this partition is not on its way any more, so the next may be."""
        self._sender._muted_partitions.discard(partition)

    def end_request(self, node: int) -> None:
        """Nothing is on its way to this broker any more, so the next may be."""
        self._sender._in_flight.discard(node)


def batch_created_at(batch: Any) -> float:
    """When the first record of a batch was handed over, by `time.monotonic`."""
    created_at: float = batch._ctime
    return created_at


Batches = Mapping[Any, Any]
Send = Callable[[int, Batches], Awaitable[None]]
