"""What a Job looks like, and what a Job and its pods say of a run; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from pop_stream.puller.executors.payloads import (
    WORKER,
    EnvironmentName,
    Resources,
    check_image,
    check_seconds,
    check_within,
    environment,
    size_of,
)
from pop_stream.puller.executors.port import OwnRun, RunIdentity, RunStatus
from pop_stream.puller.handlers.errors import FinalError, read_payload

CONTAINER: Final = "operation"
"""The name of the container that runs the operation."""

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
INSTALLATION: Final = "pop-stream/installation"
KEY: Final = "pop-stream/run"
NAME: Final = "pop-stream/name"
_FACTS: Final = "pop-stream/"
QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""The label by which Kueue knows a Job's queue."""

_STUCK: Final = frozenset(
    {
        "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
        "RegistryUnavailable", "CreateContainerConfigError", "CreateContainerError",
    }
)  # fmt: skip
"""Why a container waits that seldom starts by itself."""

_LOST: Final = frozenset(
    {"Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting", "Preempted"}
)
"""Why a pod failed through no fault of its own."""


class JobPayload(BaseModel):
    """Payload of an operation that a Job runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    image: Annotated[str, StringConstraints(min_length=1, max_length=500)]
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: dict[EnvironmentName, str] = Field(default_factory=dict)
    input: JsonValue = None
    resources: Resources = Field(default_factory=dict)
    limits: Resources = Field(default_factory=dict)
    queue: str | None = None
    max_seconds: Annotated[int, Field(ge=1, le=2_592_000)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRules:
    """What an operator lets payloads have, and what every Job gets.

    Attributes:
        images: Patterns of images that may be run, as `registry.acme/*`.
        queues: Names of Kueue's local queues that may be named; the first one is the default.
        resources: Asked for where a payload asks for none.
        most: The most that one run may ask for; what is not named here cannot be had.
        worker: What counts as one worker; see `payloads.size_of`.
        max_seconds: How long a run may take at most, and takes unless its payload says less.
        grace_s: From SIGTERM to SIGKILL.
        keep_s: How long the cluster keeps a Job that has ended.
        pod: Of the pod's spec, what the operator wants in it: service account, node selector,
            tolerations, pull secrets, security context.
    """

    images: Sequence[str]
    queues: Sequence[str] = ()
    resources: Mapping[str, str] = field(
        default_factory=lambda: {"cpu": "500m", "memory": "512Mi"}
    )
    most: Mapping[str, str] = field(default_factory=lambda: {"cpu": "8", "memory": "32Gi"})
    worker: Mapping[str, str] = field(default_factory=lambda: WORKER)
    max_seconds: int = 86_400
    grace_s: int = 30
    keep_s: int = 86_400
    pod: Mapping[str, Any] = field(default_factory=dict)

    def read(self, payload: object) -> JobPayload:
        """The payload, with this operator's defaults filled in.

        Raises:
            FinalError: With field, value and remedy.
        """
        job = read_payload(JobPayload, payload)
        check_image(job.image, self.images)
        if job.queue is not None and job.queue not in self.queues:
            known = ", ".join(self.queues) or "none"
            msg = f"payload.queue = {job.queue!r}: is not to be had here; known: {known}"
            raise FinalError(msg)
        check_within("resources", job.resources, self.most)
        check_within("limits", job.limits, self.most)
        filled = {
            # What only a limit is named for is asked for as much, as Kubernetes has it.
            "resources": {**self.resources, **job.limits, **job.resources},
            "queue": job.queue or next(iter(self.queues), None),
            "max_seconds": check_seconds(job.max_seconds, self.max_seconds),
        }
        return job.model_copy(update=filled)

    def size(self, job: JobPayload) -> float:
        """How many workers' worth it may take: by the larger of request and limit.

        Of what has no limit it may take more than it asks for, and so counts for as much as
        a run that asks for nothing, at least.
        """
        unlimited = {
            name: quantity
            for name, quantity in self.resources.items()
            if name not in job.limits
        }
        parts = (job.resources, job.limits, unlimited)
        return max(size_of(part, self.worker) for part in parts)


def manifest(
    name: str, identity: RunIdentity, job: JobPayload, rules: JobRules, installation: str
) -> dict[str, Any]:
    """The Job of a run; one pod, which is not tried again."""
    labels = {
        MANAGED_BY: "pop-stream",
        INSTALLATION: installation,
        KEY: identity.key,
        NAME: name,
    }
    facts = identity.labels(_FACTS)
    spec: dict[str, Any] = {
        "backoffLimit": 0,
        "completions": 1,
        "parallelism": 1,
        "activeDeadlineSeconds": job.max_seconds,
        "ttlSecondsAfterFinished": rules.keep_s,
        "template": {
            "metadata": {"labels": labels, "annotations": facts},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": rules.grace_s,
                **rules.pod,
                "containers": [_container(identity, job)],
            },
        },
    }
    queue = {QUEUE: job.queue} if job.queue else {}
    if queue:
        # Kueue lets it go; without that, the cluster would start it at once.
        spec["suspend"] = True
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {**labels, **queue}, "annotations": facts},
        "spec": spec,
    }


def _container(identity: RunIdentity, job: JobPayload) -> dict[str, Any]:
    variables = environment(identity, job.env, job.input)
    return {
        "name": CONTAINER,
        "image": job.image,
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "resources": {"requests": dict(job.resources), "limits": dict(job.limits)},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **({"command": [*job.command]} if job.command else {}),
        **({"args": [*job.args]} if job.args else {}),
    }


# ---- what a cluster says ----


def own_run(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> OwnRun | None:
    """A Job as a run of ours; None if its annotations are not."""
    metadata = job["metadata"]
    identity = RunIdentity.from_labels(metadata.get("annotations") or {}, _FACTS)
    created_at = _instant(metadata.get("creationTimestamp"))
    if identity is None or created_at is None:
        return None
    return OwnRun(metadata["name"], identity, status_of(job, pods), created_at)


def status_of(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> RunStatus:
    """How a run is, by its Job and the pods of it."""
    pod = max(pods, key=lambda one: str(one["metadata"].get("creationTimestamp")), default=None)
    if job["metadata"].get("deletionTimestamp"):
        return RunStatus("failed", "Cancelled", "its Job is being deleted")
    conditions = _true_conditions(job)
    if "Complete" in conditions:
        ended = _terminated(pod)
        return RunStatus(
            "succeeded",
            started_at=_instant(ended.get("startedAt")) or _job_time(job, "startTime"),
            ended_at=_instant(ended.get("finishedAt")) or _job_time(job, "completionTime"),
            exit_code=ended.get("exitCode", 0),
            output=str(ended.get("message") or ""),
        )
    if failed := conditions.get("Failed"):
        return _failed(job, failed, pod)
    if job["spec"].get("suspend"):
        queue = (job["metadata"].get("labels") or {}).get(QUEUE, "")
        return RunStatus("queued", "Suspended", f"waits in queue {queue}" if queue else "")
    return _active(pod)


def _active(pod: Mapping[str, Any] | None) -> RunStatus:
    if pod is None:
        return RunStatus("pending", "", "has no pod yet")
    status = pod.get("status") or {}
    container = _container_state(pod)
    running = container.get("running") or container.get("terminated")
    if status.get("phase") != "Pending" and running:
        node = (pod.get("spec") or {}).get("nodeName", "")
        started_at = _instant(running.get("startedAt"))
        return RunStatus("running", "", f"on {node}" if node else "", started_at=started_at)
    if waiting := container.get("waiting"):
        reason = str(waiting.get("reason") or "")
        text = str(waiting.get("message") or "")
        return RunStatus("pending", reason, text, is_stuck=reason in _STUCK)
    for one in status.get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            text = str(one.get("message") or "")
            return RunStatus("pending", str(one.get("reason") or ""), text)
    return RunStatus("pending", str(status.get("reason") or ""), str(status.get("phase") or ""))


def _failed(
    job: Mapping[str, Any], failed: Mapping[str, Any], pod: Mapping[str, Any] | None
) -> RunStatus:
    ended, status = _terminated(pod), ((pod or {}).get("status") or {})
    why = str(failed.get("reason") or "")
    reason, text = why, str(failed.get("message") or "")
    is_retryable = True
    disrupted = {one.get("type"): one for one in status.get("conditions") or ()}.get(
        "DisruptionTarget"
    )
    if status.get("reason") in _LOST or disrupted:
        of = status if status.get("reason") else disrupted or {}
        reason, text = str(of.get("reason") or "Evicted"), str(of.get("message") or "")
    elif ended.get("reason") == "OOMKilled":
        limit = _limit(pod, "memory")
        had = f"its limit was {limit}; " if limit else ""
        reason, text = (
            "OOMKilled",
            f"it took more memory than it may; {had}raise payload.limits",
        )
    elif why == "DeadlineExceeded":
        text, is_retryable = "it took longer than payload.max_seconds", False
    elif ended:
        code = ended.get("exitCode")
        reason = str(ended.get("reason") or "Error")
        text = f"exit code {code}: {ended.get('message') or 'no message'}".strip()[:1_000]
    return RunStatus(
        "failed",
        reason,
        text,
        is_retryable=is_retryable,
        started_at=_instant(ended.get("startedAt")) or _job_time(job, "startTime", pod),
        ended_at=_instant(ended.get("finishedAt")) or _instant(failed["lastTransitionTime"]),
        exit_code=ended.get("exitCode"),
    )


def _true_conditions(job: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    status = job.get("status") or {}
    return {
        one["type"]: one
        for one in status.get("conditions") or ()
        if one.get("status") == "True"
    }


def _container_state(pod: Mapping[str, Any] | None) -> Mapping[str, Any]:
    statuses = ((pod or {}).get("status") or {}).get("containerStatuses") or ()
    for one in statuses:
        if one.get("name") == CONTAINER:
            return dict(one.get("state") or {})
    return {}


def _terminated(pod: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return _container_state(pod).get("terminated") or {}


def _limit(pod: Mapping[str, Any] | None, name: str) -> str:
    for one in ((pod or {}).get("spec") or {}).get("containers") or ():
        if one.get("name") == CONTAINER:
            return str(((one.get("resources") or {}).get("limits") or {}).get(name, ""))
    return ""


def _job_time(
    job: Mapping[str, Any], name: str, pod: Mapping[str, Any] | None = None
) -> datetime | None:
    """When a Job began or ended, for want of a container's own times.

    Of one whose pod never started its container nothing is known to have run.
    """
    if name == "startTime" and pod is not None and not _container_state(pod):
        return None
    return _instant((job.get("status") or {}).get(name))


def _instant(text: object) -> datetime | None:
    return datetime.fromisoformat(str(text)) if text else None
