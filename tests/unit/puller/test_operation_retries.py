"""Operations tried again where they failed, and the time they may take."""

import asyncio
import threading
from datetime import timedelta

import pytest
from deadlines import within
from puller_fakes import AT, node, pool, run_of, states

from pop_stream.model.events.base import PriorProgress
from pop_stream.puller import FinalError, Handlers, RetryableError
from pop_stream.puller.execution.agenda_run import PriorResults
from pop_stream.puller.handlers import invocation as invocation_module

AT_ONCE = {"first_s": 0}


@pytest.fixture
def handlers():
    return Handlers()


@pytest.fixture(autouse=True)
async def bounded():
    async with within(10):
        yield


def tried(name="a", *after, most=3, **more):
    return {**node(name, *after), "max_attempts": most, "backoff": AT_ONCE, **more}


async def test_operation_is_tried_again_until_it_succeeds(handlers):
    seen = []

    @handlers.handler("work")
    async def work(operation):
        seen.append(operation.tries)
        await operation.report(60, f"try {operation.tries}")
        if operation.tries < 3:
            msg = "the disk is full"
            raise RetryableError(msg)

    run = run_of(handlers, tried(), tried("b", "a"))
    assert await run.run() is None
    assert seen == [1, 2, 3, 1, 2, 3]
    reported = {one.name: one for one in run.take_changes().operations}
    assert (reported["a"].state, reported["a"].tries, reported["b"].tries) == (
        "succeeded",
        3,
        3,
    )
    assert [(one.message, one.detail) for one in reported["a"].diagnostics] == [
        ("the disk is full", {"try": 1, "max_attempts": 3}),
        ("the disk is full", {"try": 2, "max_attempts": 3}),
    ]
    assert run.spent_s["work"] > 0


async def test_pauses_between_tries_are_charged_as_they_keep_the_runner(handlers):
    @handlers.handler("work")
    async def work(operation):
        if operation.tries == 1:
            msg = "not now"
            raise RetryableError(msg)
        operation.charge(0.0)

    backoff = {"first_s": 0.05, "most_s": 0.05, "jitter": 0.0}
    run = run_of(handlers, tried(backoff=backoff))
    assert await run.run() is None
    assert run.spent_s["work"] >= 0.05


async def test_pause_that_is_cut_short_is_charged_too(handlers):
    failed = asyncio.Event()

    @handlers.handler("work")
    async def work(operation):
        failed.set()
        msg = "not now"
        raise RetryableError(msg)

    run = run_of(handlers, tried(backoff={"first_s": 3600.0, "most_s": 3600.0}))
    task = asyncio.create_task(run.run())
    await failed.wait()
    await asyncio.sleep(0.05)  # what is charged
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert 0.05 <= run.spent_s["work"] < 3600


async def test_last_try_fails_the_attempt_with_every_try_on_record(handlers):
    @handlers.handler("work")
    async def work(operation):
        return 1 / 0

    run = run_of(handlers, tried(most=2))
    failure = await run.run()
    assert failure is not None
    assert failure.retryable
    (reported,) = run.take_changes().operations
    assert (reported.state, reported.tries) == ("failed", 2)
    assert [one.code for one in reported.diagnostics] == ["ZeroDivisionError"] * 2


async def test_final_failure_is_not_tried_again(handlers):
    tries = []

    @handlers.handler("work")
    async def work(operation):
        tries.append(operation.tries)
        msg = "no such file"
        raise FinalError(msg)

    failure = await run_of(handlers, tried()).run()
    assert failure is not None
    assert not failure.retryable
    assert tries == [1]


async def test_next_try_is_not_waited_for_once_another_operation_has_failed(handlers):
    has_failed = asyncio.Event()

    @handlers.handler("work")
    async def work(operation):
        asyncio.get_running_loop().call_soon(has_failed.set)
        msg = "later"
        raise RetryableError(msg)

    @handlers.handler("bad")
    async def bad(operation):
        await has_failed.wait()
        msg = "never"
        raise FinalError(msg)

    patient = {**tried(), "backoff": {"first_s": 1000, "most_s": 1000}}
    run = run_of(handlers, patient, node("b", kind="bad"))
    failure = await run.run()
    assert failure is not None
    assert not failure.retryable
    assert states(run) == {"a": "failed", "b": "failed"}


