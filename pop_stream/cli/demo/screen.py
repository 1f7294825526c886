"""The demo while it runs: bars for a terminal, lines for anything else."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pop_stream.cli.demo.measures import percentile
from pop_stream.cli.demo.report import duration
from pop_stream.cli.demo.tally import DemoAgenda, RunStatistics
from pop_stream.cli.demo.workload import FLOOD, QUIET, WEIGHTS

_BAR: Final = 40
_FRAME_S: Final = 0.2
_LINE_S: Final = 3.0
_MILLISECOND: Final = timedelta(milliseconds=1)
_LEGEND: Final = (
    "[bold]What to look at[/]: the flood came first and is larger by far, yet the others' bars "
    "fill while its own has hardly begun.\nFirst come, first served would have made them wait "
    "for all of it. dora's weight is 2, so its bar fills about twice as fast."
)


class LiveScreen:
    """Shows a tally until cancelled.

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
        elapsed_s = self._elapsed_s()
        head = (
            f"[bold]{elapsed_s:.1f} s[/]  {self._run_statistics.done:,} of "
            f"{len(self._run_statistics.by_agenda):,} done, {self._run_statistics.done / max(elapsed_s, 0.1):.0f}/s"
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
