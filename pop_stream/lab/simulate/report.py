"""What simulations came to: tables for a person, one JSON object for a program."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from pop_stream.cli.output import table
from pop_stream.lab.demo.report import duration
from pop_stream.lab.fairness_metrics.audit import (
    FairnessMetrics,
    WaitDistribution,
    wait_distribution,
)
from pop_stream.lab.fairness_metrics.gap import Gap
from pop_stream.lab.simulate.trial import ScenarioComparison
from pop_stream.model.ids import CustomerId

SHOWN: Final = 15
"""Customers of a table; the rest is one line."""

LISTED: Final = 1_000
"""Customers of the JSON object; the rest is one entry."""

_MILLISECONDS: Final = 1000
_WHOLE_RATE: Final = 10


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
    columns = (
        "customer", "#agendas", "#work", "#wait mean", "#p50", "#p95", "#p99", "#p99 fifo",
    )  # fmt: skip
    lines = [_cells(one) for one in rows(found, SHOWN)]
    insights = [Text(), _insights(comparisons)] if len(comparisons) > 1 else []
    conclusions = (Text.from_markup(line) for line in _conclusions(comparisons))
    return Group(table(columns, lines), *insights, Text(), *conclusions)


def as_json(comparisons: Mapping[str, ScenarioComparison]) -> Mapping[str, Any]:
    """The figures; of several insights the worst, each by itself under `insights`."""
    found = [*comparisons.values()]
    worst = _worst(found)
    return {
        **_headline(found),
        "worst_gap": asdict(worst.gap) if worst and worst.gap else None,
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
        "agendas_per_s": round(ended / seconds, 3) if seconds > 0 else None,
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


def _cells(row: CustomerRow) -> list[str]:
    waits = row.waits
    spans = (waits.mean, waits.p50, waits.p95, waits.p99, row.fifo.p99)
    return [
        escape(row.name),
        f"{waits.count:,}",
        f"{row.served_s:,.1f} s",
        *(duration(span * _MILLISECONDS) for span in spans),
    ]


def _insights(comparisons: Mapping[str, ScenarioComparison]) -> RenderableType:
    columns = ("insight", "#agendas", "#busy", "#depth", "#Jain", "#gap/bound")
    cells = [
        [
            escape(insight),
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
            f"[bold]Quiet p99 {figures['quiet_p99_over_alone']:.2f} times[/] what it is alone"
            f" ({escape(', '.join(figures['quiet']))})"
        )
    if figures["makespan_over_fifo"]:
        yield (
            f"[bold]Makespan {figures['makespan_over_fifo']:.4f} of FIFO's[/]: "
            f"{figures['agendas']:,} agendas in {figures['makespan_s']:,.2f} s, "
            f"{_rate(figures['agendas_per_s'])}/s"
        )
    if figures["unfinished"]:
        unfinished = figures["unfinished"]
        yield f"[bold red]{unfinished:,} agendas never ended[/]: something holds them"


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
        f"[bold]Worst gap {gap.seconds:.3g} s[/], {gap.over_bound:.2f} of its bound "
        f"{gap.bound:.3g} s with {worst.depth} out at once: {escape(gap.ahead)} "
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


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= _WHOLE_RATE else f"{per_s:.2g}"


def _shown(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
