"""Follows `pop.agenda-events` from now on, for reports on what happens."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Self

from pop_stream.bus import clients
from pop_stream.bus.topics import Topics
from pop_stream.core.events import LifecycleEvent, decode_lifecycle, value_of
from pop_stream.settings import Settings

_MOST_RECORDS: Final = 2_000


class Following:
    """Hears every lifecycle event from the moment it is entered on.

    Args:
        settings: Where the cluster is.
        client_id: Tells it apart in the broker's logs.
        hear: Takes in the events of one record.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        client_id: str,
        hear: Callable[[Iterable[LifecycleEvent]], None],
    ) -> None:
        topic = Topics(settings.topic_prefix).agenda_events
        self._consumer = clients.consumer(settings, topic, client_id=client_id, group_id=None)
        self._hear = hear
        self._task: asyncio.Task[None] | None = None
        self._more = asyncio.Condition()

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
        """Wait until what was heard makes it so, or raise what stopped the reading."""
        while not is_so():
            async with self._more:
                await self._more.wait()
            if self._task is not None and self._task.done():
                self._task.result()

    async def _follow(self) -> None:
        try:
            while True:
                fetched = await self._consumer.getmany(
                    timeout_ms=250, max_records=_MOST_RECORDS
                )
                for records in fetched.values():
                    for record in records:
                        self._hear(decode_lifecycle(value_of(record)))
                await self._tell()
        finally:
            await self._tell()

    async def _tell(self) -> None:
        async with self._more:
            self._more.notify_all()
