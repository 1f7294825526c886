"""The course of the demo: warm up, flood, let the others in, wait, report.

`DemoFolder` chooses where its data are: where the last run left them, unless that did not end.
"""

import asyncio
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from pop_stream.client.client import Client
from pop_stream.client.errors import ApiNotFoundError, ApiUnavailableError
from pop_stream.client.transport import Retry
from pop_stream.composition.client import open_client
from pop_stream.devserver.folder import DataFolder
from pop_stream.devserver.plan import StackPlan
from pop_stream.devserver.stack import Stack, failing_with
from pop_stream.devserver.supervisor import RestartPolicy
from pop_stream.lab.demo.report import AgendaCounts, DemoReport, LiveScreen, make_report
from pop_stream.lab.demo.statistics import (
    RunStatistics,
    contest_of,
    recorded_emissions,
    throughput,
)
from pop_stream.lab.demo.workload import FLOOD, QUIET, WARM_UP, Workload, warm_up, workload
from pop_stream.lab.event_follower import LifecycleFollower
from pop_stream.operations import logging
from pop_stream.operations.errors import CommandError
from pop_stream.policy.lifecycle.states import State

_UNFINISHED: Final = "unfinished"


class DemoFolder:
    """A generation of data below one folder.

    A run that was interrupted leaves a backlog that would stand in the way of the next, so
    the next one begins a new generation.

    Args:
        parent: Holds one folder per generation.
    """

    def __init__(self, parent: Path) -> None:
        generations = _generations(parent)
        latest = max(generations, default=0)
        if latest and (parent / f"data-{latest}" / _UNFINISHED).exists():
            with DataFolder(parent / f"data-{latest}"):
                pass  # raises if that run goes on in another process
            latest += 1
        self._parent = parent
        self._generation = max(1, latest)
        self.path = parent / f"data-{self._generation}"

    def begin(self) -> None:
        """Note that there is a backlog now."""
        (self.path / _UNFINISHED).touch()

    def finish(self) -> None:
        """Note that all of it ended, and delete generations that nobody needs any more."""
        (self.path / _UNFINISHED).unlink(missing_ok=True)
        for number in _generations(self._parent):
            if number < self._generation:
                shutil.rmtree(self._parent / f"data-{number}", ignore_errors=True)


def _generations(parent: Path) -> list[int]:
    return sorted(_numbers(parent))


def _numbers(parent: Path) -> Iterator[int]:
    for path in parent.glob("data-*"):
        number = path.name.removeprefix("data-")
        if number.isdecimal():
            yield int(number)


_DEFINITIONS: Final = Path(__file__).with_name("definitions.toml")
_HANDLERS: Final = "pop_stream.lab.demo.handlers:handlers"
_BATCH_SIZE: Final = 500
_RETRY: Final = Retry(within=timedelta(seconds=30))
_WARM_UP_TIMEOUT_S: Final = 60.0
_SUMMARIES_TIMEOUT_S: Final = 30.0
_MAX_CRASHES: Final = 5
_MAX_AGENDAS: Final = 3_600
_MIN_AGENDAS: Final = 50


@dataclass(frozen=True, slots=True)
class DemoConfig:
    """What to show.

    Attributes:
        seconds: About how long the work may take; it is given up after far more.
        agendas: Of all customers together; None for as many as fit the time.
        keep: Whether it stays up after the report, until it is interrupted.
    """

    folder: Path
    seconds: int
    agendas: int | None = None
    pullers: int = 2
    keep: bool = False

    def total(self, rate_per_s: float) -> int:
        """How many agendas to submit on a machine of such a pace."""
        fitting = int(self.seconds * rate_per_s)
        return self.agendas or max(_MIN_AGENDAS, min(_MAX_AGENDAS, fitting))

    def deadline_s(self, rate_per_s: float) -> float:
        """When the work is given up."""
        return 60 + 3 * max(self.seconds, self.total(rate_per_s) / rate_per_s)


