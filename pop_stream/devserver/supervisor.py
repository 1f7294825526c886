"""Keeps processes running: starts them, restarts what crashed, stops them in order."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, Self

from pop_stream.clock import wait_until_set
from pop_stream.devserver.folder import make_private
from pop_stream.operations.errors import CommandError
from pop_stream.operations.lifetime import STOP_WITH_PARENT

_LOG_KEPT_BYTES: Final = 8 << 20
_LOG_TAIL_BYTES: Final = 4096
_MAX_DOUBLINGS: Final = 20
_UNNAMED: Final = re.compile(r"[^A-Za-z0-9._-]")

OnDeath = Callable[[str], Coroutine[None, None, None]]

PartState = Literal["running", "crashed", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class Part:
    """One process to keep running.

    Attributes:
        name: Unique; also names its log file.
        command: Program and arguments.
        stage: Parts of one stage are stopped together; the stage started last stops first.
        environment: Variables beside the supervisor's own.
    """

    name: str
    command: tuple[str, ...]
    stage: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def command_part(name: str, *arguments: str, stage: str) -> Part:
    """A part that is one of our own commands, run by this very interpreter."""
    return Part(name, (sys.executable, "-m", "pop_stream", *arguments), stage)


@dataclass(frozen=True, slots=True)
class PartStatus:
    """What is known about a part now.

    Attributes:
        pid: Of the running process, else of the last one.
        restarts: Times it was started again after a crash.
        exit_code: Of the last end, negative for a signal; None before the first.
        last_log_line: Last line of its log when it crashed.
    """

    name: str
    state: PartState
    pid: int
    restarts: int = 0
    exit_code: int | None = None
    last_log_line: str = ""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When a crashed part starts again.

    Attributes:
        first_pause: Before the first restart; doubles with each crash that follows.
        longest_pause: Where doubling ends.
        steady_after: A run as long as this was no failure: the pause starts anew.
        max_crashes: In a row, before the part is given up; None never gives up.
    """

    first_pause: timedelta = timedelta(milliseconds=250)
    longest_pause: timedelta = timedelta(seconds=10)
    steady_after: timedelta = timedelta(seconds=20)
    max_crashes: int | None = None

    def pause(self, crashes: int) -> timedelta | None:
        """How long to wait after so many crashes in a row; None to give up."""
        if self.max_crashes is not None and crashes >= self.max_crashes:
            return None
        doublings = min(crashes - 1, _MAX_DOUBLINGS)
        return min(self.longest_pause, self.first_pause * (1 << doublings))


