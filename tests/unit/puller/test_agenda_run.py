"""The DAG runner: what starts when, what fails how, and what is reported of it."""

import asyncio
import gc
import threading
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from weakref import ref

import msgspec
import pytest
from deadlines import within
from puller_fakes import AT, emitted, node, pool, run_context, run_of, states

from pop_stream.model.agenda import parse_agenda
from pop_stream.model.events.base import OperationWait
from pop_stream.policy.completion_token import (
    CompletionClaims,
    CompletionTokens,
    completion_digest,
    hand_over,
)
from pop_stream.puller import (
    CompletedElsewhere,
    FinalError,
    Handlers,
    NotYet,
    RetryableError,
)
from pop_stream.puller.execution.agenda_run import (
    PARALLEL_OPERATIONS,
    AgendaRun,
    PriorResults,
)
from pop_stream.puller.execution.failure import Deferral, Failure
from pop_stream.puller.execution.operation_retrier import RESULT_BYTES


@pytest.fixture
def handlers():
    return Handlers()


@pytest.fixture(autouse=True)
async def bounded():
    async with within(10):
        yield


async def test_single_operation_runs_in_the_task_of_its_agenda(handlers):
    tasks = []

    @handlers.handler("work")
    async def work(operation):
        tasks.append(asyncio.current_task())
        return {"size": 12}

    run = run_of(handlers, node("a"))
    assert await run.run() is None
    assert tasks == [asyncio.current_task()]
    (reported,) = run.take_changes().operations
    assert (reported.state, reported.percent, bytes(reported.result)) == (
        "succeeded",
        100,
        b'{"size":12}',
    )
    assert not run.has_changes
    assert set(run.spent_s) == {"work"}


async def test_handler_is_given_all_there_is_to_know(handlers):
    calls = []

    @handlers.handler("work")
    async def work(operation):
        calls.append(operation)

    operation = {**node("a", payload={"by": "@<pop.customerId>"}), "params": {"fast": True}}
    await run_of(handlers, operation).run()
    (call,) = calls
    assert (call.name, call.type, call.payload) == ("a", "work", {"by": "acme"})
    assert (call.agenda_id, call.customer_id, call.insight_id) == ("a1", "acme", "media")
    assert (call.attempt, call.params) == (1, {"fast": True})


async def test_independent_operations_run_at_the_same_time(handlers):
    meeting = asyncio.Barrier(3)

    @handlers.handler("work")
    async def work(operation):
        await meeting.wait()

    assert await run_of(handlers, node("a"), node("b"), node("c")).run() is None


async def test_operation_waits_for_those_it_depends_on(handlers):
    order = []

    @handlers.handler("work")
    async def work(operation):
        order.append(operation.name)
        await asyncio.sleep(0)

    graph = [node("d", "b", "c"), node("b", "a"), node("c", "a"), node("a")]
    assert await run_of(handlers, *graph).run() is None
    assert order[0] == "a"
    assert set(order[1:3]) == {"b", "c"}
    assert order[3] == "d"


async def test_chain_runs_in_one_task(handlers):
    tasks = set()

    @handlers.handler("work")
    async def work(operation):
        tasks.add(asyncio.current_task())
        await asyncio.sleep(0)

    chain = [node(f"n{i}", *([f"n{i - 1}"] if i else [])) for i in range(50)]
    assert await run_of(handlers, *chain).run() is None
    assert tasks == {asyncio.current_task()}


async def test_wide_agenda_is_run_so_many_operations_at_a_time(handlers):
    running = most = done = 0

    @handlers.handler("work")
    async def work(operation):
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        done += 1

    wide = [node(f"n{i}") for i in range(3 * PARALLEL_OPERATIONS)]
    assert await run_of(handlers, *wide).run() is None
    assert (most, done) == (PARALLEL_OPERATIONS, 3 * PARALLEL_OPERATIONS)


