"""A server process that ends when its owner does, and whose leftovers are found again."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import structlog

from pop_stream.devserver.errors import ServerStartError

_PARENT_WATCH = Path(__file__).with_name("parent_watch.py")
_POLL_S = 0.05
_ORPHAN_GRACE_S = 3.0  # from the owner's death until its servers are killed
_KILL_S = 5.0  # from a kill until the kernel has removed the process
_LOG_TAIL_LINES = 15
_LOG_TAIL_BYTES = 16_384
_CONSOLE_KEPT_BYTES = 4 << 20
_CLOCK_SLACK_S = 2.0  # a stepped system clock moves the start times the kernel reports
# What a server may inherit: an owner's JAVA_TOOL_OPTIONS or PGOPTIONS must not reach it.
_INHERITED = frozenset({"HOME", "LD_LIBRARY_PATH", "PATH", "TMPDIR"})
# Without it Java cannot open a folder whose name is not ASCII.
_ENVIRONMENT = {"LC_ALL": "C.UTF-8"}
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ServerUser:
    """The user a server runs as, when that is not the caller."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Launch:
    """How one process is started and stopped.

    Attributes:
        name: What logs, errors and its files are called.
        command: Absolute program and its arguments.
        home: Folder of its pid record and its console's log, and its working directory.
        stop_signal: Asks for an orderly end.
        grace_s: Seconds until an ordered stop becomes a kill.
        identity: Whom to run as; None for the caller.
    """

    name: str
    command: tuple[str, ...]
    home: Path
    stop_signal: signal.Signals = signal.SIGTERM
    grace_s: float = 20.0
    identity: ServerUser | None = field(default=None, kw_only=True)


