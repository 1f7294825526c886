"""What simulations came to: tables for a person, one JSON object for a program."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markup import escape
from rich.measure import Measurement
from rich.text import Text

from pop_stream.cli.output import table
from pop_stream.lab.fairness_metrics.audit import (
    FairnessMetrics,
    WaitDistribution,
    wait_distribution,
)
from pop_stream.lab.fairness_metrics.gap import Gap
from pop_stream.lab.reporting import duration, shortened
from pop_stream.lab.simulate.sizes import CustomerTimes, SizeRow, min_run_s, size_rows
from pop_stream.lab.simulate.trial import ScenarioComparison
from pop_stream.model.ids import CustomerId

SHOWN: Final = 15
"""Customers of a table; the rest is one line."""

LISTED: Final = 1_000
"""Customers of the JSON object; the rest is one entry."""

_MILLISECONDS: Final = 1000
_WHOLE_RATE: Final = 10
_WHOLE_RATIO: Final = 100
_MIN_SIZES: Final = 2
_NAME_LEAST: Final = 8
_PER: Final = ((1, "s"), (60, "min"), (3_600, "h"))


@dataclass(frozen=True, slots=True)
class CustomerRow:
    """One customer over all insights, or several together.

    Attributes:
        fifo: What the waits would have been first come, first served.
    """

    name: str
    waits: WaitDistribution
    fifo: WaitDistribution
    served_s: float


def rows(comparisons: Sequence[ScenarioComparison], most: int) -> Sequence[CustomerRow]:
    """Customers with the most agendas first, and all beyond `most` as one row."""
    customers = sorted(
        {
            customer
            for comparison in comparisons
            for customer in comparison.fairness.times.waits
        },
        key=lambda one: (-_started(comparisons, one), one),
    )
    found = [_row(one, comparisons, [one]) for one in customers[:most]]
    rest = customers[most:]
    return [*found, *([_row(f"({len(rest):,} others)", comparisons, rest)] if rest else [])]


def view(comparisons: Mapping[str, ScenarioComparison]) -> RenderableType:
    """Waits and conclusions for a person."""
    found = [*comparisons.values()]
    columns = ("customer", "#agendas", "#work", "#wait mean", "#p95", "#p99", "#p99 fifo")
    lines = [_cells(one) for one in rows(found, SHOWN)]
    insights = [Text(), _insights(comparisons)] if len(comparisons) > 1 else []
    conclusions = (Text.from_markup(line) for line in _conclusions(comparisons))
    parts = (*_sizes(found), table(columns, lines), *insights, Text(), *conclusions)
    return Group(*parts)


def as_json(comparisons: Mapping[str, ScenarioComparison]) -> Mapping[str, Any]:
    """The figures; of several insights the worst, each by itself under `insights`."""
    found = [*comparisons.values()]
    worst = _worst(found)
    return {
        **_headline(found),
        "worst_gap": asdict(worst.gap) if worst and worst.gap else None,
        "sizes": {one.size: _size_json(one) for one in size_rows(*_times(found))},
        "waits": {one.name: _waits_json(one) for one in rows(found, LISTED)},
        "insights": {
            insight: {
                **_headline([comparison]),
                "depth": comparison.fairness.depth,
                "gap_customers": comparison.fairness.paired,
                "utilisation": round(comparison.fairness.utilisation(comparison.runners), 4),
            }
            for insight, comparison in comparisons.items()
        },
    }


def _times(
    comparisons: Sequence[ScenarioComparison],
) -> tuple[Sequence[CustomerTimes], Sequence[CustomerTimes]]:
    """Of every insight whose agendas are known one by one: as it was, and by age."""
    known = [(one.times, one.fifo_times) for one in comparisons]
    return [one for one, _ in known if one], [one for _, one in known if one]


def _sizes(comparisons: Sequence[ScenarioComparison]) -> Iterator[RenderableType]:
    """Waits and slowdowns by size, if there are sizes to tell apart."""
    times, fifo = _times(comparisons)
    found = size_rows(times, fifo)
    if len(found) < _MIN_SIZES:
        return
    waits = ("customers", "#agendas", "#work", "#wait mean", "#fifo", "#p95", "#fifo")
    yield table(waits, [_size_cells(one) for one in found])
    yield Text()
    slowdowns = ("slowdown", "#p50", "#fifo", "#mean", "#fifo", "#p95", "#fifo")
    yield table(slowdowns, [_slowdown_cells(one) for one in found])
    least = duration(min_run_s(times) * _MILLISECONDS)
    yield Text(f"(wait and run) / run, a run being {least} at least; small: less than half")
    yield Text("of an equal part of all work, big: more than twice")
    yield Text()


def _size_cells(row: SizeRow) -> list[str]:
    spans = (row.waits.mean, row.fifo_waits.mean, row.waits.p95, row.fifo_waits.p95)
    return [
        f"{row.size} ({row.customers:,})",
        f"{row.waits.count:,}",
        f"{row.part:.1%}",
        *(duration(span * _MILLISECONDS) for span in spans),
    ]


def _slowdown_cells(row: SizeRow) -> list[str]:
    now, fifo = row.slowdowns, row.fifo_slowdowns
    pairs = ((now.p50, fifo.p50), (now.mean, fifo.mean), (now.p95, fifo.p95))
    return [f"{row.size} ({row.customers:,})", *(_times_over(one) for one in chain(*pairs))]


def _times_over(value: float) -> str:
    return f"{value:,.0f}" if value >= _WHOLE_RATIO else f"{value:.1f}"


def _size_json(row: SizeRow) -> Mapping[str, Any]:
    return {
        "customers": row.customers,
        "agendas": row.waits.count,
        "part": round(row.part, 6),
        **_distribution_json("wait", "_s", row.waits),
        **_distribution_json("fifo_wait", "_s", row.fifo_waits),
        **_distribution_json("slowdown", "", row.slowdowns),
        **_distribution_json("fifo_slowdown", "", row.fifo_slowdowns),
    }


def _distribution_json(name: str, unit: str, found: WaitDistribution) -> Mapping[str, float]:
    return {
        f"{name}_mean{unit}": round(found.mean, 6),
        f"{name}_p50{unit}": round(found.p50, 6),
        f"{name}_p95{unit}": round(found.p95, 6),
    }


def _headline(comparisons: Sequence[ScenarioComparison]) -> dict[str, Any]:
    seconds, fifo_seconds = _span(comparisons), _span(comparisons, fifo=True)
    ended = sum(one.fairness.times.started for one in comparisons)
    judged = [one.fairness for one in comparisons if one.fairness.jain is not None]
    least = min(judged, key=lambda one: one.jain or 0.0, default=None)
    worst = _worst(comparisons)
    return {
        "jain": _rounded(least.jain if least else None, 6),
        "jain_floor": _rounded(least.jain_floor if least else None, 6),
        "jain_customers": sum(one.competitors for one in judged),
        "worst_gap_over_bound": _rounded(worst.gap_over_bound if worst else None, 6),
        "reweight_within": _rounded(_most(one.reweight_within for one in comparisons)),
        "quiet_p99_over_alone": _rounded(
            _most(one.quiet_p99_over_alone for one in comparisons)
        ),
        "makespan_over_fifo": _rounded(seconds / fifo_seconds if fifo_seconds > 0 else None),
        "throughput_over_fifo": _rounded(fifo_seconds / seconds if seconds > 0 else None),
        "agendas": ended,
        "unfinished": sum(one.left for one in comparisons),
        "makespan_s": round(seconds, 6),
        "agendas_per_s": round(ended / seconds, 9) if seconds > 0 else None,
        "quiet": sorted({customer for one in comparisons for customer in one.alone}),
    }


def _worst(comparisons: Sequence[ScenarioComparison]) -> FairnessMetrics | None:
    """The metrics with the worst gap by its bound; None if nobody ever met another."""
    judged = [one.fairness for one in comparisons if one.fairness.gap is not None]
    return max(judged, key=lambda one: one.gap_over_bound or 0.0, default=None)


def _most(values: Iterable[float | None]) -> float | None:
    return max((one for one in values if one is not None), default=None)


def _span(comparisons: Sequence[ScenarioComparison], *, fifo: bool = False) -> float:
    """From the first arrival of all insights to the last end of all."""
    times = [one.fifo if fifo else one.fairness.times for one in comparisons]
    return max(one.ends_at for one in times) - min(one.begins_at for one in times)


def _started(comparisons: Sequence[ScenarioComparison], customer: CustomerId) -> int:
    return sum(len(one.fairness.times.waits.get(customer, ())) for one in comparisons)


def _row(
    name: str, comparisons: Sequence[ScenarioComparison], customers: Sequence[CustomerId]
) -> CustomerRow:
    def all_waits(*, fifo: bool) -> list[float]:
        times = [one.fifo if fifo else one.fairness.times for one in comparisons]
        found = (one.waits.get(customer, ()) for one in times for customer in customers)
        return [*chain.from_iterable(found)]

    return CustomerRow(
        name=name,
        waits=wait_distribution(all_waits(fifo=False)),
        fifo=wait_distribution(all_waits(fifo=True)),
        served_s=sum(one.fairness.served.get(c, 0.0) for one in comparisons for c in customers),
    )


def _cells(row: CustomerRow) -> list[RenderableType]:
    waits = row.waits
    spans = (waits.mean, waits.p95, waits.p99, row.fifo.p99)
    return [
        _Name(row.name),
        f"{waits.count:,}",
        duration(row.served_s * _MILLISECONDS),
        *(duration(span * _MILLISECONDS) for span in spans),
    ]


@dataclass(frozen=True, slots=True)
class _Name:
    """A name on one line, shortened where the numbers of its row need the room."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        yield Text(shortened(self.text, options.max_width), no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        del console
        most = min(len(self.text), options.max_width)
        return Measurement(min(_NAME_LEAST, most), most)


