"""Has a client's fetcher ask leaders alone, which say at once when they are none any more."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.protocol.fetch import FetchRequest

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
