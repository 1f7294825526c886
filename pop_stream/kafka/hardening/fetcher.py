"""How long brokers hold a fetch that finds nothing, for a member of a group.

Has a client's fetcher ask leaders alone, which say at once when they are none any more.

Has a client's fetcher see every end of what it asked a broker.
"""

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic
from types import SimpleNamespace
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError, NodeNotReadyError
from aiokafka.protocol.fetch import FetchRequest

MIN_FETCH_WAIT_S: Final = 0.5
MAX_FETCH_WAIT_S: Final = 4.0
"""A fetch that finds nothing costs broker and reader some two milliseconds of processor time.
Whoever asks nothing else of a broker that says nothing finds it out so much later."""

_LEADERS_EVERY_S: Final = 0.1
"""As often is asked who leads what nobody leads."""

_FETCHES: Final = "fetches"
_EMPTY_RESPONSE: Final = SimpleNamespace(API_VERSION=0, topics=())
"""An answer without any partition."""


def fetch_wait_s(quiet_s: float) -> float:
    """How long to have a fetch held after so many seconds without any record: as long again."""
    return min(MAX_FETCH_WAIT_S, max(MIN_FETCH_WAIT_S, quiet_s))


def use_adaptive_fetch_wait(
    consumer: AIOKafkaConsumer, *, now: Callable[[], float] = monotonic
) -> None:
    """Have brokers hold fetches the longer, the longer nothing came; see `fetch_wait_s`.

    A broker answers the requests of a connection one after the other. So fetches have one of
    their own, and nothing else that is asked waits for them. Who is given other partitions
    would wait for the fetch before, and so would a partition that the broker has become the
    leader of; the connection is closed then, and the next fetch opens another.

    Args:
        consumer: Started.
        now: A monotonic clock, in seconds.
    """
    _AdaptiveFetchWait(consumer._fetcher, consumer._client, now)  # noqa: SLF001  # no arguments for it


class _AdaptiveFetchWait:
    """Stands between a fetcher and its client, from the fetcher's making on."""

    def __init__(self, fetcher: Any, client: Any, now: Callable[[], float]) -> None:  # noqa: ANN401
        self._fetcher = fetcher
        self._client = fetcher._client = _FetchConnection(client)  # noqa: SLF001
        self._now = now
        self._original_get_actions: Callable[[Any], Any] = fetcher._get_actions_per_node  # noqa: SLF001
        self._fetch: Callable[[Any, Any, Any], Any] = fetcher._proc_fetch_request  # noqa: SLF001
        self._known: Any = None
        self._last_record_at = self._leaders_due_at = now()
        fetcher._get_actions_per_node = self._get_actions  # noqa: SLF001
        fetcher._proc_fetch_request = self._fetch_and_close  # noqa: SLF001

    def _get_actions(self, assignment: Any) -> Any:  # noqa: ANN401
        if assignment is not self._known:
            self._known, self._last_record_at = assignment, self._now()
        held = fetch_wait_s(self._now() - self._last_record_at)
        self._fetcher._fetch_max_wait_ms = int(1000 * held)  # noqa: SLF001
        fetches, resets, timeout_s, is_leaderless, resumed = self._original_get_actions(
            assignment
        )
        for node_id, _ in fetches:
            self._client.record_leaders(node_id, assignment)
        if is_leaderless:
            timeout_s = min(timeout_s, _LEADERS_EVERY_S)
            is_leaderless = self._is_due()
        return fetches, resets, timeout_s, is_leaderless, resumed

    def _is_due(self) -> bool:
        """Whether to ask who leads; left to itself, the client asks again once answered."""
        if is_due := self._now() >= self._leaders_due_at:
            self._leaders_due_at = self._now() + _LEADERS_EVERY_S
        return is_due

    async def _fetch_and_close(self, assignment: Any, node_id: Any, request: Any) -> Any:  # noqa: ANN401
        asked_at, asked_s = self._now(), self._fetcher._fetch_max_wait_ms / 1000  # noqa: SLF001
        try:
            has_records = await self._fetch(assignment, node_id, request)
        finally:
            if not assignment.active:
                self._client.close_pending(node_id)
        if has_records or self._now() - asked_at < asked_s:
            self._last_record_at = self._now()  # records came, or something is amiss
        return has_records


