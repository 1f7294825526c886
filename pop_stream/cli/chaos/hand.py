"""Deals the blows to a running stack, and notes when each was dealt and when it was over."""

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pop_stream.cli.chaos.blows import InjectedFault
from pop_stream.cli.stack import Stack, OnProgress
from pop_stream.ports.clock import Clock

_RUNS_AGAIN_WITHIN_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """A blow as it came about; instants in seconds since the epoch.

    Attributes:
        until: The process ran again, or on; of a kill, a new one was started.
    """

    fault: InjectedFault
    at: float
    until: float


class FaultInjector:
    """Deals each blow at its time, counted from now.

    A part that is down when its turn comes is waited for, so that every blow hits something.
    """

    def __init__(self, stack: Stack, clock: Clock, on_progress: OnProgress) -> None:
        self._stack = stack
        self._clock = clock
        self._on_progress = on_progress
        self._busy: dict[str, asyncio.Lock] = {}

    async def inject(self, faults: Sequence[InjectedFault]) -> list[FaultRecord]:
        """Deal all of them; returns once the last is over."""
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

    async def _running(self, part: str) -> int:
        async with asyncio.timeout(_RUNS_AGAIN_WITHIN_S):
            await self._stack.supervisor.until(lambda parts: parts[part].state == "running")
        return self._stack.supervisor.status()[part].pid

    def _at(self) -> float:
        return self._clock.now().timestamp()
