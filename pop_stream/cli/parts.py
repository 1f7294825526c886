"""The long-running parts: `serve`, `intake`, `schedule`, `rollup` and `pull`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from pop_stream.settings import Settings

Body = Callable[["Settings", asyncio.Event], Awaitable[None]]


def serve() -> None:
    """Serve the HTTP API and the web page, at POP_HTTP_HOST and POP_HTTP_PORT."""
    from pop_stream import wiring

    run_part(lambda settings, stop: wiring.run_api(settings, stop, on_url=typer.echo))


def intake() -> None:
    """Validate and place submissions, and carry what pullers report to the scheduler."""
    from pop_stream import wiring

    run_part(wiring.run_intake)


def schedule() -> None:
    """Decide which ready agendas are emitted next; several processes share the insights."""
    from pop_stream import wiring

    run_part(wiring.run_scheduler)


def rollup() -> None:
    """Fold the lifecycle of all agendas into summaries in Postgres."""
    from pop_stream import wiring

    run_part(wiring.run_rollup)


COMMANDS: Final = (serve, intake, schedule, rollup)


def run_part(body: Body, overrides: Mapping[str, object] | None = None) -> None:
    """Run one part to its orderly end; an error is left to `main`, which exits non-zero.

    Args:
        body: What the part does until the event it is given is set.
        overrides: Settings from options, which win over the environment.
    """
    import uvloop

    from pop_stream.cli import logs
    from pop_stream.cli.environment import load_settings
    from pop_stream.cli.lifetime import run_until_stopped

    settings = load_settings(overrides)
    logs.configure(settings)

    async def run(stop: asyncio.Event) -> None:
        await body(settings, stop)

    uvloop.run(run_until_stopped(run))
