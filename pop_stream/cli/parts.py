"""The long-running parts: `serve`, `ingest`, `scheduler`, `rollup` and `pull`."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pop_stream.operations.errors import UsageError

if TYPE_CHECKING:
    from pop_stream.settings import Settings

PartBody = Callable[["Settings", asyncio.Event], Awaitable[None]]

_YOUNG_OBJECTS: Final = 50_000
"""New objects after which the collector looks for cycles: about what a puller's runners hold at
a time. What agendas leave behind has no cycles, and is freed without it."""


def serve() -> None:
    """Serve the HTTP API and the web page, at POP_HTTP_HOST and POP_HTTP_PORT."""
    from pop_stream.composition.api import run_api

    run_part("api", lambda settings, stop: run_api(settings, stop, on_url=typer.echo))


def ingest() -> None:
    """Validate and place submissions, and carry what pullers report to the scheduler."""
    from pop_stream.composition.ingest import run_ingest

    run_part("ingest", run_ingest)


def scheduler() -> None:
    """Decide which ready agendas are emitted next; several processes share the insights."""
    from pop_stream.composition.scheduler import run_scheduler

    run_part("scheduler", run_scheduler)


def rollup() -> None:
    """Fold the lifecycle of all agendas into summaries in Postgres."""
    from pop_stream.composition.rollup import run_rollup

    run_part("rollup", run_rollup)


def pull(
    insight: Annotated[list[str], typer.Option(help="What to pull; may be given again.")],
    handlers: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:ATTRIBUTE", help="More handlers; may be given again."),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="Agendas at a time; else POP_PULLER_CONCURRENCY."),
    ] = None,
) -> None:
    """Pull agendas of insights and run their operations, with built-in and your handlers."""
    from pop_stream.puller.handlers.builtin import builtin
    from pop_stream.puller.handlers.registry import load_handlers
    from pop_stream.puller.puller import Puller

    try:
        own = [load_handlers(reference) for reference in handlers or ()]
    except ValueError as error:
        raise UsageError(str(error)) from None

    async def body(settings: "Settings", stop: asyncio.Event) -> None:
        puller = Puller(
            insights=insight,
            handlers=[builtin(settings), *own],
            settings=settings,
            concurrency=concurrency,
        )
        await puller.serve(stop)

    run_part("puller", body)


COMMANDS: Final = (serve, ingest, scheduler, rollup, pull)


def run_part(name: str, body: PartBody) -> None:
    """Run one part to its orderly end; an error is left to `main`, which exits non-zero.

    Args:
        name: Of the part.
        body: What the part does until the event it is given is set.

    Raises:
        UsageError: If a variable has a value that cannot be.
    """
    import uvloop

    from pop_stream.operations import logging
    from pop_stream.operations.environment import load_settings
    from pop_stream.operations.lifetime import run_until_stopped
    from pop_stream.telemetry.tracing import traced

    settings = load_settings()
    logging.configure(settings)

    async def run(stop: asyncio.Event) -> None:
        await body(settings, stop)

    with _usage_checked(traced(settings, name)):
        _relax_garbage_collector()
        uvloop.run(run_until_stopped(run))


@contextmanager
def _usage_checked(entered: AbstractContextManager[None]) -> Iterator[None]:
    """Enter it; a ValueError of that says that a variable of this process is wrong."""
    with ExitStack() as stack:
        try:
            stack.enter_context(entered)
        except ValueError as error:
            raise UsageError(str(error)) from None
        yield


def _relax_garbage_collector() -> None:
    """Have the collector leave alone what was imported, and look at the rest less often.

    Looking through all modules takes tens of milliseconds, in which nothing else goes on.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
