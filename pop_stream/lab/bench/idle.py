"""`pop-stream bench idle`: what all parts cost while nothing is submitted."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pop_stream.cli.output import JsonFlag
from pop_stream.lab.bench.options import Folder, run_benchmark

if TYPE_CHECKING:
    from pop_stream.lab.bench.pipeline_run import IdleUsage

_SETTLE_S: Final = 10.0


def idle(
    *,
    seconds: Annotated[float, typer.Option(min=1, max=3600, help="What is counted.")] = 30,
    warm_up: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Agendas that are run before it.")
    ] = 500,
    insights: Annotated[int, typer.Option(min=1, max=1000, help="That are defined.")] = 1,
    folder: Folder = None,
    as_json: JsonFlag = False,
) -> None:
    """Run some agendas, let everything come to rest, and count processor time.

    As a share of one core, by part: 0.05 is 5 % of one core.
    """
    from pop_stream.lab.bench.conditions import conditions, data_folder
    from pop_stream.lab.bench.pipeline_run import run_idle

    measured_under = conditions(
        seconds=seconds, settle_s=_SETTLE_S, warm_up_agendas=warm_up, insights=insights
    )

    async def measure(on_progress: Callable[[str], None]) -> Mapping[str, Any]:
        with data_folder(folder) as place:
            found = await run_idle(
                place,
                on_progress,
                agendas=warm_up,
                insights=insights,
                settle_s=_SETTLE_S,
                seconds=seconds,
            )
        return {**report(found), "conditions": measured_under}

    run_benchmark(measure, _view, as_json=as_json)


def report(parts: "Mapping[str, IdleUsage]") -> Mapping[str, Any]:
    """Shares of one core: all parts together, ours alone, and each; what each holds."""
    from pop_stream.lab.bench.meter import own_parts

    return {
        "core_share": round(sum(one.core_share for one in parts.values()), 4),
        "own_core_share": round(sum(parts[name].core_share for name in own_parts(parts)), 4),
        "parts": {
            name: {
                "core_share": round(one.core_share, 4),
                "connections": one.connections,
                "rss_mb": round(one.rss_mb, 1),
            }
            for name, one in parts.items()
        },
    }


def _view(result: Mapping[str, Any]) -> Sequence[Any]:
    from pop_stream.cli.output import table

    rows = [
        (name, f"{one['core_share']:.2%}", str(one["connections"]), f"{one['rss_mb']:,.0f}")
        for name, one in result["parts"].items()
    ]
    rows.append(("ours together", f"{result['own_core_share']:.2%}", "", ""))
    rows.append(("all together", f"{result['core_share']:.2%}", "", ""))
    return [table(("part", "#of one core", "#connections", "#MB"), rows)]
