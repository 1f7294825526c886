"""What a demo shows: bars or lines while it runs, and the report of what it came to."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pop_stream.cli.output import table
from pop_stream.lab.demo.statistics import ContestResult, DemoAgenda, RunStatistics, percentile
from pop_stream.lab.demo.workload import FLOOD, QUIET, WEIGHTS
from pop_stream.lab.reporting import duration

_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class AgendaCounts:
    """A customer's agendas as the API's summaries have them.

    Attributes:
        terminal: All that ended, in whatever way.
    """

    submitted: int
    succeeded: int
    terminal: int

    @property
    def failed(self) -> int:
        """How many ended other than well."""
        return self.terminal - self.succeeded

    @property
    def lost(self) -> int:
        """How many were submitted and have no known end."""
        return self.submitted - self.terminal


@dataclass(frozen=True, slots=True)
class CustomerReport:
    """One customer's part.

    Attributes:
        share: Of the worker-seconds that were emitted while all customers had work waiting;
            None if unknown.
        fair_share: What its weight entitles it to.
    """

    customer_id: str
    weight: float
    agenda_counts: AgendaCounts
    wait_p50_ms: float | None
    wait_p99_ms: float | None
    share: float | None
    fair_share: float


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The whole run.

    Attributes:
        seconds: From the first submission to the last end.
        contest: How even shares were while customers competed.
    """

    customers: Sequence[CustomerReport]
    seconds: float
    contest: ContestResult
    duplicates: int
    wait_p50_ms: float | None
    wait_p99_ms: float | None

    @property
    def agenda_counts(self) -> AgendaCounts:
        """All customers together."""
        counts_by_customer = [one.agenda_counts for one in self.customers]
        return AgendaCounts(
            submitted=sum(one.submitted for one in counts_by_customer),
            succeeded=sum(one.succeeded for one in counts_by_customer),
            terminal=sum(one.terminal for one in counts_by_customer),
        )

    @property
    def is_clean(self) -> bool:
        """Whether every agenda succeeded, once."""
        agenda_counts = self.agenda_counts
        return not (agenda_counts.lost or agenda_counts.failed or self.duplicates)

    def as_json(self) -> Mapping[str, Any]:
        """The object that `--json` prints."""
        agenda_counts = self.agenda_counts
        return {
            "submitted": agenda_counts.submitted,
            "succeeded": agenda_counts.succeeded,
            "failed": agenda_counts.failed,
            "lost": agenda_counts.lost,
            "duplicates": self.duplicates,
            "seconds": round(self.seconds, 2),
            "jain": _rounded(self.contest.jain, 4),
            "jain_customers": self.contest.competitors,
            "wait_p50_ms": _rounded(self.wait_p50_ms),
            "wait_p99_ms": _rounded(self.wait_p99_ms),
            "agendas_per_s": _rounded(
                agenda_counts.terminal / self.seconds if self.seconds else None
            ),
            "contended_s": round(self.contest.span_s, 2),
            "customers": {one.customer_id: _customer_json(one) for one in self.customers},
        }


def make_report(
    run_statistics: RunStatistics,
    counts_by_customer: Mapping[str, AgendaCounts],
    contest: ContestResult,
    *,
    seconds: float,
) -> DemoReport:
    """Put together what Kafka recorded and what the API's summaries say.

    Args:
        run_statistics: Of the run's events.
        counts_by_customer: By customer.
        contest: Of the run's rounds.
        seconds: From the first submission to the last end.
    """
    by_agenda = {customer: list(run_statistics.of(customer)) for customer in counts_by_customer}
    weights = {customer: WEIGHTS.get(customer, 1.0) for customer in counts_by_customer}
    waits = _waits_ms(one for own in by_agenda.values() for one in own)
    customers = [
        _customer(
            one, agenda_counts, by_agenda[one], given=contest.given or {}, weights=weights
        )
        for one, agenda_counts in counts_by_customer.items()
    ]
    return DemoReport(
        customers=customers,
        seconds=seconds,
        contest=contest,
        duplicates=run_statistics.duplicates,
        wait_p50_ms=percentile(waits, 50),
        wait_p99_ms=percentile(waits, 99),
    )


def show_report(console: Console, report: DemoReport) -> None:
    """Print the report for a person."""
    columns = (
        "customer", "#weight", "#sent", "#succeeded", "#failed", "#lost",
        "#wait p50", "#p99", "#share", "#fair",
    )  # fmt: skip
    console.print()
    console.print(table(columns, [_row(one) for one in report.customers]))
    console.print()
    for line in _conclusions(report):
        console.print(line, soft_wrap=True)


def _customer(
    customer_id: str,
    agenda_counts: AgendaCounts,
    by_agenda: Sequence[DemoAgenda],
    *,
    given: Mapping[str, float],
    weights: Mapping[str, float],
) -> CustomerReport:
    waits = _waits_ms(by_agenda)
    total = sum(given.values())
    return CustomerReport(
        customer_id=customer_id,
        weight=weights[customer_id],
        agenda_counts=agenda_counts,
        wait_p50_ms=percentile(waits, 50),
        wait_p99_ms=percentile(waits, 99),
        share=given[customer_id] / total if total else None,
        fair_share=weights[customer_id] / sum(weights.values()),
    )


def _waits_ms(by_agenda: Iterator[DemoAgenda] | Sequence[DemoAgenda]) -> list[float]:
    waits = (demo_agenda.wait for demo_agenda in by_agenda)
    return [wait / _MILLISECOND for wait in waits if wait is not None]


