"""What every executor has to do: one in memory, and those with a stand-in of their server."""

from dataclasses import dataclass
from typing import Any

import pytest
from engine_double import EngineDouble
from executor_contract import TESTS
from kubernetes_double import KubernetesDouble
from memory_executor import MemoryExecutor
from ray_double import RayDouble

from pop_stream.puller.executors.containers import ContainerExecutor, ContainerRules
from pop_stream.puller.executors.kubernetes import ClusterAccess, JobRules, KubernetesExecutor
from pop_stream.puller.executors.ray_jobs import RayExecutor, RayRules

globals().update(TESTS)


@dataclass
class World:
    executor: Any
    payload: Any


@pytest.fixture
async def memory():
    def payload(does):
        return {"does": does, "output": '{"frames": 120}'}

    return World(MemoryExecutor(), payload)


@pytest.fixture
async def kubernetes():
    def payload(does):
        return {"image": "acme/render:1", "args": [does, '{"frames": 120}']}

    double = KubernetesDouble()
    double.nodes = [node("n1")]
    async with double.server() as server:
        access = ClusterAccess(
            str(server.make_url("")).rstrip("/"),
            namespace="farm",
            headers={"Authorization": "Bearer secret"},
        )
        executor = KubernetesExecutor(JobRules(images=["acme/*"]), access)
        yield World(executor, payload)
        await executor.close()


def node(name, **spec):
    ready = {"type": "Ready", "status": "True"}
    status = {"conditions": [ready], "allocatable": {"cpu": "7910m", "memory": "32Gi"}}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


@pytest.fixture
async def containers(tmp_path):
    def payload(does):
        return {"image": "acme/render:1", "args": [does]}

    double, socket = EngineDouble(), tmp_path / "engine.sock"
    async with double.serving(socket):
        executor = ContainerExecutor(ContainerRules(images=["acme/*"]), socket)
        yield World(executor, payload)
        await executor.close()


@pytest.fixture
async def ray():
    def payload(does):
        return {"command": ["render", does]}

    async with RayDouble().server() as server:
        url = f"http://127.0.0.1:{server.port}/"
        executor = RayExecutor(RayRules(commands=["render"]), url)
        yield World(executor, payload)
        await executor.close()


@pytest.fixture(params=["memory", "kubernetes", "containers", "ray"])
def world(request):
    return request.getfixturevalue(request.param)
