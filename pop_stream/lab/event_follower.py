"""Follows `pop.agenda-events` from now on and passes every batch of events on."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Self

from pop_stream.kafka import clients
from pop_stream.kafka.topics import Topics
from pop_stream.model.events.codec import decode_lifecycle
from pop_stream.model.events.lifecycle import LifecycleEvent
from pop_stream.model.events.schema_version import checked_value
from pop_stream.settings import Settings

_MAX_RECORDS: Final = 2_000


class LifecycleFollower:
    """Follows every lifecycle event from the moment it is entered on.

    Args:
        settings: Where the cluster is.
        client_id: Tells it apart in the broker's logs.
        on_events: Takes in the events of one record.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        client_id: str,
        on_events: Callable[[Iterable[LifecycleEvent]], None],
    ) -> None:
        topic = Topics(settings.topic_prefix).agenda_events
        self._consumer = clients.consumer(settings, topic, client_id=client_id, group_id=None)
        self._on_events = on_events
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        try:
            await self._consumer.seek_to_end()
            for partition in self._consumer.assignment():
                # Seeking is lazy: asking settles where it begins.
                await self._consumer.position(partition)
        except BaseException:
            await self._consumer.stop()
            raise
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._consumer.stop()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until the events read so far make it so, or raise what stopped the reading."""
        while not is_so():
            async with self._changed:
                await self._changed.wait()
            if self._task is not None and self._task.done():
                self._task.result()

    async def _follow(self) -> None:
        try:
            while True:
                fetched = await self._consumer.getmany(timeout_ms=250, max_records=_MAX_RECORDS)
                for records in fetched.values():
                    for record in records:
                        self._on_events(decode_lifecycle(checked_value(record)))
                await self._notify()
        finally:
            await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
