"""The executor: Jobs of one namespace, by six requests of the API server."""

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pop_stream.puller.executors.http_executor import HttpExecutor, decoded, message_of
from pop_stream.puller.executors.kubernetes.access import (
    ClusterAccess,
    from_kubeconfig,
    in_cluster,
)
from pop_stream.puller.executors.kubernetes.jobs import (
    CONTAINER,
    INSTALLATION,
    KEY,
    NAME,
    JobPayload,
    JobRules,
    manifest,
    own_run,
    status_of,
)
from pop_stream.puller.executors.payloads import amount
from pop_stream.puller.executors.port import (
    ExecutorUnavailableError,
    OwnRun,
    RunIdentity,
    RunStatus,
    tail_of,
)
from pop_stream.puller.handlers.errors import FinalError, RetryableError

if TYPE_CHECKING:
    import aiohttp

_REQUEST_S: Final = 20.0
_PAGE: Final = 500
_LOG_LINES: Final = 200
_LOG_REQUEST_BYTES: Final = 1024 * 1024


class KubernetesExecutor(HttpExecutor):
    """Runs operations as Jobs, by `rules`.

    The service account needs, in the namespace: `create`, `get`, `list` and `delete` on
    `jobs.batch`, `list` on `pods`, `get` on `pods/log`; for `capacity`, `list` on `nodes`.

    Args:
        rules: What payloads may have, and what every Job gets.
        access: How the cluster is reached; else the cluster that this process is in, else the
            kubeconfig's.
        namespace: Else that of the access, else `default`.
        installation: Of several that share a namespace, each has a name of its own; letters,
            digits and dashes, at most 12.
    """

    kind = "kubernetes"

    def __init__(
        self,
        rules: JobRules,
        access: ClusterAccess | None = None,
        *,
        namespace: str = "",
        installation: str = "pop",
    ) -> None:
        super().__init__(installation)
        self.rules = rules
        self._access = access
        self._namespace = namespace

    def read(self, payload: object) -> JobPayload:
        """See `JobRules.read`."""
        return self.rules.read(payload)

    def size(self, spec: JobPayload) -> float:
        """See `JobRules.size`."""
        return self.rules.size(spec)

    async def submit(self, identity: RunIdentity, spec: JobPayload) -> None:
        """Create the Job; 409 says that it is there already.

        Raises:
            FinalError: If the API server finds it invalid.
            RetryableError: If it forbids it.
            ExecutorUnavailableError: If it does not answer, or a quota is used up.
        """
        job = manifest(self.name(identity), identity, spec, self.rules, self._installation)
        status, answer = await self._call("POST", self._jobs, json=job)
        if status in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}:
            msg = f"kubernetes refuses the Job: {message_of(answer)}"
            raise FinalError(msg)
        if status != HTTPStatus.CONFLICT:
            self._expect(status, answer, "create on jobs.batch")

    async def status(self, name: str) -> RunStatus | None:
        """How the Job and its pod are."""
        status, job = await self._call("GET", f"{self._jobs}/{name}")
        if status == HTTPStatus.NOT_FOUND:
            return None
        self._expect(status, job, "get on jobs.batch")
        return status_of(job, await self._list(self._pods, f"{NAME}={name}"))

    async def cancel(self, name: str) -> None:
        """Delete the Job once its pod has ended, which is sent SIGTERM first."""
        await self._delete(name, "Foreground")

    async def delete(self, name: str) -> None:
        """Delete the Job, and its pod in the background."""
        await self._delete(name, "Background")

    async def logs_tail(self, name: str) -> str:
        """The end of the pod's log; empty while it has none."""
        pods = await self._list(self._pods, f"{NAME}={name}")
        if not pods:
            return ""
        newest = max(pods, key=lambda one: str(one["metadata"].get("creationTimestamp")))
        query = f"container={CONTAINER}&tailLines={_LOG_LINES}&limitBytes={_LOG_REQUEST_BYTES}"
        path = f"{self._pods}/{newest['metadata']['name']}/log?{query}"
        status, text = await self._call("GET", path, as_text=True)
        if status in {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND}:
            return ""  # it has not started, or is gone
        self._expect(status, text, "get on pods/log")
        return tail_of(text)

    async def list_own(self, key: str | None = None) -> Sequence[OwnRun]:
        """Jobs with this installation's labels."""
        selector = f"{INSTALLATION}={self._installation}"
        if key is not None:
            selector += f",{KEY}={key}"
        jobs = await self._list(self._jobs, selector)
        pods: dict[str, list[Mapping[str, Any]]] = {}
        for pod in await self._list(self._pods, selector):
            pods.setdefault(pod["metadata"]["labels"].get(NAME, ""), []).append(pod)
        found = (own_run(job, pods.get(job["metadata"]["name"], ())) for job in jobs)
        return [one for one in found if one is not None]

    async def capacity(self) -> int | None:
        """How many workers the nodes hold that are ready and take work; 0 with none."""
        selector = ",".join(f"{k}={v}" for k, v in self._node_selector.items())
        nodes = await self._list("/api/v1/nodes", selector)
        return sum(_workers(one, self.rules.worker) for one in nodes if _takes_work(one))

    # ---- requests ----

    @property
    def _node_selector(self) -> Mapping[str, str]:
        return self.rules.pod.get("nodeSelector") or {}

    @property
    def _jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self._space}/jobs"

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self._space}/pods"

    @property
    def _space(self) -> str:
        return self._namespace or self._reached.namespace or "default"

    @property
    def _reached(self) -> ClusterAccess:
        if self._access is None:
            self._access = found_access()
        return self._access

    async def _delete(self, name: str, policy: str) -> None:
        path = f"{self._jobs}/{name}?propagationPolicy={policy}"
        status, answer = await self._call("DELETE", path)
        if status != HTTPStatus.NOT_FOUND:
            self._expect(status, answer, "delete on jobs.batch")

    async def _list(self, path: str, selector: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        more = ""
        while True:
            query = {"labelSelector": selector, "limit": str(_PAGE), "continue": more}
            status, answer = await self._call("GET", path, params=query)
            self._expect(status, answer, f"list on {path.rpartition('/')[2]}")
            found += answer.get("items") or ()
            if not (more := (answer.get("metadata") or {}).get("continue") or ""):
                return found

    async def _call(
        self,
        method: str,
        path: str,
        *,
        as_text: bool = False,
        **more: Any,  # noqa: ANN401
    ) -> tuple[int, Any]:
        """Status and content of an answer; asked once more with another token after a 401."""
        import aiohttp  # noqa: PLC0415  # a fifth of the start of a puller, which may not need it

        access = self._reached
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=access.ssl_context or True, limit=32)
            within = aiohttp.ClientTimeout(total=_REQUEST_S)
            self._session = aiohttp.ClientSession(connector=connector, timeout=within)
        status, raw = await self._ask(self._session, method, path, more)
        if status == HTTPStatus.UNAUTHORIZED:
            access.forget_token()
            status, raw = await self._ask(self._session, method, path, more)
        return status, raw.decode(errors="replace") if as_text else decoded(raw)

    async def _ask(
        self, session: "aiohttp.ClientSession", method: str, path: str, more: Mapping[str, Any]
    ) -> tuple[int, bytes]:
        import aiohttp  # noqa: PLC0415

        access = self._reached
        headers = await access.authorization()
        try:
            async with session.request(
                method, f"{access.url}{path}", headers=headers, **more
            ) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            msg = f"kubernetes at {access.url} does not answer ({type(error).__name__})"
            raise ExecutorUnavailableError(msg) from error

    def _expect(self, status: int, answer: object, permission: str) -> None:
        """Check that an answer is one of success.

        Raises:
            ExecutorUnavailableError: If a later request may be.
            RetryableError: If an operator has to do something first.
        """
        if status < HTTPStatus.BAD_REQUEST:
            return
        said = f"kubernetes answers {status}: {message_of(answer)}"
        if status == HTTPStatus.UNAUTHORIZED:
            msg = f"{said}; the puller's credentials are not the cluster's"
            raise RetryableError(msg)
        if status == HTTPStatus.FORBIDDEN and "exceeded quota" not in said:
            msg = f"{said}; the puller needs {permission} in namespace {self._space}"
            raise RetryableError(msg)
        raise ExecutorUnavailableError(said)


def found_access(kubeconfig: Path | None = None) -> ClusterAccess:
    """The cluster that this process is in, else the kubeconfig's.

    Raises:
        RetryableError: If there is neither.
    """
    try:
        return in_cluster()
    except ValueError as neither:
        try:
            return from_kubeconfig(kubeconfig)
        except ValueError as error:
            msg = f"{neither}; {error}"
            raise RetryableError(msg) from None


def _takes_work(node: Mapping[str, Any]) -> bool:
    conditions: Iterable[Mapping[str, Any]] = (node.get("status") or {}).get("conditions") or ()
    is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return is_ready and not (node.get("spec") or {}).get("unschedulable")


def _workers(node: Mapping[str, Any], worker: Mapping[str, str]) -> int:
    has = (node.get("status") or {}).get("allocatable") or {}
    return int(min(amount(has.get(name, "0")) / amount(of) for name, of in worker.items()))
