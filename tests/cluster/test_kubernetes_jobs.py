"""The executor of Jobs, held to the contract by a real API server and its Job controller."""

import asyncio
import secrets
from dataclasses import dataclass
from typing import Any

import pytest
from deadlines import within
from executor_contract import TESTS, WITHIN_S, a_call, status_when, submitted, until
from job_puller import job_puller
from kubernetes_server import PULLER
from puller_world import agenda, open_world, progress, with_api, work

from pop_stream.kafka.topics import Topics
from pop_stream.model.events.lifecycle import (
    AgendaHeartbeat,
    AgendaProgressed,
    AgendaSucceeded,
)
from pop_stream.puller.executors.handler import ExecutorHandler, RunLimits
from pop_stream.puller.executors.kubernetes import (
    JobRules,
    KubernetesExecutor,
    from_kubeconfig,
)
from pop_stream.puller.executors.port import RunIdentity
from pop_stream.puller.handlers.errors import FinalError, RetryableError

globals().update(TESTS)

pytestmark = pytest.mark.timeout(600)

RULES = [
    {
        "apiGroups": ["batch"],
        "resources": ["jobs"],
        "verbs": ["create", "get", "list", "delete"],
    },
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
]
"""What the documentation says that a puller's account needs."""

NODES = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@dataclass
class World:
    executor: Any
    cluster: Any
    node: Any
    namespace: str

    def payload(self, does):
        return {"image": "acme/render:1", "args": [does, '{"frames": 120}']}

    def another(self, *, namespace="", **rules):
        """The executor of a puller that was started anew."""
        access = from_kubeconfig(self.cluster.kubeconfig(PULLER, self.namespace))
        made = JobRules(images=["*"], grace_s=1, **rules)
        return KubernetesExecutor(made, access, namespace=namespace)

    async def pod(self, name):
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        query = {"labelSelector": f"pop-stream/name={name}"}
        (found,) = (await self.cluster.ask("GET", path, params=query))["items"]
        return found["metadata"]["name"]


@pytest.fixture
async def world(cluster, cluster_node):
    namespace = f"farm-{secrets.token_hex(4)}"
    space = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    await cluster.ask("POST", "/api/v1/namespaces", json={"metadata": {"name": namespace}})
    await cluster.ask(
        "POST", f"{space}/roles", json={"metadata": {"name": "puller"}, "rules": RULES}
    )
    await cluster.ask("POST", f"{space}/rolebindings", json=binding("Role", "puller"))
    await cluster.ask(
        "POST", f"{RBAC}/clusterroles", json={"metadata": {"name": namespace}, "rules": NODES}
    )
    await cluster.ask(
        "POST", f"{RBAC}/clusterrolebindings", json=binding("ClusterRole", namespace)
    )
    await has_account(cluster, namespace)
    made = World(None, cluster, cluster_node, namespace)
    made.executor = made.another()
    yield made
    for run in await made.executor.list_own():
        await made.executor.delete(run.name)
    await made.executor.close()


