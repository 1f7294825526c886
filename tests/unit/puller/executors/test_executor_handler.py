"""The handler that drives executors, with one in memory."""

import asyncio
from datetime import timedelta

import pytest
from deadlines import within
from executor_contract import a_call
from fakes import ManualClock
from memory_executor import CREATED_AT, MemoryExecutor
from puller_fakes import emitted, node, run_context

from pop_stream.model.agenda import parse_agenda
from pop_stream.model.events.base import Diagnostic, PriorProgress
from pop_stream.puller.execution.agenda_run import AgendaRun
from pop_stream.puller.executors.handler import (
    CHARGED,
    ENDED_RUN,
    FOUND,
    ExecutorHandler,
    RunLimits,
)
from pop_stream.puller.executors.port import RunIdentity
from pop_stream.puller.handlers.errors import FinalError, RetryableError
from pop_stream.puller.handlers.registry import Handlers

QUICK = RunLimits(poll_s=0.01, progress_s=0.0, stuck_s=0.0, pending_s=3600, away_s=3600)


@pytest.fixture(autouse=True)
async def bounded():
    async with within(20):
        yield


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch):
    monkeypatch.setattr("pop_stream.puller.executors.handler._FIRST_POLL_S", 0.001)


@pytest.fixture
def executor():
    return MemoryExecutor()


def handler_of(executor, clock=None, **limits):
    known = {name: getattr(QUICK, name) for name in QUICK.__slots__}
    return ExecutorHandler(executor, RunLimits(**{**known, **limits}), clock)


async def until(condition):
    while not condition():  # noqa: ASYNC110  # what it waits for has no event
        await asyncio.sleep(0.001)


async def begun(handler, made):
    """A call under way, and the name of its run."""
    task = asyncio.create_task(handler(made.call))
    await until(lambda: handler.watched)
    (name,) = handler.watched
    await until(lambda: name in handler.executor.runs and handler.executor.asked)
    return task, name


async def test_a_run_is_charged_for_its_seconds_times_its_size(executor):
    made = a_call({"does": "succeed", "size": 4.0})
    result = await handler_of(executor)(made.call)
    assert result["seconds"] == 2.0
    assert made.charged[-1] == 8.0


async def test_what_waits_in_a_queue_of_the_executor_is_not_charged(executor):
    made = a_call({"does": "by_hand"})
    task, name = await begun(handler_of(executor), made)
    executor.set(name, state="queued")
    await until(lambda: "queued" in made.reports[-1][1])
    executor.set(name, state="failed", reason="Evicted")
    with pytest.raises(RetryableError, match="Evicted"):
        await task
    assert made.charged[-1] == 0.0


@pytest.mark.parametrize("end", ["stuck", "cancelled", "failed"])
async def test_a_run_that_never_starts_is_charged_for_the_place_it_kept(executor, end):
    made = a_call({"does": "by_hand"})
    task, name = await begun(handler_of(executor, stuck_s=0.05), made)
    asked = executor.asked
    await until(lambda: executor.asked > asked + 2)
    if end == "stuck":
        executor.set(name, reason="ImagePullBackOff", is_stuck=True)
    elif end == "failed":
        executor.set(name, state="failed", reason="DeadlineExceeded")
    else:
        task.cancel()
    with pytest.raises((RetryableError, asyncio.CancelledError)):
        await task
    assert made.charged[-1] > (0.05 if end == "stuck" else 0.0)


@pytest.mark.parametrize(
    ("output", "log", "result"),
    [
        ('{"a": 1}', "", {"a": 1}),
        ("done", "", "done"),
        ("", 'begins\n{"a": 2}\n', {"a": 2}),
        ("", "begins\nends\n", None),
        ("", "", None),
    ],
)
async def test_the_result_is_what_the_run_left_or_its_last_line(executor, output, log, result):
    made = a_call({"does": "by_hand"})
    task, name = await begun(handler_of(executor), made)
    executor.logs[name] = log
    executor.end(name, output=output)
    assert (await task)["result"] == result


async def test_progress_is_what_the_program_says_of_itself(executor):
    made = a_call({"does": "by_hand"})
    task, name = await begun(handler_of(executor), made)
    executor.logs[name] = '{"percent": 10}\n{"percent": 40, "message": "half"}\nnoise\n'
    executor.start(name)
    await until(lambda: (40.0, "half") in made.reports)
    executor.end(name)
    await task


