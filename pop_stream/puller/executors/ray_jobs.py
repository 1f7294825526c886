"""The executor: jobs of a Ray cluster, by the HTTP API of its dashboard.

A payload names a command, which becomes the job's entry point, or a function, which a job calls
as a Ray task with the resources that were asked for. The puller needs no Ray of its own, so
theirs need not be of one version. Ray ends no job after a time: who looks at one that has run
for too long stops it.
"""

import asyncio
import json
import shlex
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from pop_stream.clock import WallClock
from pop_stream.ports.clock import Clock
from pop_stream.puller.executors.http_executor import SHOWN, HttpExecutor
from pop_stream.puller.executors.payloads import (
    WORKER,
    EnvironmentName,
    Resources,
    amount,
    check_seconds,
    check_variables,
    check_within,
    environment,
    size_of,
)
from pop_stream.puller.executors.port import (
    ENDED,
    ExecutorUnavailableError,
    OwnRun,
    RunIdentity,
    RunState,
    RunStatus,
    tail_of,
)
from pop_stream.puller.handlers.errors import FinalError, read_payload

if TYPE_CHECKING:
    pass

INSTALLATION: Final = "pop-stream.installation"
KEY: Final = "pop-stream.run"
_SECONDS: Final = "pop-stream.max-seconds"
_FACTS: Final = "pop-stream."
_REQUEST_S: Final = 30.0
_STOP_S: Final = 15.0
_STARTED: Final = "pop-stream: started "
_NOISE: Final = ("Running entrypoint for job ", _STARTED)
_MAX_STARTS: Final = 10_000

_CALL_FUNCTION: Final = """
import importlib, json, os, sys
import ray
def call(name, given):
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)(given)
ray.init(log_to_driver=True)
options = json.loads(os.environ["AGENDA_RAY_OPTIONS"])
given = json.loads(os.environ.get("AGENDA_INPUT", "null"))
task = ray.remote(call).options(max_retries=0, **options)
result = ray.get(task.remote(os.environ["AGENDA_FUNCTION"], given))
ray.shutdown()
sys.stderr.flush()
print(json.dumps(result), flush=True)
"""
"""What a job does whose payload names a function; the last line of it is the result."""

_STATES: Final[Mapping[str, RunState]] = {
    "PENDING": "pending",
    "RUNNING": "running",
    "STOPPED": "failed",
    "FAILED": "failed",
    "SUCCEEDED": "succeeded",
}


