"""How many agendas have their end in Postgres, told without reading a row of theirs.

The rollup stores how far it has read `pop.agenda-events` in the transaction that writes the
summaries. So the ends among the records before that offset are durable and readable: they are
counted as they pass by on the topic, and a query of a few rows says up to where they count.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final, Self

from aiokafka import AIOKafkaConsumer

from pop_stream.bus import clients
from pop_stream.bus.topics import Topics
from pop_stream.settings import Settings
from pop_stream.store.pool import open_pool
from pop_stream.store.summaries import PostgresSummaries

_ENDS: Final = (b'"type":"agenda.succeeded"', b'"type":"agenda.failed"')
_MAX_RECORDS: Final = 5_000


class EndCounter:
    """Ends by offset, for each partition; a pure count."""

    def __init__(self) -> None:
        self._seen: dict[int, deque[tuple[int, int]]] = {}
        self._total = 0

    def note(self, partition: int, offset: int, value: bytes) -> None:
        """Take note of a record; those of one partition come in order."""
        ends = sum(map(value.count, _ENDS))
        if ends:
            self._seen.setdefault(partition, deque()).append((offset, ends))

    def up_to(self, offsets: Mapping[int, int]) -> int:
        """All ends in records before these offsets; they are never asked for again lower."""
        for partition, end in offsets.items():
            seen = self._seen.get(partition)
            while seen and seen[0][0] < end:
                self._total += seen.popleft()[1]
        return self._total


class FoldedEndCounter:
    """Follows the topic from the moment it is entered on."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic = Topics(settings.topic_prefix).agenda_events
        self._ends = EndCounter()
        self._open = AsyncExitStack()
        self._following: asyncio.Task[None] | None = None
        self._store: PostgresSummaries | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            self._store = PostgresSummaries(
                await opening.enter_async_context(open_pool(self._settings))
            )
            # Never from the beginning: ends of an earlier run would count for this one.
            consumer = clients.consumer(
                self._settings,
                self._topic,
                client_id="bench-folded",
                group_id=None,
                auto_offset_reset="latest",
            )
            await opening.enter_async_context(consumer)
            await consumer.seek_to_end()
            for partition in consumer.assignment():
                # Seeking is lazy: asking settles where it begins.
                await consumer.position(partition)
            self._following = asyncio.create_task(self._follow(consumer))
            opening.callback(self._following.cancel)
            self._open = opening.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def count(self) -> int:
        """Agendas that have ended, durably, since this was entered.

        Raises:
            UnavailableError: If the database does not answer.
        """
        if self._store is None:
            return 0
        if self._following is not None and self._following.done():
            self._following.result()
        return self._ends.up_to(await self._store.next_offsets(self._topic))

    async def _follow(self, consumer: AIOKafkaConsumer) -> None:
        while True:
            fetched = await consumer.getmany(timeout_ms=250, max_records=_MAX_RECORDS)
            for tp, records in fetched.items():
                for record in records:
                    self._ends.note(tp.partition, record.offset, record.value or b"")
