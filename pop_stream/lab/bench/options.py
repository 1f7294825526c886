"""Options that several benchmarks have, so that they mean the same in each; and their end.

Every benchmark logs as the settings of this process say, and runs on uvloop as the parts do,
unless it says otherwise.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from pop_stream.lab.reporting import Measure, measure_and_report

Customers = Annotated[int, typer.Option(min=1, max=1_000_000, help="Taken in turn.")]

Operations = Annotated[
    int, typer.Option(min=1, max=1000, help="Of an agenda, one after the other.")
]

Insights = Annotated[int, typer.Option(min=1, max=1000, help="Taken in turn.")]

Size = Annotated[
    int, typer.Option(min=1, max=500_000, help="Bytes of an agenda, if not larger anyhow.")
]

Processes = Annotated[int, typer.Option(min=1, max=64, help="Processes.")]

Concurrency = Annotated[
    int, typer.Option(min=1, max=10_000, help="Agendas that a puller runs at a time.")
]

Target = Annotated[
    str, typer.Option(metavar="N|auto", help="Unclaimed agendas that a refill aims at.")
]

Folder = Annotated[
    Path | None, typer.Option(help="Keep data and logs here; else nothing is kept.")
]


def run_benchmark(
    measure: Measure, view: Callable[[Mapping[str, Any]], Iterable[Any]], *, as_json: bool
) -> None:
    """Configure logging, measure on uvloop, and print the report.

    Raises:
        CommandError: If a signal ended it; everything was stopped by then.
    """
    import uvloop

    from pop_stream.operations import logging
    from pop_stream.operations.environment import load_console_settings

    logging.configure(load_console_settings())
    measure_and_report(measure, view, as_json=as_json, loop_factory=uvloop.new_event_loop)
