"""A client that is cancelled while it connects leaves no connection open.

While it asks the first broker for the cluster's metadata, aiokafka holds the connection in a
local variable alone, and closes it after an answer or an error of Kafka, not when cancelled
(`AIOKafkaClient.bootstrap`). Nothing can close it then: it stays until it is collected.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from time import monotonic
from typing import Final, TypeVar

from aiokafka.client import AIOKafkaClient

T = TypeVar("T")

_ANSWER_TIMEOUT_S: Final = 5.0


async def shield_until_answered(request: Awaitable[T]) -> T:
    """The answer to a request; if cancelled, the request may end first, for seconds at most.

    For requests that may open a connection: cancelled meanwhile, it would stay open. Whoever
    ends a part may cancel more than once.
    """
    asked = asyncio.ensure_future(request)
    try:
        return await asyncio.shield(asked)
    except asyncio.CancelledError:
        until_s = monotonic() + _ANSWER_TIMEOUT_S
        while not asked.done() and (left_s := until_s - monotonic()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.wait([asked], timeout=left_s)
        asked.cancel()
        raise


def shield_bootstrap(client: AIOKafkaClient) -> None:
    """Have a client, not yet started, end its first exchange with a broker when cancelled.

    Whoever starts it closes it afterwards, as ever, also if starting was cancelled.
    """
    bootstrap = client.bootstrap

    async def bootstrapped() -> None:
        await shield_until_answered(bootstrap())

    client.bootstrap = bootstrapped
