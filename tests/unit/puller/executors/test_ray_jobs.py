"""Ray jobs, with a stand-in of the cluster's dashboard."""

import asyncio
import json
import shlex
from datetime import UTC, datetime, timedelta

import pytest
from deadlines import within
from executor_contract import a_call
from fakes import ManualClock
from ray_double import BEGIN_MS, RayDouble

from pop_stream.puller.executors.handler import ExecutorHandler, RunLimits
from pop_stream.puller.executors.port import ExecutorUnavailableError, RunIdentity
from pop_stream.puller.executors.ray_jobs import RayExecutor, RayRules
from pop_stream.puller.handlers.errors import FinalError, RetryableError

IDENTITY = RunIdentity("a1", "render", 1)
RULES = RayRules(
    commands=["python -m acme.render", "render"],
    functions=["acme.tasks:*"],
    variables=["A", "RENDER_*"],
    most={"cpu": "8", "gpu": "2", "memory": "8Gi", "fast_disk": "1"},
    runtime_env={"working_dir": "s3://acme/work.zip", "env_vars": {"A": "operator", "B": "b"}},
)


@pytest.fixture
def double():
    return RayDouble()


@pytest.fixture
def clock():
    return ManualClock(datetime.fromtimestamp(BEGIN_MS / 1000, UTC))


@pytest.fixture
async def executor(double, clock):
    async with double.server() as server:
        made = RayExecutor(RULES, f"http://127.0.0.1:{server.port}", clock=clock)
        yield made
        await made.close()


def body(**payload):
    return RULES.body("pop-1", IDENTITY, RULES.read(payload), "pop")


def test_a_command_is_the_jobs_entry_point_quoted():
    command = ["python", "-m", "acme.render", "--scene", "a b; rm -rf /"]
    made = body(command=command, resources={"cpu": "2", "gpu": "1", "memory": "1Gi"})
    _, _, program = made["entrypoint"].partition("; ")
    assert shlex.split(program) == command
    assert made["submission_id"] == "pop-1"
    asked = {key: made[key] for key in made if key.startswith("entrypoint_")}
    assert asked == {
        "entrypoint_num_cpus": 2.0,
        "entrypoint_num_gpus": 1.0,
        "entrypoint_memory": 2**30,
    }


def test_a_function_is_called_as_a_task_with_its_resources():
    made = body(function="acme.tasks:render", input={"n": 1}, resources={"fast_disk": "1"})
    assert [one for one in made if one.startswith("entrypoint_")] == []
    variables = made["runtime_env"]["env_vars"]
    assert variables["AGENDA_FUNCTION"] == "acme.tasks:render"
    assert json.loads(variables["AGENDA_INPUT"]) == {"n": 1}
    options = json.loads(variables["AGENDA_RAY_OPTIONS"])
    assert options == {"num_cpus": 1.0, "resources": {"fast_disk": 1.0}}
    assert made["runtime_env"]["working_dir"] == "s3://acme/work.zip"


def test_a_payload_adds_variables_to_the_operators():
    made = body(command=["render"], env={"A": "payload", "RENDER_SCENE": "7"})
    variables = made["runtime_env"]["env_vars"]
    assert (variables["A"], variables["B"], variables["AGENDA_ID"]) == ("operator", "b", "a1")
    assert variables["RENDER_SCENE"] == "7"


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        ({}, "give one of the two"),
        ({"command": ["render"], "function": "acme.tasks:x"}, "give one of the two"),
        ({"command": ["rm", "render"]}, "may not be run here; allowed: python -m acme.render"),
        ({"command": ["python", "-m", "os"]}, "may not be run here"),
        ({"function": "os:system"}, "may not be called here; allowed: acme.tasks"),
        ({"command": ["render"], "resources": {"cpu": "9"}}, "a run has at most 8 here"),
        ({"command": ["render"], "env": {"PYTHONPATH": "x"}}, "env.PYTHONPATH: may not be set"),
        ({"function": "acme.tasks:x", "env": {"LD_PRELOAD": "x"}}, "allowed: A, RENDER_"),
        ({"command": ["render"], "resources": {"tpu": "1"}}, "is not to be had here"),
    ],
)
def test_a_payload_gets_what_the_operator_allows(payload, says):
    with pytest.raises(FinalError, match=says):
        RULES.read(payload)


async def test_a_job_that_ray_refuses_fails_for_good(double, executor):
    double.refusal = (400, "TypeError: metadata values must be strings")
    with pytest.raises(FinalError, match="ray refuses the job: TypeError: metadata values"):
        await executor.submit(IDENTITY, executor.read({"command": ["render"]}))


async def test_a_cluster_that_has_no_agent_yet_is_asked_again(double, executor):
    double.refusal = (
        500,
        "Exception: No available agent to submit job, please try again later.",
    )
    with pytest.raises(ExecutorUnavailableError, match="No available agent"):
        await executor.submit(IDENTITY, executor.read({"command": ["render"]}))


async def test_what_a_job_waited_for_its_start_is_not_charged(executor):
    made = a_call({"command": ["render", "succeed"], "resources": {"cpu": "4"}})
    result = await ExecutorHandler(executor, RunLimits(poll_s=0.01))(made.call)
    assert result["seconds"] > 0
    assert made.charged[-1] == pytest.approx(4 * result["seconds"], rel=0.01)
    status = await executor.status(result["run"])
    assert status.started_at > datetime.fromtimestamp(BEGIN_MS / 1000, UTC)


async def test_a_cluster_that_lost_its_jobs_is_a_reason_to_try_again(double, executor):
    made = a_call({"command": ["render", "forever"]})
    task = asyncio.create_task(ExecutorHandler(executor, RunLimits(poll_s=0.01))(made.call))
    async with within(10):
        while not any(  # noqa: ASYNC110  # reports have no event
            text.startswith("running") for _, text in made.reports
        ):
            await asyncio.sleep(0.001)
        double.jobs.clear()
        with pytest.raises(RetryableError, match="is gone"):
            await task


async def test_a_job_that_runs_for_too_long_is_stopped_by_who_looks(double, clock, executor):
    payload = {"command": ["render", "forever"], "max_seconds": 10}
    await executor.submit(IDENTITY, executor.read(payload))
    name = executor.name(IDENTITY)
    assert (await executor.status(name)).state == "pending"
    assert (await executor.status(name)).state == "running"
    clock.move(timedelta(minutes=1))
    double._now_ms += 60_000
    await executor.status(name)
    status = await executor.status(name)
    assert (status.state, status.reason, status.is_retryable) == (
        "failed",
        "DeadlineExceeded",
        False,
    )


async def test_a_cluster_that_is_away_may_come_back():
    executor = RayExecutor(RULES, "http://127.0.0.1:1")
    with pytest.raises(ExecutorUnavailableError, match="does not answer"):
        await executor.status("pop-1")
    await executor.close()


async def test_capacity_is_what_living_nodes_hold(executor):
    assert await executor.capacity() == 4
