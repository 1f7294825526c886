"""Clients of the HTTP API: `submit`, `progress` and `watch`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from pop_stream.cli.errors import UsageError
from pop_stream.cli.files import read_bytes
from pop_stream.cli.output import JsonFlag


def submit(
    file: Annotated[
        Path, typer.Argument(help="JSON of one agenda or a list of them; - reads it here.")
    ],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until all have ended; exit 1 if any failed.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Submit an agenda, or a list of them, to the API at POP_API_URL."""
    from pop_stream.cli import agenda_work

    asyncio.run(agenda_work.submit(read_bytes(file), wait=wait, as_json=as_json))


def progress(
    agenda_id: Annotated[str, typer.Argument(metavar="ID", help="The agenda's id.")],
    as_json: JsonFlag = False,
) -> None:
    """Show how far an agenda is, operation by operation."""
    from pop_stream.cli import agenda_work

    asyncio.run(agenda_work.progress(agenda_id, as_json=as_json))


def watch(
    agenda_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The agenda's id.")
    ] = None,
    link: Annotated[str | None, typer.Option(help="Watch all agendas of a link id.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Follow an agenda, or all agendas of a link, until the end; exit 1 if it failed."""
    if (agenda_id is None) == (link is None):
        msg = "name either an agenda's id or a link with --link"
        raise UsageError(msg)
    from pop_stream.cli import agenda_work

    asyncio.run(agenda_work.watch(agenda_id, link, as_json=as_json))
