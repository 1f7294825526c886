"""The executor of containers, held to the contract by a real engine: Podman."""

from dataclasses import dataclass
from typing import Any

import pytest
from executor_contract import TESTS, a_call, until
from podman_engine import IMAGE, podman

from pop_stream.puller.executors.containers import ContainerExecutor, ContainerRules
from pop_stream.puller.executors.handler import ExecutorHandler, RunLimits
from pop_stream.puller.executors.port import RunIdentity
from pop_stream.puller.handlers.errors import FinalError, RetryableError

globals().update(TESTS)

pytestmark = pytest.mark.timeout(600)

DOES = {
    "succeed": "echo succeeds; echo '{\"frames\": 120}'",
    "fail": "echo fails; exit 3",
    "forever": "echo begins; sleep 600",
}


@dataclass
class World:
    executor: Any

    def payload(self, does):
        return {"image": IMAGE, "command": ["/bin/sh", "-c"], "args": [DOES.get(does, does)]}


@pytest.fixture(scope="module")
async def engine(tmp_path_factory):
    async with podman(tmp_path_factory.mktemp("podman")) as socket:
        yield socket


@pytest.fixture
async def world(engine):
    rules = ContainerRules(images=["localhost/*"], limits={"cpu": "500m", "memory": "64Mi"})
    executor = ContainerExecutor(rules, engine)
    yield World(executor)
    for run in await executor.list_own():
        await executor.delete(run.name)
    await executor.close()


async def test_a_program_finds_its_input_and_whose_it_is(world):
    script = 'echo "{\\"in\\": $AGENDA_INPUT, \\"of\\": \\"$AGENDA_ID/$AGENDA_OPERATION\\"}"'
    payload = {**world.payload(script), "input": [1, 2]}
    result = await ExecutorHandler(world.executor)(a_call(payload).call)
    assert result["result"] == {"in": [1, 2], "of": "a1/render"}


async def test_an_image_that_does_not_exist_is_a_reason(world):
    payload = {**world.payload("succeed"), "image": "localhost/missing:1"}
    with pytest.raises(RetryableError, match="localhost/missing"):
        await ExecutorHandler(world.executor)(a_call(payload).call)


async def test_a_program_that_does_not_exist_leaves_no_container(world):
    payload = {**world.payload("succeed"), "command": ["/no/such"]}
    with pytest.raises((RetryableError, FinalError), match=r"no such file|not found"):
        await ExecutorHandler(world.executor)(a_call(payload).call)
    assert await world.executor.list_own() == []


async def test_a_container_that_takes_too_much_memory_says_so(world):
    script = "a=x; while true; do a=$a$a; done"
    with pytest.raises(RetryableError, match=r"OOMKilled|exit code"):
        await ExecutorHandler(world.executor)(a_call(world.payload(script)).call)


async def test_a_container_that_runs_for_too_long_is_ended(world):
    payload = {**world.payload("forever"), "max_seconds": 1}
    with pytest.raises(FinalError, match="DeadlineExceeded"):
        await ExecutorHandler(world.executor, RunLimits(poll_s=0.2))(a_call(payload).call)


async def test_a_container_that_ended_while_nobody_watched_is_found(world):
    identity = RunIdentity("a1", "render", 1)
    executor = world.executor
    await executor.submit(identity, executor.read(world.payload("succeed")))
    await until(
        lambda: executor.status(executor.name(identity)), lambda one: one.exit_code == 0
    )
    made = a_call(world.payload("succeed"), attempt=2)
    assert (await ExecutorHandler(executor)(made.call))["run"] == executor.name(identity)
