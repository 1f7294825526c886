"""A consumer's fetcher asks the right brokers, at the right time, and for as long as is right.

The client's fetcher has one request on its way to each broker at a time. Six faults of it are
mended here; `harden_fetcher` mends those that every consumer meets.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from types import SimpleNamespace
from typing import Any, Final

from aiokafka.errors import KafkaError, NodeNotReadyError
from aiokafka.protocol.fetch import FetchRequest

from pop_stream.kafka.hardening import internals
from pop_stream.kafka.hardening.decompression import bound_decompression
from pop_stream.kafka.hardening.internals import ClientInternals, FetcherInternals

MIN_FETCH_WAIT_S: Final = 0.5
MAX_FETCH_WAIT_S: Final = 4.0
"""A fetch that finds nothing costs broker and reader some two milliseconds of processor time.
A broker that falls silent, and is asked nothing else, is found out so much later."""

_PREFETCH_BACKOFF_S: Final = 10.0
_IDLE_TIMEOUT_S: Final = 5.0
_CANCEL_INTERVAL_S: Final = 0.2

_LEADER_LOOKUP_INTERVAL_S: Final = 0.1
"""While a partition has no leader, metadata are asked for so often."""

_FETCHES: Final = "fetches"
"""The purpose, to the client, of a connection for fetches alone."""

_EMPTY_RESPONSE: Final = SimpleNamespace(API_VERSION=0, topics=())
"""An answer without any partition."""

NextActions = Callable[[Any], Any]
Fetch = Callable[[Any, Any, Any], Awaitable[Any]]


def harden_fetcher(consumer: Any, *, within_s: float = _PREFETCH_BACKOFF_S) -> None:  # noqa: ANN401  # Faust's own class too
    """Have a started consumer fetch as soon as its records were taken, and from leaders alone.

    Left to itself, the client waits 0.1 s for the records of a partition to be taken, and then
    asks the same broker for the other partitions. The broker holds that request until one of
    them has a record, and meanwhile nobody asks for the first partition: a reader that was busy
    for 0.1 s would be idle for much longer. So the wait is long. `wake_on_every_response`,
    `fetch_from_leaders_only` and `bound_decompression` are part of it.

    Args:
        consumer: Started; its records are taken whatever partition they are of.
        within_s: How long the records of one partition hold up the others of its broker.
    """
    bound_decompression()
    fetcher = FetcherInternals(internals.fetcher_of(consumer))
    fetcher.set_prefetch_backoff(within_s)
    wake_on_every_response(internals.fetcher_of(consumer))
    fetch_from_leaders_only(consumer)
    # The client's own is 0.2 s, though every event that matters now wakes it by itself.
    fetcher.set_idle_timeout(_IDLE_TIMEOUT_S)


async def stop_fetching(consumer: Any, stop: Callable[[], Awaitable[None]]) -> None:  # noqa: ANN401
    """Stop a consumer, whatever its fetcher is just doing.

    The client cancels the fetcher's task once and waits for it. Cancelled just while it lets
    partitions go, the task swallows that and goes on for ever, as in
    https://github.com/aio-libs/aiokafka/issues/983; so it is cancelled until it has ended.

    Args:
        consumer: Started or not.
        stop: The client's own way to stop it.
    """
    stopping = asyncio.ensure_future(stop())
    try:
        while not stopping.done():
            await asyncio.wait({stopping}, timeout=_CANCEL_INTERVAL_S)
            if (fetcher := internals.fetcher_of(consumer)) is not None:
                FetcherInternals(fetcher).cancel()
        await stopping
    finally:
        stopping.cancel()


def defer_fetches(consumer: Any, pause_s: Callable[[], float]) -> Callable[[], None]:  # noqa: ANN401
    """Have a started consumer fetch only when its reader is about to take the records.

    Left to itself, it asks as soon as records were taken, is answered with the first one that
    comes, and holds that one until the reader takes it, while all that come next wait for
    another fetch. Asked when the reader is due, brokers give all there is.

    Args:
        consumer: Started; see `harden_fetcher`.
        pause_s: How long until the reader is due; 0 or less if it is.

    Returns:
        To be called if the pause became shorter.
    """
    fetcher = FetcherInternals(internals.fetcher_of(consumer))

    def deferred(next_actions: NextActions) -> NextActions:
        def actions_when_due(assignment: Any) -> Any:  # noqa: ANN401  # aiokafka is untyped
            fetches, resets, timeout_s, is_leaderless, resumed = next_actions(assignment)
            if fetches and (left_s := pause_s()) > 0:
                return [], resets, min(left_s, timeout_s), is_leaderless, resumed
            return fetches, resets, timeout_s, is_leaderless, resumed

        return actions_when_due

    fetcher.wrap_next_actions(deferred)
    return fetcher.wake


def fetch_wait_s(quiet_s: float) -> float:
    """How long to have a fetch held after so many seconds without a record: as long again."""
    return min(MAX_FETCH_WAIT_S, max(MIN_FETCH_WAIT_S, quiet_s))


def use_adaptive_fetch_wait(consumer: Any, *, now: Callable[[], float] = monotonic) -> None:  # noqa: ANN401
    """Have brokers hold fetches the longer, the longer nothing came; see `fetch_wait_s`.

    The client knows one fixed time. A broker answers the requests of a connection one after the
    other, so a held fetch delays whatever else is asked; fetches get a connection of their own.
    A change of partitions or of leaders would wait for the held fetch too: that connection is
    closed then, and the next fetch opens another.

    Args:
        consumer: Started.
        now: A monotonic clock, in seconds.
    """
    _AdaptiveFetchWait(internals.fetcher_of(consumer), internals.client_of(consumer), now)


class _AdaptiveFetchWait:
    """Stands between a fetcher and its client for as long as the fetcher lives."""

    def __init__(self, fetcher: Any, client: Any, now: Callable[[], float]) -> None:  # noqa: ANN401
        self._fetcher = FetcherInternals(fetcher)
        self._connection = _FetchConnection(client)
        self._now = now
        self._known: Any = None
        self._last_record_at = self._leaders_due_at = now()
        self._fetcher.set_client(self._connection)
        self._fetcher.wrap_next_actions(self._with_wait)
        self._fetcher.wrap_fetch(self._closing_connection)

    def _with_wait(self, next_actions: NextActions) -> NextActions:
        def get_actions(assignment: Any) -> Any:  # noqa: ANN401
            if assignment is not self._known:
                self._known, self._last_record_at = assignment, self._now()
            wait_s = fetch_wait_s(self._now() - self._last_record_at)
            self._fetcher.max_wait_ms = int(1000 * wait_s)
            fetches, resets, timeout_s, is_leaderless, resumed = next_actions(assignment)
            for node_id, _ in fetches:
                self._connection.record_leaders(node_id, assignment)
            if is_leaderless:
                timeout_s = min(timeout_s, _LEADER_LOOKUP_INTERVAL_S)
                is_leaderless = self._is_lookup_due()
            return fetches, resets, timeout_s, is_leaderless, resumed

        return get_actions

    def _is_lookup_due(self) -> bool:
        """Whether to ask who leads; the client would ask again as soon as it is answered."""
        if is_due := self._now() >= self._leaders_due_at:
            self._leaders_due_at = self._now() + _LEADER_LOOKUP_INTERVAL_S
        return is_due

    def _closing_connection(self, fetch: Fetch) -> Fetch:
        async def fetch_and_close(assignment: Any, node_id: Any, request: Any) -> Any:  # noqa: ANN401
            asked_at, wait_s = self._now(), self._fetcher.max_wait_ms / 1000
            try:
                has_records = await fetch(assignment, node_id, request)
            finally:
                if not assignment.active:
                    self._connection.close_pending(node_id)
            if has_records or self._now() - asked_at < wait_s:
                self._last_record_at = self._now()  # records came, or something is amiss
            return has_records

        return fetch_and_close


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
        """Called by the fetcher; what is not a fetch goes the client's own way."""
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
        return _EMPTY_RESPONSE  # for an error the fetcher would log, and pause

    def close_pending(self, node_id: Any) -> None:  # noqa: ANN401
        """Close a connection whose next answer nobody waits for any more."""
        connection = ClientInternals(self._client).connections.get((node_id, _FETCHES))
        if connection is not None and internals.ConnectionInternals(connection).unanswered:
            connection.close()

    def _check_leaders(self, _: Any) -> None:  # noqa: ANN401
        for node_id, (assignment, led) in self._asked.items():
            if not self._led_by(node_id, assignment) <= led:
                self._leads_more.add(node_id)
                self.close_pending(node_id)

    def _led_by(self, node_id: Any, assignment: Any) -> frozenset[Any]:  # noqa: ANN401
        leader_of = self._client.cluster.leader_for_partition
        return frozenset(one for one in assignment.tps if leader_of(one) == node_id)


