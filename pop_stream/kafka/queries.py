"""Queries the scheduler that owns an insight over `pop.ready`, and awaits its reply."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Final, Self

from pop_stream.background import ExitReason, background
from pop_stream.kafka import clients
from pop_stream.kafka.lifecycle_reader import ready_record
from pop_stream.kafka.topics import Topics
from pop_stream.kafka.unreadable_records import skip_unreadable
from pop_stream.model.errors import UnavailableError, UnreadableRecordError
from pop_stream.model.events.base import DedupeRule
from pop_stream.model.events.codec import decode_query_reply
from pop_stream.model.events.scheduling import QueueDescribed, QueueQueried
from pop_stream.model.events.schema_version import checked_value
from pop_stream.ports.definitions import DefinitionSource
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.settings import Settings

REPLY_TIMEOUT: Final = timedelta(seconds=3)
"""A scheduler replies in milliseconds; after a rebalance, in seconds."""


class KafkaQueueQueries:
    """The port `QueueQueries`: over `pop.ready` and back over `pop.query-replies`.

    Works while entered. Queries may overlap: each has an id, and every process reads all
    replies and takes its own.

    Args:
        settings: Where the cluster is.
        publisher: For queries; open for as long as this object is.
        definitions: They say which partition of `pop.ready` an insight belongs to.
    """

    def __init__(
        self, settings: Settings, publisher: Publisher, definitions: DefinitionSource
    ) -> None:
        self._topics = Topics(settings.topic_prefix)
        self._publisher = publisher
        self._definitions = definitions
        self._consumer = clients.consumer(
            settings,
            client_id="query-replies",
            group_id=None,
            auto_offset_reset="latest",
            fetch_max_wait_ms=clients.LONG_FETCH_WAIT_MS,
        )
        self._pending: dict[str, asyncio.Future[QueueDescribed]] = {}
        self._background = AsyncExitStack()

    async def __aenter__(self) -> Self:
        partition = TopicPartition(self._topics.query_replies, 0)
        async with AsyncExitStack() as opening:
            await opening.enter_async_context(self._consumer)
            self._consumer.assign([partition])
            await self._consumer.seek_to_end(partition)
            await opening.enter_async_context(background(query_replies=self._read()))
            self._background = opening.pop_all()
        return self

    async def __aexit__(self, *reason: *ExitReason) -> None:
        await self._background.__aexit__(*reason)

    async def ask(
        self,
        insight_id: str,
        agenda_id: str = "",
        agenda_ids: Sequence[str] = (),
        tracked_after: int | None = None,
        weights: Mapping[str, float] | None = None,
        dedupe: Sequence[DedupeRule] = (),
    ) -> QueueDescribed:
        """See the port."""
        query = QueueQueried(
            insight_id=insight_id,
            query_id=secrets.token_hex(8),
            agenda_id=agenda_id,
            agenda_ids=tuple(agenda_ids),
            tracked_after=tracked_after,
            weights=dict(weights or {}),
            dedupe=tuple(dedupe),
        )
        partitions = await self._publisher.partitions(self._topics.ready)
        record = ready_record(
            self._topics, self._definitions.current, query, partitions=partitions
        )
        reply: asyncio.Future[QueueDescribed] = asyncio.get_running_loop().create_future()
        self._pending[query.query_id] = reply
        try:
            await self._publisher.publish([record])
            async with asyncio.timeout(REPLY_TIMEOUT.total_seconds()):
                return await reply
        except TimeoutError:
            msg = "the scheduler does not answer: it is down, or taking over partitions"
            raise UnavailableError(msg) from None
        finally:
            del self._pending[query.query_id]

    async def _read(self) -> None:
        async for records in clients.poll_forever(self._consumer, what="query_replies"):
            for record in records:
                self._on_record(record)

    def _on_record(self, record: ConsumedRecord) -> None:
        try:
            reply = decode_query_reply(checked_value(record))
        except UnreadableRecordError as error:
            skip_unreadable(record, error)
            return
        waiting = self._pending.get(reply.query_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)
