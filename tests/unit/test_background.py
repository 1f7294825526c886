"""Work beside a part: its end is the end of the part, and no other task may die unseen."""

import asyncio
import re
from pathlib import Path

import pytest
from deadlines import within

import pop_stream
from pop_stream.background import BackgroundTaskError, background
from pop_stream.operations.errors import message

ROOT = Path(pop_stream.__file__).parent

AWAITED = {
    "api/health.py": "those that ask the doctor meanwhile wait for one look",
    "api/http/answers.py": "a request waits for its answer",
    "api/submissions/repeats.py": "those that submit meanwhile wait for the probe",
    "auth/keys.py": "those that show the key wait for its lookup",
    "console/viewing.py": "a page waits for its queues; the next one sees the findings",
    "devserver/servers.py": "`failed` and `_stop` wait for watchers",
    "devserver/stack.py": "`failed` waits for the first of them",
    "devserver/supervisor.py": "`stop` waits for the keepers",
    "kafka/batch_consumer.py": "the batch loop waits for the first of both",
    "kafka/definitions.py": "those that ask for the end wait for the connection",
    "kafka/hardening/broker_timeouts.py": "a probe that ends is begun by the next request",
    "kafka/hardening/cancellation.py": "shielded; a cancelled caller leaves it whole",
    "kafka/hardening/fetcher.py": "`stop` is waited for, as long as it may take",
    "operations/lifetime.py": "the command waits for both",
    "puller/claiming/pipeline.py": "`wait_failed` waits for both stages",
    "puller/consuming/insight_consumer.py": "`_read_until` waits for the first of them",
    "puller/handlers/command.py": "the operation waits for its program",
    "scheduler/faust/worker.py": "`run` waits for the first of them, and ends the process",
    "scheduler/state/changelog.py": "`wait_failed`, for which the scheduler waits",
    "testing/runners.py": "`wait` waits for the handlers that were called",
    "webhooks/sender.py": "the next look at the outbox raises what a try died of",
}
"""Who sees the end of tasks that are in no task group, by file of the product."""


async def forever():
    await asyncio.Event().wait()


async def test_work_goes_on_as_long_as_the_body_and_no_longer():
    ended = []

    async def work():
        try:
            await forever()
        finally:
            ended.append("work")

    async with background(work=work()):
        await asyncio.sleep(0)
        assert ended == []
    assert ended == ["work"]


async def dies():
    await asyncio.sleep(0)
    cause = "3 is no insight"
    raise KeyError(cause)


async def returns():
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("work", "says"), [(dies, "KeyError: '3 is no insight'"), (returns, "it returned")]
)
async def test_the_body_ends_when_work_beside_it_does_and_says_why(work, says):
    left = []

    async def body():
        try:
            await forever()
        finally:
            await asyncio.sleep(0)  # what is to be closed may take its time
            left.append("body")

    with pytest.raises(BackgroundTaskError, match="reader has ended by itself") as raised:
        async with within(5), background(writer=forever(), reader=work()):
            await body()
    assert left == ["body"]
    assert says in message(raised.value)


async def test_what_is_around_ends_too_in_order():
    order = []

    async def inner():
        try:
            async with background(inner=forever()):
                await forever()
        finally:
            order.append("inner is closed")

    with pytest.raises(BackgroundTaskError, match="outer"):
        async with within(5), background(outer=dies()):
            await inner()
    assert order == ["inner is closed"]


async def test_what_the_body_raises_is_raised_as_it_is():
    async def body():
        mine = "mine"
        raise LookupError(mine)

    with pytest.raises(LookupError, match="mine"):
        async with background(work=forever()):
            await body()


async def test_a_cancelled_body_is_cancelled():
    async def part():
        async with background(work=forever()):
            await forever()

    task = asyncio.create_task(part())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_who_awaits_each_task_that_is_in_no_group_is_known():
    makes_tasks = re.compile(r"\basyncio\.(create_task|ensure_future)\b")
    found = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if ROOT / "lab" not in path.parents and makes_tasks.search(path.read_text())
    }
    assert found == AWAITED.keys()