class _FetchConnection:
    """The client as its fetcher sees it."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401  # aiokafka is untyped
        self._client = client
        self._asked: dict[Any, tuple[Any, frozenset[Any]]] = {}
        self._leads_more: set[Any] = set()
        client.cluster.add_listener(self._check_leaders)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._client, name)

    def record_leaders(self, node_id: Any, assignment: Any) -> None:  # noqa: ANN401
        """A broker is about to be asked for what it leads now."""
        self._asked[node_id] = assignment, self._led_by(node_id, assignment)
        self._leads_more.discard(node_id)

    async def send(self, node_id: Any, request: Any) -> Any:  # noqa: ANN401
        if not isinstance(request, FetchRequest):
            return await self._client.send(node_id, request)
        if not await self._client.ready(node_id, group=_FETCHES):
            raise NodeNotReadyError
        try:
            if node_id not in self._leads_more:
                return await self._client.send(node_id, request, group=_FETCHES)
        except KafkaError:
            if node_id not in self._leads_more:
                raise
        return _EMPTY_RESPONSE  # as an error, it would be logged, and slept upon

    def close_pending(self, node_id: Any) -> None:  # noqa: ANN401
        """Close a connection over which an answer is still to come that nobody waits for."""
        connection = self._client._conns.get((node_id, _FETCHES))  # noqa: SLF001
        if connection is not None and connection._requests:  # noqa: SLF001
            connection.close()

    def _check_leaders(self, _: Any) -> None:  # noqa: ANN401
        for node_id, (assignment, led) in self._asked.items():
            if not self._led_by(node_id, assignment) <= led:
                self._leads_more.add(node_id)
                self.close_pending(node_id)

    def _led_by(self, node_id: Any, assignment: Any) -> frozenset[Any]:  # noqa: ANN401
        leader_of = self._client.cluster.leader_for_partition
        return frozenset(one for one in assignment.tps if leader_of(one) == node_id)


_LAST_VERSION: Final = 10
_METADATA_TIMEOUT_S: Final = 0.1


def fetch_from_leaders_only(consumer: AIOKafkaConsumer) -> None:
    """Have a consumer hear at once that another broker leads a partition.

    From version 11 on of the request followers answer it too, up to half a second late, and
    who asks one because it was the leader is told nothing. Its broker may end, and take seconds
    for it; all the while it has nothing new. Leaders that are none any more refuse the versions
    before, also those that they hold; then the client asks who leads.

    Args:
        consumer: Started.
    """
    fetcher, client = consumer._fetcher, consumer._client  # noqa: SLF001  # no arguments for it
    get_actions: Callable[[Any], Any] = fetcher._get_actions_per_node  # noqa: SLF001
    fetch: Callable[[Any, Any, Any], Any] = fetcher._proc_fetch_request  # noqa: SLF001

    def actions_for_leaders(assignment: Any) -> Any:  # noqa: ANN401  # aiokafka is untyped
        fetches, *others = get_actions(assignment)
        return [(node_id, _LeaderFetchRequest.of(one)) for node_id, one in fetches], *others

    async def fetch_and_refresh_leaders(assignment: Any, node_id: Any, request: Any) -> Any:  # noqa: ANN401
        has_records = await fetch(assignment, node_id, request)
        if not has_records and client._md_update_fut is not None:  # noqa: SLF001  # no other sign
            try:
                # Else it would be asked, and refuse, again and again until this is known.
                await asyncio.wait(
                    {client.force_metadata_update()}, timeout=_METADATA_TIMEOUT_S
                )
            except asyncio.CancelledError:
                return False  # as the client's own: it is waited for by who cancels it
        return has_records

    fetcher._get_actions_per_node = actions_for_leaders  # noqa: SLF001
    fetcher._proc_fetch_request = fetch_and_refresh_leaders  # noqa: SLF001


class _LeaderFetchRequest(FetchRequest):  # type: ignore[misc]  # aiokafka is untyped
    @classmethod
    def of(cls, request: Any) -> "_LeaderFetchRequest":  # noqa: ANN401
        """The same in a version that only leaders answer."""
        return cls(
            request._max_wait_ms,  # noqa: SLF001
            request._min_bytes,  # noqa: SLF001
            request._max_bytes,  # noqa: SLF001
            request._isolation_level,  # noqa: SLF001
            request.topics,
        )

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Any:  # noqa: ANN401
        """Called by the connection, with the versions that its broker knows."""
        least, most = versions[self.API_KEY]
        return super().prepare({**versions, self.API_KEY: (least, min(most, _LAST_VERSION))})


def wake_on_every_response(fetcher: Any) -> None:  # noqa: ANN401  # aiokafka is untyped
    """Have a fetcher look anew once it may ask a broker again.

    It asks each broker for one thing at a time. Woken by something else just as an answer
    comes, it finds the broker still taken, asks it for nothing, and takes note of the answer
    all the same. That the broker is free afterwards wakes nobody: left to itself, the fetcher
    is deaf to that broker until it looks anew by the clock.

    Args:
        fetcher: Of a started consumer.
    """
    fetcher._in_flight = _InFlightBrokers(fetcher)  # noqa: SLF001  # there is no argument for it


class _InFlightBrokers(set[int]):
    """The brokers, by node id, that are asked for something."""

    def __init__(self, fetcher: Any) -> None:  # noqa: ANN401
        super().__init__(fetcher._in_flight)  # noqa: SLF001
        self._fetcher = fetcher

    def discard(self, node_id: object) -> None:
        """Called by the fetcher when it was answered, or gave up."""
        super().discard(node_id)
        self._fetcher._notify(self._fetcher._wait_consume_future)  # noqa: SLF001
