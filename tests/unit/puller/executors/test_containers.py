"""Containers, with a stand-in of their engine."""

import pytest
from engine_double import EngineDouble
from executor_contract import a_call
from fakes import ManualClock

from pop_stream.puller.executors.containers import (
    ContainerExecutor,
    ContainerRules,
    engine_socket,
)
from pop_stream.puller.executors.handler import ExecutorHandler, RunLimits
from pop_stream.puller.executors.kubernetes.jobs import JobRules
from pop_stream.puller.executors.port import ExecutorUnavailableError, RunIdentity
from pop_stream.puller.executors.ray_jobs import RayRules
from pop_stream.puller.handlers.errors import FinalError, RetryableError

IDENTITY = RunIdentity("a1", "render", 1)


@pytest.fixture
def double():
    return EngineDouble()


@pytest.fixture
async def executor(double, tmp_path):
    async with double.serving(tmp_path / "engine.sock"):
        rules = ContainerRules(images=["acme/*"])
        made = ContainerExecutor(rules, tmp_path / "engine.sock")
        yield made
        await made.close()


def handle(executor, payload):
    return ExecutorHandler(executor, RunLimits(poll_s=0.01))(a_call(payload).call)


async def test_an_image_that_is_not_there_is_fetched(double, executor):
    double.registry = {"acme/new:2"}
    assert (await handle(executor, {"image": "acme/new:2"}))["exit_code"] == 0


async def test_an_image_that_does_not_exist_says_what_the_registry_said(executor):
    with pytest.raises(RetryableError, match="manifest for acme/none:1 not found"):
        await handle(executor, {"image": "acme/none:1"})


async def test_without_fetching_an_image_has_to_be_there(double, tmp_path, executor):
    made = ContainerExecutor(
        ContainerRules(images=["acme/*"], pull=False), tmp_path / "engine.sock"
    )
    with pytest.raises(RetryableError, match=r"is not there: no such image: acme/none:1"):
        await handle(made, {"image": "acme/none:1"})
    await made.close()


async def test_what_cannot_be_started_is_not_left_behind(double, executor):
    double.start_fault = (400, "exec: /no/such: no such file")
    with pytest.raises(RetryableError, match="cannot be started: exec: /no/such"):
        await handle(executor, {"image": "acme/render:1"})
    assert double.containers == {}


async def test_a_container_that_a_dead_puller_created_is_started(double, executor):
    spec = executor.read({"image": "acme/render:1", "args": ["forever"]})
    await executor.submit(IDENTITY, spec)
    (one,) = double.containers.values()
    one["State"]["Status"] = "created"
    assert (await executor.status(executor.name(IDENTITY))).state == "pending"
    await executor.submit(IDENTITY, spec)
    assert (await executor.status(executor.name(IDENTITY))).state == "running"


async def test_a_container_has_no_more_than_its_operator_allows(double, executor):
    payload = {"image": "acme/render:1", "limits": {"cpu": "250m"}, "env": {"A": "b"}}
    await executor.submit(IDENTITY, executor.read(payload))
    (one,) = double.containers.values()
    host = one["Config"]["HostConfig"]
    assert (host["NanoCpus"], host["Memory"]) == (250_000_000, 512 * 2**20)
    assert (host["CapDrop"], host["SecurityOpt"]) == (["ALL"], ["no-new-privileges"])
    assert "AGENDA_ID=a1" in one["Config"]["Env"]
    for wrong in ({"image": "evil"}, {"image": "acme/x", "limits": {"cpu": "64"}}):
        with pytest.raises(FinalError):
            executor.read(wrong)


NEARLY_NOTHING = [
    {name: quantity}
    for name in ("cpu", "memory")
    for quantity in ("0", "0.0", "0m", "0Gi", "0.000000001", "0.9m")
]
"""What an engine or a cluster takes for no limit at all, or would be charged as nothing."""


@pytest.mark.parametrize("asked", NEARLY_NOTHING, ids=str)
@pytest.mark.parametrize(
    ("rules", "field", "payload"),
    [
        (ContainerRules(images=["*"]), "limits", {"image": "x"}),
        (JobRules(images=["*"]), "limits", {"image": "x"}),
        (JobRules(images=["*"]), "resources", {"image": "x"}),
        (RayRules(commands=["x"]), "resources", {"command": ["x"]}),
    ],
    ids=lambda one: type(one).__name__ if not isinstance(one, str) else one,
)
def test_nobody_gets_all_there_is_by_asking_for_nothing(rules, field, payload, asked):
    (name,) = asked
    with pytest.raises(FinalError, match=rf"payload.{field}.{name} = .* at least 1M?[im]"):
        rules.read({**payload, field: asked})


async def test_a_container_that_took_too_much_memory_or_time_says_so(double, executor):
    name = executor.name(IDENTITY)
    payload = {"image": "acme/render:1", "args": ["forever"], "max_seconds": 10}
    await executor.submit(IDENTITY, executor.read(payload))
    (one,) = double.containers.values()
    double.end(one, 137, OOMKilled=True)
    assert (await executor.status(name)).reason == "OOMKilled"
    double._now += 20
    double.end(one, 137, OOMKilled=False)
    status = await executor.status(name)
    assert (status.reason, status.is_retryable) == ("DeadlineExceeded", False)


async def test_a_container_that_runs_for_too_long_is_killed_by_who_looks(double, executor):
    payload = {"image": "acme/render:1", "args": ["forever"], "max_seconds": 10}
    executor._clock = ManualClock()
    await executor.submit(IDENTITY, executor.read(payload))
    name = executor.name(IDENTITY)
    assert (await executor.status(name)).state == "running"
    (one,) = double.containers.values()
    one["State"]["StartedAt"] = "2025-12-31T00:00:00Z"
    await executor.status(name)
    assert one["State"]["Status"] == "exited"


async def test_an_engine_that_is_away_may_come_back(tmp_path):
    executor = ContainerExecutor(ContainerRules(images=["*"]), tmp_path / "none.sock")
    with pytest.raises(ExecutorUnavailableError, match="does not answer"):
        await executor.status("pop-1")
    await executor.close()


async def test_a_log_is_read_without_its_frames(double, executor):
    await executor.submit(IDENTITY, executor.read({"image": "acme/render:1"}))
    assert await executor.logs_tail(executor.name(IDENTITY)) == 'succeeds\n{"frames": 120}\n'


def test_the_engine_is_the_one_that_the_environment_names(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/x.sock")
    assert engine_socket() == tmp_path / "x.sock"
