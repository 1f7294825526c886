"""What a Job looks like, and what a Job and its pod say of a run."""

from copy import deepcopy

import pytest
from kubernetes_double import KubernetesDouble, stamp

from pop_stream.puller.executors.kubernetes.jobs import (
    QUEUE,
    JobRules,
    manifest,
    own_run,
    status_of,
)
from pop_stream.puller.executors.payloads import amount, size_of
from pop_stream.puller.executors.port import RunIdentity
from pop_stream.puller.handlers.errors import FinalError

RULES = JobRules(images=["acme/*", "missing/*"], queues=["farm"])
IDENTITY = RunIdentity("a1@acme", "render frames", 2, 1, "acme", "farm")


def job_of(payload=None, rules=RULES):
    spec = rules.read({"image": "acme/render:1", **(payload or {})})
    return manifest("pop-1", IDENTITY, spec, rules, "pop")


class Cluster(KubernetesDouble):
    """A cluster with one Job."""

    def __init__(self, *args, image="acme/render:1", suspend=False):
        super().__init__()
        rules = RULES if suspend else JobRules(images=["*"])
        job = job_of({"image": image, "args": [*args]}, rules)
        job["metadata"]["creationTimestamp"] = stamp(0)
        self.jobs["pop-1"] = job
        job["status"] = {}

    @property
    def status(self):
        return status_of(self.jobs["pop-1"], [*self.pods.values()])

    @property
    def pod(self):
        return self.pods["pop-1-x1"]

    def steps(self, count):
        for _ in range(count):
            self.step()
        return self


def test_a_job_runs_one_pod_once_and_is_cleaned_up_by_the_cluster():
    job = job_of({"args": ["x"], "env": {"A": "b"}, "input": {"n": 1}, "max_seconds": 60})
    spec = job["spec"]
    assert (spec["backoffLimit"], spec["parallelism"], spec["completions"]) == (0, 1, 1)
    assert (spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (60, 86_400)
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    environment = {one["name"]: one["value"] for one in container["env"]}
    assert environment == {
        "A": "b",
        "AGENDA_ID": "a1@acme",
        "AGENDA_OPERATION": "render frames",
        "AGENDA_ATTEMPT": "2",
        "AGENDA_CUSTOMER_ID": "acme",
        "AGENDA_INPUT": '{"n": 1}',
    }


def test_a_job_in_a_queue_is_created_suspended():
    job = job_of()
    assert job["metadata"]["labels"][QUEUE] == "farm"
    assert job["spec"]["suspend"] is True
    no_queue = job_of(rules=JobRules(images=["*"]))
    assert QUEUE not in no_queue["metadata"]["labels"]
    assert "suspend" not in no_queue["spec"]


def test_the_operators_pod_cannot_be_changed_by_a_payload():
    rules = JobRules(
        images=["*"], pod={"serviceAccountName": "farm", "nodeSelector": {"a": "b"}}
    )
    pod = job_of(rules=rules)["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["nodeSelector"]) == ("farm", {"a": "b"})


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (
            {"image": "evil/x"},
            r"payload.image = 'evil/x': may not be run here; allowed: acme/\*",
        ),
        ({"queue": "mine"}, "payload.queue = 'mine'"),
        ({"resources": {"cpu": "9"}}, "payload.resources.cpu = '9': a run has at most 8 here"),
        ({"limits": {"memory": "1Ti"}}, "payload.limits.memory = '1Ti'"),
        ({"resources": {"nvidia.com/gpu": "1"}}, "is not to be had here; known: cpu, memory"),
        ({"resources": {"cpu": "a lot"}}, "payload.resources.cpu = 'a lot'"),
        ({"max_seconds": 90_000}, "payload.max_seconds = 90000: at most 86400 here"),
        ({"serviceAccountName": "root"}, "payload.serviceAccountName"),
        ({"env": {"A=B": "x"}}, "payload.env"),
    ],
)
def test_a_payload_gets_what_the_operator_allows(payload, says):
    with pytest.raises(FinalError, match=says):
        job_of(payload)


@pytest.mark.parametrize(
    ("resources", "limits", "size"),
    [
        ({}, {}, 0.5),
        ({"cpu": "2"}, {}, 2.0),
        ({"cpu": "2", "memory": "16Gi"}, {}, 4.0),
        ({"cpu": "100m", "memory": "1Gi"}, {"cpu": "4"}, 4.0),
        ({}, {"memory": "8Gi"}, 2.0),
        ({"cpu": "1m", "memory": "1Mi"}, {}, 0.5),
        ({"cpu": "1m", "memory": "1Mi"}, {"cpu": "10m", "memory": "40Mi"}, 0.01),
    ],
)
def test_a_runs_size_follows_from_what_it_may_take(resources, limits, size):
    job = RULES.read({"image": "acme/x", "resources": resources, "limits": limits})
    assert RULES.size(job) == size


