"""Which faults are injected into a running stack and when, from a seed alone; and injects them.

`plan_faults` decides, and is pure. `FaultInjector` carries it out and records when each fault
began and when it was over.
"""

import asyncio
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Final, Literal

from pop_stream.devserver.stack import OnProgress, Stack
from pop_stream.ports.clock import Clock

FaultKind = Literal["kill", "freeze", "outage", "replace"]
"""kill -9; SIGSTOP, later SIGCONT; a server that is killed and started again later; SIGTERM,
and a new process once the old one has ended."""

Downtime = tuple[FaultKind, tuple[float, float]]
"""What befalls a server, and for how many seconds at least and at most."""

_FREEZE_S: Final = (2.0, 14.0)
_BROKER_DOWN_S: Final = (2.0, 8.0)
_BROKER_FROZEN_S: Final = (4.0, 16.0)
_DATABASE_DOWN_S: Final = (3.0, 20.0)

UPGRADE_ORDER: Final = ("rollup", "api", "scheduler", "ingest", "puller")
"""In which a rolling upgrade replaces parts; `docs/how-to/operate.md` says so too."""

PULLER_GRACE: Final = timedelta(seconds=30)
"""For how long a puller that is replaced may go on with what it runs."""

STOP_GRACE: Final = timedelta(seconds=30)
"""How long a part may take to stop, a puller beyond its own: as in `deploy/kubernetes`."""


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """One planned fault.

    Attributes:
        at: Seconds after the load began.
        part: As the stack calls it.
        lasts_s: Of a freeze or an outage.
    """

    at: float
    part: str
    kind: FaultKind
    lasts_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FaultCounts:
    """How many faults of each kind are planned, within how many seconds.

    Attributes:
        kills: Of parts.
        freezes: Of parts.
        broker_kills: Of one broker at a time.
        database_stops: Of Postgres.
        broker_freezes: Of one broker at a time, which is then not killed either.
        rolling: Every part is replaced, one after the other, and in reverse order once more.
    """

    seconds: float
    kills: int
    freezes: int = 0
    broker_kills: int = 0
    database_stops: int = 0
    broker_freezes: int = 0
    rolling: bool = False


def plan_faults(
    wanted: FaultCounts, *, parts: Sequence[str], brokers: Sequence[str], seed: int
) -> list[InjectedFault]:
    """The faults in order of time; the same for the same arguments.

    Every part is hit before one is hit twice. Brokers are down, or frozen, one after the other,
    never two at a time, or a majority of three would be missing.
    """
    chance = Random(seed)  # noqa: S311  # a schedule, no secret
    faults = [
        InjectedFault(_instant(chance, wanted.seconds), part, "kill")
        for part in _shuffled_parts(chance, parts, wanted.kills)
    ]
    faults += [
        InjectedFault(
            _instant(chance, wanted.seconds), part, "freeze", chance.uniform(*_FREEZE_S)
        )
        for part in _shuffled_parts(chance, parts, wanted.freezes)
    ]
    down: list[Downtime] = [("outage", _BROKER_DOWN_S)] * wanted.broker_kills
    if wanted.broker_freezes:  # else the same seed makes what it made before there were any
        down += [("freeze", _BROKER_FROZEN_S)] * wanted.broker_freezes
        chance.shuffle(down)
    faults += _one_per_slice(chance, wanted.seconds, brokers, down)
    stops: list[Downtime] = [("outage", _DATABASE_DOWN_S)] * wanted.database_stops
    faults += _one_per_slice(chance, wanted.seconds, ("postgres",), stops)
    if wanted.rolling:
        faults += _upgrade_and_back(parts, wanted.seconds)
    return sorted(faults, key=lambda fault: fault.at)


def _upgrade_and_back(parts: Sequence[str], seconds: float) -> Iterator[InjectedFault]:
    """Replacements in the order of an upgrade, then of one that is rolled back."""
    forward = sorted(parts, key=lambda one: UPGRADE_ORDER.index(one.split("-")[0]))
    turns = [*forward, *reversed(forward)]
    for number, part in enumerate(turns):
        yield InjectedFault(seconds * (0.05 + 0.9 * number / len(turns)), part, "replace")


def _one_per_slice(
    chance: Random, seconds: float, servers: Sequence[str], down: Sequence[Downtime]
) -> Iterator[InjectedFault]:
    """Instants, one in each of as many slices of the time; each fault ends within its slice."""
    if not down:
        return
    piece = seconds / len(down)
    dealt = _shuffled_parts(chance, servers, len(down))
    for number, (server, (kind, lasts)) in enumerate(zip(dealt, down, strict=True)):
        least, most = (min(one, piece / 2) for one in lasts)
        begin = piece * number + chance.uniform(0.05, 0.45) * piece
        yield InjectedFault(begin, server, kind, chance.uniform(least, most))


