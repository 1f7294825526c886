"""The executor of Ray jobs, held to the contract by a real cluster of one node."""

import secrets
import tempfile
from dataclasses import dataclass
from typing import Any

import pytest
from deadlines import within
from executor_contract import TESTS, WITHIN_S, a_call
from ray_cluster import ray_cluster

from pop_stream.puller.executors.handler import ExecutorHandler, RunLimits
from pop_stream.puller.executors.ray_jobs import RayExecutor, RayRules
from pop_stream.puller.handlers.errors import FinalError, RetryableError

globals().update(TESTS)

pytestmark = pytest.mark.timeout(600)

DOES = {
    "succeed": "echo succeeds; echo '{\"frames\": 120}'",
    "fail": "echo fails; exit 3",
    "forever": "echo begins; sleep 600",
}

MODULE = """
import os

def double(given):
    return {"doubled": [2 * one for one in given], "in": os.environ["RAY_JOB_ID"]}

def break_down(given):
    raise ValueError("no such scene")
"""

RULES = RayRules(commands=["sh -c"], functions=["farm_tasks:*"], resources={"cpu": "500m"})


@dataclass
class World:
    executor: Any

    def payload(self, does):
        return {"command": ["sh", "-c", DOES.get(does, does)]}


@pytest.fixture(scope="module")
async def cluster(tmp_path_factory):
    modules = tmp_path_factory.mktemp("modules")
    (modules / "farm_tasks.py").write_text(MODULE)
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:
        async with ray_cluster(folder, modules) as url:
            yield url


@pytest.fixture
async def world(cluster):
    # Ray takes no job by the id of one that was deleted a moment ago.
    executor = RayExecutor(RULES, cluster, installation=f"t{secrets.token_hex(3)}")
    yield World(executor)
    for run in await executor.list_own():
        await executor.delete(run.name)
    await executor.close()


async def handled(world, payload):
    made = a_call(payload)
    async with within(WITHIN_S):
        result = await ExecutorHandler(world.executor, RunLimits(poll_s=0.5))(made.call)
    return result, made


async def test_a_function_runs_as_a_task_and_its_value_is_the_result(world):
    payload = {"function": "farm_tasks:double", "input": [1, 2], "resources": {"cpu": "2"}}
    result, made = await handled(world, payload)
    assert result["result"]["doubled"] == [2, 4]
    assert made.charged[-1] == pytest.approx(2 * result["seconds"], rel=0.01)


async def test_what_a_function_raises_is_in_the_reason(world):
    with pytest.raises(RetryableError, match="exit code 1; its log ends: ValueError: no such"):
        await handled(world, {"function": "farm_tasks:break_down"})
    (run,) = await world.executor.list_own()
    assert "ValueError: no such scene" in await world.executor.logs_tail(run.name)


async def test_a_job_that_runs_for_too_long_is_stopped(world):
    with pytest.raises(FinalError, match="DeadlineExceeded"):
        await handled(world, {**world.payload("forever"), "max_seconds": 1})
