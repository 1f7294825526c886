"""`pop-stream bench console`: how long the web console's pages take over many agendas."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from pop_stream.cli.output import JsonFlag
from pop_stream.lab.bench.options import Folder, run_benchmark

TARGET_MS: Final = 300
"""What a page may take."""


PAGES: Final[Mapping[str, str]] = {
    "overview": "/",
    "insight": "/insights/bench",
    "agendas": "/agendas",
    "agendas, oldest first": "/agendas?order=oldest",
    "agendas of a customer": "/agendas?customer_id=customer-3",
    "agendas that failed": "/agendas?state=failed",
    "agendas of a customer that failed": "/agendas?customer_id=customer-3&state=failed",
    "agendas that succeeded": "/agendas?state=succeeded",
    "agendas of a link": "/agendas?link_id=link-7",
    "agendas of a title that none has": "/agendas?title=none",
    "agendas of a puller that none had": "/agendas?puller_id=none&state=running",
    "agenda": "/agendas/bench-500",
    "dead letters": "/dead-letters",
    "dead letters of a code that none has": "/dead-letters?code=none",
    "pullers": "/pullers",
    "keys": "/keys",
    "audit log": "/audit",
    "audit log of an object": "/audit?kind=insight&object_id=object-7",
}
"""By what the report calls them."""


def console(
    *,
    agendas: Annotated[
        int, typer.Option(min=1_000, max=100_000_000, help="Written to the database.")
    ] = 1_000_000,
    rounds: Annotated[
        int, typer.Option(min=1, max=10_000, help="How often each page is asked for.")
    ] = 50,
    folder: Folder = None,
    as_json: JsonFlag = False,
) -> None:
    """Fill the database by SQL, and time each page of the web console, one after the other.

    The agendas have ended, of ten customers in one insight; there are a hundredth as many dead
    letters, and as many entries of the audit log. A page's time is from the request to its
    last byte.
    """
    from pop_stream.lab.bench.conditions import conditions, data_folder
    from pop_stream.lab.bench.console_run import time_pages

    measured_under = conditions(agendas=agendas, rounds=rounds)

    async def measure(on_progress: Callable[[str], None]) -> Mapping[str, Any]:
        with data_folder(folder) as place:
            found = await time_pages(place, on_progress, agendas=agendas, rounds=rounds)
        return {**found, "target_ms": TARGET_MS, "conditions": measured_under}

    run_benchmark(measure, _view, as_json=as_json)


def _view(result: Mapping[str, Any]) -> Sequence[Any]:
    from pop_stream.cli.output import table

    rows = [
        (page, f"{one['p50']:,.0f}", f"{one['p99']:,.0f}", f"{one['bytes']:,}")
        for page, one in result["pages"].items()
    ]
    slowest = max(one["p99"] for one in result["pages"].values())
    return [
        table(("page", "#p50 ms", "#p99 ms", "#bytes"), rows),
        f"{result['conditions']['agendas']:,} agendas, seeded in {result['seed_s']:,.0f} s; "
        f"the slowest p99 is {slowest:,.0f} ms of {TARGET_MS} ms",
    ]