async def test_a_failed_run_leaves_its_reason_and_the_end_of_its_log(executor):
    made = a_call({"does": "by_hand"})
    task, name = await begun(handler_of(executor), made)
    executor.logs[name] = "x" * 5_000 + "\nlast words"
    executor.end(name, "failed", reason="OOMKilled", message="its limit was 512Mi")
    with pytest.raises(
        RetryableError, match="OOMKilled: its limit was 512Mi; its log ends: last"
    ):
        await task
    (ended,) = [detail for _, code, detail in made.notes if code == ENDED_RUN]
    assert ended["reason"] == "OOMKilled"
    assert ended["log"].endswith("last words")
    assert len(str(ended)) < 1_500


async def test_a_failure_that_another_run_would_repeat_is_final(executor):
    made = a_call({"does": "by_hand"})
    task, name = await begun(handler_of(executor), made)
    executor.end(name, "failed", reason="DeadlineExceeded", is_retryable=False)
    with pytest.raises(FinalError, match="DeadlineExceeded"):
        await task


async def test_a_run_that_cannot_start_is_cancelled_after_a_bounded_time(executor):
    made = a_call({"does": "by_hand"})
    handler = handler_of(executor, stuck_s=0.05)
    task, name = await begun(handler, made)
    executor.set(name, reason="ImagePullBackOff", message="no such image", is_stuck=True)
    with pytest.raises(RetryableError, match="ImagePullBackOff: no such image"):
        await task
    assert executor.cancelled == [name]
    assert not handler.watched


async def test_what_waits_in_a_queue_waits_as_long_as_it_likes(executor):
    made = a_call({"does": "by_hand"})
    task, name = await begun(handler_of(executor, pending_s=0.02), made)
    executor.set(name, state="queued")
    await until(lambda: "queued" in made.reports[-1][1])
    asked = executor.asked
    await until(lambda: executor.asked > asked + 10)
    executor.set(name, state="pending", message="no node")
    with pytest.raises(RetryableError, match="did not start within"):
        await task


async def test_an_executor_that_is_away_is_waited_for(executor):
    made = a_call({"does": "by_hand"})
    task, name = await begun(handler_of(executor), made)
    executor.away = "the cluster does not answer"
    await until(lambda: made.reports[-1][1] == "waits: the cluster does not answer")
    executor.away = ""
    executor.end(name, output="1")
    assert (await task)["result"] == 1


async def test_one_that_stays_away_fails_the_attempt_and_leaves_the_run(executor):
    made = a_call({"does": "by_hand"})
    task, name = await begun(handler_of(executor, away_s=0.0), made)
    executor.away = "the cluster does not answer"
    with pytest.raises(RetryableError, match="does not answer"):
        await task
    executor.away = ""
    again = a_call({"does": "by_hand"}, attempt=2)
    task, found = await begun(handler_of(executor), again)
    executor.end(name)
    await task
    assert (found, executor.submitted) == (name, [name])


async def test_a_run_that_is_gone_is_a_failure_that_may_be_tried_again(executor):
    made = a_call({"does": "by_hand"})
    task, name = await begun(handler_of(executor), made)
    await executor.delete(name)
    with pytest.raises(RetryableError, match="is gone"):
        await task


@pytest.mark.parametrize("reason", ["", "cancelled", "expired"])
async def test_an_agenda_that_is_over_takes_its_run_along(executor, reason):
    made = a_call({"does": "by_hand"}, stop_reason_of=lambda: reason)
    task, name = await begun(handler_of(executor), made)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert executor.cancelled == [name]