def _insights(comparisons: Mapping[str, ScenarioComparison]) -> RenderableType:
    columns = ("insight", "#agendas", "#busy", "#depth", "#Jain", "#gap/bound")
    cells: list[list[RenderableType]] = [
        [
            _Name(insight),
            f"{one.fairness.times.started:,}",
            f"{one.fairness.utilisation(one.runners):.0%}",
            f"{one.fairness.depth}",
            _shown(one.fairness.jain, 4),
            _shown(one.fairness.gap_over_bound, 2),
        ]
        for insight, one in comparisons.items()
    ]
    return table(columns, cells)


def _conclusions(comparisons: Mapping[str, ScenarioComparison]) -> Iterator[str]:
    found = [*comparisons.values()]
    figures = _headline(found)
    yield _index_line(figures)
    worst = _worst(found)
    if worst and worst.gap:
        yield _gap_line(worst, worst.gap)
    if figures["reweight_within"] is not None:
        yield (
            f"[bold]A new weight showed after {figures['reweight_within']:.2f} depths[/] of "
            "emissions at the latest"
        )
    if figures["quiet_p99_over_alone"]:
        yield (
            f"[bold]Quiet p99 {figures['quiet_p99_over_alone']:.2f} times[/] what it is alone, "
            f"or a mean run if that is longer: {'; '.join(_quiet(found))}"
        )
    if figures["makespan_over_fifo"]:
        yield (
            f"[bold]Makespan {figures['makespan_over_fifo']:.4f} of FIFO's[/]: "
            f"{figures['agendas']:,} agendas in "
            f"{duration(figures['makespan_s'] * _MILLISECONDS)}, {_rate(figures)}"
        )
    if figures["unfinished"]:
        unfinished = figures["unfinished"]
        yield f"[bold red]{unfinished:,} agendas never ended[/]: something holds them"


