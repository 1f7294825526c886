"""`pop-stream bench schedules`: what many cost at rest, and how late a crowd fires."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pop_stream.cli.output import JsonFlag
from pop_stream.lab.bench.options import Folder, run_benchmark

if TYPE_CHECKING:
    from pop_stream.lab.bench.schedules_run import SchedulesResult


def schedules(
    *,
    count: Annotated[
        int, typer.Option("--schedules", min=1, max=1_000_000, help="That are defined.")
    ] = 100_000,
    due: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Of them, that are due at one instant.")
    ] = 20_000,
    rest_s: Annotated[float, typer.Option(min=1, max=3600, help="Time at rest.")] = 20,
    ingests: Annotated[int, typer.Option(min=1, max=64, help="Processes.")] = 1,
    folder: Folder = None,
    as_json: JsonFlag = False,
) -> None:
    """Define schedules, count what they cost while none is due, then let many fire at once.

    How late each is fired is the broker's time of its submission, less its nominal instant.
    """
    from pop_stream.lab.bench.conditions import conditions, data_folder
    from pop_stream.lab.bench.schedules_run import SchedulesBenchOptions, run_schedules

    chosen = SchedulesBenchOptions(count, min(due, count), rest_s, ingests)
    measured_under = conditions(schedules=count, due=chosen.due, rest_s=rest_s, ingests=ingests)

    async def measure(on_progress: Callable[[str], None]) -> Mapping[str, Any]:
        with data_folder(folder) as place:
            found = await run_schedules(place, on_progress, chosen)
        return {**report(found), "conditions": measured_under}

    run_benchmark(measure, _view, as_json=as_json)


def report(found: "SchedulesResult") -> Mapping[str, Any]:
    """What was counted; `all_fired_s` is how late the last one was."""
    from pop_stream.lab.bench.figures import percentiles_ms

    return {
        "defined_s": round(found.defined_s, 1),
        "fired": len(found.late_s),
        "fired_twice": found.fired_twice,
        "all_fired_s": round(max(found.late_s, default=0.0), 3),
        "late_ms": percentiles_ms(found.late_s),
        "parts": {
            name: {
                "core_share": round(one.core_share, 4),
                "rss_mb": round(one.rss_mb, 1),
                "rss_mb_before": round(found.before_mb.get(name, 0.0), 1),
            }
            for name, one in found.rest.items()
        },
    }


def _view(result: Mapping[str, Any]) -> Sequence[Any]:
    from pop_stream.cli.output import table

    rows = [
        (
            name,
            f"{one['core_share']:.2%}",
            f"{one['rss_mb_before']:,.0f}",
            f"{one['rss_mb']:,.0f}",
        )
        for name, one in result["parts"].items()
    ]
    shown = table(("part, at rest", "#of one core", "#MB without", "#MB"), rows)
    late = result["late_ms"]
    return [
        shown,
        f"taken up in {result['defined_s']} s; {result['fired']:,} due at one instant: late by "
        f"p50 {late['p50']} and p99 {late['p99']} ms, [bold]all after "
        f"{result['all_fired_s']:.2f} s[/], fired twice {result['fired_twice']}",
    ]