async def test_results_feed_references(handlers):
    got = []

    @handlers.handler("make")
    async def make(operation):
        return {"size": 12, "pair": (1, 2)}

    @handlers.handler("work")
    async def work(operation):
        got.append(operation.payload)

    payload = {
        "whole": "@<a.out>",
        "size": "@<a.out::/size>",
        "text": "@<pop.operationName> of @<pop.agendaId>: @<a.out::/size>",
        "else": "@<a.out::/gone?none>",
    }
    assert (
        await run_of(handlers, node("a", kind="make"), node("b", payload=payload)).run() is None
    )
    assert got == [
        {
            "whole": {"size": 12, "pair": [1, 2]},
            "size": 12,
            "text": "b of a1: 12",
            "else": "none",
        }
    ]


async def test_reference_that_leads_nowhere_fails_finally(handlers):
    @handlers.handler("work")
    async def work(operation):
        return {}

    run = run_of(handlers, node("a"), node("b", payload="@<a.out::/size>"))
    failure = await run.run()
    assert failure is not None
    assert not failure.retryable
    assert failure.message == (
        "operation 'b' failed: payload of operation 'b': @<a.out> has nothing at '/size'"
    )


async def test_failure_starts_nothing_more_and_lets_running_operations_end(handlers):
    slow_runs, has_failed = asyncio.Event(), asyncio.Event()
    started = []

    @handlers.handler("slow")
    async def slow(operation):
        started.append(operation.name)
        slow_runs.set()
        await has_failed.wait()
        return "done"

    @handlers.handler("bad")
    async def bad(operation):
        await slow_runs.wait()
        asyncio.get_running_loop().call_soon(has_failed.set)
        msg = "the disk is full"
        raise RetryableError(msg)

    @handlers.handler("work")
    async def work(operation):
        started.append(operation.name)

    graph = [
        node("slow", kind="slow"),
        node("bad", kind="bad"),
        node("after slow", "slow"),
        node("after bad", "bad"),
    ]
    run = run_of(handlers, *graph)
    failure = await run.run()
    assert failure is not None
    assert (failure.message, failure.retryable) == (
        "operation 'bad' failed: the disk is full",
        True,
    )
    assert started == ["slow"]
    assert states(run) == {"slow": "succeeded", "bad": "failed"}


async def test_one_final_failure_makes_the_agendas_failure_final(handlers):
    @handlers.handler("work")
    async def work(operation):
        await asyncio.sleep(0)
        msg = "later"
        raise RetryableError(msg)

    @handlers.handler("wrong")
    async def wrong(operation):
        await asyncio.sleep(0)
        msg = "never"
        raise FinalError(msg)

    failure = await run_of(handlers, node("a"), node("b", kind="wrong")).run()
    assert failure is not None
    assert not failure.retryable
    assert failure.message == "operation 'a' failed: later"
    assert [(one.code, one.detail) for one in failure.diagnostics] == [
        ("operation_retryable", {"operation": "a"}),
        ("operation_final", {"operation": "b"}),
    ]


async def _cancel_itself(operation):
    raise asyncio.CancelledError


async def _give_up(operation):
    raise StopIteration


def _exit(operation):
    raise SystemExit(3)


def _stop_iteration(operation):
    next(iter(()))


async def _divide(operation):
    return 1 / 0


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (_divide, "ZeroDivisionError: division by zero"),
        (_cancel_itself, "its handler cancelled itself"),
        (_give_up, "RuntimeError: coroutine raised StopIteration"),
        (_exit, "SystemExit: 3"),
        (_stop_iteration, "the handler raised StopIteration"),
    ],
)
async def test_whatever_a_handler_raises_fails_its_operation_only(handlers, handler, says):
    handlers.handler("work")(handler)
    with pool() as threads:
        run = run_of(handlers, node("a"), threads=threads)
        failure = await run.run()
    assert failure is not None
    assert failure.retryable
    assert failure.message == f"operation 'a' failed: {says}"
    assert states(run) == {"a": "failed"}


async def test_unknown_type_is_found_before_anything_starts(handlers):
    started = []

    @handlers.handler("work")
    async def work(operation):
        started.append(operation.name)

    run = run_of(handlers, node("a"), node("b", "a", kind="transcode"))
    failure = await run.run()
    assert failure is not None
    assert not failure.retryable
    assert "'transcode' has no handler here (registered: work)" in failure.message
    assert started == []
    assert states(run) == {"b": "failed"}