def _quiet(comparisons: Sequence[ScenarioComparison]) -> Iterator[str]:
    for one in comparisons:
        for customer, waits in one.quiet_waits.items():
            spans = (wait_distribution(some).p99 for some in (waits, one.alone[customer]))
            both, alone = (duration(span * _MILLISECONDS) for span in spans)
            yield f"{escape(customer)} {both}, alone {alone}"


def _index_line(figures: Mapping[str, Any]) -> str:
    if figures["jain_customers"]:
        return (
            f"[bold]Jain index {figures['jain']:.4f}[/] of worker-seconds by weight, over "
            f"{figures['jain_customers']} customers while they competed; 1 is equal, and from "
            f"{figures['jain_floor']:.4f} on whole agendas alone may make the difference"
        )
    return (
        "[bold]No Jain index[/]: no two customers competed for so long that their largest "
        "agendas do not matter"
    )


def _gap_line(worst: FairnessMetrics, gap: Gap) -> str:
    return (
        f"[bold]Worst gap {duration(gap.seconds * _MILLISECONDS)}[/], "
        f"{gap.over_bound:.2f} of its bound {duration(gap.bound * _MILLISECONDS)} with "
        f"{worst.depth} out at once: {escape(gap.ahead)} "
        f"ahead of {escape(gap.behind)}; the {worst.paired} largest customers "
        "compared in pairs"
    )


def _waits_json(row: CustomerRow) -> Mapping[str, Any]:
    waits = row.waits
    return {
        "count": waits.count,
        "mean_s": round(waits.mean, 6),
        "p50_s": round(waits.p50, 6),
        "p95_s": round(waits.p95, 6),
        "p99_s": round(waits.p99, 6),
        "max_s": round(waits.longest, 6),
        "fifo_p99_s": round(row.fifo.p99, 6),
        "served_s": round(row.served_s, 6),
    }


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)


def _rate(figures: Mapping[str, Any]) -> str:
    """Of agendas, by the largest unit of which many pass."""
    per_s = figures["agendas_per_s"]
    whole, unit = next(
        ((per_s * s, unit) for s, unit in _PER if per_s * s >= 1), (per_s * 86_400, "d")
    )
    return f"{whole:,.0f}/{unit}" if whole >= _WHOLE_RATE else f"{whole:.2g}/{unit}"


def _shown(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