class ServerProcess:
    """One run of a `Launch`: spawn once, then stop it or wait for its end."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.console = launch.home / f"{launch.name}-console.log"
        self.pid: int | None = None
        self._parent_watch: subprocess.Popen[str] | None = None
        self._ended = asyncio.Event()

    def spawn(self) -> None:
        """Start the process under a parent watch; returns within milliseconds.

        Not a coroutine: a cancellation finds it either started, and so stoppable, or not.
        """
        launch = self.launch
        owner = f"{launch.identity.uid}:{launch.identity.gid}" if launch.identity else "-"
        orders = [str(int(launch.stop_signal)), str(_ORPHAN_GRACE_S), owner]
        with self._fresh_console().open("a") as console:
            self._parent_watch = subprocess.Popen(  # noqa: S603  only our own commands
                [sys.executable, "-I", "-S", str(_PARENT_WATCH), *orders, *launch.command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=console,
                cwd=launch.home,
                env={k: v for k, v in os.environ.items() if k in _INHERITED} | _ENVIRONMENT,
                # Ctrl-C in a terminal must reach the owner alone, who then stops in order.
                start_new_session=True,
                text=True,
            )
        watch = (self._parent_watch, asyncio.get_running_loop())
        threading.Thread(target=self._watch, args=watch, daemon=True).start()

    async def record_pid(self) -> None:
        """Learn the server's pid and record it for the next owner; call once after `spawn`.

        Raises:
            ServerStartError: If the program could not be executed.
        """
        parent_watch = self._spawned()
        assert parent_watch.stdout is not None  # noqa: S101  it was opened as a pipe
        line = await asyncio.to_thread(parent_watch.stdout.readline)
        if not line:
            reason = "its program could not be executed"
            raise self.start_error(reason)
        self.pid = int(line)
        running = {"parent_watch": _describe(parent_watch.pid), "server": _describe(self.pid)}
        _record(self.launch.home, self.launch.name).write_text(json.dumps(running) + "\n")

    @property
    def is_running(self) -> bool:
        """Whether it was spawned and has not ended."""
        return self._parent_watch is not None and not self._ended.is_set()

    async def ended(self) -> int:
        """Wait for the end, however it comes, and return the exit code."""
        parent_watch = self._spawned()
        await self._ended.wait()
        return parent_watch.wait()

    def request_stop(self) -> None:
        """Ask for an orderly end without waiting; harmless if not running or asked before."""
        if (
            self._parent_watch is None
            or self._parent_watch.stdin is None
            or self._parent_watch.stdin.closed
        ):
            return
        with contextlib.suppress(OSError):  # it ended by itself
            self._parent_watch.stdin.write(f"stop {self.launch.grace_s}\n")
        with contextlib.suppress(OSError):
            self._parent_watch.stdin.close()

    async def stop(self) -> None:
        """End it in order, kill it after the grace; returns when it is gone."""
        if self._parent_watch is None:
            return
        self.request_stop()
        try:
            async with asyncio.timeout(self.launch.grace_s + _KILL_S):
                await self._ended.wait()
        except TimeoutError:
            self._parent_watch.kill()
            await self._ended.wait()
        if self._parent_watch.stdout is not None:
            self._parent_watch.stdout.close()
        # Finds something only if the parent watch was killed before its server ended.
        await asyncio.to_thread(
            end_leftovers, self.launch.home, self.launch.name, self.launch.stop_signal
        )

    def start_error(self, reason: str, *, log: Path | None = None) -> ServerStartError:
        """The error with the reason, the end of its console and, if it has one, of its log."""
        tails = [_tail(path) for path in (log, self.console) if path is not None]
        return ServerStartError(self.launch.name, reason, "\n".join(filter(None, tails)))

    def _watch(
        self, parent_watch: subprocess.Popen[str], loop: asyncio.AbstractEventLoop
    ) -> None:
        parent_watch.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(self._ended.set)

    def _spawned(self) -> subprocess.Popen[str]:
        if self._parent_watch is None:
            msg = f"{self.launch.name} was not spawned"
            raise RuntimeError(msg)
        return self._parent_watch

    def _fresh_console(self) -> Path:
        with contextlib.suppress(FileNotFoundError):
            if self.console.stat().st_size > _CONSOLE_KEPT_BYTES:
                self.console.replace(self.console.with_suffix(".1.log"))
        return self.console


def end_leftovers(home: Path, name: str, stop_signal: signal.Signals) -> None:
    """End what an earlier run's record names and still runs; blocks for seconds at most.

    A pid counts only together with its start time, so a reused one is left alone.
    """
    left = _still_running(_record(home, name))
    if left:
        _log.warning("leftover.ending", server=name, pids=[p.pid for p in left.values()])
    if "server" in left and "parent_watch" not in left:
        # With its parent watch alive, the server is being ended by that one already.
        _send(left["server"], stop_signal)
    for process in _wait_gone(left.values(), _ORPHAN_GRACE_S + 1):
        _send(process, signal.SIGKILL)
    _wait_gone(left.values(), _KILL_S)
    _record(home, name).unlink(missing_ok=True)


async def run_to_end(launch: Launch, *, limit_s: float) -> None:
    """Run a command that ends by itself, such as one that formats a data folder.

    Cancelled or late, it is ended before this returns.

    Raises:
        ServerStartError: If it fails or takes longer than `limit_s`.
    """
    process = ServerProcess(launch)
    process.spawn()
    try:
        async with asyncio.timeout(limit_s):
            await process.record_pid()
            code = await process.ended()
    except TimeoutError as error:
        reason = f"it took longer than {limit_s:.0f} s"
        raise process.start_error(reason) from error
    finally:
        await process.stop()
    if code != 0:
        reason = f"it ended with exit code {code}"
        raise process.start_error(reason)


def _record(home: Path, name: str) -> Path:
    return home / f"{name}-pid.json"


def _describe(pid: int) -> dict[str, float] | None:
    with contextlib.suppress(psutil.NoSuchProcess):
        return {"pid": pid, "started_at": psutil.Process(pid).create_time()}
    return None


def _still_running(record: Path) -> dict[str, psutil.Process]:
    try:
        entries = json.loads(record.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    found = {}
    for role, entry in entries.items():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, TypeError):
            process = psutil.Process(entry["pid"])
            if abs(process.create_time() - entry["started_at"]) < _CLOCK_SLACK_S:
                found[role] = process
    return {role: process for role, process in found.items() if _is_alive(process)}


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        # An orphan's zombie stays for ever where process 1 of a container reaps nobody.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _wait_gone(processes: Collection[psutil.Process], limit_s: float) -> list[psutil.Process]:
    until = time.monotonic() + limit_s
    while (alive := [p for p in processes if _is_alive(p)]) and time.monotonic() < until:
        time.sleep(_POLL_S)
    return alive


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
            text = log.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-_LOG_TAIL_LINES:])
