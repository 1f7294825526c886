"""`pop-stream simulate`: a named scenario or a real trace, in virtual time.

It can also write every event of a run as a CSV file, to calculate with.
"""

import csv
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

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
    from rich.console import Console

    from pop_stream.lab.simulate.cases import RunOptions
    from pop_stream.lab.simulate.trial import Case, ScenarioComparison

_RUNNERS: Final = 8
_DELAY_MS: Final = 5.0
_MAX_DELAY_MS: Final = 3_600_000.0
_MILLISECONDS: Final = 1000


class AlgorithmOption(StrEnum):
    """How customers take turns."""

    WEIGHTED_FAIR = "weighted_fair"
    ROUND_ROBIN = "round_robin"
    FIFO = "fifo"


ScenarioName = Annotated[
    str | None, typer.Option(help="A named scenario; without --trace, skew.")
]
TracePath = Annotated[
    Path | None,
    typer.Option(
        help="CSV with submit_s, customer, runtime_s; and if you like insight, cost, "
        "priority, weight, fairness_key, operation_type, processors. Or SWF. Or gzip of them."
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(metavar="customer=user,…", help="What the trace calls its columns."),
]
Processors = Annotated[
    Literal["seconds", "agendas", "ignored"],
    typer.Option(
        help="What a row of p processors counts as: p times its seconds, p agendas, or one."
    ),
]
Algorithm = Annotated[AlgorithmOption, typer.Option(help="How customers take turns.")]
Runners = Annotated[
    int, typer.Option(min=1, max=100_000, help="Agendas at a time, for each insight.")
]
Seed = Annotated[int, typer.Option(help="Of all chance in a scenario.")]
Weights = Annotated[
    str | None, typer.Option(metavar="A=2,B=1", help="Customers' weights; else 1.")
]
Target = Annotated[
    str, typer.Option(metavar="N|auto", help="Unclaimed agendas that a refill aims at.")
]
Pool = Annotated[
    int | None,
    typer.Option(min=1, help="Agendas that all insights of a trace have in flight at most."),
]
PoolWeights = Annotated[
    str | None, typer.Option(metavar="A=2,B=1", help="Insights' weights in it; else 1.")
]
PoolMinimums = Annotated[
    str | None, typer.Option(metavar="A=2,B=1", help="What it guarantees; else nothing.")
]
DelayMs = Annotated[
    float,
    typer.Option(
        min=0,
        max=_MAX_DELAY_MS,
        help="Of each way: ingest, emission, and reports of claims and ends.",
    ),
]
Scale = Annotated[float, typer.Option(min=0.01, max=1000, help="Of a scenario's counts.")]
Svg = Annotated[
    Path | None, typer.Option(help="Write a picture of everybody's service over time.")
]
EventsPath = Annotated[
    Path | None, typer.Option(help="Write all that happened as CSV, to calculate with.")
]


def simulate(  # noqa: PLR0913  # one parameter an option
    *,
    scenario: ScenarioName = None,
    trace: TracePath = None,
    columns: Columns = None,
    processors: Processors = "seconds",
    algorithm: Algorithm = AlgorithmOption.WEIGHTED_FAIR,
    runners: Runners = _RUNNERS,
    seed: Seed = 1,
    weights: Weights = None,
    target: Target = "auto",
    pool: Pool = None,
    pool_weights: PoolWeights = None,
    pool_minimums: PoolMinimums = None,
    delay_ms: DelayMs = _DELAY_MS,
    scale: Scale = 1.0,
    svg: Svg = None,
    events: EventsPath = None,
    as_json: JsonFlag = False,
) -> None:
    """Run the real policy on simulated runners: a named scenario, or a trace of real work.

    Reports waits beside those of first come, first served, and fairness by Jain's index.
    """
    from pop_stream.lab.simulate.cases import RunOptions, parse_pool_options, parse_target
    from pop_stream.lab.simulate.trace_columns import parse_columns
    from pop_stream.lab.weights import parse_weights

    _check_writable({"--svg": svg, "--events": events})
    options = RunOptions(
        algorithm=algorithm.value,
        runners=runners,
        weights=parse_weights(weights),
        target=parse_target(target),
        delay_s=delay_ms / _MILLISECONDS,
        pool=parse_pool_options(pool, pool_weights, pool_minimums),
        columns=parse_columns(columns),
        processors=processors,
    )
    work, shown = _Work(scenario, trace, seed, scale), console(as_json=as_json)
    comparisons = _compare(work, options, pool, shown)
    _write_files(work.name, comparisons, shown, svg=svg, events=events)
    if as_json:
        _emit(work, options, comparisons)


class _Work(NamedTuple):
    """What is simulated: a trace, or a scenario with its seed and scale."""

    scenario: str | None
    trace: Path | None
    seed: int
    scale: float

    @property
    def name(self) -> str:
        return self.scenario or (self.trace.name if self.trace else "skew")

    def cases(self, options: "RunOptions") -> "tuple[str, Mapping[str, Case]]":
        """A title, and one case an insight.

        Raises:
            UsageError: If both a scenario and a trace are named, or either cannot be used.
        """
        from pop_stream.lab.simulate import cases

        if self.trace is None:
            if options.pool is not None or options.columns:
                msg = "pools and columns are of a trace: give --trace and --pool, or --columns"
                raise UsageError(msg)
            return cases.of_scenario(self.name, options, seed=self.seed, scale=self.scale)
        if self.scenario is None:
            return cases.of_trace(self.trace, options)
        msg = "--scenario and --trace exclude each other; give one of them"
        raise UsageError(msg)


def _compare(
    work: _Work, options: "RunOptions", pool: int | None, shown: "Console"
) -> Mapping[str, "ScenarioComparison"]:
    """Run everything, and show what came of it."""
    from pop_stream.lab.simulate.report import view
    from pop_stream.lab.simulate.trial import run_comparisons

    title, cases = work.cases(options)
    shown.print(title)
    try:
        comparisons = run_comparisons(cases, pool)
    except ValueError as error:
        raise UsageError(f"{work.trace}: {error}" if work.trace else str(error)) from None
    shown.print(view(comparisons))
    return comparisons


def _write_files(
    name: str,
    comparisons: Mapping[str, "ScenarioComparison"],
    shown: "Console",
    *,
    svg: Path | None,
    events: Path | None,
) -> None:
    from pop_stream.lab.simulate.chart import write_picture

    if svg is not None:
        write_picture(svg, name, comparisons)
        shown.print(f"picture written to {svg}")
    if events is not None:
        write_events(events, comparisons)
        shown.print(f"events written to {events}")


def _emit(
    work: _Work, options: "RunOptions", comparisons: Mapping[str, "ScenarioComparison"]
) -> None:
    from pop_stream.lab.simulate.report import as_json

    conditions = {
        "name": work.name,
        "algorithm": options.algorithm,
        "runners": options.runners,
        "seed": work.seed,
    }
    emit({**as_json(comparisons), **conditions})


def _check_writable(files: Mapping[str, Path | None]) -> None:
    """Refuse a file that cannot be written, before minutes are spent on what goes into it."""
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
    """Write every event that the figures are calculated from, in the order they took effect."""
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