def test_quantities_are_read_as_kubernetes_writes_them():
    assert [amount(one) for one in ("500m", "2", "1.5", "1Ki", "3M")] == [
        0.5,
        2,
        1.5,
        1024,
        3e6,
    ]
    with pytest.raises(ValueError, match="write a quantity"):
        amount("two")
    assert size_of({"unknown": "5"}, {"cpu": "1"}) == 0.001


def test_a_job_is_queued_until_kueue_lets_it_go():
    cluster = Cluster(suspend=True)
    assert (cluster.status.state, cluster.status.message) == ("queued", "waits in queue farm")
    cluster.jobs["pop-1"]["spec"]["suspend"] = False
    assert cluster.steps(2).status.state == "running"


def test_a_run_that_succeeds_has_its_programs_times_and_message():
    cluster = Cluster("succeed", '{"a": 1}')
    assert cluster.status.state == "pending"
    assert cluster.steps(1).status.state == "pending"
    running = cluster.steps(1).status
    assert (running.state, running.message) == ("running", "on node-1")
    ended = cluster.steps(1).status
    assert (ended.state, ended.output, ended.exit_code) == ("succeeded", '{"a": 1}', 0)
    assert (ended.ended_at - ended.started_at).total_seconds() == 1


def test_an_image_that_does_not_exist_is_stuck_and_not_failed():
    status = Cluster(image="missing/x").steps(2).status
    assert (status.state, status.reason, status.is_stuck) == (
        "pending",
        "ImagePullBackOff",
        True,
    )
    assert "missing/x" in status.message


def test_a_pod_that_fits_on_no_node_says_so():
    cluster = Cluster("forever").steps(1)
    cluster.pod["status"]["conditions"] = [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient cpu.",
        }
    ]
    assert cluster.status.state == "pending"
    assert not cluster.status.is_stuck
    assert "Insufficient cpu" in cluster.status.message


def test_an_evicted_pod_may_be_tried_again():
    cluster = Cluster("forever").steps(2)
    cluster.evict("pop-1")
    status = cluster.status
    assert (status.state, status.reason, status.is_retryable) == ("failed", "Evicted", True)
    assert "low on resource" in status.message


def test_a_preempted_pod_says_by_what():
    cluster = Cluster("forever").steps(2)
    cluster.end(cluster.jobs["pop-1"], cluster.pod, 137, "Error")
    cluster.pod["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    ]
    assert cluster.status.reason == "PreemptionByScheduler"
    assert cluster.status.is_retryable


def test_a_program_that_took_too_much_memory_learns_its_limit():
    cluster = Cluster("forever").steps(2)
    cluster.pod["spec"] = deepcopy(cluster.pod["spec"])
    cluster.pod["spec"]["containers"][0]["resources"]["limits"] = {"memory": "512Mi"}
    cluster.end(cluster.jobs["pop-1"], cluster.pod, 137, "OOMKilled")
    status = cluster.status
    assert (status.state, status.reason, status.exit_code) == ("failed", "OOMKilled", 137)
    assert "its limit was 512Mi" in status.message


def test_a_job_that_took_too_long_is_not_tried_again():
    cluster = Cluster("forever").steps(2)
    cluster.conclude(cluster.jobs["pop-1"], failed=True, reason="DeadlineExceeded")
    assert (cluster.status.reason, cluster.status.is_retryable) == ("DeadlineExceeded", False)


def test_a_pod_that_never_started_has_no_start():
    cluster = Cluster("forever").steps(1)
    cluster.conclude(cluster.jobs["pop-1"], failed=True)
    assert cluster.status.started_at is None


def test_a_job_that_is_being_deleted_has_failed():
    cluster = Cluster("forever").steps(2)
    cluster.jobs["pop-1"]["metadata"]["deletionTimestamp"] = stamp(9)
    assert (cluster.status.state, cluster.status.reason) == ("failed", "Cancelled")


def test_a_job_of_somebody_else_is_not_ours():
    cluster = Cluster("forever")
    found = own_run(cluster.jobs["pop-1"], [])
    assert (found.identity, found.name) == (IDENTITY, "pop-1")
    del cluster.jobs["pop-1"]["metadata"]["annotations"]
    assert own_run(cluster.jobs["pop-1"], []) is None
