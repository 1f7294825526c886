"""`pop-stream bench pipeline`: the whole path, from a submission to its summary in Postgres."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pop_stream.cli.output import JsonFlag
from pop_stream.lab.bench.options import (
    Concurrency,
    Customers,
    Folder,
    Insights,
    Operations,
    Processes,
    Size,
    Target,
    run_benchmark,
)

if TYPE_CHECKING:
    from pop_stream.lab.bench.pipeline_run import (
        PipelineBenchOptions,
        PipelineResult,
        PipelineRun,
    )

_WINDOW: Final = 10_000

Burst = Annotated[
    int, typer.Option(min=1, max=10_000_000, help="Of each run, submitted as a burst.")
]
Seconds = Annotated[
    float | None,
    typer.Option(min=1, max=3600, help="Instead: so long, with --window outstanding."),
]
Window = Annotated[
    int, typer.Option(min=1, max=1_000_000, help="Submitted and not ended, with --seconds.")
]
Runs = Annotated[int, typer.Option(min=1, max=100, help="Of path and floor each.")]
WithFloor = Annotated[bool, typer.Option(help="Also run bare clients, hop by hop.")]
Svg = Annotated[Path | None, typer.Option(help="Write a picture of all runs over time.")]


def pipeline(  # noqa: PLR0913  # one parameter an option
    *,
    agendas: Burst = 20_000,
    seconds: Seconds = None,
    window: Window = _WINDOW,
    runs: Runs = 3,
    customers: Customers = 10,
    operations: Operations = 1,
    insights: Insights = 1,
    size: Size = 300,
    pullers: Processes = 1,
    concurrency: Concurrency = 500,
    schedulers: Processes = 1,
    ingests: Processes = 1,
    rollups: Processes = 1,
    target: Target = "auto",
    floor: WithFloor = True,
    folder: Folder = None,
    svg: Svg = None,
    as_json: JsonFlag = False,
) -> None:
    """Submit no-op agendas and time them until their summaries are in Postgres.

    Every run is followed by one of the floor: bare clients that carry records of the same
    size over as many topics, a process a hop, and upsert as many rows, on the same servers.
    """
    from pop_stream.lab.bench.load import LoadProfile
    from pop_stream.lab.bench.pipeline_run import PipelineBenchOptions
    from pop_stream.lab.simulate.cases import parse_target

    loop = LoadProfile(seconds=seconds, window=window) if seconds else LoadProfile(agendas)
    bench_options = PipelineBenchOptions(
        profile=loop,
        runs=runs,
        customers=customers,
        operations=operations,
        insights=insights,
        size=size,
        pullers=pullers,
        concurrency=concurrency,
        target=parse_target(target),
        copies={"scheduler": schedulers, "ingest": ingests, "rollup": rollups},
        floor=floor,
    )
    _measure(bench_options, folder, svg, as_json=as_json)


def _measure(
    bench_options: "PipelineBenchOptions",
    folder: Path | None,
    svg: Path | None,
    *,
    as_json: bool,
) -> None:
    from pop_stream.lab.bench.chart import write_progress
    from pop_stream.lab.bench.conditions import conditions, data_folder
    from pop_stream.lab.bench.pipeline_run import run_pipeline

    measured_under = conditions(**_named(bench_options))

    async def measure(on_progress: Callable[[str], None]) -> Mapping[str, Any]:
        with data_folder(folder) as place:
            outcome = await run_pipeline(bench_options, place, on_progress)
        if svg is not None:
            write_progress(svg, outcome)
            on_progress(f"picture written to {svg}")
        return report(outcome, measured_under)

    run_benchmark(measure, _view, as_json=as_json)


def report(outcome: "PipelineResult", measured_under: Mapping[str, Any]) -> Mapping[str, Any]:
    """The contract's figures, medians of the runs, and all that led to them."""
    from pop_stream.lab.bench.figures import spread

    runs, floors = outcome.runs, outcome.floors
    per_s = median(one.per_s for one in runs)
    floor_per_s = median(one.per_s for one in floors) if floors else None
    return {
        "agendas_per_s": round(per_s, 1),
        "floor_per_s": None if floor_per_s is None else round(floor_per_s, 1),
        "ratio": round(per_s / floor_per_s, 4) if floor_per_s else None,
        "lost": sum(one.lost for one in runs),
        "duplicates": sum(one.duplicates for one in runs),
        "repeated_starts": sum(one.repeated_starts for one in runs),
        "failed_attempts": sum(one.failures for one in runs),
        "peak_rss_mb": round(max(_own_peak(one) for one in runs), 1),
        "cpu_s_per_1k": round(median(one.cpu_s_per_1k for one in runs), 4),
        "floor_cpu_s_per_1k": round(median(one.cpu_s_per_1k for one in floors), 4)
        if floors
        else None,
        "agendas_per_s_of_runs": spread([one.per_s for one in runs]),
        "floor_per_s_of_runs": spread([one.per_s for one in floors]),
        "parts": _parts(runs),
        "floor_parts": _parts(floors),
        "runs": [_run(one) for one in runs],
        "floors": [_run(one) for one in floors],
        "warm_up": _run(outcome.warm_up),
        "conditions": measured_under,
    }