@pytest.mark.parametrize(
    ("result", "says"),
    [("x" * RESULT_BYTES, "bytes, at most"), ({1}, "set"), (float("nan"), "NaN")],
)
async def test_result_that_cannot_be_sent_fails_finally(handlers, result, says):
    @handlers.handler("work")
    async def work(operation):
        return result

    run = run_of(handlers, node("a"))
    failure = await run.run()
    assert failure is not None
    assert not failure.retryable
    assert says in failure.message
    (reported,) = run.take_changes().operations
    assert (reported.state, reported.result) == ("failed", msgspec.UNSET)


async def test_reports_are_published_once_with_the_newest_values(handlers):
    reported, go_on = asyncio.Event(), asyncio.Event()

    @handlers.handler("work")
    async def work(operation):
        await operation.report(10, "begun")
        await operation.report(40, "half way")
        reported.set()
        await go_on.wait()
        await operation.report(float("nan"), "\0" + "x" * 5000)

    run = run_of(handlers, node("a"))
    async with asyncio.TaskGroup() as group:
        group.create_task(run.run())
        await reported.wait()
        (reported,) = run.take_changes().operations
        assert (reported.state, reported.percent, reported.message) == (
            "running",
            40,
            "half way",
        )
        assert not run.has_changes
        go_on.set()
    (reported,) = run.take_changes().operations
    assert (reported.state, reported.percent) == ("succeeded", 100)
    assert reported.message.startswith("\N{REPLACEMENT CHARACTER}xxx")


@pytest.mark.parametrize(("percent", "held"), [(-3, 0), (140, 100), (float("nan"), 0)])
async def test_percent_is_held_within_its_bounds(handlers, percent, held):
    reported, go_on = asyncio.Event(), asyncio.Event()

    @handlers.handler("work")
    async def work(operation):
        await operation.report(percent)
        reported.set()
        await go_on.wait()

    run = run_of(handlers, node("a"))
    async with asyncio.TaskGroup() as group:
        group.create_task(run.run())
        await reported.wait()
        assert run.take_changes().operations[0].percent == held
        go_on.set()


async def test_sync_handlers_run_in_threads_at_the_same_time_and_may_report(handlers):
    request_id = ContextVar("request_id", default="none")
    request_id.set("r7")
    meeting = threading.Barrier(2, timeout=10)
    seen = []

    @handlers.handler("work")
    def work(operation):
        meeting.wait()
        operation.report(50, f"in {threading.current_thread() is threading.main_thread()}")
        seen.append(request_id.get())
        return operation.name

    with pool(2) as threads:
        run = run_of(handlers, node("a"), node("b"), threads=threads)
        assert await run.run() is None
    reported = {one.name: one for one in run.take_changes().operations}
    assert seen == ["r7", "r7"]
    assert {one.message for one in reported.values()} == {"in False"}
    assert msgspec.json.decode(reported["b"].result) == "b"


async def test_worker_seconds_leave_out_the_wait_for_a_thread(handlers):
    @handlers.handler("first")
    def first(operation):
        threading.Event().wait(0.05)  # the work itself

    @handlers.handler("second")
    def second(operation):
        return None

    with pool(1) as threads:
        both = node("a", kind="first"), node("b", kind="second")
        run = run_of(handlers, *both, threads=threads)
        assert await run.run() is None
    assert run.spent_s["first"] >= 0.05
    assert run.spent_s["second"] < 0.05


async def test_plain_function_may_return_a_coroutine(handlers):
    async def later():
        return 7

    handlers.handler("work")(lambda operation: later())
    with pool() as threads:
        run = run_of(handlers, node("a"), threads=threads)
        assert await run.run() is None
    assert bytes(run.take_changes().operations[0].result) == b"7"


async def test_cancelled_run_cancels_its_handlers_and_counts_them_as_failed(handlers):
    both_run = asyncio.Barrier(3)
    cleaned = []

    @handlers.handler("work")
    async def work(operation):
        try:
            await both_run.wait()
            await asyncio.Event().wait()
        finally:
            cleaned.append(operation.name)

    run = run_of(handlers, node("a"), node("b"), node("c", "a"))
    task = asyncio.create_task(run.run())
    await both_run.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(cleaned) == ["a", "b"]
    assert states(run) == {"a": "failed", "b": "failed"}
    assert run.spent_s["work"] > 0


