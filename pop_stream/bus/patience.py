"""How long brokers hold a fetch that finds nothing, for a member of a group."""

from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.protocol.fetch import FetchRequest

LEAST_HELD_S: Final = 0.5
MOST_HELD_S: Final = 4.0
"""A fetch that finds nothing costs broker and reader some two milliseconds of processor time.
Whoever asks nothing else of a broker that says nothing finds it out so much later; and a
partition whose leader moves to a broker that holds a fetch waits for its end."""

_FETCHES: Final = "fetches"


def held_s(quiet_s: float) -> float:
    """How long to have a fetch held after so many seconds without any record: as long again."""
    return min(MOST_HELD_S, max(LEAST_HELD_S, quiet_s))


def hold_while_quiet(
    consumer: AIOKafkaConsumer, *, now: Callable[[], float] = monotonic
) -> None:
    """Have brokers hold fetches the longer, the longer nothing came; see `held_s`.

    A broker answers the requests of a connection one after the other. So fetches have one of
    their own, and nothing else that is asked waits for them. Who is given other partitions
    would wait for the fetch before; its connection is closed, and the next fetch opens another.

    Args:
        consumer: Started.
        now: A monotonic clock, in seconds.
    """
    fetcher = consumer._fetcher  # noqa: SLF001  # there are no arguments for these
    client = fetcher._client = _Apart(consumer._client)  # noqa: SLF001
    look: Callable[[Any], Any] = fetcher._get_actions_per_node  # noqa: SLF001
    fetch: Callable[[Any, Any, Any], Any] = fetcher._proc_fetch_request  # noqa: SLF001
    known: Any = None
    quiet_since = now()

    def look_patiently(assignment: Any) -> Any:  # noqa: ANN401  # aiokafka is untyped
        nonlocal known, quiet_since
        if assignment is not known:
            known, quiet_since = assignment, now()
        fetcher._fetch_max_wait_ms = int(1000 * held_s(now() - quiet_since))  # noqa: SLF001
        return look(assignment)

    async def fetch_and_let_go(assignment: Any, node_id: Any, request: Any) -> Any:  # noqa: ANN401
        nonlocal quiet_since
        asked_at, asked_s = now(), fetcher._fetch_max_wait_ms / 1000  # noqa: SLF001
        try:
            has_news = await fetch(assignment, node_id, request)
        finally:
            if not assignment.active:
                client.let_go(node_id)
        if has_news or now() - asked_at < asked_s:
            quiet_since = now()  # records came, or something is amiss
        return has_news

    fetcher._get_actions_per_node = look_patiently  # noqa: SLF001
    fetcher._proc_fetch_request = fetch_and_let_go  # noqa: SLF001


class _Apart:
    """The client as its fetcher sees it."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401  # aiokafka is untyped
        self._client = client

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._client, name)

    async def send(self, node_id: Any, request: Any) -> Any:  # noqa: ANN401
        if isinstance(request, FetchRequest):
            return await self._client.send(node_id, request, group=_FETCHES)
        return await self._client.send(node_id, request)

    def let_go(self, node_id: Any) -> None:  # noqa: ANN401
        """Close a connection over which an answer is still to come that nobody waits for."""
        connection = self._client._conns.get((node_id, _FETCHES))  # noqa: SLF001
        if connection is not None and connection._requests:  # noqa: SLF001
            connection.close()
