"""`pop-stream demo`: a flood of one customer that does not hurt the others."""

from pathlib import Path
from typing import Annotated

import typer

from pop_stream.cli.output import JsonFlag, console, emit


def demo(
    seconds: Annotated[
        int, typer.Option(min=5, max=3600, help="About how long the work may take.")
    ] = 40,
    agendas: Annotated[
        int | None,
        typer.Option(min=10, max=100_000, help="How many; else what fits, at most 3600."),
    ] = None,
    pullers: Annotated[int, typer.Option(min=1, max=64, help="Puller processes.")] = 2,
    folder: Annotated[
        Path, typer.Option(help="Where data and logs are kept for the next time.")
    ] = Path(".pop-stream/demo"),
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave it up after the report, until Ctrl-C.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show a flood that does not hurt the others: real work of five customers, then a report.

    Starts Kafka, PostgreSQL and every part on this machine, and ends them. Exits non-zero if
    an agenda was lost, done twice, or failed.
    """
    from pop_stream.lab.demo.report import DemoReport, show_report
    from pop_stream.lab.demo.run import DemoConfig, run_demo
    from pop_stream.operations.errors import CommandError
    from pop_stream.operations.lifetime import run_until_interrupted

    shown = console(as_json=as_json)
    wanted = DemoConfig(folder, seconds=seconds, agendas=agendas, pullers=pullers, keep=keep)
    clean: bool | None = None

    def tell(report: DemoReport) -> None:
        nonlocal clean
        clean = report.is_clean
        show_report(shown, report)
        if as_json:
            emit(report.as_json())

    is_interrupted = run_until_interrupted(run_demo(wanted, shown, tell))
    if is_interrupted and (clean is None or not keep):
        msg = "interrupted; everything was stopped"
        raise CommandError(msg)
    if not clean:
        raise typer.Exit(1)