async def test_timeout_inside_a_handler_is_a_failure_like_any_other(handlers):
    @handlers.handler("work")
    async def work(operation):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    failure = await run_of(handlers, node("a"), node("b", "a")).run()
    assert failure is not None
    assert failure.message == "operation 'a' failed: TimeoutError: "


async def test_operations_of_an_earlier_attempt_are_not_run_again(handlers):
    ran = []

    @handlers.handler("work")
    async def work(operation):
        ran.append((operation.name, operation.payload))

    graph = [
        node("a"),
        node("b", "a"),
        node("c", payload="@<b.out::/n>"),
        node("d"),
    ]
    earlier = {"a": b"", "b": b'{"n":5}'}
    run = run_of(handlers, *graph, earlier=PriorResults(earlier))
    assert await run.run() is None
    assert sorted(ran) == [("c", 5), ("d", None)]
    assert states(run) == {"c": "succeeded", "d": "succeeded"}


async def test_nothing_is_left_to_do_when_all_succeeded_before(handlers):
    handlers.handler("work")(_divide)
    run = run_of(
        handlers, node("a"), node("b", "a"), earlier=PriorResults({"a": b"1", "b": b""})
    )
    assert await run.run() is None
    assert not run.has_changes


async def test_nothing_of_a_run_is_left_to_the_collector(handlers):
    @handlers.handler("work")
    async def work(operation):
        return {"size": 12}

    gc.disable()
    try:
        run = run_of(handlers, node("a"))
        assert await run.run() is None
        run.take_changes()
        left = ref(run)
        del run
        assert left() is None
    finally:
        gc.enable()


# ---- operations that wait ----


async def test_an_operation_that_waits_lets_all_others_end_first(handlers):
    done = []

    @handlers.handler("work")
    async def work(operation):
        if operation.name == "waits":
            raise NotYet(30, "no file yet")
        done.append(operation.name)

    run = run_of(handlers, node("waits"), node("after", "waits"), node("other"))
    deferral = await run.run()
    assert isinstance(deferral, Deferral)
    assert deferral == Deferral(
        AT + timedelta(seconds=30), "operation 'waits' waits: no file yet"
    )
    assert done == ["other"]
    reported = {one.name: one for one in run.take_changes().operations}
    assert (reported["waits"].state, reported["waits"].message) == ("waiting", "no file yet")
    wait = reported["waits"].wait
    assert (wait.since, wait.until, wait.kind) == (AT, AT + timedelta(seconds=30), "check")
    assert "after" not in reported


async def test_an_attempt_that_waits_is_over_until_the_first_of_its_waits_is(handlers):
    @handlers.handler("work")
    async def work(operation):
        raise NotYet(operation.payload, operation.name)

    run = run_of(handlers, node("slow", payload=90), node("soon", payload=20))
    deferral = await run.run()
    assert deferral == Deferral(AT + timedelta(seconds=20), "operation 'soon' waits: soon")


async def test_a_failure_goes_before_a_wait(handlers):
    @handlers.handler("work")
    async def work(operation):
        if operation.name == "waits":
            raise NotYet(30)
        return float("nan")

    failure = await run_of(handlers, node("waits"), node("fails")).run()
    assert isinstance(failure, Failure)


async def test_a_wait_is_no_failed_try(handlers):
    calls = []

    @handlers.handler("work")
    async def work(operation):
        calls.append(operation.tries)
        raise NotYet(30)

    operation = {**node("a"), "max_attempts": 5}
    assert isinstance(await run_of(handlers, operation).run(), Deferral)
    assert calls == [1]


async def test_the_time_out_counts_from_the_first_wait_of_an_earlier_attempt(handlers):
    @handlers.handler("work")
    async def work(operation):
        raise NotYet(30, "no file yet")

    since = AT - timedelta(seconds=90)
    known = {"a": OperationWait(since=since, until=AT, kind="check")}
    still = {**node("a"), "wait_within_s": 100}
    deferral = await run_of(handlers, still, earlier=PriorResults(waits=known)).run()
    assert deferral.until == AT + timedelta(seconds=10), "the last look is at the time-out"
    late = {**node("a"), "wait_within_s": 90}
    failure = await run_of(handlers, late, earlier=PriorResults(waits=known)).run()
    assert not failure.retryable
    assert "waited 90 s in vain: no file yet" in failure.message
    assert failure.diagnostics[0].code == "wait_timed_out"


