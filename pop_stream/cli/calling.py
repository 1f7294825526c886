"""How commands call the API; nothing of it is imported before a command runs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pop_stream.client.client import Client

T = TypeVar("T")


def with_api(work: Callable[["Client"], Awaitable[T]]) -> T:
    """What some work with the API that the settings name comes to."""
    from pop_stream.composition.client import open_client

    async def run() -> T:
        async with open_client() as client:
            return await work(client)

    return asyncio.run(run())
