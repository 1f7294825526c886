"""The course of a chaos run: start, warm up, load and faults, settle, gather, judge."""

import asyncio
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

from pop_stream.clock import WallClock
from pop_stream.composition.client import open_client
from pop_stream.devserver.folder import PORTS, is_free_port
from pop_stream.devserver.plan import StackPlan
from pop_stream.devserver.stack import OnProgress, Stack, failing_with
from pop_stream.devserver.supervisor import RestartPolicy
from pop_stream.kafka import connections
from pop_stream.kafka.topics import Topics
from pop_stream.lab.chaos.faults import (
    PULLER_GRACE,
    UPGRADE_ORDER,
    FaultCounts,
    FaultInjector,
    FaultRecord,
    InjectedFault,
    plan_faults,
)
from pop_stream.lab.chaos.handlers import STARTS, read_starts
from pop_stream.lab.chaos.judge import ChaosVerdict, evaluate, gather_evidence
from pop_stream.lab.chaos.load import RETRY, ChaosLoad, submit
from pop_stream.lab.chaos.schedules import (
    ScheduleLoad,
    ScheduleVerdict,
    evaluate_schedules,
    listed_occurrences,
)
from pop_stream.model.errors import UnavailableError
from pop_stream.operations.errors import CommandError
from pop_stream.postgres.ledger import PostgresSummaryScan
from pop_stream.postgres.pool import open_pool
from pop_stream.settings import Settings

DEFINITIONS: Final = Path(__file__).with_name("definitions.toml")
_HANDLERS: Final = "pop_stream.lab.chaos.handlers:handlers"
_RESTART: Final = RestartPolicy(longest_pause=timedelta(seconds=1))
_WARM_WITHIN_S: Final = 60.0
_WARM_UP_S: Final = 1.0
_SETTLED_FOR_S: Final = 1.0
_MORE_LOAD_S: Final = 5.0
_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class ChaosConfig:
    """What a run does.

    Attributes:
        settle_s: How long after the load and the last fault everything may take to end.
        schedules: Schedules that fire every second meanwhile.
        script: Faults besides those that the seed makes, in order of time.
    """

    folder: Path
    wanted: FaultCounts
    seed: int
    rate_per_s: float = 40.0
    brokers: int = 1
    pullers: int = 2
    schedulers: int = 2
    settle_s: float = 120.0
    schedules: int = 0
    script: tuple[InjectedFault, ...] = ()


@dataclass(frozen=True, slots=True)
class ChaosResult:
    """What a run did, and its verdict.

    Attributes:
        refused: Submissions that were refused, with the answers.
        settled_s: From the end of load and faults until all had ended, or until given up.
        attempts: The highest number of an attempt that was started.
        schedules: What became of occurrences; None without schedules.
    """

    verdict: ChaosVerdict
    injected: list[FaultRecord]
    refused: dict[str, str]
    starts: int
    attempts: int
    dead_letters: int
    settled_s: float
    schedules: ScheduleVerdict | None = None


async def run_chaos(chaos: ChaosConfig, on_progress: OnProgress) -> ChaosResult:
    """Start a stack, run chaos on it, and take everything down again.

    Raises:
        CommandError: If something does not start, or the load cannot be submitted.
    """
    starts = chaos.folder.absolute() / f"starts-{secrets.token_hex(4)}"
    plan = StackPlan(
        folder=chaos.folder,
        definitions=DEFINITIONS,
        port=random_port(),
        pullers=chaos.pullers,
        copies={"scheduler": chaos.schedulers},
        handlers=(_HANDLERS,),
        brokers=chaos.brokers,
        overrides={
            "topic_prefix": f"chaos-{secrets.token_hex(3)}.",
            "puller_concurrency": 8,
            "heartbeat": timedelta(seconds=2),
            # The embedded broker allows less than the 6 s that a broker does by default.
            "session_timeout": timedelta(seconds=4),
            # What is lost is to be seen, not put right.
            "reconcile_every": timedelta(0),
            **(_replaceable(chaos) if chaos.wanted.rolling else {}),
        },
        restart=_RESTART,
        environment={STARTS: str(starts)},
    )
    stack = Stack(plan, on_progress)
    async with stack, failing_with(stack):
        await _warm_up(stack, starts, seed=chaos.seed)
        return await _run(chaos, stack, starts, on_progress)


def _replaceable(chaos: ChaosConfig) -> Mapping[str, object]:
    """Settings by which parts can be replaced: they say when they are ready, and may finish."""
    parts = chaos.pullers + chaos.schedulers + len(UPGRADE_ORDER)
    candidates = (secrets.choice(PORTS[:-parts]) for _ in PORTS)
    port = next(
        first
        for first in candidates
        if all(is_free_port(one) for one in range(first, first + parts))
    )
    return {"metrics_port": port, "puller_grace": PULLER_GRACE}


def random_port() -> int:
    """A port that no other process is likely to take while the API is down."""
    return next(port for _ in PORTS if is_free_port(port := secrets.choice(PORTS)))


def _prefix(letter: str) -> str:
    """Of agenda ids, never used before: a folder may be used again, with its summaries."""
    return f"{letter}{secrets.token_hex(4)}"


