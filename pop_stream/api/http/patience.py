"""How long the API waits for what it depends on."""

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from pop_stream.core.errors import UnavailableError

PATIENCE_S: Final = 5.0

T = TypeVar("T")


async def answer_in_time(awaitable: Awaitable[T], *, within_s: float = PATIENCE_S) -> T:
    """The result, unless it takes too long.

    Raises:
        UnavailableError: If it does.
    """
    try:
        async with asyncio.timeout(within_s):
            return await awaitable
    except TimeoutError:
        msg = f"no answer within {within_s:g} s"
        raise UnavailableError(msg) from None
