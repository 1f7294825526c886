"""A server process that ends when its owner does, and whose leftovers are found again."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import structlog

from pop_stream.embedded.errors import ServerStartError

_REAPER = Path(__file__).with_name("reaper.py")
_POLL_S = 0.02
_LOG_TAIL_LINES = 15
_LOG_TAIL_BYTES = 16_384
_LOG_KEPT_BYTES = 4 << 20
_CLOCK_SLACK_S = 2.0  # a stepped system clock moves the start times the kernel reports
# What a server may inherit: an owner's JAVA_TOOL_OPTIONS or PGOPTIONS must not reach it.
_INHERITED = frozenset({"HOME", "LD_LIBRARY_PATH", "PATH", "TMPDIR"})
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """The user a server runs as, when that is not the caller."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Launch:
    """How one process is started and stopped.

    Attributes:
        name: What logs and errors call it.
        command: Absolute program and its arguments.
        home: Folder of its `pid.json` and `console.log`.
        stop_signal: Asks for an orderly end.
        grace_s: Seconds until an ordered stop becomes a kill.
        orphan_grace_s: The same after the owner died.
        identity: Whom to run as; None for the caller.
        environment: Variables beside the few that are inherited.
    """

    name: str
    command: tuple[str, ...]
    home: Path
    stop_signal: signal.Signals = signal.SIGTERM
    grace_s: float = 20.0
    orphan_grace_s: float = 3.0
    identity: Identity | None = None
    environment: dict[str, str] = field(default_factory=dict)


class ServerProcess:
    """One start of a `Launch`: spawn once, then stop once or wait for its end."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.console = launch.home / "console.log"
        self.pid: int | None = None
        self._record = launch.home / f"{launch.name}.pid.json"
        self._reaper: subprocess.Popen[str] | None = None

    def spawn(self) -> None:
        """Start the process under a reaper; returns within milliseconds.

        Not a coroutine: a cancellation finds it either started, and then stoppable, or not.
        """
        launch = self.launch
        owner = f"{launch.identity.uid}:{launch.identity.gid}" if launch.identity else "-"
        orders = [str(int(launch.stop_signal)), str(launch.orphan_grace_s), owner]
        self._shorten_console()
        with self.console.open("a") as console:
            self._reaper = subprocess.Popen(  # noqa: S603  only our own commands
                [sys.executable, "-I", "-S", str(_REAPER), *orders, *launch.command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=console,
                cwd=launch.home,
                env={k: v for k, v in os.environ.items() if k in _INHERITED}
                | launch.environment,
                # Ctrl-C in a terminal must reach the owner alone, who then stops in order.
                start_new_session=True,
                text=True,
            )

    async def settle(self) -> None:
        """Learn the server's pid and record it for the next owner; call once after `spawn`.

        Raises:
            ServerStartError: If the program could not be executed.
        """
        reaper = self._spawned()
        assert reaper.stdout is not None  # noqa: S101  it was opened as a pipe
        line = await asyncio.to_thread(reaper.stdout.readline)
        if not line:
            raise self.start_error("its program could not be executed")
        self.pid = int(line)
        processes = [_describe(pid) for pid in (reaper.pid, self.pid)]
        self._record.write_text(json.dumps([p for p in processes if p is not None]) + "\n")

    @property
    def is_running(self) -> bool:
        """Whether it was spawned and has not ended."""
        return self._reaper is not None and self._reaper.poll() is None

    async def ended(self) -> int:
        """Wait for the end, however it comes, and return the exit code."""
        reaper = self._spawned()
        while (code := reaper.poll()) is None:
            await asyncio.sleep(_POLL_S)
        return code

    def request_stop(self) -> None:
        """Ask for an orderly end without waiting; harmless if not running or asked before."""
        if self._reaper is None or self._reaper.stdin is None or self._reaper.stdin.closed:
            return
        with contextlib.suppress(OSError):  # it ended by itself
            self._reaper.stdin.write(f"stop {self.launch.grace_s}\n")
        with contextlib.suppress(OSError):
            self._reaper.stdin.close()

    async def stop(self) -> None:
        """End it in order, kill it after the grace; returns when it is gone."""
        if self._reaper is None:
            return
        self.request_stop()
        async with asyncio.timeout(self.launch.grace_s + 5):
            await self.ended()
        if self._reaper.stdout is not None:
            self._reaper.stdout.close()
        # Finds something only if the reaper itself was killed.
        await asyncio.to_thread(self.end_leftovers)

    def end_leftovers(self) -> None:
        """End what an earlier owner's record names and still runs; blocks for seconds at most.

        A pid counts only together with its start time, so a reused one is left alone.
        """
        leftovers = _still_running(self._record)
        if leftovers:
            _log.warning(f"{self.launch.name}.leftover", pids=[p.pid for p in leftovers])
        # An orphaned reaper is ending its server by now; interrupting it would lose the order.
        _, alive = psutil.wait_procs(leftovers, timeout=self.launch.orphan_grace_s + 1)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=5)
        self._record.unlink(missing_ok=True)

    def start_error(self, reason: str, *, log: Path | None = None) -> ServerStartError:
        """The error that tells why it did not start, with the end of `log` or the console."""
        source = log if log is not None and log.exists() else self.console
        return ServerStartError(self.launch.name, reason, _tail(source))

    def _spawned(self) -> subprocess.Popen[str]:
        if self._reaper is None:
            msg = f"{self.launch.name} was not spawned"
            raise RuntimeError(msg)
        return self._reaper

    def _shorten_console(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self.console.stat().st_size > _LOG_KEPT_BYTES:
                self.console.replace(self.console.with_suffix(".1.log"))


async def run_to_end(launch: Launch, *, timeout_s: float) -> None:
    """Run a command that ends by itself, such as one that formats a data folder.

    Cancelled or late, it is killed before this returns.

    Raises:
        ServerStartError: If it fails or takes longer than `timeout_s`.
    """
    process = ServerProcess(launch)
    process.spawn()
    try:
        async with asyncio.timeout(timeout_s):
            await process.settle()
            code = await process.ended()
    except TimeoutError as error:
        reason = f"it took longer than {timeout_s} s"
        raise process.start_error(reason) from error
    finally:
        await process.stop()
    if code != 0:
        raise process.start_error(f"exit code {code}")


def _describe(pid: int) -> dict[str, float] | None:
    with contextlib.suppress(psutil.NoSuchProcess):
        return {"pid": pid, "started_at": psutil.Process(pid).create_time()}
    return None


def _still_running(record: Path) -> list[psutil.Process]:
    found = []
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError, KeyError):
        for entry in json.loads(record.read_text()):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process = psutil.Process(int(entry["pid"]))
                if abs(process.create_time() - entry["started_at"]) < _CLOCK_SLACK_S:
                    found.append(process)
    return found


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
            text = log.read().decode(errors="replace")
    except FileNotFoundError:
        return f"({path} was not written)"
    return "\n".join(text.splitlines()[-_LOG_TAIL_LINES:])
