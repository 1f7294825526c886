"""`pop-stream bench scale`: the whole path with more and more processes of each part."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pop_stream.cli.output import JsonFlag
from pop_stream.lab.bench.options import Concurrency, Folder, Insights, Size, run_benchmark

if TYPE_CHECKING:
    from pop_stream.lab.bench.pipeline_run import PipelineResult, PipelineRun

_PARTS: Final = ("scheduler", "ingest", "rollup")
_MOST_PROCESSES: Final = 16
_US_PER_S: Final = 1e6

Steps = Annotated[
    str, typer.Option(metavar="K,K,...", help="Processes of each part, step by step.")
]
Burst = Annotated[
    int, typer.Option(min=1, max=10_000_000, help="Of each run, submitted as a burst.")
]
Runs = Annotated[int, typer.Option(min=1, max=100, help="Of each step.")]


def scale(  # noqa: PLR0913  # one parameter an option
    *,
    processes: Steps = "1,2,4",
    agendas: Burst = 10_000,
    runs: Runs = 1,
    insights: Insights = 8,
    size: Size = 300,
    concurrency: Concurrency = 500,
    folder: Folder = None,
    as_json: JsonFlag = False,
) -> None:
    """Run as many schedulers, ingests, rollups and pullers as each step says.

    What an agenda costs in a part, in all its processes together, should stay what it is. The
    busiest process then tells how many agendas a machine with a core for each would carry.
    """
    from pop_stream.lab.bench.conditions import conditions, data_folder

    steps = parse_steps(processes)
    measured_under = conditions(
        processes=list(steps), agendas=agendas, runs=runs, insights=insights, agenda_bytes=size
    )

    async def measure(on_progress: Callable[[str], None]) -> Mapping[str, Any]:
        from pop_stream.lab.bench.load import LoadProfile
        from pop_stream.lab.bench.pipeline_run import PipelineBenchOptions, run_pipeline

        found: dict[int, PipelineResult] = {}
        for count in steps:
            on_progress(f"{count} of each part")
            wanted = PipelineBenchOptions(
                LoadProfile(agendas),
                runs=runs,
                insights=insights,
                size=size,
                pullers=count,
                concurrency=concurrency,
                copies=dict.fromkeys(_PARTS, count),
                floor=False,
            )
            with data_folder(folder) as place:
                found[count] = await run_pipeline(wanted, place, on_progress)
        return {**report(found), "conditions": measured_under}

    run_benchmark(measure, _view, as_json=as_json)


def parse_steps(text: str) -> Sequence[int]:
    """The numbers of `--processes`, each larger than the one before.

    Raises:
        UsageError: If they are not.
    """
    from pop_stream.operations.errors import UsageError

    words = text.split(",")
    steps = [int(word) for word in words if word.isdecimal()]
    grow = (
        steps == sorted(set(steps)) and steps and steps[0] > 0 and steps[-1] <= _MOST_PROCESSES
    )
    if len(steps) < len(words) or not grow:
        msg = (
            f"--processes {text}: give numbers from 1 to {_MOST_PROCESSES}, each larger than "
            "the one before, such as 1,2,4"
        )
        raise UsageError(msg)
    return steps


def report(found: "Mapping[int, PipelineResult]") -> Mapping[str, Any]:
    """What each step came to, and by how much an agenda's cost in each part has grown."""
    steps = [_step(count, outcome.runs) for count, outcome in found.items()]
    first, last = steps[0]["cpu_us"], steps[-1]["cpu_us"]
    return {
        "steps": steps,
        "growth": {part: round(last[part] / first[part], 3) for part in first if first[part]},
        "lost": sum(one.lost for outcome in found.values() for one in outcome.runs),
        "duplicates": sum(one.duplicates for outcome in found.values() for one in outcome.runs),
    }


def _step(count: int, runs: "Sequence[PipelineRun]") -> Mapping[str, Any]:
    by_process = {
        name: median(one.by_part.get(name, 0.0) for one in runs) * _US_PER_S / 1_000
        for name in runs[0].by_part
    }
    by_part: dict[str, float] = defaultdict(float)
    for name, one in by_process.items():
        by_part[name.split("-")[0]] += one
    ours = {*_PARTS, "puller"}
    busiest, cost = max(
        ((name, cost) for name, cost in by_process.items() if name.split("-")[0] in ours),
        key=lambda one: one[1],
    )
    return {
        "processes": count,
        "agendas_per_s": round(median(one.per_s for one in runs), 1),
        "cpu_us": {part: round(cost, 1) for part, cost in by_part.items() if part != "bench"},
        "busiest": busiest,
        "busiest_cpu_us": round(cost, 1),
        "carries_per_s": round(_US_PER_S / cost, 1) if cost else None,
    }


def _view(result: Mapping[str, Any]) -> Sequence[Any]:
    from pop_stream.cli.output import table

    steps = result["steps"]
    rows = [
        (part, *(f"{one['cpu_us'].get(part, 0):,.0f}" for one in steps), f"{growth:.2f}")
        for part, growth in result["growth"].items()
    ]
    heads = [f"#µs an agenda, {one['processes']} each" for one in steps]
    busiest = ", ".join(
        f"{one['processes']} each: {one['busiest']} {one['busiest_cpu_us']:,.0f} µs"
        for one in steps
    )
    return [
        table(("part", *heads, "#last by first"), rows),
        f"busiest process: {busiest}",
        f"lost {result['lost']}, duplicates {result['duplicates']}",
    ]