async def test_try_that_takes_too_long_is_cancelled_and_tried_again(handlers):
    cleaned = []

    @handlers.handler("work")
    async def work(operation):
        if operation.tries == 1:
            try:
                await asyncio.Event().wait()
            finally:
                cleaned.append(operation.tries)
        return operation.tries

    run = run_of(handlers, tried(timeout_s=0.02))
    assert await run.run() is None
    assert cleaned == [1]
    (reported,) = run.take_changes().operations
    assert bytes(reported.result) == b"2"
    assert [one.message for one in reported.diagnostics] == ["timeout_s = 0.02: it ran longer"]


async def test_handler_that_swallows_its_cancellation_has_still_taken_too_long(handlers):
    @handlers.handler("work")
    async def work(operation):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "in time, surely"

    failure = await run_of(handlers, {**node("a"), "timeout_s": 0.02}).run()
    assert failure is not None
    assert failure.message == "operation 'a' failed: timeout_s = 0.02: it ran longer"


async def test_thread_that_heeds_the_flag_is_tried_again(handlers):
    @handlers.handler("work")
    def work(operation):
        if operation.tries == 1:
            assert operation.stopping.wait(5)
        return operation.tries

    with pool() as threads:
        # The second try has as long, and its thread may start late.
        run = run_of(handlers, tried(timeout_s=0.5), threads=threads)
        assert await run.run() is None
    assert bytes(run.take_changes().operations[0].result) == b"2"


async def test_thread_that_goes_on_is_left_behind_and_not_joined_by_a_second_try(
    handlers, monkeypatch
):
    go_on, tries = threading.Event(), []

    @handlers.handler("work")
    def work(operation):
        tries.append(operation.tries)
        go_on.wait(5)

    monkeypatch.setattr(invocation_module, "CLEAN_UP_S", 0.01)
    with pool() as threads:
        failure = await run_of(handlers, tried(timeout_s=0.02), threads=threads).run()
        go_on.set()
    assert failure is not None
    assert failure.retryable
    assert tries == [1]


async def test_cancelled_run_asks_its_threads_to_stop(handlers):
    begun, stopped = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @handlers.handler("work")
    def work(operation):
        loop.call_soon_threadsafe(begun.set)
        if operation.stopping.wait(5):
            stopped.set()

    with pool() as threads:
        run = run_of(handlers, node("a"), threads=threads)
        task = asyncio.create_task(run.run())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert stopped.is_set()
    assert states(run) == {"a": "failed"}


async def test_run_cancelled_between_two_tries_tells_of_the_operation_as_failed(handlers):
    failed = asyncio.Event()

    @handlers.handler("work")
    async def work(operation):
        asyncio.get_running_loop().call_soon(failed.set)
        return 1 / 0

    run = run_of(handlers, {**tried(), "backoff": {"first_s": 1000, "most_s": 1000}})
    task = asyncio.create_task(run.run())
    await failed.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert states(run) == {"a": "failed"}


async def test_handler_gets_prior_results_and_its_deadline(handlers):
    calls = []

    @handlers.handler("work")
    async def work(operation):
        calls.append(operation)

    prior = PriorProgress(attempt=1, state="running", percent=40.0, message="half way")
    earlier = PriorResults(unfinished={"a": prior})
    await run_of(handlers, {**node("a"), "timeout_s": 30}, earlier=earlier).run()
    (call,) = calls
    assert (call.prior, call.tries) == (prior, 1)
    assert call.deadline == AT + timedelta(seconds=30)


async def test_notes_of_a_handler_become_diagnostics_and_the_newest_ten_are_kept(handlers):
    @handlers.handler("work")
    async def work(operation):
        for number in range(12):
            operation.note(f"frame {number}\0", code="frame", detail={"number": number})
        with pytest.raises(ValueError, match="detail: is not JSON"):
            operation.note("x", detail={1, 2})
        with pytest.raises(ValueError, match="at most 2000"):
            operation.note("x", detail="x" * 3000)

    run = run_of(handlers, node("a"))
    assert await run.run() is None
    (reported,) = run.take_changes().operations
    assert [one.detail["number"] for one in reported.diagnostics] == [*range(2, 12)]
    assert reported.diagnostics[0].message == "frame 2\N{REPLACEMENT CHARACTER}"
