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
from pop_stream.cli.bench.drive import Pace, drive
from pop_stream.cli.bench.figures import Sample, rate
from pop_stream.cli.bench.floor import open_floor
from pop_stream.cli.bench.folded import Folded
from pop_stream.cli.bench.meter import (
    Cost,
    count_connections,
    others,
    read_costs,
    read_machine,
    spent,
)
from pop_stream.cli.bench.noop_work import NoopWork
from pop_stream.cli.bench.session import definitions_toml
from pop_stream.cli.bench.store import BenchStore, open_store
from pop_stream.cli.bench.submitter import Submitter
from pop_stream.cli.bench.tail import ends, read_told
from pop_stream.cli.plan import Plan
from pop_stream.cli.stack import Stack, Tell, failing_with
from pop_stream.core.definitions.definitions import AlgorithmName

HANDLERS: Final = "pop_stream.cli.bench.handlers:handlers"
RAMP_S: Final = 5.0
"""Of a sustained run, before what is counted begins."""

WARM_UP_S: Final = 15.0
"""Most of the warm-up of a sustained run."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be measured.

    Attributes:
        pace: Of the runs.
        customers: That agendas are of, in turn.
        size: Bytes of an agenda.
        concurrency: Agendas that one puller runs at a time.
        copies: Processes by part.
        floor: Whether the floor is run too.
    """

    pace: Pace
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
class Run:
    """One run of the path, or of its floor.

    Attributes:
        per_s: Agendas a second.
        agendas: That were submitted.
        cpu_s: By part; what the load and its count cost is `bench`.
        costs: By part, at the end.
        besides: What else the machine did, as shares of one core.
    """

    samples: Sequence[Sample]
    per_s: float
    agendas: int
    cpu_s: Mapping[str, float]
    costs: Mapping[str, Cost]
    besides: Mapping[str, float]
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


class Idle(NamedTuple):
    """What a part that has nothing to do holds: of one core, of connections, of memory."""

    core_share: float
    connections: int
    rss_mb: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it."""

    runs: Sequence[Run]
    floors: Sequence[Run]
    warm_up: Run


async def run_pipeline(wanted: Wanted, folder: Path, tell: Tell) -> Outcome:
    """Start a stack, warm it up, run path and floor in turn, and stop it.

    Raises:
        CommandError: If something does not start, fails, or stands still for a minute.
    """
    async with AsyncExitStack() as entering:
        stack = Stack(plan_of(wanted, folder), tell)
        await entering.enter_async_context(stack)
        await entering.enter_async_context(failing_with(stack))
        store = await entering.enter_async_context(open_store(stack.settings))
        rig = _Rig(stack, store, wanted)
        warm_up = await rig.run(_warm_up(wanted.pace))
        tell(f"warm-up: {warm_up.per_s:,.0f} agendas/s")
        runs: list[Run] = []
        floors: list[Run] = []
        for number in range(1, wanted.runs + 1):
            runs.append(await rig.run(wanted.pace))
            tell(f"run {number}: {runs[-1].per_s:,.0f} agendas/s")
            if wanted.floor:
                floors.append(await rig.run_floor(wanted.pace))
                tell(f"floor {number}: {floors[-1].per_s:,.0f} agendas/s")
    return Outcome(runs, floors, warm_up)


async def run_idle(
    folder: Path,
    tell: Tell,
    *,
    agendas: int,
    insights: int,
    settle_s: float,
    seconds: float,
) -> Mapping[str, Idle]:
    """Start a stack, run some agendas, wait, and count, by part.

    Raises:
        CommandError: If something does not start, or fails on the way.
    """
    wanted = Wanted(Pace(agendas=agendas), insights=insights)
    async with AsyncExitStack() as entering:
        stack = Stack(plan_of(wanted, folder), tell)
        await entering.enter_async_context(stack)
        await entering.enter_async_context(failing_with(stack))
        store = await entering.enter_async_context(open_store(stack.settings))
        await _Rig(stack, store, wanted).run(wanted.pace)
        tell(f"idle; counted from in {settle_s:g} s on, for {seconds:g} s")
        await asyncio.sleep(settle_s)
        before, began = read_costs(stack.processes()), monotonic()
        await asyncio.sleep(seconds)
        costs, lasted = read_costs(stack.processes()), monotonic() - began
        connections = count_connections(stack.processes())
    return {
        name: Idle(one / lasted, connections[name], costs[name].rss_mb)
        for name, one in spent(before, costs).items()
    }


def plan_of(wanted: Wanted, folder: Path, **overrides: object) -> Plan:
    """What is started for it, with definitions written to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    definitions = folder / "definitions.toml"
    insights: Mapping[str, AlgorithmName] = dict.fromkeys(
        insights_of(wanted.insights), "weighted_fair"
    )
    definitions.write_text(definitions_toml(insights, wanted.target), encoding="utf-8")
    return Plan(
        folder=folder,
        definitions=definitions,
        pullers=wanted.pullers,
        copies=wanted.copies or {},
        handlers=(HANDLERS,),
        overrides={
            "puller_concurrency": wanted.concurrency,
            "topic_prefix": f"bench-{secrets.token_hex(3)}.",
            **overrides,
        },
    )


