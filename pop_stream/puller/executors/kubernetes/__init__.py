"""Runs as Kubernetes Jobs: one Job with one pod for each try of an operation.

`jobs` says what a Job looks like and reads what a cluster says of it; `access` knows how a
cluster is reached; `executor` asks it. Six requests are all there is, so they are made with
aiohttp, which is here already: a generated client of the whole API would be the larger part
of a puller's memory and start.

A Job's pod is not tried again by the cluster (`backoffLimit` 0): how often an operation is
tried is the agenda's business. Its result is what its container writes to
`/dev/termination-log`, up to 4 KiB, else the last line of its log. It ends in one of these
ways:

- its program ended well or badly, or took more memory than it may (`OOMKilled`);
- the cluster took it away (`Evicted`, a drained node, a preemption): that is tried again;
- it took too long (`DeadlineExceeded`), by the cluster's clock, also while no puller watches;
- it could not start (`ImagePullBackOff` and its like), which the handler waits for in vain for
  a bounded time;
- somebody deleted it.

With a queue, the Job is created suspended, and Kueue lets it go. The cluster deletes Jobs some
time after their end (`ttlSecondsAfterFinished`).
"""

from pop_stream.puller.executors.kubernetes.access import (
    ClusterAccess,
    from_kubeconfig,
    in_cluster,
)
from pop_stream.puller.executors.kubernetes.executor import KubernetesExecutor
from pop_stream.puller.executors.kubernetes.jobs import JobPayload, JobRules

__all__ = [
    "ClusterAccess",
    "JobPayload",
    "JobRules",
    "KubernetesExecutor",
    "from_kubeconfig",
    "in_cluster",
]