async def test_a_pause_that_is_no_number_is_said_at_once(handlers):
    @handlers.handler("work")
    async def work(operation):
        raise NotYet(float("nan"))

    failure = await run_of(handlers, node("a")).run()
    assert "recheck_s = nan" in failure.message


def test_what_was_waited_for_survives_being_raised():
    assert str(NotYet(5, "no file yet")) == "no file yet"


# ---- operations that are completed elsewhere ----

TOKENS = CompletionTokens([b"a secret"])


def token(operation="calls", attempt=1):
    claims = CompletionClaims(
        "a1", "media", attempt, AT, operation, AT, AT + timedelta(seconds=100)
    )
    return TOKENS.sign(claims)


async def test_an_operation_is_handed_over_with_its_token(handlers):
    @handlers.handler("work")
    async def work(operation):
        raise CompletedElsewhere(token())

    run = run_of(handlers, node("calls"))
    deferral = await run.run()
    assert deferral == Deferral(
        AT + timedelta(seconds=160), "operation 'calls' waits: its completion from outside"
    )
    [reported] = run.take_changes().operations
    assert (reported.state, reported.wait.kind) == ("waiting", "completion")
    assert reported.wait.token == completion_digest(token())
    assert reported.wait.gives_up_at == AT + timedelta(seconds=100)


@pytest.mark.parametrize("wrong", ["", "no token", token("other"), token(attempt=2)])
async def test_no_other_token_hands_an_operation_over(handlers, wrong):
    @handlers.handler("work")
    async def work(operation):
        raise CompletedElsewhere(wrong)

    failure = await run_of(handlers, node("calls")).run()
    assert not failure.retryable
    assert "with the completion token that this call of it made" in failure.message


async def test_what_was_handed_over_is_not_called_again(handlers):
    calls = []

    @handlers.handler("work")
    async def work(operation):
        calls.append(operation.name)

    wait = hand_over(token(), TOKENS.read(token()), AT - timedelta(days=1))
    left = PriorResults(waits={"calls": wait})
    run = run_of(handlers, node("calls"), node("other"), earlier=left)
    deferral = await run.run()
    assert calls == ["other"]
    assert deferral.until == wait.until
    reported = {one.name: one for one in run.take_changes().operations}
    assert reported["calls"].wait == wait


@pytest.mark.parametrize("is_retryable", [True, False])
async def test_what_failed_outside_is_not_called_and_fails_the_attempt(handlers, is_retryable):
    @handlers.handler("work")
    async def work(operation):
        pytest.fail("it is not to be called")

    error = (RetryableError if is_retryable else FinalError)("the function crashed")
    failure = await run_of(
        handlers, node("calls"), earlier=PriorResults(failed={"calls": error})
    ).run()
    assert failure.retryable is is_retryable
    assert failure.diagnostics[0].message == "the function crashed"


class Issuer:
    def __init__(self):
        self.asked = []

    async def issue(self, attempt, operation, within_s):
        self.asked.append((attempt.agenda_id, attempt.attempt, operation, within_s))
        return token(operation)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_handler_gets_a_token_of_its_operation(handlers, is_async):
    if is_async:

        @handlers.handler("work")
        async def work(operation):
            raise CompletedElsewhere(await operation.completion_token(within_s=60))
    else:

        @handlers.handler("work")
        def work(operation):
            raise CompletedElsewhere(operation.completion_token(within_s=60))

    issuer, one = Issuer(), emitted(node("calls"))
    with pool() as threads:
        tools = replace(run_context(handlers, threads), completion_tokens=issuer)
        run = AgendaRun(one, parse_agenda(bytes(one.agenda)), tools)
        assert isinstance(await run.run(), Deferral)
    assert issuer.asked == [("a1", 1, "calls", 60)]


async def test_without_an_api_there_is_no_token(handlers):
    @handlers.handler("work")
    async def work(operation):
        await operation.completion_token()

    failure = await run_of(handlers, node("calls")).run()
    assert "no API here" in failure.message
