"""`pop-stream bench soak`: whether memory, files and connections stay flat under load."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pop_stream.cli.output import JsonFlag, table
from pop_stream.lab.bench.options import Folder
from pop_stream.lab.reporting import measure_and_report

if TYPE_CHECKING:
    from pop_stream.lab.bench.soak_run import SoakResult


def soak(
    minutes: Annotated[float, typer.Option(min=0.5, max=10_000, help="Under load.")] = 30.0,
    rate: Annotated[float, typer.Option(min=1, max=10_000, help="Agendas per second.")] = 100.0,
    every: Annotated[float, typer.Option(min=0.5, help="Seconds between two samples.")] = 10.0,
    folder: Folder = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a steady load and sample what every part holds over time: memory, files, connections.

    Flat is what has grown by less than a tenth from the middle third of the time to the last.
    """
    from pop_stream.lab.bench.conditions import conditions, data_folder
    from pop_stream.lab.bench.soak_run import run_soak
    from pop_stream.operations import logging

    logging.configure_console_logging()
    measured_under = conditions(minutes=minutes, rate=rate)

    async def measure(on_progress: Callable[[str], None]) -> Mapping[str, Any]:
        with data_folder(folder) as place:
            soaked = await run_soak(
                place,
                seconds=60 * minutes,
                rate_per_s=rate,
                every_s=every,
                on_progress=on_progress,
            )
        return {**report(soaked), "conditions": measured_under}

    measure_and_report(measure, _view, as_json=as_json)


def report(soaked: "SoakResult") -> Mapping[str, Any]:
    """By part and quantity: the mean of the middle and of the last third, and all samples."""
    growths = soaked.growths()
    return {
        "submitted": soaked.submitted,
        "lost": soaked.lost,
        "flat": all(one.is_flat for some in growths.values() for one in some.values()),
        "parts": {
            part: {
                name: {
                    "middle": round(one.middle, 1),
                    "last": round(one.last, 1),
                    "flat": one.is_flat,
                }
                for name, one in some.items()
            }
            for part, some in growths.items()
        },
        "samples": {
            part: [
                [
                    round(one.at, 1),
                    round(one.rss_mb, 1),
                    one.files,
                    one.connections,
                    one.threads,
                ]
                for one in some
            ]
            for part, some in soaked.samples.items()
        },
    }


def _view(result: Mapping[str, Any]) -> Iterator[Any]:
    def cell(one: Mapping[str, Any]) -> str:
        mark = "" if one["flat"] else " [red]↑[/]"
        return f"{one['middle']:.0f} → {one['last']:.0f}{mark}"

    rows = [
        (part, *(cell(one) for one in some.values())) for part, some in result["parts"].items()
    ]
    yield table(("part", "#memory, MB", "#open files", "#connections", "#threads"), rows)
    yield f"submitted {result['submitted']:,}, lost {result['lost']}"
    yield "[green]✓[/] flat" if result["flat"] else "[red]✗[/] something grows"
