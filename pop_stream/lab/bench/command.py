"""`pop-stream bench`: measurements on the real stack; each prints its conditions too."""

import typer

from pop_stream.lab.bench.backlog import backlog
from pop_stream.lab.bench.compare import compare
from pop_stream.lab.bench.console import console
from pop_stream.lab.bench.fairness import fairness
from pop_stream.lab.bench.idle import idle
from pop_stream.lab.bench.latency import latency
from pop_stream.lab.bench.pipeline import pipeline
from pop_stream.lab.bench.schedules import schedules
from pop_stream.lab.bench.soak import soak

app = typer.Typer(
    name="bench",
    help="Measure the real stack: real Kafka, real PostgreSQL, every part a process.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

for command in (pipeline, latency, backlog, idle, soak, fairness, console, schedules, compare):
    app.command()(command)