@dataclass(slots=True)
class _SupervisedPart:
    part: Part
    process: asyncio.subprocess.Process
    status: PartStatus
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Supervisor:
    """Owns a set of parts; leaving the context stops them all, last stage first.

    Every part's standard input is a pipe that only this process can write: when it dies, of
    whatever cause, the parts read the end of it and stop.

    Args:
        logs: Folder of the parts' log files, made if missing.
        environment: Variables for all parts beside those of this process.
        policy: When a crashed part starts again.
        on_progress: Called with every change; must not block.
        on_death: Called with the POP_INSTANCE of a crashed part, while it is started again.

    Attributes:
        logs: The same folder.
    """

    def __init__(
        self,
        logs: Path,
        *,
        environment: Mapping[str, str],
        policy: RestartPolicy,
        on_progress: Callable[[PartStatus], None] = lambda _: None,
        on_death: OnDeath | None = None,
    ) -> None:
        self.logs = logs
        self._environment = {**os.environ, **environment, STOP_WITH_PARENT: "1"}
        self._policy = policy
        self._on_progress = on_progress
        self._on_death = on_death
        self._supervised: dict[str, _SupervisedPart] = {}
        self._changed = asyncio.Condition()
        self._lifeline: tuple[int, int] = (-1, -1)

    async def __aenter__(self) -> Self:
        make_private(self.logs)
        self._lifeline = os.pipe()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.stop_all()
        finally:
            for end in self._lifeline:
                os.close(end)

    def log_file(self, name: str) -> Path:
        """Where a part's output goes."""
        return self.logs / f"{name}.log"

    def part(self, name: str) -> Part:
        """A part as it was last started."""
        return self._supervised[name].part

    def status(self) -> Mapping[str, PartStatus]:
        """What is known about every part, in order of its first start."""
        return {name: supervised.status for name, supervised in self._supervised.items()}

    async def start(self, part: Part) -> None:
        """Start a part, or one that was stopped or given up anew; returns once it has a pid.

        Raises:
            CommandError: If a part of that name runs.
        """
        known = self._supervised.get(part.name)
        if known is not None and known.task is not None and not known.task.done():
            msg = f"{part.name} is started already"
            raise CommandError(msg)
        process = await self._spawn(part)
        supervised = _SupervisedPart(
            part, process, PartStatus(part.name, "running", process.pid)
        )
        self._supervised[part.name] = supervised
        supervised.task = asyncio.create_task(
            self._supervise(supervised), name=f"keep {part.name}"
        )
        await self._set_status(supervised, supervised.status)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int | None:
        """Send a signal to a part's process; what follows from it is a crash.

        Returns:
            The pid, or None if it was not running.
        """
        supervised = self._supervised[name]
        if supervised.status.state != "running":
            return None
        with contextlib.suppress(ProcessLookupError):
            supervised.process.send_signal(number)
        return supervised.process.pid

    async def stop(self, *names: str, grace: timedelta = timedelta(seconds=15)) -> None:
        """Ask parts to end and wait until they have; after the grace they are killed."""
        stopping = [self._supervised[name] for name in names]
        for supervised in stopping:
            supervised.stopping.set()
            self.kill(supervised.part.name, signal.SIGTERM)
        keepers = [supervised.task for supervised in stopping if supervised.task is not None]
        if not keepers:
            return
        _, late = await asyncio.wait(keepers, timeout=grace.total_seconds())
        if late:
            for supervised in stopping:
                self.kill(supervised.part.name)
            await asyncio.wait(keepers)
        for task in keepers:
            task.result()

    async def replace(self, name: str, *, grace: timedelta) -> PartStatus:
        """Stop a part as `stop` does, then start it as a new process.

        Returns:
            How the old process ended: by an exit code of -9 if the grace was too short.
        """
        await self.stop(name, grace=grace)
        ended = self._supervised[name].status
        await self.start(self.part(name))
        return ended

    async def stop_all(self) -> None:
        """Stop everything, the stage that was started last first."""
        stages: dict[str, list[str]] = {}
        for name, supervised in self._supervised.items():
            stages.setdefault(supervised.part.stage, []).append(name)
        for names in reversed(stages.values()):
            await self.stop(*names)

    async def until(self, seen: Callable[[Mapping[str, PartStatus]], bool]) -> None:
        """Wait until the status of all parts is as wanted."""
        async with self._changed:
            await self._changed.wait_for(lambda: seen(self.status()))

    async def until_part_failed(self) -> PartStatus:
        """Wait until a part is given up, and return which."""
        await self.until(lambda parts: any(one.state == "failed" for one in parts.values()))
        return next(one for one in self.status().values() if one.state == "failed")

    async def _supervise(self, supervised: _SupervisedPart) -> None:
        crashes = 0
        while True:
            began = asyncio.get_running_loop().time()
            code = await supervised.process.wait()
            if supervised.stopping.is_set():
                await self._set_status(
                    supervised, replace(supervised.status, state="stopped", exit_code=code)
                )
                return
            lasted = timedelta(seconds=asyncio.get_running_loop().time() - began)
            crashes = 1 if lasted >= self._policy.steady_after else crashes + 1
            pause = self._policy.pause(crashes)
            await self._set_status(
                supervised, self._crash(supervised, code, final=pause is None)
            )
            if pause is None:
                return
            async with asyncio.TaskGroup() as tasks:
                if self._on_death:
                    tasks.create_task(self._on_death(_instance(supervised.part)))
                if await wait_until_set(supervised.stopping, pause.total_seconds()):
                    await self._set_status(
                        supervised, replace(supervised.status, state="stopped")
                    )
                    return
                await self._restart(supervised)

    async def _restart(self, supervised: _SupervisedPart) -> None:
        supervised.process = await self._spawn(supervised.part)
        status = replace(
            supervised.status, state="running", restarts=supervised.status.restarts + 1
        )
        await self._set_status(supervised, replace(status, pid=supervised.process.pid))
        if supervised.stopping.is_set():  # asked to stop while it was being started
            self.kill(supervised.part.name, signal.SIGTERM)

    def _crash(self, supervised: _SupervisedPart, code: int, *, final: bool) -> PartStatus:
        return replace(
            supervised.status,
            state="failed" if final else "crashed",
            exit_code=code,
            last_log_line=_last_line(self.log_file(supervised.part.name)),
        )

    async def _spawn(self, part: Part) -> asyncio.subprocess.Process:
        log = self.log_file(part.name)
        _shorten(log)
        with log.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *part.command,
                stdin=self._lifeline[0],
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                env={**self._environment, "POP_INSTANCE": _instance(part), **part.environment},
                # Ctrl-C in a terminal must reach the supervisor alone, who stops in order.
                start_new_session=True,
            )

    async def _set_status(self, supervised: _SupervisedPart, status: PartStatus) -> None:
        supervised.status = status
        self._on_progress(status)
        async with self._changed:
            self._changed.notify_all()


def _instance(part: Part) -> str:
    """Parts of these names may run on other machines too, against the same Kafka."""
    return f"{_UNNAMED.sub('-', socket.gethostname())[:50]}.{part.name}"


def _shorten(log: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > _LOG_KEPT_BYTES:
            log.replace(log.with_suffix(".1.log"))


def _last_line(log: Path) -> str:
    try:
        with log.open("rb") as lines:
            lines.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
            text = lines.read().decode(errors="replace").strip()
    except FileNotFoundError:
        return ""
    return text.rpartition("\n")[2]
