"""`pop-stream bench latency`: how long an agenda takes at a fixed rate, in an open loop."""

from typing import Annotated, Any, Final, Literal

import typer

from pop_stream.cli.output import JsonFlag
from pop_stream.lab.bench.options import (
    Concurrency,
    Customers,
    Folder,
    Insights,
    Operations,
    Pullers,
    Size,
)

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
    pullers: Pullers = 1,
    concurrency: Concurrency = 50,
    folder: Folder = None,
    as_json: JsonFlag = False,
) -> None:
    """Submit agendas at a fixed rate and time the start of their handlers and their summaries.

    All times count from the instant at which a submission was due, so that a stall shows in
    every agenda it delayed. A summary is readable when a query for the open agendas, asked
    every 5 ms, answers that it has ended.
    """
    import uvloop

    from pop_stream.cli.output import console, emit
    from pop_stream.lab.bench.conditions import conditions, data_folder
    from pop_stream.lab.bench.latency_run import LatencyBenchOptions, run_latency
    from pop_stream.lab.bench.load import LoadProfile
    from pop_stream.lab.bench.pipeline_run import PipelineBenchOptions
    from pop_stream.operations import logging
    from pop_stream.operations.environment import load_console_settings
    from pop_stream.operations.errors import CommandError
    from pop_stream.operations.lifetime import run_until_interrupted

    path = PipelineBenchOptions(
        profile=LoadProfile(),
        customers=customers,
        operations=operations,
        insights=insights,
        size=size,
        pullers=pullers,
        concurrency=concurrency,
    )
    bench_options = LatencyBenchOptions(
        rate=rate, seconds=seconds, warm_up=warm_up, via=via, path=path
    )
    logging.configure(load_console_settings())
    shown = console(as_json=as_json)
    told = conditions(
        loop=f"open, {rate:g} agendas a second at even intervals for {seconds:g} s",
        via=via,
        warm_up_s=warm_up,
        started=_STARTED,
        readable=_READABLE,
        customers=customers,
        operations=operations,
        insights=insights,
        agenda_bytes=size,
        pullers=pullers,
        concurrency=concurrency,
    )

    async def run() -> None:
        with data_folder(folder) as place:
            found = await run_latency(
                bench_options, place, lambda line: shown.print(f"[dim]{line}[/]")
            )
        for line in _view(found):
            shown.print(line)
        if as_json:
            emit({**found, "conditions": told})

    if run_until_interrupted(run(), loop_factory=uvloop.new_event_loop):
        msg = "interrupted; everything was stopped"
        raise CommandError(msg)


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
