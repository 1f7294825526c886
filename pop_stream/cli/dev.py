"""`pop-stream dev`: everything on this machine, followed until Ctrl-C."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from pop_stream.devserver.plan import StackPlan

DEFINITIONS: Final = Path(__file__).with_name("definitions.toml")


def dev(
    folder: Annotated[
        Path, typer.Option(help="Where data and logs are kept over restarts.")
    ] = Path(".pop-stream"),
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Of the API; 8080 or the next free one if unset."),
    ] = None,
    pullers: Annotated[int, typer.Option(min=0, max=64, help="Puller processes.")] = 1,
    definitions: Annotated[
        Path, typer.Option(exists=True, dir_okay=False, help="Customers and insights, TOML.")
    ] = DEFINITIONS,
    handlers: Annotated[
        list[str] | None,
        typer.Option(help="More handlers for the pullers, as module:attribute."),
    ] = None,
) -> None:
    """Start everything on this machine: Kafka, PostgreSQL and every part; Ctrl-C stops it.

    Servers that POP_KAFKA_BOOTSTRAP and POP_POSTGRES_DSN name are used instead of embedded
    ones. A part or an embedded server that crashes is started again.
    """
    from pop_stream.cli.output import console
    from pop_stream.devserver.plan import StackPlan
    from pop_stream.operations import logging
    from pop_stream.operations.lifetime import run_until_interrupted

    logging.configure_file_logging(folder.absolute() / "logs" / "dev.log")
    plan = StackPlan(
        folder=folder,
        definitions=definitions,
        port=port,
        pullers=pullers,
        handlers=tuple(handlers or ()),
        restarts_servers=True,
    )
    shown = console()
    run_until_interrupted(_follow(plan, lambda line: shown.print(line, soft_wrap=True)))


async def _follow(plan: "StackPlan", on_progress: Callable[[str], None]) -> None:
    from pop_stream.devserver.stack import Stack

    async with Stack(plan, on_progress) as stack:
        url = stack.settings.api_url
        shown = stack.settings.console
        look = f"look at it at {stack.settings.console_url}; " if shown else ""
        on_progress(
            f"[bold]ready[/]: {look}the API is at {url}, what it serves at {url}/openapi.json"
        )
        on_progress(f"Kafka listens at {stack.settings.kafka_bootstrap}")
        on_progress(f"logs are in {stack.supervisor.logs}; Ctrl-C stops everything")
        on_progress(f"try: POP_API_URL={url} pop-stream submit agenda.json --wait")
        raise await stack.failed()
