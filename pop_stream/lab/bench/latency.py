"""`pop-stream bench latency`: how long an agenda takes at a fixed rate, in an open loop."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

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
    run_benchmark,
)

if TYPE_CHECKING:
    from pop_stream.lab.bench.latency_run import LatencyBenchOptions

_STARTED: Final = "the handler's first line, by the machine's monotonic clock"
_READABLE: Final = "a query for all open agendas, asked again 10 ms after its answer"


def latency(  # noqa: PLR0913  # one parameter an option
    *,
    rate: Annotated[float, typer.Option(min=0.1, max=100_000, help="Agendas a second.")] = 100,
    seconds: Annotated[float, typer.Option(min=1, max=3600, help="What is counted.")] = 30,
    warm_up: Annotated[float, typer.Option(min=0, max=600, help="Seconds before it.")] = 10,
    via: Annotated[
        Literal["kafka", "http"], typer.Option(help="How agendas are submitted, one by one.")
    ] = "kafka",
    customers: Customers = 10,
    operations: Operations = 1,
    insights: Insights = 1,
    size: Size = 300,
    pullers: Processes = 1,
    concurrency: Concurrency = 50,
    folder: Folder = None,
    as_json: JsonFlag = False,
) -> None:
    """Submit agendas at a fixed rate and time the start of their handlers and their summaries.

    All times count from the instant at which a submission was due, so that a stall shows in
    every agenda it delayed. A summary is readable when a query for the open agendas, asked
    every 5 ms, answers that it has ended.
    """
    from pop_stream.lab.bench.latency_run import LatencyBenchOptions
    from pop_stream.lab.bench.load import LoadProfile
    from pop_stream.lab.bench.pipeline_run import PipelineBenchOptions

    path = PipelineBenchOptions(
        profile=LoadProfile(),
        customers=customers,
        operations=operations,
        insights=insights,
        size=size,
        pullers=pullers,
        concurrency=concurrency,
    )
    _measure(LatencyBenchOptions(rate, seconds, warm_up, via, path), folder, as_json=as_json)


def _measure(
    bench_options: "LatencyBenchOptions", folder: Path | None, *, as_json: bool
) -> None:
    from pop_stream.lab.bench.conditions import conditions, data_folder
    from pop_stream.lab.bench.latency_run import run_latency

    rate, seconds, path = bench_options.rate, bench_options.seconds, bench_options.path
    measured_under = conditions(
        loop=f"open, {rate:g} agendas a second at even intervals for {seconds:g} s",
        via=bench_options.via,
        warm_up_s=bench_options.warm_up,
        started=_STARTED,
        readable=_READABLE,
        customers=path.customers,
        operations=path.operations,
        insights=path.insights,
        agenda_bytes=path.size,
        pullers=path.pullers,
        concurrency=path.concurrency,
    )

    async def measure(on_progress: Callable[[str], None]) -> Mapping[str, Any]:
        with data_folder(folder) as place:
            found = await run_latency(bench_options, place, on_progress)
        return {**found, "conditions": measured_under}

    run_benchmark(measure, _view, as_json=as_json)


def _view(found: Any) -> list[Any]:  # noqa: ANN401  # what rich prints
    from pop_stream.cli.output import table

    names = ("p50", "p95", "p99", "max")
    named = {
        "submit to start": found["submit_to_start_ms"],
        "submit to summary": found["submit_to_summary_ms"],
        **{f"  {name.replace('_', ' ')}": one for name, one in found["stages_ms"].items()},
    }
    rows = [
        (name, *("-" if one[each] is None else f"{one[each]:,.1f}" for each in names))
        for name, one in named.items()
    ]
    lost = f"{found['agendas']:,} agendas, {found['lost']} without a summary"
    return [lost, table(("ms", *(f"#{name}" for name in names)), rows)]
