"""An executor in memory, whose runs do what their payload says."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel, ConfigDict

from pop_stream.puller.executors.port import (
    ENDED,
    ExecutorUnavailableError,
    OwnRun,
    RunIdentity,
    RunStatus,
)
from pop_stream.puller.handlers.errors import read_payload

CREATED_AT = datetime(2026, 1, 1, tzinfo=UTC)


class MemorySpec(BaseModel):
    """What a run does: `succeed`, `fail`, `forever` (until it is cancelled) or `by_hand`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    does: str
    output: str = ""
    size: float = 1.0


class MemoryExecutor:
    """Runs take two seconds of their own, whatever the clock says.

    Attributes:
        submitted: Names, once for each run that was made.
        away: Why it cannot be asked, if so.
    """

    kind = "memory"

    def __init__(self):
        self.runs = {}
        self.specs = {}
        self.logs = {}
        self.submitted = []
        self.cancelled = []
        self.away = ""
        self.asked = 0

    def read(self, payload):
        return read_payload(MemorySpec, payload)

    def size(self, spec):
        return spec.size

    def name(self, identity):
        return f"memory-{identity.suffix}"

    async def submit(self, identity: RunIdentity, spec: MemorySpec) -> None:
        self._check()
        name = self.name(identity)
        if name not in self.runs:
            self.submitted.append(name)
            self.specs[name] = spec
            self.logs[name] = f"{spec.does}s\n"
            self.runs[name] = OwnRun(name, identity, RunStatus("pending"), CREATED_AT)

    def set(self, name, **changes):
        """Have a run be in another state."""
        run = self.runs[name]
        self.runs[name] = replace(run, status=replace(run.status, **changes))

    def start(self, name):
        self.set(name, state="running", reason="", is_stuck=False, started_at=CREATED_AT)

    def end(self, name, state="succeeded", **changes):
        ended_at = CREATED_AT + timedelta(seconds=2)
        code = 0 if state == "succeeded" else 1
        self.start(name)
        self.set(name, state=state, ended_at=ended_at, exit_code=code, **changes)

    async def status(self, name):
        self._check()
        self.asked += 1
        if name not in self.runs:
            return None
        status, spec = self.runs[name].status, self.specs[name]
        if spec.does != "by_hand" and status.state == "pending":
            self.start(name)
        elif spec.does in {"succeed", "fail"} and status.state == "running":
            state = "succeeded" if spec.does == "succeed" else "failed"
            self.end(name, state, reason="Ended", output=spec.output)
        return self.runs[name].status

    async def cancel(self, name):
        self._check()
        if name in self.runs and self.runs[name].status.state not in ENDED:
            self.cancelled.append(name)
            self.set(name, state="failed", reason="Cancelled")

    async def logs_tail(self, name):
        self._check()
        return self.logs.get(name, "")

    async def list_own(self, key=None):
        self._check()
        return [one for one in self.runs.values() if key in {None, one.identity.key}]

    async def delete(self, name):
        self._check()
        self.runs.pop(name, None)

    async def capacity(self):
        self._check()
        return 4

    async def close(self):
        """It has no connections."""

    def _check(self):
        if self.away:
            raise ExecutorUnavailableError(self.away)