_LAST_LEADER_VERSION: Final = 10
_METADATA_TIMEOUT_S: Final = 0.1


def fetch_from_leaders_only(consumer: Any) -> None:  # noqa: ANN401
    """Have a started consumer learn at once that another broker leads a partition.

    From version 11 of the request on followers answer it too, up to half a second late, and a
    client that asks a former leader gets no error: https://github.com/apache/kafka/pull/12734.
    A broker that shuts down may take seconds for it, and all the while has nothing new. Older
    versions are refused by everyone but the leader, held fetches included. The client then asks
    for metadata, but fetches again before they have come, in a tight loop:
    https://github.com/aio-libs/aiokafka/issues/1155. So such a fetch waits for them a little.

    Args:
        consumer: Started.
    """
    fetcher = FetcherInternals(internals.fetcher_of(consumer))
    client = internals.client_of(consumer)
    state = ClientInternals(client)

    def of_leaders(next_actions: NextActions) -> NextActions:
        def actions_for_leaders(assignment: Any) -> Any:  # noqa: ANN401  # aiokafka is untyped
            fetches, *others = next_actions(assignment)
            return [(node, _LeaderFetchRequest.of(one)) for node, one in fetches], *others

        return actions_for_leaders

    def refreshing_leaders(fetch: Fetch) -> Fetch:
        async def fetch_and_refresh(assignment: Any, node_id: Any, request: Any) -> Any:  # noqa: ANN401
            has_records = await fetch(assignment, node_id, request)
            if not has_records and state.awaits_metadata:
                try:
                    await asyncio.wait(
                        {client.force_metadata_update()}, timeout=_METADATA_TIMEOUT_S
                    )
                except asyncio.CancelledError:
                    return False  # as the client's own: whoever cancels it waits for it
            return has_records

        return fetch_and_refresh

    fetcher.wrap_next_actions(of_leaders)
    fetcher.wrap_fetch(refreshing_leaders)


