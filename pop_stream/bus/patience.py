"""How long brokers hold a fetch that finds nothing, for a member of a group."""

from collections.abc import Callable
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