async def run_demo(
    demo: DemoConfig, console: Console, on_report: Callable[[DemoReport], None]
) -> None:
    """Bring everything up, run, report, and take everything down again.

    Raises:
        CommandError: If something does not start or the work does not end in time.
    """
    folder = DemoFolder(demo.folder.absolute())
    logging.configure_file_logging(folder.path / "logs" / "demo.log")
    plan = StackPlan(
        folder=folder.path,
        definitions=_DEFINITIONS,
        pullers=demo.pullers,
        handlers=(_HANDLERS,),
        overrides={"puller_concurrency": 4},
        restart=RestartPolicy(max_crashes=_MAX_CRASHES),
    )
    stack = Stack(plan, lambda line: console.print(f"[dim]{line}[/]", soft_wrap=True))
    async with stack, failing_with(stack), open_client(stack.settings, retry=_RETRY) as client:
        folder.begin()
        run = f"demo-{secrets.token_hex(4)}"
        rate_per_s = await _warm_up(stack, client, warm_up(run))
        work = workload(run, demo.total(rate_per_s))
        url = stack.settings.api_url
        console.print(f"[bold]{run}[/]: {len(work.owners):,} agendas, submitted to {url}")
        timeout_s = demo.deadline_s(rate_per_s)
        report = await _show(stack, client, DemoContext(console, work, timeout_s))
        if not report.agenda_counts.lost:
            folder.finish()
        on_report(report)
        if demo.keep:
            place = stack.settings.console_url
            console.print(f"[bold]look around[/] at {place}; Ctrl-C stops everything")
            raise await stack.failed()


@dataclass(frozen=True, slots=True)
class DemoContext:
    """Where the work is shown, and how long it may take."""

    console: Console
    work: Workload
    timeout_s: float


async def _warm_up(stack: Stack, client: Client, work: Workload) -> float:
    """Run the warm-up agendas; agendas per second once the pullers have joined."""
    run_statistics = RunStatistics(work.owners)
    async with LifecycleFollower(
        stack.settings, client_id="demo", on_events=run_statistics.note
    ) as follower:
        await _submit(client, work.agendas[WARM_UP])
        await _until_done(follower, run_statistics, timeout_s=_WARM_UP_TIMEOUT_S)
    return throughput(run_statistics)


async def _show(stack: Stack, client: Client, context: DemoContext) -> DemoReport:
    work = context.work
    run_statistics = RunStatistics(work.owners)
    clock = asyncio.get_running_loop().time
    async with LifecycleFollower(
        stack.settings, client_id="demo", on_events=run_statistics.note
    ) as follower:
        began = clock()
        screen = asyncio.create_task(
            LiveScreen(context.console, run_statistics, lambda: clock() - began).run()
        )
        try:
            await _submit(client, work.agendas[FLOOD])
            await asyncio.gather(*(_submit(client, work.agendas[one]) for one in QUIET))
            await _until_done(follower, run_statistics, timeout_s=context.timeout_s)
        finally:
            screen.cancel()
            await asyncio.wait([screen])
        seconds = clock() - began
    counts_by_customer = await _read_counts(client, work)
    emissions = await asyncio.to_thread(
        recorded_emissions, stack.settings, run_statistics, work.sizes
    )
    contest = contest_of(emissions, [*counts_by_customer])
    return make_report(run_statistics, counts_by_customer, contest, seconds=seconds)


async def _submit(client: Client, agendas: Sequence[Mapping[str, Any]]) -> None:
    for start in range(0, len(agendas), _BATCH_SIZE):
        result = await client.submit_many(agendas[start : start + _BATCH_SIZE])
        if result.refused:
            msg = f"{result.refused} agendas of the demo were refused: {result.results[0]}"
            raise CommandError(msg)


async def _until_done(
    follower: LifecycleFollower, run_statistics: RunStatistics, *, timeout_s: float
) -> None:
    total = len(run_statistics.by_agenda)
    try:
        async with asyncio.timeout(timeout_s):
            await follower.until(lambda: run_statistics.done >= total)
    except TimeoutError:
        msg = f"only {run_statistics.done} of {total} agendas had ended after {timeout_s:g} s"
        raise CommandError(msg) from None


async def _read_counts(client: Client, work: Workload) -> Mapping[str, AgendaCounts]:
    """Counts from the summaries, once all have ended there, or when the wait is over."""
    counts_by_customer: dict[str, AgendaCounts] = {}
    clock = asyncio.get_running_loop().time
    until = clock() + _SUMMARIES_TIMEOUT_S
    while True:
        for customer, own in work.agendas.items():
            counts = await _counts(client, work.link(customer))
            ended = {state: count for state, count in counts.items() if state.is_terminal}
            succeeded = ended.get(State.SUCCEEDED, 0)
            counts_by_customer[customer] = AgendaCounts(
                len(own), succeeded, sum(ended.values())
            )
        if clock() > until or not any(one.lost for one in counts_by_customer.values()):
            return counts_by_customer
        await asyncio.sleep(0.2)


async def _counts(client: Client, link_id: str) -> Mapping[State, int]:
    try:
        return (await client.link(link_id)).counts
    except (ApiNotFoundError, ApiUnavailableError):
        return {}
