"""The executor: containers of the engine on this machine, Docker's or Podman's.

Both answer the same HTTP API on a Unix socket. A container's result is the last line of its
output, as engines keep nothing else of it. An engine ends no container after a time: who looks
at one that has run for too long ends it.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from pop_stream.clock import WallClock
from pop_stream.ports.clock import Clock
from pop_stream.puller.executors.http_executor import SHOWN, HttpExecutor, decoded, message_of
from pop_stream.puller.executors.payloads import (
    WORKER,
    EnvironmentName,
    Resources,
    amount,
    check_image,
    check_seconds,
    check_within,
    environment,
    size_of,
)
from pop_stream.puller.executors.port import (
    ExecutorUnavailableError,
    OwnRun,
    RunIdentity,
    RunStatus,
    tail_of,
)
from pop_stream.puller.handlers.errors import FinalError, RetryableError, read_payload

if TYPE_CHECKING:
    import aiohttp

INSTALLATION: Final = "pop-stream.installation"
KEY: Final = "pop-stream.run"
_SECONDS: Final = "pop-stream.max-seconds"
_FACTS: Final = "pop-stream."
_REQUEST_S: Final = 30.0
_PULL_S: Final = 900.0
_LOG_LINES: Final = 200
_LOG_REQUEST_BYTES: Final = 4 * 1024 * 1024
_FRAME_HEAD: Final = 8
_NO_INSTANT: Final = "0001-01-01"


class ContainerPayload(BaseModel):
    """Payload of an operation that a container runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    image: Annotated[str, StringConstraints(min_length=1, max_length=500)]
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: dict[EnvironmentName, str] = Field(default_factory=dict)
    input: JsonValue = None
    limits: Resources = Field(default_factory=dict)
    max_seconds: Annotated[int, Field(ge=1, le=2_592_000)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRules:
    """What an operator lets payloads have, and what every container gets.

    Attributes:
        images: Patterns of images that may be run.
        pull: Whether an image that is not there is fetched from its registry.
        limits: What a run gets whose payload names no limits.
        most: The most that one run may have; `cpu` and `memory` can be had.
        worker: What counts as one worker; see `payloads.size_of`.
        max_seconds: How long a run may take at most, and takes unless its payload says less.
        grace_s: From SIGTERM to SIGKILL.
        host: Of the container's `HostConfig`, what the operator wants in it, such as its
            network; without it no container has capabilities, nor gains privileges.
    """

    images: Sequence[str]
    pull: bool = True
    limits: Mapping[str, str] = field(default_factory=lambda: {"cpu": "1", "memory": "512Mi"})
    most: Mapping[str, str] = field(default_factory=lambda: {"cpu": "4", "memory": "8Gi"})
    worker: Mapping[str, str] = field(default_factory=lambda: WORKER)
    max_seconds: int = 86_400
    grace_s: int = 3
    host: Mapping[str, Any] = field(default_factory=dict)

    def read(self, payload: object) -> ContainerPayload:
        """The payload, with this operator's defaults filled in.

        Raises:
            FinalError: With field, value and remedy.
        """
        found = read_payload(ContainerPayload, payload)
        check_image(found.image, self.images)
        check_within("limits", found.limits, self.most)
        seconds = check_seconds(found.max_seconds, self.max_seconds)
        limits = {**self.limits, **found.limits}
        return found.model_copy(update={"limits": limits, "max_seconds": seconds})

    def body(
        self, identity: RunIdentity, spec: ContainerPayload, installation: str
    ) -> dict[str, Any]:
        """What the engine is asked to create."""
        variables = environment(identity, spec.env, spec.input)
        host = {
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "PidsLimit": 1024,
            **self.host,
            "NanoCpus": int(amount(spec.limits.get("cpu", "0")) * 1e9),
            "Memory": int(amount(spec.limits.get("memory", "0"))),
        }
        return {
            "Image": spec.image,
            **({"Entrypoint": [*spec.command]} if spec.command else {}),
            **({"Cmd": [*spec.args]} if spec.args else {}),
            "Env": [f"{name}={value}" for name, value in variables.items()],
            "Labels": {
                INSTALLATION: installation,
                KEY: identity.key,
                _SECONDS: str(spec.max_seconds),
                **identity.labels(_FACTS),
            },
            "StopTimeout": self.grace_s,
            "HostConfig": host,
        }


class ContainerExecutor(HttpExecutor):
    """Runs operations as containers, by `rules`.

    Args:
        rules: What payloads may have, and what every container gets.
        socket: Of the engine; else that of DOCKER_HOST, else Docker's, else Podman's.
        installation: Of several that share an engine, each has a name of its own.
        clock: By which a container has run for too long.
    """

    kind = "container"

    def __init__(
        self,
        rules: ContainerRules,
        socket: Path | None = None,
        *,
        installation: str = "pop",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(installation)
        self.rules = rules
        self._socket = socket
        self._clock = clock or WallClock()

    def read(self, payload: object) -> ContainerPayload:
        """See `ContainerRules.read`."""
        return self.rules.read(payload)

    def size(self, spec: ContainerPayload) -> float:
        """How many workers' worth its limits are."""
        return size_of(spec.limits, self.rules.worker)

    async def submit(self, identity: RunIdentity, spec: ContainerPayload) -> None:
        """Create the container and start it, once its image is there.

        Raises:
            FinalError: If the engine finds it invalid.
            RetryableError: If the image cannot be had, or the program not be started.
            ExecutorUnavailableError: If the engine does not answer.
        """
        name = self.name(identity)
        known = await self._inspect(name)
        if known is None:
            await self._create(name, identity, spec)
        elif known["State"]["Status"] != "created":
            return
        # Between the two a puller may have died: what was created and not started, is now.
        status, answer = await self._call("POST", f"/containers/{name}/start")
        if status >= HTTPStatus.BAD_REQUEST:
            await self.delete(name)
            msg = f"the container cannot be started: {message_of(answer)}"
            raise RetryableError(msg)

    async def status(self, name: str) -> RunStatus | None:
        """How the container is; one that has run for too long is ended."""
        known = await self._inspect(name)
        if known is None:
            return None
        status = _status_of(known)
        if status.has_outrun(_limit_s(known), self._clock.now()):
            await self._call("POST", f"/containers/{name}/kill")
        return status

    async def cancel(self, name: str) -> None:
        """Stop the container, which is sent SIGTERM first, and delete it."""
        path = f"/containers/{name}/stop?t={self.rules.grace_s}"
        await self._call("POST", path)
        await self.delete(name)

    async def delete(self, name: str) -> None:
        """Delete the container; one that runs is killed."""
        status, answer = await self._call("DELETE", f"/containers/{name}?force=true&v=true")
        # 409: somebody else's deletion is under way.
        if status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
            _expect(status, answer)

    async def logs_tail(self, name: str) -> str:
        """The end of what it printed, both outputs in the order of time."""
        path = f"/containers/{name}/logs?stdout=true&stderr=true&tail={_LOG_LINES}"
        status, raw = await self._ask("GET", path, most_bytes=_LOG_REQUEST_BYTES)
        if status == HTTPStatus.NOT_FOUND:
            return ""
        _expect(status, raw.decode(errors="replace"))
        return tail_of(_demultiplexed(raw))

    async def list_own(self, key: str | None = None) -> Sequence[OwnRun]:
        """Containers with this installation's labels; each is looked at."""
        labels = [f"{INSTALLATION}={self._installation}"]
        if key is not None:
            labels.append(f"{KEY}={key}")
        query = {"all": "true", "filters": json.dumps({"label": labels})}
        status, found = await self._call("GET", "/containers/json", params=query)
        _expect(status, found)
        known = [await self._inspect(one["Id"]) for one in found]
        runs = (_own_run(one) for one in known if one is not None)
        return [one for one in runs if one is not None]

    async def capacity(self) -> int | None:
        """How many workers this machine holds."""
        status, known = await self._call("GET", "/info")
        _expect(status, known)
        has = {"cpu": float(known["NCPU"]), "memory": float(known["MemTotal"])}
        worker = self.rules.worker
        return int(min(has[name] / amount(of) for name, of in worker.items() if name in has))

    # ---- requests ----

    async def _create(self, name: str, identity: RunIdentity, spec: ContainerPayload) -> None:
        body = self.rules.body(identity, spec, self._installation)
        path = f"/containers/create?name={name}"
        status, answer = await self._call("POST", path, json=body)
        if status == HTTPStatus.NOT_FOUND and self.rules.pull:
            await self._pull(spec.image)
            status, answer = await self._call("POST", path, json=body)
        if status == HTTPStatus.NOT_FOUND:
            msg = f"payload.image = {spec.image!r}: is not there: {message_of(answer)}"
            raise RetryableError(msg)
        if status == HTTPStatus.BAD_REQUEST:
            msg = f"the engine refuses the container: {message_of(answer)}"
            raise FinalError(msg)
        if status != HTTPStatus.CONFLICT:
            _expect(status, answer)

    async def _pull(self, image: str) -> None:
        has_tag = ":" in image.rpartition("/")[2] or "@" in image
        query = {"fromImage": image if has_tag else f"{image}:latest"}
        status, raw = await self._ask("POST", "/images/create", within_s=_PULL_S, params=query)
        # The engine answers 200 before it fetches, and says what went wrong at the end.
        lines = raw.decode(errors="replace").splitlines()
        said = decoded(lines[-1].encode()) if lines else {}
        if status >= HTTPStatus.BAD_REQUEST or said.get("error"):
            text = said.get("error") or message_of(said)
            msg = f"payload.image = {image!r}: cannot be fetched: {str(text)[:SHOWN]}"
            raise RetryableError(msg)

    async def _inspect(self, name: str) -> Any:  # noqa: ANN401  # JSON
        status, known = await self._call("GET", f"/containers/{name}/json")
        if status == HTTPStatus.NOT_FOUND:
            return None
        _expect(status, known)
        return known

    async def _call(self, method: str, path: str, **more: Any) -> tuple[int, Any]:  # noqa: ANN401
        status, raw = await self._ask(method, path, **more)
        return status, decoded(raw)

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        within_s: float = _REQUEST_S,
        most_bytes: int = -1,
        **more: Any,  # noqa: ANN401
    ) -> tuple[int, bytes]:
        import aiohttp  # noqa: PLC0415  # a fifth of the start of a puller, which may not need it

        socket = self._socket or engine_socket()
        if self._session is None:
            connector = aiohttp.UnixConnector(str(socket), limit=32)
            self._session = aiohttp.ClientSession("http://engine", connector=connector)
        within = aiohttp.ClientTimeout(total=within_s)
        try:
            async with self._session.request(method, path, timeout=within, **more) as response:
                return response.status, await _read(response.content, most_bytes)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            msg = f"the engine at {socket} does not answer ({type(error).__name__})"
            raise ExecutorUnavailableError(msg) from error


def engine_socket() -> Path:
    """The socket of DOCKER_HOST, else the first of the usual ones that is there."""
    host = os.environ.get("DOCKER_HOST", "")
    if host.startswith("unix://"):
        return Path(host.removeprefix("unix://"))
    own = Path(os.environ.get("XDG_RUNTIME_DIR", "/run")) / "podman" / "podman.sock"
    usual = [Path("/var/run/docker.sock"), own, Path("/run/podman/podman.sock")]
    return next((one for one in usual if one.exists()), usual[0])


async def _read(content: "aiohttp.StreamReader", most_bytes: int) -> bytes:
    if most_bytes < 0:
        return await content.read()
    raw = bytearray()
    while len(raw) < most_bytes and (chunk := await content.read(most_bytes - len(raw))):
        raw += chunk
    return bytes(raw)


def _expect(status: int, answer: object) -> None:
    if status >= HTTPStatus.BAD_REQUEST:
        msg = f"the engine answers {status}: {message_of(answer)}"
        raise ExecutorUnavailableError(msg)


def _demultiplexed(raw: bytes) -> bytes:
    """A log without the heads of its frames: which output it was, and how many bytes."""
    text = bytearray()
    while len(raw) >= _FRAME_HEAD:
        if raw[0] not in {0, 1, 2} or raw[1:4] != b"\0\0\0":
            return bytes(text) + raw  # of a container with a terminal: no frames
        size = int.from_bytes(raw[4:_FRAME_HEAD], "big")
        text += raw[_FRAME_HEAD : _FRAME_HEAD + size]
        raw = raw[_FRAME_HEAD + size :]
    return bytes(text)


def _own_run(known: Mapping[str, Any]) -> OwnRun | None:
    identity = RunIdentity.from_labels(known["Config"].get("Labels") or {}, _FACTS)
    created_at = _instant(known.get("Created"))
    if identity is None or created_at is None:
        return None
    return OwnRun(known["Name"].removeprefix("/"), identity, _status_of(known), created_at)


def _limit_s(known: Mapping[str, Any]) -> float:
    return float((known["Config"].get("Labels") or {}).get(_SECONDS, 0))


def _status_of(known: Mapping[str, Any]) -> RunStatus:
    state = known["State"]
    started_at = _instant(state.get("StartedAt"))
    if state["Status"] in {"created", "configured", "initialized"}:
        return RunStatus("pending", "Created")
    if state["Status"] not in {"exited", "dead", "stopped", "removing"}:
        return RunStatus("running", "", str(state["Status"]), started_at=started_at)
    code, ended_at = state.get("ExitCode"), _instant(state.get("FinishedAt"))
    if started_at and ended_at:  # what ends at once may have been noted to end first
        ended_at = max(started_at, ended_at)
    ran_s = (ended_at - started_at).total_seconds() if started_at and ended_at else 0.0
    reason, text, is_retryable = "Error", f"exit code {code}", True
    if state.get("OOMKilled"):
        reason, text = "OOMKilled", "it took more memory than it may; raise payload.limits"
    elif code and 0 < _limit_s(known) <= ran_s:
        reason, text, is_retryable = (
            "DeadlineExceeded",
            "longer than payload.max_seconds",
            False,
        )
    elif state.get("Error"):
        text = str(state["Error"])[:SHOWN]
    return RunStatus(
        "failed" if code else "succeeded",
        reason if code else "",
        text if code else "",
        is_retryable=is_retryable,
        started_at=started_at,
        ended_at=ended_at,
        exit_code=code,
    )


def _instant(text: object) -> datetime | None:
    if not text or str(text).startswith(_NO_INSTANT):
        return None
    return datetime.fromisoformat(str(text)).astimezone(UTC)
