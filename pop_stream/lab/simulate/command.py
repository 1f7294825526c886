"""`pop-stream simulate`: a named scenario or a real trace, in virtual time.

Writes what happened in a run as a CSV file, for whoever would reckon for themselves.
"""

import csv
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pop_stream.cli.output import JsonFlag, console, emit
from pop_stream.lab.fairness_metrics.service_log import (
    ARRIVED,
    EMITTED,
    HELD,
    RELEASED,
    REWEIGHTED,
    SETTLED,
    STARTED,
    ServiceEvent,
    ServiceLog,
)
from pop_stream.operations.errors import UsageError

if TYPE_CHECKING:
    from pop_stream.lab.simulate.trial import ScenarioComparison

_RUNNERS: Final = 8
_DELAY_MS: Final = 5.0
_MAX_DELAY_MS: Final = 3_600_000.0
_MILLISECONDS: Final = 1000


class AlgorithmOption(StrEnum):
    """How customers take turns."""

    WEIGHTED_FAIR = "weighted_fair"
    ROUND_ROBIN = "round_robin"
    FIFO = "fifo"


def simulate(  # noqa: PLR0913  # one parameter an option
    *,
    scenario: Annotated[
        str | None, typer.Option(help="A named scenario; without --trace, skew.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="CSV with submit_s, customer, runtime_s; and if you like insight, cost, "
            "priority, weight, fairness_key, operation_type."
        ),
    ] = None,
    algorithm: Annotated[
        AlgorithmOption, typer.Option(help="How customers take turns.")
    ] = AlgorithmOption.WEIGHTED_FAIR,
    runners: Annotated[
        int, typer.Option(min=1, max=100_000, help="Agendas at a time, for each insight.")
    ] = _RUNNERS,
    seed: Annotated[int, typer.Option(help="Of all chance in a scenario.")] = 1,
    weights: Annotated[
        str | None, typer.Option(metavar="A=2,B=1", help="Customers' weights; else 1.")
    ] = None,
    target: Annotated[
        str, typer.Option(metavar="N|auto", help="Unclaimed agendas that a refill aims at.")
    ] = "auto",
    pool: Annotated[
        int | None,
        typer.Option(
            min=1, help="Agendas that all insights of a trace have in flight at most."
        ),
    ] = None,
    pool_weights: Annotated[
        str | None, typer.Option(metavar="A=2,B=1", help="Insights' weights in it; else 1.")
    ] = None,
    pool_minimums: Annotated[
        str | None, typer.Option(metavar="A=2,B=1", help="What it guarantees; else nothing.")
    ] = None,
    delay_ms: Annotated[
        float,
        typer.Option(
            min=0,
            max=_MAX_DELAY_MS,
            help="Of each way: ingest, emission, and news of claims and ends.",
        ),
    ] = _DELAY_MS,
    scale: Annotated[
        float, typer.Option(min=0.01, max=1000, help="Of a scenario's counts.")
    ] = 1.0,
    svg: Annotated[
        Path | None, typer.Option(help="Write a picture of everybody's service over time.")
    ] = None,
    events: Annotated[
        Path | None, typer.Option(help="Write all that happened as CSV, to reckon with.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run the real policy on simulated runners: a named scenario, or a trace of real work.

    Reports waits, fairness by Jain's index, the worst gap between two customers by its
    bound, and the makespan by that of first come, first served.
    """
    # self import
    from pop_stream.cli.weights import parse_weights
    from pop_stream.lab.simulate import cases, report
    from pop_stream.lab.simulate.cases import parse_pool_options
    from pop_stream.lab.simulate.chart import write_picture
    from pop_stream.lab.simulate.trial import run_comparisons

    shown = console(as_json=as_json)
    _check_writable({"--svg": svg, "--events": events})
    options = cases.RunOptions(
        algorithm=algorithm.value,
        runners=runners,
        weights=parse_weights(weights),
        target=cases.parse_target(target),
        delay_s=delay_ms / _MILLISECONDS,
        pool=parse_pool_options(pool_weights, pool_minimums) if pool else None,
    )
    if (pool and trace is None) or ((pool_weights or pool_minimums) and not pool):
        msg = "a pool is of a trace's insights: give --trace and --pool with what else is of it"
        raise UsageError(msg)
    if trace is None:
        title, found = cases.of_scenario(scenario or "skew", options, seed=seed, scale=scale)
    elif scenario is None:
        title, found = cases.of_trace(trace, options)
    else:
        msg = "--scenario and --trace exclude each other; give one of them"
        raise UsageError(msg)
    shown.print(title)
    try:
        comparisons = run_comparisons(found, pool)
    except ValueError as error:
        raise UsageError(f"{trace}: {error}" if trace else str(error)) from None
    shown.print(report.view(comparisons))
    if svg is not None:
        write_picture(svg, scenario or (trace.name if trace else "skew"), comparisons)
        shown.print(f"picture written to {svg}")
    if events is not None:
        write_events(events, comparisons)
        shown.print(f"events written to {events}")
    if as_json:
        conditions = {
            "name": trace.name if trace else scenario or "skew",
            "algorithm": algorithm.value,
            "runners": runners,
            "seed": seed,
        }
        emit({**report.as_json(comparisons), **conditions})


def _check_writable(files: Mapping[str, Path | None]) -> None:
    """A file that cannot be written is told before minutes are spent on what goes into it."""
    for option, path in files.items():
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            msg = f"{option} {path}: not in a folder that exists; name a file in one"
            raise UsageError(msg)


_HEADER: Final = (
    "insight", "at_s", "event", "customer", "charged_s", "spent_s", "waited_s", "weight",
)  # fmt: skip
_DIGITS: Final = 9
_NAMES: Final = {
    ARRIVED: "arrived",
    SETTLED: "settled",
    STARTED: "started",
    RELEASED: "released",
    HELD: "held",
    REWEIGHTED: "weighed",
    EMITTED: "emitted",
}


def write_events(path: Path, comparisons: Mapping[str, "ScenarioComparison"]) -> None:
    """Write every event that the figures are reckoned from, in the order they took effect."""
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(_HEADER)
        for insight, comparison in comparisons.items():
            lines.writerows([insight, *row] for row in _rows(comparison.log))


def _rows(log: ServiceLog) -> Iterator[list[str | float]]:
    for moment in log:
        kind, at, customer, _, _ = moment
        yield [round(at, _DIGITS), _NAMES[kind], log.customers[customer], *_values(moment)]


def _values(moment: ServiceEvent) -> tuple[str | float, ...]:
    """Charged, spent, waited and weight, as far as this kind of event has them."""
    kind, _, _, first, second = moment
    if kind == EMITTED:
        return first, second, "", ""
    if kind == SETTLED:
        return "", second, "", second / first
    if kind == STARTED:
        return "", "", first, ""
    return "", "", "", first if kind == REWEIGHTED else ""