@pytest.mark.parametrize("reason", ["puller_stopping", "outdated"])
async def test_a_puller_that_stops_leaves_the_run_to_the_next_attempt(executor, reason):
    clock = ManualClock(CREATED_AT + timedelta(seconds=1))
    made = a_call({"does": "by_hand"}, stop_reason_of=lambda: reason)
    handler = handler_of(executor, clock)
    task, name = await begun(handler, made)
    executor.start(name)
    await until(lambda: made.reports[-1][1].startswith("running"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert executor.cancelled == []
    assert made.charged[-1] == 1.0
    (left,) = [(text, code, detail) for text, code, detail in made.notes if code == CHARGED]
    noted = Diagnostic(message=left[0], at=clock.now(), code=left[1], detail=left[2])
    prior = PriorProgress(attempt=1, state="failed", diagnostics=(noted,))
    again = a_call({"does": "by_hand"}, attempt=2, prior=prior)
    task, found = await begun(handler_of(executor), again)
    executor.end(name)
    result = await task
    assert (found, result["seconds"]) == (name, 2.0)
    assert again.codes[0] == FOUND
    assert again.charged[-1] == 1.0  # of two seconds, the attempt before has paid one


async def test_a_run_that_ended_while_nobody_watched_is_not_done_again(executor):
    identity = RunIdentity("a1", "render", 1)
    await executor.submit(identity, executor.read({"does": "by_hand"}))
    executor.end(executor.name(identity), output="7")
    made = a_call({"does": "by_hand"}, attempt=3)
    assert (await handler_of(executor)(made.call))["result"] == 7
    assert executor.submitted == [executor.name(identity)]


@pytest.mark.parametrize(
    ("state", "run_from"), [("failed", 1), ("succeeded", 2)], ids=["failed", "rerun"]
)
async def test_a_failed_run_and_that_of_an_earlier_one_are_not_taken_up(
    executor, state, run_from
):
    identity = RunIdentity("a1", "render", 1)
    await executor.submit(identity, executor.read({"does": "by_hand"}))
    executor.end(executor.name(identity), state)
    made = a_call({"does": "succeed"}, attempt=2, run_from=run_from)
    result = await handler_of(executor)(made.call)
    assert result["run"] == executor.submitted[-1] != executor.name(identity)


async def test_another_try_in_an_attempt_is_another_run(executor):
    results = [
        await handler_of(executor)(a_call({"does": "succeed"}, tries=one).call)
        for one in (1, 2)
    ]
    assert [one["run"] for one in results] == executor.submitted
    assert len({*executor.submitted}) == 2


# ---- as a puller runs it ----


def agenda_run(handlers, threads=None, **changes):
    one = emitted(
        node("render", kind="job", payload={"does": "by_hand", "size": 3.0}), **changes
    )
    return AgendaRun(one, parse_agenda(bytes(one.agenda)), run_context(handlers, threads))


@pytest.fixture
def handlers(executor):
    registry = Handlers()
    registry.handler("job")(handler_of(executor))
    return registry


async def test_an_attempt_reports_what_its_run_took_and_not_its_own_time(executor, handlers):
    run = agenda_run(handlers)
    task = asyncio.create_task(run.run())
    await until(lambda: executor.asked)
    (name,) = executor.submitted
    executor.end(name)
    assert await task is None
    assert run.spent_s == {"job": 6.0}


@pytest.mark.parametrize(
    ("changes", "is_taken_up"),
    [({"attempt": 2, "run_from": 1}, True), ({"attempt": 2, "run_from": 2}, False)],
)
async def test_a_later_attempt_knows_where_its_run_of_the_agenda_begins(
    executor, handlers, changes, is_taken_up
):
    identity = RunIdentity("a1", "render", 1)
    await executor.submit(identity, executor.read({"does": "by_hand"}))
    executor.end(executor.name(identity))
    task = asyncio.create_task(agenda_run(handlers, **changes).run())
    await until(lambda: executor.asked)
    assert (len(executor.submitted) == 1) == is_taken_up
    for name in executor.submitted:
        executor.end(name)
    await task


async def test_a_cancelled_attempt_says_why_to_its_handlers(executor, handlers):
    run = agenda_run(handlers)
    task = asyncio.create_task(run.run())
    await until(lambda: executor.asked)
    run.stop_reason = "puller_stopping"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert executor.cancelled == []


def test_a_name_fits_what_clusters_allow():
    identity = RunIdentity("x" * 500, "y" * 200, 100_000, 100)
    name = MemoryExecutor().name(identity)
    assert len(name) < 63
    assert identity == RunIdentity.from_facts(identity.facts)
    assert RunIdentity.from_facts({"agenda": "somebody else's"}) is None
