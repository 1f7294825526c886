"""Parts in the test's own process."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from deadlines import within

from pop_stream.composition.api import run_api
from pop_stream.composition.ingest import run_ingest
from pop_stream.composition.rollup import run_rollup
from pop_stream.composition.scheduler import run_scheduler
from pop_stream.settings import Settings

END_WITHIN_S = 60


@asynccontextmanager
async def ending_in_order(
    stop: asyncio.Event, *parts: Coroutine[Any, Any, None]
) -> AsyncIterator[None]:
    """Run parts beside the block, and let them end by `stop`, also if the block fails.

    If a part fails, the block is cancelled and the others end, as in a task group. But none is
    cancelled: a scheduler that was would leave Faust's thread behind for all tests to come.
    """
    async with asyncio.TaskGroup() as tasks:
        for one in parts:
            tasks.create_task(_uncancelled(one, stop))
        try:
            yield
        finally:
            stop.set()


async def _uncancelled(part: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    running = asyncio.create_task(part)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        async with within(END_WITHIN_S):
            await running
        raise


@asynccontextmanager
async def all_but_pullers(settings: Settings, *, within_s: float) -> AsyncIterator[str]:
    """Run one of every part but pullers beside the block, for so long at most.

    Yields:
        Where the API is.
    """
    stop = asyncio.Event()
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    parts = (
        run_ingest(settings, stop),
        run_scheduler(settings, stop),
        run_rollup(settings, stop),
        run_api(settings, stop, url.set_result),
    )
    async with ending_in_order(stop, *parts), within(within_s):
        yield await url