class _LeaderFetchRequest(FetchRequest):  # type: ignore[misc]  # aiokafka is untyped
    @classmethod
    def of(cls, request: Any) -> "_LeaderFetchRequest":  # noqa: ANN401
        """The same in a version that only leaders answer."""
        return cls(*internals.fetch_arguments_of(request), request.topics)

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Any:  # noqa: ANN401
        """Called by the connection, with the versions that its broker knows."""
        least, most = versions[self.API_KEY]
        limited = {**versions, self.API_KEY: (least, min(most, _LAST_LEADER_VERSION))}
        return super().prepare(limited)


def wake_on_every_response(fetcher: Any) -> None:  # noqa: ANN401  # aiokafka is untyped
    """Have a fetcher look anew once it may ask a broker again.

    It asks each broker for one thing at a time. Woken by something else just as an answer
    comes, it finds the broker still taken, asks it for nothing, and counts the answer as seen.
    That the broker is free a moment later wakes nobody: left to itself, the fetcher asks that
    broker for nothing until it looks anew by the clock.

    Args:
        fetcher: Of a started consumer.
    """
    members = FetcherInternals(fetcher)
    members.in_flight = _InFlightBrokers(members)


class _InFlightBrokers(set[int]):
    """The brokers, by node id, that are asked for something."""

    def __init__(self, fetcher: FetcherInternals) -> None:
        super().__init__(fetcher.in_flight)
        self._fetcher = fetcher

    def discard(self, node_id: object) -> None:
        """Called by the fetcher when it was answered, or gave up."""
        super().discard(node_id)
        self._fetcher.wake()