def insights_of(count: int) -> list[str]:
    """Their ids."""
    return [f"bench-{number}" for number in range(1, count + 1)]


def _warm_up(pace: Pace) -> Pace:
    """A run of full size, or some seconds: the broker's compiler needs as much."""
    return pace if pace.agendas else replace(pace, seconds=min(pace.seconds, WARM_UP_S))


def _rate(samples: Sequence[Sample], pace: Pace) -> float:
    if pace.agendas:
        return rate(samples)
    ramp = min(RAMP_S, pace.seconds / 4)
    return rate(samples, begin=ramp, end=pace.seconds)


class _Rig:
    """The stack under test, and what measures it."""

    def __init__(self, stack: Stack, store: BenchStore, wanted: Wanted) -> None:
        self._stack = stack
        self._settings = stack.settings
        self._store = store
        self._wanted = wanted

    async def run(self, pace: Pace) -> Run:
        """Drive agendas through our parts, then read what became of each."""
        settings = self._settings
        work = NoopWork(
            secrets.token_hex(4),
            insights_of(self._wanted.insights),
            customers=self._wanted.customers,
            operations=self._wanted.operations,
            size=self._wanted.size,
        )
        begin = await ends(settings)
        async with (
            Submitter(settings, Topics(settings.topic_prefix).submissions) as submitter,
            Folded(settings) as folded,
        ):
            found = await self._drive(pace, submitter, work, folded.count, {})
        told = await read_told(settings, work.run, begin)
        states = await self._store.states(work.run)
        return replace(
            found,
            lost=found.agendas - states.get("succeeded", 0),
            duplicates=told.duplicates,
            repeated_starts=told.repeated_starts,
            failures=told.failures,
        )

    async def run_floor(self, pace: Pace) -> Run:
        """Drive the same records through bare clients, while our parts are idle."""
        work = NoopWork(secrets.token_hex(4), insights_of(1), size=self._wanted.size)
        rows = 1 + self._wanted.operations
        async with (
            open_floor(self._settings, self._store, rows=rows) as floor,
            Submitter(self._settings, floor.topic) as submitter,
        ):
            # Its processes are new each time; the servers are warm after the first.
            await self._drive(_warm_up(pace), submitter, work, floor.ended, floor.processes)
            return await self._drive(pace, submitter, work, floor.ended, floor.processes)

    async def _drive(
        self,
        pace: Pace,
        submitter: Submitter,
        work: NoopWork,
        ended: Callable[[], Awaitable[int]],
        hops: Mapping[str, int],
    ) -> Run:
        processes = {**self._stack.processes(), **hops}

        async def submit(first: int, count: int) -> None:
            pairs = [
                (work.agenda_id(number).encode(), work.body(number))
                for number in range(first, first + count)
            ]
            waiting.extend(await submitter.send(pairs))

        waiting: list[asyncio.Future[object]] = []
        before, machine, began = read_costs(processes), read_machine(), process_time()
        samples = await drive(submit, ended, pace)
        costs, after, used = read_costs(processes), read_machine(), process_time() - began
        cpu_s = {**spent(before, costs), "bench": used}
        await asyncio.gather(*waiting)
        return Run(
            samples=samples,
            per_s=_rate(samples, pace),
            agendas=samples[-1].submitted,
            cpu_s=cpu_s,
            costs=costs,
            besides=others(machine, after, sum(cpu_s.values())),
        )
