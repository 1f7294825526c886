"""The only reader of the wall clock, and a wait that ends sooner."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime


class WallClock:
    """The machine's clock, as aware UTC instants."""

    def now(self) -> datetime:
        """The present instant."""
        return datetime.now(UTC)  # noqa: TID251  # this is the one place that may


async def wait_until_set(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event, but no longer; whether it is set then."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
