"""The command `pop-stream`: the product's commands, and what an error looks like.

`pop_stream.__main__` adds the commands of the lab, which the product does not import.
"""

import sys
import traceback
from typing import Annotated

import typer

import pop_stream
from pop_stream.cli import admin, agendas, definitions, dev, parts, stats
from pop_stream.cli.dead_letters import app as dead_letters
from pop_stream.cli.imports import app as imports
from pop_stream.cli.keys import app as keys
from pop_stream.cli.signals import app as signals
from pop_stream.cli.signals import complete
from pop_stream.operations.errors import UsageError, message, wants_traces

app = typer.Typer(
    name="pop-stream",
    help="Schedule work fairly between customers, on Kafka.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:  # typer calls it so
    if wanted:
        typer.echo(f"pop-stream {pop_stream.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[  # its callback does the work
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version."
        ),
    ] = False,
) -> None:
    pass


for panel, commands in (
    ("Try it", (dev.dev,)),
    (
        "Work with agendas",
        (agendas.submit, agendas.progress, agendas.watch, complete),
    ),
    ("Parts, one long-running process each", parts.COMMANDS),
    ("Operate", (*stats.COMMANDS, *admin.COMMANDS)),
):
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(agendas.app, name="agenda", rich_help_panel="Work with agendas")
for group in definitions.GROUPS:
    app.add_typer(group, rich_help_panel="Define")
app.add_typer(imports, rich_help_panel="Define")
app.add_typer(signals, rich_help_panel="Work with agendas")
app.add_typer(dead_letters, rich_help_panel="Operate")
app.add_typer(keys, rich_help_panel="Operate")


def main() -> None:
    """Run the command line; exits with 0, 1 for a failure, 2 for wrong usage."""
    try:
        app(prog_name="pop-stream")
    except Exception as error:  # the last place that can say it well
        if wants_traces():
            traceback.print_exc()
        typer.echo(f"pop-stream: {message(error)}", err=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)
