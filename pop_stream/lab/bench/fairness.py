"""`pop-stream bench fairness`: a named scenario on the real stack."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pop_stream.cli.output import JsonFlag
from pop_stream.lab.bench.options import Folder, Processes, Target
from pop_stream.lab.reporting import measure_and_report

if TYPE_CHECKING:
    from pop_stream.lab.bench.comparison import FairnessBenchOptions

_RUNNERS: Final = 8

ScenarioName = Annotated[str, typer.Option(help="As of `pop-stream simulate`.")]
Seed = Annotated[int, typer.Option(help="Of all chance in the scenario.")]
Scale = Annotated[float, typer.Option(min=0.01, max=100, help="Of the scenario's counts.")]
Seconds = Annotated[
    float | None,
    typer.Option(min=1, help="About how long the scenario may take; instead of --scale."),
]
Runners = Annotated[
    int, typer.Option(min=1, max=1000, help="Agendas at a time, of all pullers together.")
]
Runs = Annotated[
    int, typer.Option(min=1, max=99, help="How often; the run in the middle counts.")
]
Svg = Annotated[
    Path | None, typer.Option(help="Write a picture of everybody's service over time.")
]


def fairness(  # noqa: PLR0913  # one parameter an option
    *,
    scenario: ScenarioName,
    seed: Seed = 1,
    scale: Scale = 1.0,
    seconds: Seconds = None,
    runners: Runners = _RUNNERS,
    pullers: Processes = 2,
    runs: Runs = 3,
    target: Target = "auto",
    folder: Folder = None,
    svg: Svg = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a scenario on the real stack by age and as it is, in turns, and its quiet one alone.

    Starts Kafka and PostgreSQL, unless POP_KAFKA_BOOTSTRAP and POP_POSTGRES_DSN name them,
    and every part on this machine, and ends them.
    """
    from pop_stream.lab.bench.comparison import FairnessBenchOptions
    from pop_stream.lab.simulate.cases import parse_target
    from pop_stream.lab.simulate.scenarios import SCENARIOS
    from pop_stream.operations.errors import UsageError

    if scenario not in SCENARIOS:
        msg = f"--scenario {scenario!r} is unknown; use one of {', '.join(SCENARIOS)}"
        raise UsageError(msg)
    if runners % pullers:
        msg = f"--runners {runners} cannot be divided evenly by --pullers {pullers}"
        raise UsageError(msg)
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
    _measure(bench_options, svg, as_json=as_json)


def _measure(bench_options: "FairnessBenchOptions", svg: Path | None, *, as_json: bool) -> None:
    from pop_stream.lab.bench.comparison import run_fairness_bench
    from pop_stream.lab.simulate import report
    from pop_stream.lab.simulate.chart import write_picture
    from pop_stream.operations import logging
    from pop_stream.operations.environment import load_console_settings

    logging.configure(load_console_settings())
    scenario = bench_options.scenario
    shown: list[Any] = []

    async def measure(on_progress: Callable[[str], None]) -> Mapping[str, Any]:
        result = await run_fairness_bench(bench_options, on_progress)
        comparisons = {scenario: result.comparison}
        shown.append(report.view(comparisons))
        if svg is not None:
            write_picture(svg, f"{scenario}, on the real stack", comparisons)
            on_progress(f"picture written to {svg}")
        return {**report.as_json(comparisons), **result.facts}

    measure_and_report(measure, lambda _: shown, as_json=as_json)