def _row(one: CustomerReport) -> list[str]:
    agenda_counts = one.agenda_counts
    return [
        one.customer_id,
        f"{one.weight:g}",
        f"{agenda_counts.submitted:,}",
        f"{agenda_counts.succeeded:,}",
        f"{agenda_counts.failed}",
        f"{agenda_counts.lost}",
        duration(one.wait_p50_ms),
        duration(one.wait_p99_ms),
        "-" if one.share is None else f"{one.share:.0%}",
        f"{one.fair_share:.0%}",
    ]


def _conclusions(report: DemoReport) -> Iterator[str]:
    counts = report.agenda_counts
    yield (
        f"[bold]{counts.succeeded:,} of {counts.submitted:,} agendas succeeded[/] in "
        f"{report.seconds:.1f} s ({counts.terminal / max(report.seconds, 1e-9):.0f}/s); "
        f"{counts.lost} lost, {report.duplicates} done twice, {counts.failed} failed"
    )
    contest = report.contest
    if contest.jain is None:
        yield (
            "[bold]No Jain index[/]: no two customers competed for so long that their largest "
            "agendas do not matter"
        )
    else:
        yield (
            f"[bold]Jain index {contest.jain:.3f}[/] (1 is equal) of worker-seconds by weight, "
            f"over {contest.competitors} customers while they competed; shares are of the "
            f"{contest.span_s:.1f} s in which all had work waiting"
        )


def _customer_json(one: CustomerReport) -> Mapping[str, Any]:
    return {
        "weight": one.weight,
        "submitted": one.agenda_counts.submitted,
        "succeeded": one.agenda_counts.succeeded,
        "failed": one.agenda_counts.failed,
        "lost": one.agenda_counts.lost,
        "wait_p50_ms": _rounded(one.wait_p50_ms),
        "wait_p99_ms": _rounded(one.wait_p99_ms),
        "share": _rounded(one.share, 4),
        "fair_share": round(one.fair_share, 4),
    }


def _rounded(value: float | None, digits: int = 1) -> float | None:
    return None if value is None else round(value, digits)


_BAR: Final = 40
_FRAME_S: Final = 0.2
_LINE_S: Final = 3.0
_LEGEND: Final = (
    "[bold]What to look at[/]: the flood came first and is larger by far, yet the others' bars "
    "fill while its own has hardly begun.\nFirst come, first served would have made them wait "
    "for all of it. dora's weight is 2, so its bar fills about twice as fast."
)


class LiveScreen:
    """Shows the statistics of a run until cancelled.

    Args:
        console: A terminal gets bars that move, anything else a line now and then.
        elapsed_s: Seconds since the first submission.
    """

    def __init__(
        self, console: Console, run_statistics: RunStatistics, elapsed_s: Callable[[], float]
    ) -> None:
        self._console = console
        self._run_statistics = run_statistics
        self._elapsed_s = elapsed_s

    async def run(self) -> None:
        """Refresh for as long as the task lives; the last picture stays."""
        if self._console.is_terminal:
            with Live(console=self._console, auto_refresh=False) as live:
                try:
                    while True:
                        live.update(self.render(), refresh=True)
                        await asyncio.sleep(_FRAME_S)
                finally:
                    live.update(self.render(), refresh=True)
        while True:
            await asyncio.sleep(_LINE_S)
            self._console.print(self.line(), soft_wrap=True)

    def line(self) -> str:
        """All customers on one line."""
        done = (f"{one} {_done(self._run_statistics, one)}" for one in (FLOOD, *QUIET))
        return f"{self._elapsed_s():5.1f} s  {'  '.join(done)}"

    def render(self) -> RenderableType:
        """A row per customer: bar, counts and waits."""
        rows = Table(box=None, pad_edge=False, header_style="bold")
        for column in (
            "customer",
            "#weight",
            "",
            "#waiting",
            "#running",
            "#done",
            "#median wait",
        ):
            rows.add_column(
                column.removeprefix("#"), justify="right" if column.startswith("#") else "left"
            )
        for customer in (FLOOD, *QUIET):
            rows.add_row(*_progress_row(customer, list(self._run_statistics.of(customer))))
        elapsed_s, run = self._elapsed_s(), self._run_statistics
        head = (
            f"[bold]{elapsed_s:.1f} s[/]  {run.done:,} of {len(run.by_agenda):,} done, "
            f"{run.done / max(elapsed_s, 0.1):.0f}/s"
        )
        return Group(Text.from_markup(head), rows, Text.from_markup(_LEGEND))


def _progress_row(customer: str, by_agenda: list[DemoAgenda]) -> Iterator[RenderableType]:
    done = sum(one.is_done for one in by_agenda)
    started = sum(one.started_at is not None or one.is_done for one in by_agenda)
    waits = [one.wait / _MILLISECOND for one in by_agenda if one.wait is not None]
    yield Text(customer, "bold")
    yield f"{WEIGHTS.get(customer, 1.0):g}"
    yield _bar(done, started, len(by_agenda))
    yield f"{len(by_agenda) - started:,}"
    yield f"{started - done}"
    yield f"{done:,}"
    yield duration(percentile(waits, 50))


def _bar(done: int, started: int, total: int) -> Text:
    full = _BAR * done // max(1, total)
    begun = _BAR * started // max(1, total) - full
    return Text.assemble(
        ("━" * full, "green"), ("━" * begun, "cyan"), ("━" * (_BAR - full - begun), "grey30")
    )


def _done(run_statistics: RunStatistics, customer: str) -> str:
    by_agenda = list(run_statistics.of(customer))
    return f"{sum(one.is_done for one in by_agenda)}/{len(by_agenda)}"
