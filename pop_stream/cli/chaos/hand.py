"""Deals the blows to a running stack, and notes when each was dealt and when it was over."""

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pop_stream.cli.chaos.blows import Blow
from pop_stream.cli.stack import Stack, Tell
from pop_stream.ports.clock import Clock

_RUNS_AGAIN_WITHIN_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Dealt:
    """A blow as it came about; instants in seconds since the epoch.

    Attributes:
        until: The process ran again, or on; of a kill, a new one was started.
    """

    blow: Blow
    at: float
    until: float


class Hand:
    """Deals each blow at its time, counted from now.

    A part that is down when its turn comes is waited for, so that every blow hits something.
    """

    def __init__(self, stack: Stack, clock: Clock, tell: Tell) -> None:
        self._stack = stack
        self._clock = clock
        self._tell = tell
        self._busy: dict[str, asyncio.Lock] = {}

    async def deal(self, blows: Sequence[Blow]) -> list[Dealt]:
        """Deal all of them; returns once the last is over."""
        now = asyncio.get_running_loop().time
        began = now()
        dealing: list[asyncio.Task[Dealt]] = []
        async with asyncio.TaskGroup() as tasks:
            for blow in blows:
                await asyncio.sleep(max(0.0, began + blow.at - now()))
                dealing.append(tasks.create_task(self._one(blow)))
        return sorted((task.result() for task in dealing), key=lambda one: one.at)

    async def _one(self, blow: Blow) -> Dealt:
        async with self._busy.setdefault(blow.part, asyncio.Lock()):
            match blow.kind:
                case "kill":
                    return await self._kill(blow)
                case "freeze":
                    return await self._freeze(blow)
                case "outage":
                    return await self._outage(blow)

    async def _kill(self, blow: Blow) -> Dealt:
        pid = await self._running(blow.part)
        at = self._at()
        self._tell(f"kill -9 {pid} {blow.part}")
        self._stack.supervisor.kill(blow.part, signal.SIGKILL)
        async with asyncio.timeout(_RUNS_AGAIN_WITHIN_S):
            await self._stack.supervisor.until(
                lambda parts: (
                    parts[blow.part].state == "running" and parts[blow.part].pid != pid
                )
            )
        return Dealt(blow, at, self._at())

    async def _freeze(self, blow: Blow) -> Dealt:
        is_server = blow.part not in self._stack.supervisor.status()
        server = self._stack.servers.processes[blow.part] if is_server else None
        pid = await self._running(blow.part) if server is None else server
        at = self._at()
        self._tell(f"freeze {pid} {blow.part} for {blow.lasts_s:.1f} s")
        self._send(blow.part, server, signal.SIGSTOP)
        try:
            await asyncio.sleep(blow.lasts_s)
        finally:  # also when the run is given up: a frozen process could not be stopped
            self._send(blow.part, server, signal.SIGCONT)
        return Dealt(blow, at, self._at())

    def _send(self, part: str, server: int | None, number: signal.Signals) -> None:
        if server is None:
            self._stack.supervisor.kill(part, number)
        else:
            os.kill(server, number)

    async def _outage(self, blow: Blow) -> Dealt:
        at = self._at()
        self._tell(f"kill -9 {blow.part}, down for {blow.lasts_s:.1f} s")
        await self._stack.servers.take_down(blow.part)
        await asyncio.sleep(blow.lasts_s)
        await self._stack.servers.bring_back(blow.part)
        return Dealt(blow, at, self._at())

    async def _running(self, part: str) -> int:
        async with asyncio.timeout(_RUNS_AGAIN_WITHIN_S):
            await self._stack.supervisor.until(lambda parts: parts[part].state == "running")
        return self._stack.supervisor.status()[part].pid

    def _at(self) -> float:
        return self._clock.now().timestamp()