class RayPayload(BaseModel):
    """Payload of an operation that a Ray job runs: of `command` and `function`, one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: tuple[str, ...] = ()
    function: Annotated[str, StringConstraints(pattern=r"^[\w.]+:\w+$")] | None = None
    env: dict[EnvironmentName, str] = Field(default_factory=dict)
    input: JsonValue = None
    resources: Resources = Field(default_factory=dict)
    max_seconds: Annotated[int, Field(ge=1, le=2_592_000)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RayRules:
    """What an operator lets payloads have, and what every job gets.

    Attributes:
        commands: How a command may begin, word by word, as `python -m acme.render`.
        functions: Patterns of functions that may be called, as `acme.tasks:*`.
        resources: Asked for where a payload asks for none; `cpu`, `gpu`, `memory`, or the
            cluster's own.
        most: The most that one run may ask for.
        worker: What counts as one worker; see `payloads.size_of`.
        max_seconds: How long a run may take at most, and takes unless its payload says less.
        variables: Patterns of names of variables that payloads may set. By some, such as
            PYTHONPATH, a payload would run what is not among the commands and functions.
        runtime_env: Of every job, such as its `working_dir`; a payload adds such variables,
            and changes none of these.
    """

    commands: Sequence[str] = ()
    functions: Sequence[str] = ()
    variables: Sequence[str] = ()
    resources: Mapping[str, str] = field(default_factory=lambda: {"cpu": "1"})
    most: Mapping[str, str] = field(default_factory=lambda: {"cpu": "8", "memory": "32Gi"})
    worker: Mapping[str, str] = field(default_factory=lambda: WORKER)
    max_seconds: int = 86_400
    runtime_env: Mapping[str, Any] = field(default_factory=dict)

    def read(self, payload: object) -> RayPayload:
        """The payload, with this operator's defaults filled in.

        Raises:
            FinalError: With field, value and remedy.
        """
        found = read_payload(RayPayload, payload)
        if bool(found.command) == (found.function is not None):
            msg = "payload.command, payload.function: give one of the two"
            raise FinalError(msg)
        if found.function is not None:
            self._check_function(found.function)
        else:
            self._check_command(found.command)
        check_variables(found.env, self.variables)
        check_within("resources", found.resources, self.most)
        seconds = check_seconds(found.max_seconds, self.max_seconds)
        resources = {**self.resources, **found.resources}
        return found.model_copy(update={"resources": resources, "max_seconds": seconds})

    def _check_function(self, function: str) -> None:
        if not any(fnmatchcase(function, one) for one in self.functions):
            known = ", ".join(self.functions) or "none"
            msg = f"payload.function = {function!r}: may not be called here; allowed: {known}"
            raise FinalError(msg)

    def _check_command(self, command: Sequence[str]) -> None:
        beginnings = [shlex.split(one) for one in self.commands]
        if not any([*command[: len(one)]] == one for one in beginnings):
            known = ", ".join(self.commands) or "none"
            msg = f"payload.command = {[*command]}: may not be run here; allowed: {known}"
            raise FinalError(msg)

    def body(
        self, name: str, identity: RunIdentity, spec: RayPayload, installation: str
    ) -> dict[str, Any]:
        """What the cluster is asked to run."""
        variables = dict(environment(identity, spec.env, spec.input))
        program = [*spec.command]
        asked = _asked(spec.resources)
        if spec.function is not None:
            # The driver only waits; the task is what takes the resources.
            program = ["python", "-c", _CALL_FUNCTION]
            variables |= {
                "AGENDA_FUNCTION": spec.function,
                "AGENDA_RAY_OPTIONS": json.dumps(asked),
            }
            asked = {}
        own = self.runtime_env.get("env_vars") or {}
        return {
            "submission_id": name,
            "entrypoint": f'echo "{_STARTED}$(date +%s.%N)"; {shlex.join(program)}',
            **{f"entrypoint_{resource}": value for resource, value in asked.items()},
            "runtime_env": {**self.runtime_env, "env_vars": {**variables, **own}},
            "metadata": {
                INSTALLATION: installation,
                KEY: identity.key,
                _SECONDS: str(spec.max_seconds),
                **identity.labels(_FACTS),
            },
        }


class RayExecutor(HttpExecutor):
    """Runs operations as jobs and tasks of a Ray cluster, by `rules`.

    Args:
        rules: What payloads may have, and what every job gets.
        url: Of the cluster's dashboard, such as `http://ray-head:8265`.
        headers: Of every request, such as one with a token.
        installation: Of several that share a cluster, each has a name of its own.
        clock: By which a job has run for too long.
    """

    kind = "ray"

    def __init__(
        self,
        rules: RayRules,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        installation: str = "pop",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(installation)
        self.rules = rules
        self._url = url.rstrip("/")
        self._headers = dict(headers or {})
        self._clock = clock or WallClock()
        self._starts: OrderedDict[str, datetime] = OrderedDict()

    def read(self, payload: object) -> RayPayload:
        """See `RayRules.read`."""
        return self.rules.read(payload)

    def size(self, spec: RayPayload) -> float:
        """How many workers' worth its resources are."""
        return size_of(spec.resources, self.rules.worker)

    async def submit(self, identity: RunIdentity, spec: RayPayload) -> None:
        """Submit the job, unless one with its id is there.

        Raises:
            FinalError: If Ray finds it invalid.
            ExecutorUnavailableError: If the cluster does not answer.
        """
        name = self.name(identity)
        if await self._job(name) is not None:
            return
        body = self.rules.body(name, identity, spec, self._installation)
        status, answer = await self._call("POST", "/api/jobs/", json=body)
        said = _message(answer)
        if status >= HTTPStatus.BAD_REQUEST and "already exists" not in said:
            # The head passes a node's refusal on as a fault of its own.
            if status == HTTPStatus.BAD_REQUEST or "status code 400" in str(answer):
                msg = f"ray refuses the job: {said}"
                raise FinalError(msg)
            _expect(status, answer)

    async def status(self, name: str) -> RunStatus | None:
        """How the job is; one that has run for too long is stopped."""
        job = await self._job(name)
        if job is None:
            return None
        found = await self._status_of(name, job)
        if found.has_outrun(_limit_s(job), self._clock.now()):
            await self._call("POST", f"/api/jobs/{name}/stop")
        return found

    async def cancel(self, name: str) -> None:
        """Stop the job: its processes get SIGTERM, and SIGKILL three seconds later."""
        status, answer = await self._call("POST", f"/api/jobs/{name}/stop")
        if status != HTTPStatus.NOT_FOUND:
            _expect(status, answer)

    async def delete(self, name: str) -> None:
        """Delete the job and its log; one that runs is stopped first.

        Raises:
            ExecutorUnavailableError: If it has not ended within seconds.
        """
        await self.cancel(name)
        try:
            async with asyncio.timeout(_STOP_S):
                while job := await self._job(name):
                    if _state(job) in ENDED:
                        break
                    await asyncio.sleep(0.2)
        except TimeoutError:
            msg = f"{name} has not ended within {_STOP_S:g} s of its stop"
            raise ExecutorUnavailableError(msg) from None
        self._starts.pop(name, None)
        status, answer = await self._call("DELETE", f"/api/jobs/{name}")
        if status != HTTPStatus.NOT_FOUND:
            _expect(status, answer)

    async def logs_tail(self, name: str) -> str:
        """The end of what the job printed, without what is not its own."""
        return tail_of("".join(await self._log(name)))

    async def list_own(self, key: str | None = None) -> Sequence[OwnRun]:
        """Jobs with this installation's metadata; Ray lists all there are."""
        status, jobs = await self._call("GET", "/api/jobs/")
        _expect(status, jobs)
        found = []
        for job in jobs:
            known = job.get("metadata") or {}
            if known.get(INSTALLATION) != self._installation or key not in {
                None,
                known.get(KEY),
            }:
                continue
            identity = RunIdentity.from_labels(known, _FACTS)
            created_at = _instant(job["start_time"])
            if identity is not None and created_at is not None:
                name = job["submission_id"]
                status_now = await self._status_of(name, job)
                found.append(OwnRun(name, identity, status_now, created_at))
        return found

    async def capacity(self) -> int | None:
        """How many workers the nodes hold that are alive, by their processors and memory."""
        status, answer = await self._call("GET", "/api/v0/nodes?detail=1")
        _expect(status, answer)
        nodes = answer["data"]["result"]["result"]
        alive = [one["resources_total"] for one in nodes if one["state"] == "ALIVE"]
        return sum(_workers(one, self.rules.worker) for one in alive)

    # ---- requests ----

    async def _job(self, name: str) -> Any:  # noqa: ANN401  # JSON
        status, job = await self._call("GET", f"/api/jobs/{name}")
        if status == HTTPStatus.NOT_FOUND:
            return None
        _expect(status, job)
        return job

    async def _status_of(self, name: str, job: Mapping[str, Any]) -> RunStatus:
        state, code = _state(job), job.get("driver_exit_code")
        if state == "pending":
            return RunStatus(state, str(job["status"]), str(job.get("message") or "")[:SHOWN])
        started_at = await self._started_at(name)
        ended_at = _instant(job.get("end_time"))
        ran_s = (ended_at - started_at).total_seconds() if started_at and ended_at else 0.0
        limit_s = _limit_s(job)
        is_late = job["status"] == "STOPPED" and 0 < limit_s <= ran_s
        reason = "DeadlineExceeded" if is_late else str(job.get("error_type") or job["status"])
        # What follows the first line is the end of the log, which is read by itself.
        said = str(job.get("message") or "").partition("\n")[0].partition(", last available")[0]
        text = "longer than payload.max_seconds" if is_late else said
        return RunStatus(
            state,
            reason if state == "failed" else "",
            text[:SHOWN] if state == "failed" else "",
            is_retryable=not is_late,
            started_at=started_at,
            ended_at=max(ended_at, started_at) if ended_at and started_at else ended_at,
            exit_code=code,
        )

    async def _started_at(self, name: str) -> datetime | None:
        """When the entry point began, which it says itself: Ray says when it was submitted."""
        if name not in self._starts:
            for line in await self._lines(name):
                if line.startswith(_STARTED):
                    seconds = float(line.removeprefix(_STARTED).replace("N", "0"))
                    self._starts[name] = datetime.fromtimestamp(seconds, UTC)
                    break
            while len(self._starts) > _MAX_STARTS:
                self._starts.popitem(last=False)
        return self._starts.get(name)

    async def _log(self, name: str) -> list[str]:
        lines = await self._lines(name)
        is_noise = [
            line.startswith(_NOISE) or " INFO job_manager.py:" in line.replace("\t", " ")
            for line in lines
        ]
        return [line for line, left_out in zip(lines, is_noise, strict=True) if not left_out]

    async def _lines(self, name: str) -> list[str]:
        status, answer = await self._call("GET", f"/api/jobs/{name}/logs")
        if status == HTTPStatus.NOT_FOUND:
            return []
        _expect(status, answer)
        return str(answer.get("logs") or "").splitlines(keepends=True)

    async def _call(self, method: str, path: str, **more: Any) -> tuple[int, Any]:  # noqa: ANN401
        import aiohttp  # noqa: PLC0415  # a fifth of the start of a puller, which may not need it

        if self._session is None:
            within = aiohttp.ClientTimeout(total=_REQUEST_S)
            self._session = aiohttp.ClientSession(timeout=within, headers=self._headers)
        try:
            async with self._session.request(method, f"{self._url}{path}", **more) as response:
                return response.status, _decoded(await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            msg = f"ray at {self._url} does not answer ({type(error).__name__})"
            raise ExecutorUnavailableError(msg) from error


def _asked(resources: Mapping[str, str]) -> dict[str, Any]:
    """Resources by the names that Ray has for them."""
    known = {name: amount(quantity) for name, quantity in resources.items()}
    asked: dict[str, Any] = {}
    if "cpu" in known:
        asked["num_cpus"] = known.pop("cpu")
    if "gpu" in known:
        asked["num_gpus"] = known.pop("gpu")
    if "memory" in known:
        asked["memory"] = int(known.pop("memory"))
    return asked | ({"resources": known} if known else {})


def _limit_s(job: Mapping[str, Any]) -> float:
    return float((job.get("metadata") or {}).get(_SECONDS) or 0)


def _state(job: Mapping[str, Any]) -> RunState:
    return _STATES.get(str(job["status"]), "pending")


def _instant(milliseconds: float | None) -> datetime | None:
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None


def _workers(has: Mapping[str, float], worker: Mapping[str, str]) -> int:
    names = {"cpu": "CPU", "gpu": "GPU"}
    shares = [has.get(names.get(name, name), 0.0) / amount(of) for name, of in worker.items()]
    return int(min(shares))


def _decoded(raw: bytes) -> Any:  # noqa: ANN401  # JSON
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode(errors="replace")


def _message(answer: object) -> str:
    """The last line of what Ray says went wrong, which is a traceback."""
    lines = [one for one in str(answer).splitlines() if one.strip(" .")]
    return (lines[-1] if lines else "no reason given")[:SHOWN]


def _expect(status: int, answer: object) -> None:
    if status >= HTTPStatus.BAD_REQUEST:
        msg = f"ray answers {status}: {_message(answer)}"
        raise ExecutorUnavailableError(msg)
