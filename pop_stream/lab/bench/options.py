"""Options that several benchmarks have, so that they mean the same in each."""

from pathlib import Path
from typing import Annotated

import typer

Customers = Annotated[int, typer.Option(min=1, max=1_000_000, help="Taken in turn.")]

Operations = Annotated[
    int, typer.Option(min=1, max=1000, help="Of an agenda, one after the other.")
]

Insights = Annotated[int, typer.Option(min=1, max=1000, help="Taken in turn.")]

Size = Annotated[
    int, typer.Option(min=1, max=500_000, help="Bytes of an agenda, if not larger anyhow.")
]

Pullers = Annotated[int, typer.Option(min=1, max=64, help="Processes.")]

Concurrency = Annotated[
    int, typer.Option(min=1, max=10_000, help="Agendas that a puller runs at a time.")
]

Folder = Annotated[
    Path | None, typer.Option(help="Keep data and logs here; else nothing is kept.")
]
