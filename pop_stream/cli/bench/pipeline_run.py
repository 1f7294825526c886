"""The whole path beside its floor: several runs of both, in turn, on one stack."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, process_time
from typing import Final, NamedTuple

from pop_stream.bus.topics import Topics
from pop_stream.cli.bench.drive import LoadProfile, drive
from pop_stream.cli.bench.figures import ProgressSample, rate
from pop_stream.cli.bench.floor import open_floor
from pop_stream.cli.bench.folded import FoldedEndCounter
from pop_stream.cli.bench.meter import (
    ProcessUsage,
    count_connections,
    other_usage,
    read_usage,
    read_machine,
    cpu_seconds,
)
from pop_stream.cli.bench.noop_work import NoopWorkload
from pop_stream.cli.bench.session import definitions_toml
from pop_stream.cli.bench.store import BenchStore, open_store
from pop_stream.cli.bench.submitter import Submitter
from pop_stream.cli.bench.tail import read_end_offsets, read_lifecycle_counts
from pop_stream.cli.plan import StackPlan
from pop_stream.cli.stack import Stack, OnProgress, failing_with
from pop_stream.core.definitions.definitions import AlgorithmName

HANDLERS: Final = "pop_stream.cli.bench.handlers:handlers"
RAMP_S: Final = 5.0
"""Of a sustained run, before what is counted begins."""

WARM_UP_S: Final = 15.0
"""Most of the warm-up of a sustained run."""


@dataclass(frozen=True, slots=True)
class PipelineBenchOptions:
    """What is to be measured.

    Attributes:
        profile: Of the runs.
        customers: That agendas are of, in turn.
        size: Bytes of an agenda.
        concurrency: Agendas that one puller runs at a time.
        copies: Processes by part.
        floor: Whether the floor is run too.
    """

    profile: LoadProfile
    runs: int = 3
    customers: int = 10
    operations: int = 1
    insights: int = 1
    size: int = 300
    pullers: int = 1
    concurrency: int = 500
    target: int | str = "auto"
    copies: Mapping[str, int] | None = None
    floor: bool = True


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """One run of the path, or of its floor.

    Attributes:
        per_s: Agendas a second.
        agendas: That were submitted.
        cpu_s: By part; what the load and its count cost is `bench`.
        costs: By part, at the end.
        other_load: What else the machine did, as shares of one core.
    """

    samples: Sequence[ProgressSample]
    per_s: float
    agendas: int
    cpu_s: Mapping[str, float]
    costs: Mapping[str, ProcessUsage]
    other_load: Mapping[str, float]
    lost: int = 0
    duplicates: int = 0
    repeated_starts: int = 0
    failures: int = 0

    @property
    def cpu_s_per_1k(self) -> float:
        """Processor seconds of 1,000 agendas in all parts, the servers' included."""
        return sum(one for name, one in self.cpu_s.items() if name != "bench") * self._per_1k

    @property
    def by_part(self) -> Mapping[str, float]:
        """The same of each part."""
        return {name: one * self._per_1k for name, one in self.cpu_s.items()}

    @property
    def _per_1k(self) -> float:
        return 1_000 / max(1, self.agendas)


class IdleUsage(NamedTuple):
    """What a part that has nothing to do holds: of one core, of connections, of memory."""

    core_share: float
    connections: int
    rss_mb: float


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """What came of it."""

    runs: Sequence[PipelineRun]
    floors: Sequence[PipelineRun]
    warm_up: PipelineRun


async def run_pipeline(
    bench_options: PipelineBenchOptions, folder: Path, on_progress: OnProgress
) -> PipelineResult:
    """Start a stack, warm it up, run path and floor in turn, and stop it.

    Raises:
        CommandError: If something does not start, fails, or stands still for a minute.
    """
    async with AsyncExitStack() as entering:
        stack = Stack(plan_of(bench_options, folder), on_progress)
        await entering.enter_async_context(stack)
        await entering.enter_async_context(failing_with(stack))
        store = await entering.enter_async_context(open_store(stack.settings))
        rig = _PipelineRig(stack, store, bench_options)
        warm_up = await rig.run(_warm_up(bench_options.profile))
        on_progress(f"warm-up: {warm_up.per_s:,.0f} agendas/s")
        runs: list[PipelineRun] = []
        floors: list[PipelineRun] = []
        for number in range(1, bench_options.runs + 1):
            runs.append(await rig.run(bench_options.profile))
            on_progress(f"run {number}: {runs[-1].per_s:,.0f} agendas/s")
            if bench_options.floor:
                floors.append(await rig.run_floor(bench_options.profile))
                on_progress(f"floor {number}: {floors[-1].per_s:,.0f} agendas/s")
    return PipelineResult(runs, floors, warm_up)


