"""`pop-stream bench fairness`: a named scenario on the real stack."""

from pathlib import Path
from typing import Annotated, Final

import typer

from pop_stream.cli.output import JsonFlag

_RUNNERS: Final = 8


def fairness(  # noqa: PLR0913  # one parameter an option
    *,
    scenario: Annotated[str, typer.Option(help="As of `pop-stream simulate`.")],
    seed: Annotated[int, typer.Option(help="Of all chance in the scenario.")] = 1,
    scale: Annotated[
        float, typer.Option(min=0.01, max=100, help="Of the scenario's counts.")
    ] = 1.0,
    seconds: Annotated[
        float | None,
        typer.Option(min=1, help="About how long the scenario may take; instead of --scale."),
    ] = None,
    runners: Annotated[
        int, typer.Option(min=1, max=1000, help="Agendas at a time, of all pullers together.")
    ] = _RUNNERS,
    pullers: Annotated[int, typer.Option(min=1, max=64, help="Puller processes.")] = 2,
    runs: Annotated[
        int, typer.Option(min=1, max=99, help="How often; the run in the middle counts.")
    ] = 3,
    target: Annotated[
        str, typer.Option(metavar="N|auto", help="Unclaimed agendas that a refill aims at.")
    ] = "auto",
    folder: Annotated[
        Path | None, typer.Option(help="Keep data and logs here; else nothing is kept.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Write a picture of everybody's service over time.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a scenario on the real stack by age and as it is, in turns, and its quiet one alone.

    Starts Kafka and PostgreSQL, unless POP_KAFKA_BOOTSTRAP and POP_POSTGRES_DSN name them,
    and every part on this machine, and ends them.
    """
    from pop_stream.cli.output import console, emit
    from pop_stream.lab.bench.comparison import FairnessBenchOptions, run_fairness_bench
    from pop_stream.lab.simulate import report
    from pop_stream.lab.simulate.cases import parse_target
    from pop_stream.lab.simulate.chart import write_picture
    from pop_stream.lab.simulate.scenarios import SCENARIOS
    from pop_stream.operations import logging
    from pop_stream.operations.environment import load_console_settings
    from pop_stream.operations.errors import CommandError, UsageError
    from pop_stream.operations.lifetime import run_until_interrupted

    if scenario not in SCENARIOS:
        msg = f"--scenario {scenario!r} is unknown; use one of {', '.join(SCENARIOS)}"
        raise UsageError(msg)
    if runners % pullers:
        msg = f"--runners {runners} cannot be dealt out evenly to --pullers {pullers}"
        raise UsageError(msg)
    logging.configure(load_console_settings())
    shown = console(as_json=as_json)
    bench_options = FairnessBenchOptions(
        scenario=scenario,
        seed=seed,
        scale=scale,
        seconds=seconds,
        runners=runners,
        pullers=pullers,
        runs=runs,
        target=parse_target(target),
        folder=folder,
    )

    async def run() -> None:
        result = await run_fairness_bench(
            bench_options, lambda line: shown.print(f"[dim]{line}[/]")
        )
        comparisons = {scenario: result.comparison}
        shown.print(report.view(comparisons))
        if svg is not None:
            write_picture(svg, f"{scenario}, on the real stack", comparisons)
            shown.print(f"picture written to {svg}")
        if as_json:
            emit({**report.as_json(comparisons), **result.facts})

    if run_until_interrupted(run()):
        msg = "interrupted; everything was stopped"
        raise CommandError(msg)
