"""Work that goes on beside a part, and whose end is the end of that part.

A task that nobody awaits dies unseen: the process stays, its probes are content, and what the
task did is done no more, perhaps for weeks. So whoever needs such work runs it by `background`
around its own, and the first of them that dies takes the others along, up to the process, which
is started again. `tests/unit/test_background.py` lists all other tasks with who awaits them.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final

import structlog

from pop_stream.model.errors import PopStreamError

_ENDED: Final = "it returned, though it was to go on"

ExitReason = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]
"""What a context manager is left with; three times None in order."""

_log = structlog.get_logger()


class BackgroundTaskError(PopStreamError):
    """Work beside a part has died: the part is to end, and to be started again.

    Attributes:
        name: Of the work.
    """

    code = "background_task"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} has ended by itself: {why}")
        self.name = name


@asynccontextmanager
async def background(**works: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Run these beside the body until it ends, which it does at once if one of them does.

    Enter and leave it in the same task: that is the one which is cancelled. Later ones may
    use what earlier ones need, so they are cancelled together.

    Args:
        works: By name, for logs and errors. Each goes on until it is cancelled.

    Raises:
        BackgroundTaskError: If one of them ended, with its error as the cause.
        Exception: Whatever the body raises by itself, as it is.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_run_forever(name, work), name=name)
                for name, work in works.items()
            ]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
    except BaseExceptionGroup as failures:
        # The first is the cause: what the body raises when it is cancelled comes after it.
        raise failures.exceptions[0] from failures.exceptions[0].__cause__
    finally:
        for work in works.values():
            work.close()  # what was cancelled before it began


async def _run_forever(name: str, work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except Exception as error:
        _log.exception("background.failed", task=name)
        cause: BaseException = error
        while isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        raise BackgroundTaskError(name, f"{type(cause).__name__}: {cause}") from error
    raise BackgroundTaskError(name, _ENDED)