async def has_account(cluster, namespace):
    """Pods are refused until a controller has made the namespace's account."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await until(lambda: cluster.ask("GET", path), lambda found: found["items"])


def binding(kind, name):
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": kind, "name": name},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": "pullers"}],
    }


async def refusal(world, made):
    """What the handler raises for a run."""
    handler = ExecutorHandler(world.executor, RunLimits(poll_s=0.2, stuck_s=2))
    with pytest.raises(RetryableError) as raised:
        async with within(WITHIN_S):
            await handler(made.call)
    return str(raised.value)


def reports_of(made):
    async def ask():
        return made.reports

    return ask


async def test_a_run_whose_image_does_not_exist_is_reaped_with_the_reason(world):
    made = a_call({**world.payload("forever"), "image": "missing/render:1"})
    said = await refusal(world, made)
    assert "ImagePullBackOff" in said
    assert "missing/render:1" in said
    await until(world.executor.list_own, lambda found: not found)


async def test_a_run_that_was_evicted_is_tried_again(world):
    name, _ = await submitted(world, "forever")
    await status_when(world, name, "running")
    await world.node.evict(world.namespace, await world.pod(name))
    status = await status_when(world, name, "failed")
    assert (status.reason, status.is_retryable) == ("Evicted", True)
    assert "memory" in status.message


async def test_a_job_that_somebody_deletes_ends_its_operation(world):
    made = a_call(world.payload("forever"))
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(refusal(world, made))
        await until(reports_of(made), lambda found: any("running" in one for _, one in found))
        ((run,)) = await world.executor.list_own()
        await world.executor.delete(run.name)
    assert run.name in waiting.result()


async def test_a_job_that_runs_for_too_long_is_ended_by_the_cluster(world):
    executor, identity = world.executor, RunIdentity("a1", "render", 1)
    name = executor.name(identity)
    payload = {**world.payload("forever"), "max_seconds": 1}
    await executor.submit(identity, executor.read(payload))
    status = await status_when(world, name, "failed")
    assert (status.reason, status.is_retryable) == ("DeadlineExceeded", False)


async def test_a_puller_that_was_started_anew_finds_its_run(world):
    name, identity = await submitted(world, "forever")
    await status_when(world, name, "running")
    other = world.another()
    try:
        (found,) = await other.list_own(identity.key)
        assert (found.name, found.identity, found.status.state) == (name, identity, "running")
    finally:
        await other.close()


async def test_a_job_that_the_server_finds_invalid_says_which_field(world):
    payload = {**world.payload("succeed"), "resources": {"cpu": "2"}, "limits": {"cpu": "1"}}
    with pytest.raises(FinalError, match=r"resources\.requests"):
        await world.executor.submit(
            RunIdentity("a1", "render", 1), world.executor.read(payload)
        )


async def test_the_server_says_what_it_forbids(world):
    executor = world.another(namespace="kube-system")
    with pytest.raises(RetryableError, match="list on jobs"):
        await executor.list_own()
    await executor.close()


async def test_a_run_in_a_queue_waits_until_it_is_let_go(world):
    executor = world.another(queues=["q"])
    identity = RunIdentity("a1", "render", 1)
    await executor.submit(identity, executor.read(world.payload("succeed")))
    name = executor.name(identity)
    await until(lambda: executor.status(name), lambda one: one.state == "queued")
    path = f"/apis/batch/v1/namespaces/{world.namespace}/jobs/{name}"
    await world.cluster.ask(
        "PATCH",
        path,
        data='{"spec": {"suspend": false}}',
        headers={"Content-Type": "application/merge-patch+json"},
    )
    await status_when(world, name, "succeeded")
    await executor.close()


async def test_a_puller_that_was_killed_leaves_a_job_that_the_next_attempt_goes_on_with(
    world, settings
):
    access = world.cluster.kubeconfig(PULLER, world.namespace)
    does = work("render", "job", payload=world.payload("forever"))
    topic = Topics(settings.topic_prefix).controls
    async with (
        open_world(settings, topic) as events,
        with_api(settings, (200, progress(2))) as (reached, _),
    ):
        await events.create()
        await events.emit(agenda("a1", does, lease_ms=3_000))
        async with job_puller(reached, access):
            await status_when_found(world, "running")
            await events.until(lambda: events.of(AgendaHeartbeat))
        (run,) = await world.executor.list_own()
        await events.emit(agenda("a1", does, attempt=2, run_from=1))
        async with job_puller(reached, access):
            await events.until(lambda: is_running(events, 2))
            await world.node.finish(world.namespace, await world.pod(run.name), "[7]")
            await events.until(lambda: events.of(AgendaSucceeded))
    (ended,) = events.of(AgendaSucceeded)
    assert ended.attempt == 2
    (operation,) = ended.operations
    assert run.name in bytes(operation.result).decode()
    assert b'"result":[7]' in bytes(operation.result)
    assert [one.name for one in await world.executor.list_own()] == [run.name]


async def status_when_found(world, state):
    await until(
        world.executor.list_own, lambda found: [one.status.state for one in found] == [state]
    )


def is_running(events, attempt):
    return any(
        event.attempt == attempt and one.message.startswith("running")
        for event in events.of(AgendaProgressed)
        for one in event.operations
    )
