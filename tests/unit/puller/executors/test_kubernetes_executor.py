"""Requests of the API server, with a stand-in of it; and how a cluster is reached."""

import base64
import json
import sys

import pytest
from executor_contract import a_call
from kubernetes_double import KubernetesDouble

from pop_stream.puller.executors.handler import ExecutorHandler, RunLimits
from pop_stream.puller.executors.kubernetes import (
    ClusterAccess,
    JobRules,
    KubernetesExecutor,
    from_kubeconfig,
    in_cluster,
)
from pop_stream.puller.executors.kubernetes import executor as executor_module
from pop_stream.puller.executors.port import ExecutorUnavailableError, RunIdentity
from pop_stream.puller.handlers.errors import FinalError, RetryableError

IDENTITY = RunIdentity("a1", "render", 1)
PRINTS = "import os, json; print(json.dumps({'status': {'token': os.environ['T']}}))"
PAYLOAD = {"image": "acme/render:1", "args": ["forever"]}


@pytest.fixture
async def double():
    return KubernetesDouble()


@pytest.fixture
async def executor(double):
    async with double.server() as server:
        headers = {"Authorization": f"Bearer {double.token}"}
        access = ClusterAccess(f"http://127.0.0.1:{server.port}", "farm", headers=headers)
        made = KubernetesExecutor(JobRules(images=["*"]), access)
        yield made
        await made.close()


async def submit(executor, identity=IDENTITY):
    await executor.submit(identity, executor.read(PAYLOAD))


@pytest.mark.parametrize(
    ("refusal", "error", "says"),
    [
        (
            (422, "Invalid", "spec.template: Required"),
            FinalError,
            "refuses the Job: spec.templ",
        ),
        ((403, "Forbidden", "cannot create"), RetryableError, "needs create on jobs.batch"),
        ((403, "Forbidden", "exceeded quota: q"), ExecutorUnavailableError, "exceeded quota"),
        ((429, "TooManyRequests", "slow"), ExecutorUnavailableError, "answers 429: slow"),
        ((500, "InternalError", "etcd"), ExecutorUnavailableError, "answers 500: etcd"),
        ((401, "Unauthorized", "who"), RetryableError, "credentials"),
    ],
)
async def test_a_refusal_says_who_has_to_do_what(double, executor, refusal, error, says):
    double.refuses["POST"] = refusal
    with pytest.raises(error, match=says):
        await submit(executor)


async def test_a_cluster_that_is_away_may_come_back():
    executor = KubernetesExecutor(JobRules(images=["*"]), ClusterAccess("http://127.0.0.1:1"))
    with pytest.raises(ExecutorUnavailableError, match="does not answer"):
        await executor.status("pop-1")
    await executor.close()


async def test_lists_of_many_jobs_come_in_pages(executor, monkeypatch):
    monkeypatch.setattr(executor_module, "_PAGE", 2)
    for attempt in range(1, 6):
        await submit(executor, RunIdentity("a1", "render", attempt))
    found = await executor.list_own()
    assert sorted(one.identity.attempt for one in found) == [1, 2, 3, 4, 5]


async def test_two_installations_in_one_namespace_do_not_see_each_other(double, executor):
    other = KubernetesExecutor(executor.rules, executor._access, installation="other")
    await submit(executor)
    assert await other.list_own() == []
    await submit(other)
    assert len(double.jobs) == 2
    await other.close()


async def test_capacity_is_what_ready_nodes_hold_of_workers(double, executor):
    def node(ready="True", cpu="3920m", **spec):
        conditions = [{"type": "Ready", "status": ready}]
        has = {"cpu": cpu, "memory": "32Gi"}
        return {
            "metadata": {"labels": {}},
            "spec": spec,
            "status": {"conditions": conditions, "allocatable": has},
        }

    double.nodes = [node(), node(cpu="16"), node(ready="False"), node(unschedulable=True)]
    assert await executor.capacity() == 3 + 8


async def test_an_image_that_does_not_exist_ends_the_attempt_with_the_reason(double, executor):
    made = a_call({"image": "missing/render:1"})
    handler = ExecutorHandler(executor, RunLimits(poll_s=0.01, stuck_s=0.0))
    with pytest.raises(RetryableError, match="ImagePullBackOff: Back-off pulling image"):
        await handler(made.call)
    double.step()
    assert double.jobs == {}
    assert made.charged[-1] > 0.0  # it kept its place


async def test_an_evicted_run_says_so_and_may_be_tried_again(double, executor):
    made = a_call(PAYLOAD)
    handler = ExecutorHandler(executor, RunLimits(poll_s=0.01))
    double.on_running = double.evict
    with pytest.raises(RetryableError, match="Evicted: The node was low on resource: memory"):
        await handler(made.call)
    again = a_call({"image": "acme/render:1"}, attempt=2)
    double.on_running = None
    result = await handler(again.call)
    assert result["run"].endswith("-2-1")


# ---- how a cluster is reached ----


def kubeconfig(tmp_path, user, server="http://127.0.0.1:6443", **cluster):
    context = {"cluster": "c", "user": "u", "namespace": "farm"}
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": context}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    file = tmp_path / "config"
    file.write_text(json.dumps(config))  # JSON is YAML
    return file


@pytest.mark.parametrize(
    ("user", "authorization"),
    [
        ({"token": "t"}, "Bearer t"),
        ({"username": "me", "password": "p"}, f"Basic {base64.b64encode(b'me:p').decode()}"),
        ({"tokenFile": "token"}, "Bearer from a file"),
        (
            {
                "exec": {
                    "command": sys.executable,
                    "args": ["-c", PRINTS],
                    "env": [{"name": "T", "value": "printed"}],
                }
            },
            "Bearer printed",
        ),
    ],
    ids=["token", "password", "file", "program"],
)
async def test_a_kubeconfigs_user_is_who_the_executor_is(tmp_path, user, authorization):
    (tmp_path / "token").write_text("from a file\n")
    access = from_kubeconfig(kubeconfig(tmp_path, user))
    assert access.namespace == "farm"
    assert (await access.authorization())["Authorization"] == authorization


async def test_a_program_that_prints_no_token_says_what_it_said(tmp_path):
    program = {
        "command": sys.executable,
        "args": ["-c", "import sys; sys.exit('log in first')"],
    }
    access = from_kubeconfig(kubeconfig(tmp_path, {"exec": program}))
    with pytest.raises(ExecutorUnavailableError, match="log in first"):
        await access.authorization()


def test_a_kubeconfig_without_its_context_says_which_there_are(tmp_path):
    file = kubeconfig(tmp_path, {})
    with pytest.raises(ValueError, match="no 'there' among its contexts: here"):
        from_kubeconfig(file, "there")
    with pytest.raises(ValueError, match="cannot be read"):
        from_kubeconfig(tmp_path / "none")


def test_a_process_that_is_in_no_cluster_says_so(monkeypatch, tmp_path):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ValueError, match="in no Kubernetes cluster"):
        in_cluster(tmp_path)


async def test_a_token_that_was_replaced_is_read_again(double, tmp_path):
    file = tmp_path / "token"
    file.write_text("old")
    async with double.server() as server:
        access = ClusterAccess(f"http://127.0.0.1:{server.port}", "farm", token_file=file)
        executor = KubernetesExecutor(JobRules(images=["*"]), access)
        with pytest.raises(RetryableError, match="credentials"):
            await submit(executor)
        file.write_text(double.token)
        await submit(executor)
        await executor.close()
