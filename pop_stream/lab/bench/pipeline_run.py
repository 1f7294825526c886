"""Measures the throughput of the whole path and of its floor, in turns on one stack.

How many agendas have their end in Postgres is counted without reading their rows. The rollup
stores how far it has read `pop.agenda-events` in the transaction that writes the summaries, so
the ends among the records before that offset are durable and readable: they are counted on the
topic, and a query of a few rows says up to where they count.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, process_time
from typing import Final, NamedTuple, Self

from pop_stream.devserver.plan import StackPlan
from pop_stream.devserver.stack import OnProgress, Stack, failing_with
from pop_stream.kafka import clients
from pop_stream.kafka.clients import KafkaConsumer
from pop_stream.kafka.topics import Topics
from pop_stream.lab.bench.figures import ProgressSample, rate
from pop_stream.lab.bench.floor import open_floor
from pop_stream.lab.bench.load import LoadProfile, NoopWorkload, Submitter, drive
from pop_stream.lab.bench.meter import (
    ProcessUsage,
    count_connections,
    cpu_seconds,
    other_usage,
    read_machine,
    read_usage,
)
from pop_stream.lab.bench.results import (
    BenchStore,
    open_store,
    read_end_offsets,
    read_lifecycle_counts,
)
from pop_stream.lab.bench.session import definitions_toml
from pop_stream.model.definitions import AlgorithmName
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.summaries import PostgresSummaries
from pop_stream.settings import Settings

_ENDS: Final = (b'"type":"agenda.succeeded"', b'"type":"agenda.failed"')
_MAX_RECORDS: Final = 5_000


class EndCounter:
    """Ends by offset, for each partition; a pure count."""

    def __init__(self) -> None:
        self._seen: dict[int, deque[tuple[int, int]]] = {}
        self._total = 0

    def note(self, partition: int, offset: int, value: bytes) -> None:
        """Take note of a record; those of one partition come in order."""
        ends = sum(map(value.count, _ENDS))
        if ends:
            self._seen.setdefault(partition, deque()).append((offset, ends))

    def up_to(self, offsets: Mapping[int, int]) -> int:
        """All ends in records before these offsets; they are never asked for again lower."""
        for partition, end in offsets.items():
            seen = self._seen.get(partition)
            while seen and seen[0][0] < end:
                self._total += seen.popleft()[1]
        return self._total


class FoldedEndCounter:
    """Follows the topic from the moment it is entered on."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic = Topics(settings.topic_prefix).agenda_events
        self._ends = EndCounter()
        self._open = AsyncExitStack()
        self._following: asyncio.Task[None] | None = None
        self._store: PostgresSummaries | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            self._store = PostgresSummaries(
                await opening.enter_async_context(open_pool(self._settings))
            )
            # Never from the beginning: ends of an earlier run would count for this one.
            consumer = clients.consumer(
                self._settings,
                self._topic,
                client_id="bench-folded",
                group_id=None,
                auto_offset_reset="latest",
            )
            await opening.enter_async_context(consumer)
            await consumer.seek_to_end()
            for partition in consumer.assignment():
                # Seeking is lazy: asking settles where it begins.
                await consumer.position(partition)
            self._following = asyncio.create_task(self._follow(consumer))
            opening.callback(self._following.cancel)
            self._open = opening.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def count(self) -> int:
        """Agendas that have ended, durably, since this was entered.

        Raises:
            UnavailableError: If the database does not answer.
        """
        if self._store is None:
            return 0
        if self._following is not None and self._following.done():
            self._following.result()
        return self._ends.up_to(await self._store.next_offsets(self._topic))

    async def _follow(self, consumer: KafkaConsumer) -> None:
        while True:
            fetched = await consumer.getmany(timeout_ms=250, max_records=_MAX_RECORDS)
            for tp, records in fetched.items():
                for record in records:
                    self._ends.note(tp.partition, record.offset, record.value or b"")


HANDLERS: Final = "pop_stream.lab.bench.handlers:handlers"
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
    """All runs of path and floor, in order."""

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
    """The ids of its insights."""
    return [f"bench-{number}" for number in range(1, count + 1)]


def _warm_up(profile: LoadProfile) -> LoadProfile:
    """Drive a run of full size, or some seconds, until the broker's compiler is warm."""
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