async def _warm_up(stack: Stack, starts: Path, *, seed: int) -> None:
    """Run some agendas, so that topics exist and groups have joined before time counts."""
    load = ChaosLoad(_prefix("w"), seed, rate_per_s=20.0, seconds=_WARM_UP_S)
    await _submit(stack, load)
    try:
        async with asyncio.timeout(_WARM_WITHIN_S):
            waiting = {*load.acknowledged}
            while waiting := waiting - {one.agenda_id for one in read_starts(starts)}:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_S)  # the file is another process's
    except TimeoutError:
        msg = f"the first agendas were not started; logs are in {stack.supervisor.logs}"
        raise CommandError(msg) from None


async def _run(
    chaos: ChaosConfig, stack: Stack, starts: Path, on_progress: OnProgress
) -> ChaosResult:
    load = ChaosLoad(_prefix("c"), chaos.seed, chaos.rate_per_s, chaos.wanted.seconds)
    scheduled = await _define_schedules(chaos, stack, load.prefix)
    injector = FaultInjector(stack, WallClock(), on_progress)
    async with asyncio.TaskGroup() as tasks:
        injecting = tasks.create_task(injector.inject(_planned_faults(chaos, stack)))
        tasks.create_task(_submit(stack, load))
        if chaos.wanted.rolling:
            tasks.create_task(_submit_until(injecting, stack, load))
    await _until(scheduled.end)
    expected = scheduled.expected()
    submitted = {*load.acknowledged, *expected}
    on_progress(
        f"{len(submitted)} agendas are acknowledged or due; waiting until all have ended"
    )
    settled_s = await settle(stack.settings, submitted, within_s=chaos.settle_s)
    listed = await listed_occurrences(stack.settings, scheduled, within_s=chaos.settle_s)
    evidence = await gather_evidence(stack.settings, f"{load.prefix}-", starts)
    own = [one for one in evidence.starts if one.agenda_id.startswith(f"{load.prefix}-")]
    evidence.starts = own
    return ChaosResult(
        verdict=evaluate(evidence, load.acknowledged, injecting.result(), _parts(stack)),
        injected=injecting.result(),
        refused=load.refused,
        starts=len(own),
        attempts=max((one.attempt for one in own), default=0),
        dead_letters=evidence.dead_letters,
        settled_s=settled_s,
        schedules=evaluate_schedules(expected, evidence, listed) if expected else None,
    )


async def _define_schedules(chaos: ChaosConfig, stack: Stack, prefix: str) -> ScheduleLoad:
    """Schedules that fire for as long as the load goes on; none if none are wanted."""
    start = WallClock().now().replace(microsecond=0) + timedelta(seconds=1)
    seconds = chaos.wanted.seconds if chaos.schedules else 0.0
    scheduled = ScheduleLoad(prefix, chaos.schedules, start, seconds)
    if chaos.schedules:
        async with open_client(stack.settings, retry=RETRY) as api:
            await scheduled.define(api)
    return scheduled


async def _until(at: datetime) -> None:
    """Sleep until an instant; not at all if it has passed."""
    await asyncio.sleep(max(0.0, (at - WallClock().now()).total_seconds()))


def _brokers(stack: Stack) -> list[str]:
    return [one for one in stack.processes() if one.startswith("kafka")]


def _parts(stack: Stack) -> list[str]:
    return [*stack.supervisor.status(), *_brokers(stack)]


def _planned_faults(chaos: ChaosConfig, stack: Stack) -> list[InjectedFault]:
    parts, brokers = [*stack.supervisor.status()], _brokers(stack)
    made = plan_faults(chaos.wanted, parts=parts, brokers=brokers, seed=chaos.seed)
    return sorted([*made, *chaos.script], key=lambda fault: fault.at)


async def _submit(stack: Stack, load: ChaosLoad) -> None:
    topic = Topics(stack.settings.topic_prefix).submissions
    async with (
        open_client(stack.settings, retry=RETRY) as api,
        connections.publisher(stack.settings, client_id="chaos") as publisher,
    ):
        await submit(load, api, publisher, topic)


async def _submit_until(over: asyncio.Task[Any], stack: Stack, load: ChaosLoad) -> None:
    """Go on at the load's rate after it has ended, until the last part is replaced."""
    await asyncio.wait({over}, timeout=load.seconds)
    async with asyncio.TaskGroup() as tasks:
        for number in count(1):
            if over.done():
                return
            more = replace(
                load,
                prefix=f"{load.prefix}-{number}",
                seed=load.seed + number,
                seconds=_MORE_LOAD_S,
            )
            tasks.create_task(_submit(stack, more))
            await asyncio.wait({over}, timeout=_MORE_LOAD_S)


async def settle(settings: Settings, agenda_ids: Collection[str], *, within_s: float) -> float:
    """Wait until Postgres says that all have ended; seconds that it took, or the limit."""
    now = asyncio.get_running_loop().time
    began = now()
    waiting = set(agenda_ids)
    async with open_pool(settings) as pool:
        ledger = PostgresSummaryScan(pool)
        while waiting and now() - began < within_s:
            try:
                entries = await ledger.states([*waiting])
            except UnavailableError:
                entries = {}
            waiting -= {one for one, entry in entries.items() if entry.state.is_terminal}
            if waiting:
                await asyncio.sleep(_POLL_S)
    settled_s = now() - began
    # An end may be published twice, or a late start be written down, a moment after the
    # last summary.
    await asyncio.sleep(_SETTLED_FOR_S)
    return settled_s
