"""What every executor has to do; suites that have worlds of executors take these tests over.

A world has an `executor`, and `payload(does)` for a run that ends well with the result
`{"frames": 120}` (`succeed`), ends badly (`fail`), or goes on until it is cancelled
(`forever`).
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

from deadlines import within

from pop_stream.puller.executors.handler import ExecutorHandler, RunLimits
from pop_stream.puller.executors.port import ENDED, RunIdentity
from pop_stream.puller.handlers.invocation import OperationCall

WITHIN_S = 60
RESULT = {"frames": 120}


class ExecutorWorld(Protocol):
    """One executor to be held to the contract."""

    executor: Any

    def payload(self, does: str) -> Any: ...


@dataclass
class MadeCall:
    """A call of a handler, and what it left."""

    call: OperationCall
    charged: list
    notes: list
    reports: list

    @property
    def codes(self):
        return [code for _, code, _ in self.notes]


def a_call(payload, *, agenda="a1", attempt=1, run_from=1, tries=1, **more) -> MadeCall:
    charged, notes, reports = [], [], []
    call = OperationCall(
        name="render",
        type="job",
        payload=payload,
        params={},
        agenda_id=agenda,
        customer_id="acme",
        insight_id="farm",
        attempt=attempt,
        run_from=run_from,
        tries=tries,
        report_to=lambda percent, text: reports.append((percent, text)),
        note_to=lambda text, code, detail: notes.append((text, code, detail)),
        charge_to=charged.append,
        **more,
    )
    return MadeCall(call, charged, notes, reports)


async def until(ask, is_enough):
    async with within(WITHIN_S):
        while not is_enough(found := await ask()):  # noqa: ASYNC110  # others change it
            await asyncio.sleep(0.02)
    return found


async def status_when(world, name, *states):
    status = await until(
        lambda: world.executor.status(name),
        lambda one: one is not None and one.state in {*states, *ENDED},
    )
    assert status.state in states, status
    return status


async def submitted(world, does, **identity):
    executor = world.executor
    one = RunIdentity(**{"agenda_id": "a1", "operation": "render", "attempt": 1, **identity})
    await executor.submit(one, executor.read(world.payload(does)))
    return executor.name(one), one


async def test_a_run_goes_from_submission_to_its_result(world):
    name, _ = await submitted(world, "succeed")
    status = await status_when(world, name, *ENDED)
    assert status.state == "succeeded", status
    assert status.exit_code in {0, None}
    assert status.started_at is not None
    assert status.ended_at >= status.started_at


async def test_a_run_that_is_submitted_twice_is_one(world):
    name, identity = await submitted(world, "forever")
    assert (await submitted(world, "forever"))[0] == name
    (found,) = await world.executor.list_own()
    assert (found.name, found.identity) == (name, identity)
    await status_when(world, name, "running")
    assert (await submitted(world, "forever"))[0] == name
    assert len(await world.executor.list_own()) == 1


async def test_runs_of_one_operation_are_found_by_its_key(world):
    first, identity = await submitted(world, "forever", customer_id="acme", insight_id="farm")
    second, _ = await submitted(world, "forever", attempt=2)
    other, _ = await submitted(world, "forever", operation="another")
    found = {one.name: one.identity for one in await world.executor.list_own(identity.key)}
    assert found.keys() == {first, second}
    assert found[first] == identity
    assert {one.name for one in await world.executor.list_own()} == {first, second, other}


async def test_a_run_that_fails_says_how(world):
    name, _ = await submitted(world, "fail")
    status = await status_when(world, name, *ENDED)
    assert (status.state, status.is_retryable) == ("failed", True)
    assert status.reason or status.message


async def test_the_log_of_a_run_can_be_read(world):
    name, _ = await submitted(world, "fail")
    await status_when(world, name, *ENDED)
    assert "fail" in await until(lambda: world.executor.logs_tail(name), bool)


async def test_a_run_that_is_cancelled_ends(world):
    name, _ = await submitted(world, "forever")
    await status_when(world, name, "running")
    await world.executor.cancel(name)
    await until(
        lambda: world.executor.status(name), lambda one: one is None or one.state == "failed"
    )
    await world.executor.cancel(name)


async def test_of_a_run_that_is_not_there_nothing_is_done(world):
    executor = world.executor
    name = executor.name(RunIdentity("none", "render", 1))
    assert await executor.status(name) is None
    assert await executor.logs_tail(name) == ""
    await executor.cancel(name)
    await executor.delete(name)
    assert list(await executor.list_own()) == []


async def test_of_a_run_that_is_deleted_nothing_is_left(world):
    name, _ = await submitted(world, "succeed")
    await status_when(world, name, *ENDED)
    await world.executor.delete(name)
    await until(world.executor.list_own, lambda found: not found)
    assert await world.executor.status(name) is None


async def test_a_running_one_can_be_deleted_too(world):
    name, _ = await submitted(world, "forever")
    await status_when(world, name, "running")
    await world.executor.delete(name)
    await until(world.executor.list_own, lambda found: not found)


async def test_it_says_how_many_runs_it_holds(world):
    capacity = await world.executor.capacity()
    assert capacity is None or capacity > 0


async def test_it_can_be_used_again_after_it_was_closed(world):
    await world.executor.close()
    assert list(await world.executor.list_own()) == []


async def test_the_handler_returns_what_a_run_left(world):
    made = a_call(world.payload("succeed"))
    handler = ExecutorHandler(world.executor, RunLimits(poll_s=0.5))
    async with within(WITHIN_S):
        result = await handler(made.call)
    assert result["result"] == RESULT
    assert result["run"] == world.executor.name(RunIdentity.of(made.call))
    assert made.codes == ["executor.submitted", "executor.ended"]
    assert made.charged[-1] >= 0


async def test_an_attempt_finds_the_run_of_the_one_before(world):
    name, _ = await submitted(world, "succeed")
    made = a_call(world.payload("succeed"), attempt=2)
    async with within(WITHIN_S):
        result = await ExecutorHandler(world.executor, RunLimits(poll_s=0.5))(made.call)
    assert (result["run"], result["result"]) == (name, RESULT)
    assert [one.name for one in await world.executor.list_own()] == [name]


TESTS = {name: one for name, one in globals().items() if name.startswith("test_")}
"""All of them, for the namespace of a module of tests that has a fixture `world`."""
