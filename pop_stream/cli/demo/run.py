"""The course of the demo: warm up, flood, let the others in, wait, compare, report."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from pop_stream.cli.api import open_client
from pop_stream.cli.demo.contest import judged, recorded
from pop_stream.cli.demo.folder import DemoFolder
from pop_stream.cli.demo.measures import pace
from pop_stream.cli.demo.report import Ledger, Report, make_report
from pop_stream.cli.demo.screen import Screen
from pop_stream.cli.demo.tally import Tally
from pop_stream.cli.demo.workload import (
    FLOOD,
    QUIET,
    WARM_UP,
    Workload,
    warm_up,
    workload,
)
from pop_stream.cli.errors import CommandError
from pop_stream.cli.following import Following
from pop_stream.cli.plan import Plan
from pop_stream.cli.stack import Stack, failing_with
from pop_stream.cli.supervisor import RestartPolicy
from pop_stream.client import Client, NotFoundError, Retry, UnavailableError
from pop_stream.core.lifecycle.lifecycle import State

_DEFINITIONS: Final = Path(__file__).with_name("definitions.toml")
_HANDLERS: Final = "pop_stream.cli.demo.handlers:handlers"
_AT_ONCE: Final = 500
_RETRY: Final = Retry(within=timedelta(seconds=30))
_WARM_WITHIN_S: Final = 60.0
_SUMMARIES_WITHIN_S: Final = 30.0
_MOST_CRASHES: Final = 5
_MOST_AGENDAS: Final = 3_600
_LEAST_AGENDAS: Final = 50


@dataclass(frozen=True, slots=True)
class Demo:
    """What to show.

    Attributes:
        seconds: About how long the work may take; it is given up after far more.
        agendas: Of all customers together; None for as many as fit the time.
    """

    folder: Path
    seconds: int
    agendas: int | None = None
    pullers: int = 2

    def total(self, rate_per_s: float) -> int:
        """How many agendas to submit on a machine of such a pace."""
        fitting = int(self.seconds * rate_per_s)
        return self.agendas or max(_LEAST_AGENDAS, min(_MOST_AGENDAS, fitting))

    def deadline_s(self, rate_per_s: float) -> float:
        """When the work is given up."""
        return 60 + 3 * max(self.seconds, self.total(rate_per_s) / rate_per_s)


async def run_demo(demo: Demo, console: Console) -> Report:
    """Bring everything up, run, and take everything down again.

    Raises:
        CommandError: If something does not start or the work does not end in time.
    """
    folder = DemoFolder(demo.folder.absolute())
    plan = Plan(
        folder=folder.path,
        definitions=_DEFINITIONS,
        pullers=demo.pullers,
        handlers=(_HANDLERS,),
        overrides={"puller_concurrency": 4},
        restart=RestartPolicy(most_crashes=_MOST_CRASHES),
    )
    stack = Stack(plan, lambda line: console.print(f"[dim]{line}[/]", soft_wrap=True))
    async with stack, failing_with(stack), open_client(stack.settings, retry=_RETRY) as client:
        folder.begin()
        run = f"demo-{secrets.token_hex(4)}"
        rate_per_s = await _warm_up(stack, client, warm_up(run))
        work = workload(run, demo.total(rate_per_s))
        url = stack.settings.api_url
        console.print(f"[bold]{run}[/]: {len(work.owners):,} agendas, submitted to {url}")
        within_s = demo.deadline_s(rate_per_s)
        report = await _show(stack, client, Stage(console, work, within_s))
        if not report.ledger.lost:
            folder.finish()
        return report


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the work is shown, and how long it may take."""

    console: Console
    work: Workload
    within_s: float


async def _warm_up(stack: Stack, client: Client, work: Workload) -> float:
    """Agendas per second, once the pullers have joined."""
    tally = Tally(work.owners)
    async with Following(stack.settings, client_id="demo", hear=tally.note) as following:
        await _submit(client, work.agendas[WARM_UP])
        await _until_done(following, tally, within_s=_WARM_WITHIN_S)
    return pace(tally)


async def _show(stack: Stack, client: Client, stage: Stage) -> Report:
    work = stage.work
    tally = Tally(work.owners)
    clock = asyncio.get_running_loop().time
    async with Following(stack.settings, client_id="demo", hear=tally.note) as following:
        began = clock()
        screen = asyncio.create_task(
            Screen(stage.console, tally, lambda: clock() - began).run()
        )
        try:
            await _submit(client, work.agendas[FLOOD])
            await asyncio.gather(*(_submit(client, work.agendas[one]) for one in QUIET))
            await _until_done(following, tally, within_s=stage.within_s)
        finally:
            screen.cancel()
            await asyncio.wait([screen])
        seconds = clock() - began
    ledgers = await _ledgers(client, work)
    emissions = await asyncio.to_thread(recorded, stack.settings, tally, work.sizes)
    contest = judged(emissions, [*ledgers])
    return make_report(tally, ledgers, contest, seconds=seconds)


async def _submit(client: Client, agendas: Sequence[Mapping[str, Any]]) -> None:
    for start in range(0, len(agendas), _AT_ONCE):
        result = await client.submit_many(agendas[start : start + _AT_ONCE])
        if result.refused:
            msg = f"{result.refused} agendas of the demo were refused: {result.results[0]}"
            raise CommandError(msg)


async def _until_done(following: Following, tally: Tally, *, within_s: float) -> None:
    total = len(tally.courses)
    try:
        async with asyncio.timeout(within_s):
            await following.until(lambda: tally.done >= total)
    except TimeoutError:
        msg = f"only {tally.done} of {total} agendas had ended after {within_s:g} s"
        raise CommandError(msg) from None


async def _ledgers(client: Client, work: Workload) -> Mapping[str, Ledger]:
    """What the summaries say, as soon as they say that all ended, or at last anyhow."""
    ledgers: dict[str, Ledger] = {}
    clock = asyncio.get_running_loop().time
    until = clock() + _SUMMARIES_WITHIN_S
    while True:
        for customer, own in work.agendas.items():
            counts = await _counts(client, work.link(customer))
            ended = {state: count for state, count in counts.items() if state.is_terminal}
            succeeded = ended.get(State.SUCCEEDED, 0)
            ledgers[customer] = Ledger(len(own), succeeded, sum(ended.values()))
        if clock() > until or not any(one.lost for one in ledgers.values()):
            return ledgers
        await asyncio.sleep(0.2)


async def _counts(client: Client, link_id: str) -> Mapping[State, int]:
    try:
        return (await client.link(link_id)).counts
    except (NotFoundError, UnavailableError):
        return {}
