"""The commands of the lab: added to `pop-stream` by `pop_stream.__main__`.

What its user tries out or measures is a command of its own; what looks at the code itself is
below `pop-stream lab`.
"""

import typer

from pop_stream.lab.adversary.command import adversary
from pop_stream.lab.bench.command import app as bench
from pop_stream.lab.chaos.command import chaos
from pop_stream.lab.demo.command import demo
from pop_stream.lab.golden.command import golden
from pop_stream.lab.replay.command import replay
from pop_stream.lab.simulate.command import simulate
from pop_stream.lab.walk.walk import walk

lab = typer.Typer(
    name="lab",
    help="Look at the code at work.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
lab.command()(walk)
lab.command()(golden)


def add_commands(app: typer.Typer) -> None:
    """Add what tries out, measures and checks the product to its command line."""
    app.command(rich_help_panel="Try it")(demo)
    app.command(rich_help_panel="Operate")(replay)
    app.command(rich_help_panel="Measure")(simulate)
    app.command(rich_help_panel="Measure")(chaos)
    app.command(rich_help_panel="Measure")(adversary)
    app.add_typer(bench, rich_help_panel="Measure")
    app.add_typer(lab, rich_help_panel="Measure")