def _instant(chance: Random, seconds: float) -> float:
    return chance.uniform(0.05, 0.95) * seconds


def _shuffled_parts(chance: Random, parts: Sequence[str], count: int) -> Iterator[str]:
    left: list[str] = []
    for _ in range(count):
        if not left:
            left = chance.sample(parts, len(parts))
        yield left.pop()


_RUNS_AGAIN_WITHIN_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """A fault as it came about; instants in seconds since the epoch.

    Attributes:
        until: The process ran again, or on; of a kill, a new one was started; of a replacement,
            the new one was ready.
        in_order: Of a replacement, whether the old process ended by itself, within its grace.
    """

    fault: InjectedFault
    at: float
    until: float
    in_order: bool = True


class FaultInjector:
    """Injects each fault at its time, counted from now.

    A part that is down when its turn comes is waited for, so that every fault hits something.
    Parts are replaced one at a time: the next one waits until the successor is ready.
    """

    def __init__(self, stack: Stack, clock: Clock, on_progress: OnProgress) -> None:
        self._stack = stack
        self._clock = clock
        self._on_progress = on_progress
        self._busy: dict[str, asyncio.Lock] = {}
        self._upgrade = asyncio.Lock()

    async def inject(self, faults: Sequence[InjectedFault]) -> list[FaultRecord]:
        """Inject all of them; returns once the last is over."""
        now = asyncio.get_running_loop().time
        began = now()
        injecting: list[asyncio.Task[FaultRecord]] = []
        async with asyncio.TaskGroup() as tasks:
            for fault in faults:
                await asyncio.sleep(max(0.0, began + fault.at - now()))
                injecting.append(tasks.create_task(self._inject_one(fault)))
        return sorted((task.result() for task in injecting), key=lambda one: one.at)

    async def _inject_one(self, fault: InjectedFault) -> FaultRecord:
        async with self._busy.setdefault(fault.part, asyncio.Lock()):
            match fault.kind:
                case "kill":
                    return await self._kill(fault)
                case "freeze":
                    return await self._freeze(fault)
                case "outage":
                    return await self._outage(fault)
                case "replace":
                    return await self._replace(fault)

    async def _kill(self, fault: InjectedFault) -> FaultRecord:
        pid = await self._running(fault.part)
        at = self._at()
        self._on_progress(f"kill -9 {pid} {fault.part}")
        self._stack.supervisor.kill(fault.part, signal.SIGKILL)
        async with asyncio.timeout(_RUNS_AGAIN_WITHIN_S):
            await self._stack.supervisor.until(
                lambda parts: (
                    parts[fault.part].state == "running" and parts[fault.part].pid != pid
                )
            )
        return FaultRecord(fault, at, self._at())

    async def _freeze(self, fault: InjectedFault) -> FaultRecord:
        is_server = fault.part not in self._stack.supervisor.status()
        server = self._stack.servers.processes[fault.part] if is_server else None
        pid = await self._running(fault.part) if server is None else server
        at = self._at()
        self._on_progress(f"freeze {pid} {fault.part} for {fault.lasts_s:.1f} s")
        self._send(fault.part, server, signal.SIGSTOP)
        try:
            await asyncio.sleep(fault.lasts_s)
        finally:  # also when the run is given up: a frozen process could not be stopped
            self._send(fault.part, server, signal.SIGCONT)
        return FaultRecord(fault, at, self._at())

    def _send(self, part: str, server: int | None, number: signal.Signals) -> None:
        if server is None:
            self._stack.supervisor.kill(part, number)
        else:
            os.kill(server, number)

    async def _outage(self, fault: InjectedFault) -> FaultRecord:
        at = self._at()
        self._on_progress(f"kill -9 {fault.part}, down for {fault.lasts_s:.1f} s")
        await self._stack.servers.take_down(fault.part)
        await asyncio.sleep(fault.lasts_s)
        await self._stack.servers.bring_back(fault.part)
        return FaultRecord(fault, at, self._at())

    async def _replace(self, fault: InjectedFault) -> FaultRecord:
        is_puller = fault.part.startswith("puller")
        grace = STOP_GRACE + (PULLER_GRACE if is_puller else timedelta(0))
        async with self._upgrade:
            pid = await self._running(fault.part)
            at = self._at()
            self._on_progress(f"replace {pid} {fault.part}")
            ended = await self._stack.replace(fault.part, grace=grace)
            return FaultRecord(fault, at, self._at(), in_order=ended.exit_code == 0)

    async def _running(self, part: str) -> int:
        async with asyncio.timeout(_RUNS_AGAIN_WITHIN_S):
            await self._stack.supervisor.until(lambda parts: parts[part].state == "running")
        return self._stack.supervisor.status()[part].pid

    def _at(self) -> float:
        return self._clock.now().timestamp()