async def run_idle(
    folder: Path,
    on_progress: OnProgress,
    *,
    agendas: int,
    insights: int,
    settle_s: float,
    seconds: float,
) -> Mapping[str, IdleUsage]:
    """Start a stack, run some agendas, wait, and count, by part.

    Raises:
        CommandError: If something does not start, or fails on the way.
    """
    bench_options = PipelineBenchOptions(LoadProfile(agendas=agendas), insights=insights)
    async with AsyncExitStack() as entering:
        stack = Stack(plan_of(bench_options, folder), on_progress)
        await entering.enter_async_context(stack)
        await entering.enter_async_context(failing_with(stack))
        store = await entering.enter_async_context(open_store(stack.settings))
        await _PipelineRig(stack, store, bench_options).run(bench_options.profile)
        on_progress(f"idle; counted from in {settle_s:g} s on, for {seconds:g} s")
        await asyncio.sleep(settle_s)
        before, began = read_usage(stack.processes()), monotonic()
        await asyncio.sleep(seconds)
        costs, lasted = read_usage(stack.processes()), monotonic() - began
        connections = count_connections(stack.processes())
    return {
        name: IdleUsage(one / lasted, connections[name], costs[name].rss_mb)
        for name, one in cpu_seconds(before, costs).items()
    }


def plan_of(
    bench_options: PipelineBenchOptions, folder: Path, **overrides: object
) -> StackPlan:
    """What is started for it, with definitions written to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    definitions = folder / "definitions.toml"
    insights: Mapping[str, AlgorithmName] = dict.fromkeys(
        insights_of(bench_options.insights), "weighted_fair"
    )
    definitions.write_text(definitions_toml(insights, bench_options.target), encoding="utf-8")
    return StackPlan(
        folder=folder,
        definitions=definitions,
        pullers=bench_options.pullers,
        copies=bench_options.copies or {},
        handlers=(HANDLERS,),
        overrides={
            "puller_concurrency": bench_options.concurrency,
            "topic_prefix": f"bench-{secrets.token_hex(3)}.",
            **overrides,
        },
    )


def insights_of(count: int) -> list[str]:
    """Their ids."""
    return [f"bench-{number}" for number in range(1, count + 1)]


def _warm_up(profile: LoadProfile) -> LoadProfile:
    """A run of full size, or some seconds: the broker's compiler needs as much."""
    return (
        profile
        if profile.agendas
        else replace(profile, seconds=min(profile.seconds, WARM_UP_S))
    )


def _rate(samples: Sequence[ProgressSample], profile: LoadProfile) -> float:
    if profile.agendas:
        return rate(samples)
    ramp = min(RAMP_S, profile.seconds / 4)
    return rate(samples, begin=ramp, end=profile.seconds)


class _PipelineRig:
    """The stack under test, and what measures it."""

    def __init__(
        self, stack: Stack, store: BenchStore, bench_options: PipelineBenchOptions
    ) -> None:
        self._stack = stack
        self._settings = stack.settings
        self._store = store
        self._wanted = bench_options

    async def run(self, profile: LoadProfile) -> PipelineRun:
        """Drive agendas through our parts, then read what became of each."""
        settings = self._settings
        work = NoopWorkload(
            secrets.token_hex(4),
            insights_of(self._wanted.insights),
            customers=self._wanted.customers,
            operations=self._wanted.operations,
            size=self._wanted.size,
        )
        begin = await read_end_offsets(settings)
        async with (
            Submitter(settings, Topics(settings.topic_prefix).submissions) as submitter,
            FoldedEndCounter(settings) as folded,
        ):
            found = await self._drive(profile, submitter, work, folded.count, {})
        lifecycle = await read_lifecycle_counts(settings, work.run, begin)
        states = await self._store.states(work.run)
        return replace(
            found,
            lost=found.agendas - states.get("succeeded", 0),
            duplicates=lifecycle.duplicates,
            repeated_starts=lifecycle.repeated_starts,
            failures=lifecycle.failures,
        )

    async def run_floor(self, profile: LoadProfile) -> PipelineRun:
        """Drive the same records through bare clients, while our parts are idle."""
        work = NoopWorkload(secrets.token_hex(4), insights_of(1), size=self._wanted.size)
        rows = 1 + self._wanted.operations
        async with (
            open_floor(self._settings, self._store, rows=rows) as floor,
            Submitter(self._settings, floor.topic) as submitter,
        ):
            # Its processes are new each time; the servers are warm after the first.
            await self._drive(_warm_up(profile), submitter, work, floor.ended, floor.processes)
            return await self._drive(profile, submitter, work, floor.ended, floor.processes)

    async def _drive(
        self,
        profile: LoadProfile,
        submitter: Submitter,
        work: NoopWorkload,
        ended: Callable[[], Awaitable[int]],
        hops: Mapping[str, int],
    ) -> PipelineRun:
        processes = {**self._stack.processes(), **hops}

        async def submit(first: int, count: int) -> None:
            pairs = [
                (work.agenda_id(number).encode(), work.body(number))
                for number in range(first, first + count)
            ]
            waiting.extend(await submitter.send(pairs))

        waiting: list[asyncio.Future[object]] = []
        before, machine, began = read_usage(processes), read_machine(), process_time()
        samples = await drive(submit, ended, profile)
        costs, after, used = read_usage(processes), read_machine(), process_time() - began
        cpu_s = {**cpu_seconds(before, costs), "bench": used}
        await asyncio.gather(*waiting)
        return PipelineRun(
            samples=samples,
            per_s=_rate(samples, profile),
            agendas=samples[-1].submitted,
            cpu_s=cpu_s,
            costs=costs,
            other_load=other_usage(machine, after, sum(cpu_s.values())),
        )
