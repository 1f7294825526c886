"""What a dispatcher has to tell and Kafka has not acknowledged, counted in bytes."""

import asyncio
from typing import Final

from pop_stream.core.events import DeliveryEvent, PollRejected, DeliveryReturned

MAX_PENDING_BYTES: Final = 32 * 1024 * 1024
"""Of agendas; from there on none is claimed for callers, who wish for a number of them, each of
300 bytes or of nearly a megabyte."""

DispatchEvent = DeliveryEvent | DeliveryReturned


class DispatchOutbox:
    """A queue with one reader; what it took counts until it says that it is told."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[DispatchEvent] = asyncio.Queue()
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether no further agenda should be claimed; see `pipeline.Outlet`."""
        return self._bytes >= MAX_PENDING_BYTES

    def put(self, event: DispatchEvent) -> None:
        """Have it told; always taken, since what is claimed must go on."""
        self._waiting.put_nowait(event)
        self._bytes += _size(event)

    async def take(self) -> list[DispatchEvent]:
        """All that waits, once there is some."""
        batch = [await self._waiting.get()]
        while not self._waiting.empty():
            batch.append(self._waiting.get_nowait())
        return batch

    def forget(self, batch: list[DispatchEvent]) -> None:
        """These are told."""
        self._bytes -= sum(map(_size, batch))


def _size(event: DispatchEvent) -> int:
    return 0 if isinstance(event, PollRejected) else len(event.emitted.agenda)