def _named(bench_options: "PipelineBenchOptions") -> Mapping[str, object]:
    return {
        "loop": bench_options.profile.loop,
        "runs": bench_options.runs,
        "customers": bench_options.customers,
        "operations": bench_options.operations,
        "insights": bench_options.insights,
        "agenda_bytes": bench_options.size,
        "pullers": bench_options.pullers,
        "concurrency": bench_options.concurrency,
        "target": bench_options.target,
        "processes": dict(bench_options.copies or {}),
    }


def _own_peak(run: "PipelineRun") -> float:
    from pop_stream.lab.bench.meter import own_parts

    return sum(run.costs[name].peak_rss_mb for name in own_parts(run.costs))


def _run(run: "PipelineRun") -> Mapping[str, Any]:
    return {
        "agendas": run.agendas,
        "agendas_per_s": round(run.per_s, 1),
        "seconds": round(run.samples[-1].at, 3),
        "cpu_s_per_1k": round(run.cpu_s_per_1k, 4),
        "core_share_besides": run.other_load,
        "lost": run.lost,
        "duplicates": run.duplicates,
    }


def _parts(runs: Sequence["PipelineRun"]) -> Mapping[str, Any]:
    """What each part cost: medians of the runs; memory as it was at its most."""
    names = dict.fromkeys(name for run in runs for name in run.cpu_s)
    found: dict[str, Any] = {}
    for name in names:
        cpu = median(run.by_part.get(name, 0.0) for run in runs)
        peaks = [run.costs[name].peak_rss_mb for run in runs if name in run.costs]
        found[name] = {"cpu_s_per_1k": round(cpu, 4)}
        if peaks:
            found[name]["peak_rss_mb"] = round(max(peaks), 1)
    return found


def _view(result: Mapping[str, Any]) -> Sequence[Any]:
    from pop_stream.cli.output import table

    rows = [
        (name, f"{one['cpu_s_per_1k'] * 1e3:,.0f}", f"{one.get('peak_rss_mb', 0):,.0f}")
        for name, one in result["parts"].items()
    ]
    lines: list[Any] = [
        f"[bold]{result['agendas_per_s']:,.0f} agendas/s[/] {_range(result, 'agendas_per_s')}"
    ]
    if result["ratio"] is not None:
        floor = f"{result['floor_per_s']:,.0f} {_range(result, 'floor_per_s')}"
        lines.append(f"floor {floor}, ratio [bold]{result['ratio']:.2f}[/]")
    lines.append(f"lost {result['lost']}, duplicates {result['duplicates']}")
    other_load = [one["core_share_besides"]["others"] for one in result["runs"]]
    lines.append(f"other processes used up to {max(other_load):.0%} of a core meanwhile")
    return [*lines, table(("part", "#CPU µs an agenda", "#peak MB"), rows)]


def _range(result: Mapping[str, Any], name: str) -> str:
    spread = result[f"{name}_of_runs"]
    return f"({spread['min']:,.0f} to {spread['max']:,.0f})"
