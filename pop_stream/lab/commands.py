"""The commands of the lab: added to `pop-stream` by `pop_stream.__main__`."""

from typing import TYPE_CHECKING

from pop_stream.lab.bench.command import app as bench
from pop_stream.lab.chaos.command import chaos
from pop_stream.lab.demo.command import demo
from pop_stream.lab.replay.command import replay
from pop_stream.lab.simulate.command import simulate

if TYPE_CHECKING:
    import typer


def add_commands(app: "typer.Typer") -> None:
    """Add what tries out, measures and checks the product to its command line."""
    app.command(rich_help_panel="Try it")(demo)
    app.command(rich_help_panel="Operate")(replay)
    app.command(rich_help_panel="Measure")(simulate)
    app.command(rich_help_panel="Measure")(chaos)
    app.add_typer(bench, rich_help_panel="Measure")
