"""`pop-stream bench backlog`: many ready agendas, of which one is picked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from pop_stream.cli.output import JsonFlag
from pop_stream.lab.bench.options import Folder, Size, run_benchmark

if TYPE_CHECKING:
    from pop_stream.lab.bench.backlog_run import BacklogBenchOptions

_STEPS: Final = {
    "ready": (1_000, 10_000, 100_000, 1_000_000),
    "customers": (10, 100, 1_000, 10_000),
    "insights": (1, 10, 50, 200),
}
_COSTS: Final = ("place_us", "pick_us", "round_us")


def backlog(  # noqa: PLR0913  # one parameter an option
    *,
    ready: Annotated[
        int, typer.Option(min=100, max=20_000_000, help="Agendas that wait.")
    ] = 1_000_000,
    customers: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="That they are of, evenly.")
    ] = 1_000,
    insights: Annotated[int, typer.Option(min=1, max=1_000, help="That they are in.")] = 1,
    picks: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="One at a time, at most.")
    ] = 2_000,
    size: Size = 300,
    grow: Annotated[
        Literal["ready", "customers", "insights"] | None,
        typer.Option(help="Measure this at several sizes, all else equal."),
    ] = None,
    folder: Folder = None,
    as_json: JsonFlag = False,
) -> None:
    """Let agendas wait in the real scheduler, on a real broker, and pick from them.

    Measures what a pick costs the scheduler, one at a time (pick_us) and in rounds of many,
    each replaced by a new one (round_us); its resident memory; and how long after a kill it
    emits again.
    """
    from pop_stream.lab.bench.backlog_run import BacklogBenchOptions, run_backlog
    from pop_stream.lab.bench.conditions import conditions, data_folder

    base = BacklogBenchOptions(ready, customers, insights, picks, size)
    measured_under = conditions(agenda_bytes=size, grown=grow)

    async def measure(on_progress: Callable[[str], None]) -> Mapping[str, Any]:
        found: list[Mapping[str, Any]] = []
        for one in steps(base, grow):
            on_progress(_title(one))
            with data_folder(folder and folder / _title(one).replace(" ", "-")) as place:
                found.append(await run_backlog(one, place, on_progress))
        return {**report(found, grown=grow), "conditions": measured_under}

    run_benchmark(measure, _view, as_json=as_json)


def steps(base: "BacklogBenchOptions", grow: str | None) -> "list[BacklogBenchOptions]":
    """What is measured, one after the other: the base, or the base at several sizes."""
    if grow is None:
        return [base]
    return [replace(base, **{grow: size}) for size in _STEPS[grow]]


def report(found: Sequence[Mapping[str, Any]], *, grown: str | None) -> Mapping[str, Any]:
    """The contract's figures, of the last size; with growth, each size and how flat it is."""
    if grown is None:
        return found[0]
    return {
        **found[-1],
        "grown": grown,
        "sizes": [*found],
        "largest_over_first": {
            cost: round(max(one[cost] for one in found) / found[0][cost], 3)
            for cost in _COSTS
            if found[0][cost]
        },
    }


def _title(bench_options: "BacklogBenchOptions") -> str:
    one = bench_options
    return f"{one.ready} ready {one.customers} customers {one.insights} insights"


def _view(result: Mapping[str, Any]) -> Sequence[Any]:
    from pop_stream.cli.output import table

    columns = {
        "ready": "#ready",
        "customers": "#customers",
        "insights": "#insights",
        "place_us": "#routed, µs",
        "pick_us": "#picked alone, µs",
        "round_us": "#in rounds, µs",
        "rss_mb": "#MB",
        "recovery_s": "#recovery, s",
    }
    found = result.get("sizes", [result])
    rows = [tuple(f"{one[name]:,}" for name in columns) for one in found]
    return [table([*columns.values()], rows)]
