"""The one handler that drives every executor: submit or find again, watch, cancel, report."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any, Final, Generic, TypeVar

import structlog
from pydantic import JsonValue

from pop_stream.clock import WallClock
from pop_stream.ports.clock import Clock
from pop_stream.puller.executors.port import (
    ENDED,
    Executor,
    ExecutorUnavailableError,
    RunIdentity,
    RunStatus,
)
from pop_stream.puller.handlers.errors import FinalError, OperationError, RetryableError
from pop_stream.puller.handlers.invocation import OperationCall
from pop_stream.puller.reporting.messages import clean

SUBMITTED: Final = "executor.submitted"
FOUND: Final = "executor.found"
CHARGED: Final = "executor.charged"
ENDED_RUN: Final = "executor.ended"
"""Codes of the diagnostics that an operation of an executor has."""

_LEAVES: Final = frozenset({"outdated", "puller_stopping"})
"""Reasons to stop that end the call, and not the run: another attempt goes on with it."""

_FIRST_POLL_S: Final = 0.25
_POLL_GROWTH: Final = 1.5
_CANCEL_S: Final = 4.0
_LOG_IN_DIAGNOSTIC: Final = 1_000

S = TypeVar("S")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """How long the handler waits for an executor.

    Attributes:
        poll_s: Between two looks at a run that does not change; at first they are closer.
        progress_s: Between two looks at its log for progress.
        stuck_s: How long a run may be pending for a reason that seldom goes away.
        pending_s: How long it may be pending at all; what is queued may wait for ever.
        away_s: How long the executor may be away; then the attempt fails, and the next one
            finds the run again.
    """

    poll_s: float = 5.0
    progress_s: float = 15.0
    stuck_s: float = 120.0
    pending_s: float = 3600.0
    away_s: float = 600.0


class ExecutorHandler(Generic[S]):
    """Runs operations of one type by an executor; register it with `add_executor`.

    Args:
        executor: Where.
        limits: How long it waits.
        clock: By which a run that is cut off is charged.
    """

    def __init__(
        self,
        executor: Executor[S],
        limits: RunLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.executor = executor
        self._limits = limits or RunLimits()
        self._clock = clock or WallClock()
        self.watched: set[str] = set()

    async def __call__(self, operation: OperationCall) -> Mapping[str, Any]:
        """Run the operation, or go on with the run that an earlier attempt left.

        Returns:
            `{run, exit_code, seconds, result}`; the result is what the run left as JSON, or
            text, or the last line of its log if that is a JSON object or list.

        Raises:
            FinalError: If the payload is wrong or the executor will never take it.
            RetryableError: If the run failed, was stuck or lost, or the executor is away.
        """
        spec = self.executor.read(operation.payload)
        watch = _Watch(self.executor, operation, self._limits, self._clock)
        watch.size = self.executor.size(spec)
        watch.name = self.executor.name(RunIdentity.of(operation))
        try:
            await watch.begin(spec, self.watched)
            status = await watch.until_ended()
        except asyncio.CancelledError:
            await watch.interrupted()
            raise
        except OperationError:
            watch.charge()
            raise
        finally:
            self.watched.discard(watch.name)
        return await watch.result(status)


class _Watch(Generic[S]):
    """One call of the handler."""

    def __init__(
        self, executor: Executor[S], call: OperationCall, limits: RunLimits, clock: Clock
    ) -> None:
        self._executor = executor
        self._call = call
        self._limits = limits
        self._clock = clock
        self._status = RunStatus("pending")
        self._percent = 0.0
        self._progress_message = ""
        self._charged_until = _charged_before(call)
        self._pending_s = 0.0
        self.name = ""
        self.size = 1.0

    # ---- begin ----

    async def begin(self, spec: S, watched: set[str]) -> None:
        """Find the run of an earlier attempt, or submit one; as long as that takes."""
        found = await self._patiently(self._found)
        if found is not None:
            self.name = found
            self._call.note(f"goes on with {found}", code=FOUND, detail={"run": found})
        watched.add(self.name)
        if found is None:
            await self._patiently(lambda: self._submit(spec))
            text = f"submitted as {self.name}"
            self._call.note(text, code=SUBMITTED, detail={"run": self.name})

    async def _found(self) -> str | None:
        """The run of an earlier attempt of this run of the agenda that is worth going on with.

        One that failed is not: that was reported, or another run will find it out.
        """
        call = self._call
        if call.attempt <= call.run_from:
            return None
        identity = RunIdentity.of(call)
        earlier = [
            one
            for one in await self._executor.list_own(identity.key)
            if call.run_from <= one.identity.attempt < call.attempt
            and one.status.state != "failed"
        ]
        if not earlier:
            return None
        newest = max(earlier, key=lambda one: (one.identity.attempt, one.identity.tries))
        return newest.name

    async def _submit(self, spec: S) -> None:
        await self._executor.submit(RunIdentity.of(self._call), spec)

    # ---- watch ----

    async def until_ended(self) -> RunStatus:
        """Watch the run until it has ended.

        Raises:
            RetryableError: If it is stuck, which cancels it, or is no more.
        """
        pause_s, pending_since = _FIRST_POLL_S, monotonic()
        stuck_since: float | None = None
        progress_at = monotonic()
        while True:
            status: RunStatus | None = await self._patiently(
                lambda: self._executor.status(self.name)
            )
            if status is None:
                msg = f"{self.name} is gone: it was deleted, or the {self._kind} lost it"
                raise RetryableError(msg)
            if status.state in ENDED:
                self._status = status
                return status
            if (status.state, status.reason) != (self._status.state, self._status.reason):
                pause_s = _FIRST_POLL_S
            self._status, now_s = status, monotonic()
            pending_since = pending_since if status.state == "pending" else now_s
            self._pending_s = now_s - pending_since
            stuck_since = (stuck_since or now_s) if status.is_stuck else None
            await self._check_stuck(now_s - (stuck_since or now_s))
            if status.state == "running" and now_s >= progress_at:
                progress_at = now_s + self._limits.progress_s
                await self._read_progress()
            await self._report()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * _POLL_GROWTH, self._limits.poll_s)

    async def _check_stuck(self, stuck_s: float) -> None:
        status, limits = self._status, self._limits
        is_stuck = status.is_stuck and stuck_s >= limits.stuck_s
        if not is_stuck and self._pending_s < limits.pending_s:
            return
        self._note_end("")
        await self._cancel()
        after_s = limits.stuck_s if is_stuck else limits.pending_s
        msg = f"{self.name} did not start within {after_s:g} s: {_said(status)}"
        raise RetryableError(msg)

    async def _report(self) -> None:
        status = self._status
        text = self._progress_message or f"{status.state}: {_said(status)}".rstrip(": ")
        await self._call.report(self._percent, text)

    async def _read_progress(self) -> None:
        """Take up what the program says of itself, as JSON lines with `percent`."""
        with suppress(ExecutorUnavailableError, OverflowError):  # a percent of 400 digits
            for line in reversed((await self._executor.logs_tail(self.name)).splitlines()):
                said = _json_line(line)
                percent = said.get("percent") if isinstance(said, dict) else None
                if isinstance(said, dict) and isinstance(percent, int | float):
                    self._percent = float(percent)
                    self._progress_message = str(said.get("message", ""))
                    return

    async def _patiently(self, ask: Any) -> Any:  # noqa: ANN401  # what `ask` returns
        """Ask until the executor answers, and say meanwhile why that takes so long.

        Raises:
            RetryableError: If it is away for too long.
        """
        since, pause_s = monotonic(), _FIRST_POLL_S
        while True:
            try:
                return await ask()
            except ExecutorUnavailableError as error:
                if monotonic() - since >= self._limits.away_s:
                    raise RetryableError(str(error)) from None
                await self._call.report(self._percent, f"waits: {error}")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * _POLL_GROWTH, self._limits.poll_s)

    # ---- end ----

    async def result(self, status: RunStatus) -> Mapping[str, Any]:
        """The operation's result from the end of its run.

        Raises:
            OperationError: If the run failed.
        """
        self.charge()
        log = ""
        with suppress(ExecutorUnavailableError, OperationError):
            log = await self._executor.logs_tail(self.name)
        self._note_end(log)
        if status.state == "failed":
            msg = f"{self.name} failed: {_said(status)}{_last_line(log)}"
            raise RetryableError(msg) if status.is_retryable else FinalError(msg)
        seconds = round(self._seconds(None), 3)
        result = _result_of(status.output, log)
        known = {"run": self.name, "exit_code": status.exit_code, "seconds": seconds}
        return {**known, "result": result}

    async def interrupted(self) -> None:
        """The call ends before the run: cancel it, unless another attempt goes on with it."""
        self.charge()
        if self._call.stop_reason in _LEAVES:
            until = self._clock.now().isoformat()
            detail: dict[str, JsonValue] = {"run": self.name, "until": until}
            self._call.note(f"left {self.name} as it is", code=CHARGED, detail=detail)
            return
        try:
            async with asyncio.timeout(_CANCEL_S):
                await self._executor.cancel(self.name)
        except (TimeoutError, ExecutorUnavailableError, OperationError) as error:
            # Whoever looks for orphans cancels it, once the API says that its agenda is over.
            _log.warning("executor.cancel_failed", run=self.name, reason=str(error))

    async def _cancel(self) -> None:
        with suppress(ExecutorUnavailableError):
            await self._executor.cancel(self.name)

    def charge(self) -> None:
        """Charge what the run took until now, times its size, in place of the call's time.

        One that never started kept its place among the insight's: it is charged the time for
        which it was pending, or who asks for an image that does not exist has places for free.
        """
        is_started = self._status.started_at is not None
        ran_s = self._seconds(self._charged_until) * self.size
        self._call.charge(ran_s if is_started else self._pending_s)

    def _seconds(self, since: datetime | None) -> float:
        status = self._status
        if status.started_at is None:
            return 0.0
        started_at = max(status.started_at, since) if since else status.started_at
        ended_at = status.ended_at or self._clock.now()
        return max(0.0, (ended_at - started_at).total_seconds())

    def _note_end(self, log: str) -> None:
        status = self._status
        text = clean(log.rstrip()[-_LOG_IN_DIAGNOSTIC:])
        while len(json.dumps(text, ensure_ascii=False).encode()) > _LOG_IN_DIAGNOSTIC:
            text = text[1 + len(text) // 8 :]
        detail: dict[str, JsonValue] = {
            "run": self.name,
            "reason": clean(status.reason)[:100],
            "exit_code": status.exit_code,
            "log": text,
        }
        self._call.note(f"{status.state}: {_said(status)}", code=ENDED_RUN, detail=detail)

    @property
    def _kind(self) -> str:
        return self._executor.kind


def _said(status: RunStatus) -> str:
    said = ": ".join(one for one in (status.reason, status.message) if one)
    return said or ("" if status.exit_code is None else f"exit code {status.exit_code}")


def _last_line(log: str) -> str:
    last = log.rstrip().rpartition("\n")[2].strip()
    return f"; its log ends: {last[-300:]}" if last else ""


def _json_line(line: str) -> JsonValue:
    """What a line says, if it is a JSON object or list; else None."""
    stripped = line.strip()
    if not stripped.startswith(("{", "[")):
        return None
    with suppress(ValueError, RecursionError):
        said: JsonValue = json.loads(stripped)
        return said
    return None


def _result_of(output: str, log: str) -> JsonValue:
    if output:
        with suppress(ValueError, RecursionError):
            said: JsonValue = json.loads(output)
            return said
        return clean(output)
    return _json_line(log.rstrip().rpartition("\n")[2])


def _charged_before(call: OperationCall) -> datetime | None:
    """Until when an earlier attempt that left the run has charged it."""
    noted = [
        str(one.detail.get("until"))
        for one in (call.prior.diagnostics if call.prior else ())
        if one.code == CHARGED and isinstance(one.detail, dict)
    ]
    with suppress(ValueError):
        return max((datetime.fromisoformat(one) for one in noted), default=None)
    return None
