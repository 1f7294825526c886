"""Operations that a handler appends to its agenda while it runs."""

import asyncio
import threading

import msgspec
import pytest
from deadlines import within
from puller_fakes import AT, node, pool, run_of, states

from pop_stream.model.errors import SubmissionError
from pop_stream.model.events.base import AppendedOperation
from pop_stream.puller import Handlers
from pop_stream.puller.execution.agenda_run import PARALLEL_OPERATIONS, PriorResults


@pytest.fixture
def handlers():
    return Handlers()


@pytest.fixture(autouse=True)
async def bounded():
    async with within(10):
        yield


def generator(handlers, *new):
    names = []

    @handlers.handler("generate")
    async def generate(operation):
        names.append(await operation.append(new))
        return {"made": len(new)}

    return names


async def test_appended_operations_run_in_their_order_and_may_refer_to_any_result(handlers):
    ran = []

    @handlers.handler("work")
    async def work(operation):
        ran.append((operation.name, operation.payload))
        return operation.name

    names = generator(
        handlers,
        node("second", "first", payload="@<gen.out::/made>"),
        node("first", payload="@<before.out>"),
    )
    graph = node("before"), node("gen", "before", kind="generate"), node("last", "gen")
    run = run_of(handlers, *graph)
    assert await run.run() is None
    assert names == [("second", "first")]
    assert dict(ran) == {"before": None, "first": "before", "second": 2, "last": None}
    assert [name for name, _ in ran].index("first") < [n for n, _ in ran].index("second")
    changes = run.take_changes()
    assert [
        (one.by, msgspec.json.decode(one.operation)["name"]) for one in changes.appended
    ] == [
        ("gen", "second"),
        ("gen", "first"),
    ]
    assert {one.name for one in changes.operations} == {
        "before", "gen", "first", "second", "last",
    }  # fmt: skip


async def test_agenda_of_one_operation_may_grow_and_grown_operations_run_in_parallel(handlers):
    meeting = asyncio.Barrier(3)

    @handlers.handler("work")
    async def work(operation):
        await meeting.wait()

    generator(handlers, node("a"), node("b"), node("c"))
    run = run_of(handlers, node("gen", kind="generate"))
    assert await run.run() is None
    assert set(states(run)) == {"gen", "a", "b", "c"}


async def test_growth_keeps_to_the_limit_of_parallel_operations(handlers):
    running = most = 0

    @handlers.handler("work")
    async def work(operation):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    generator(handlers, *[node(f"n{i}") for i in range(3 * PARALLEL_OPERATIONS)])
    assert await run_of(handlers, node("gen", kind="generate"), node("x")).run() is None
    assert most <= PARALLEL_OPERATIONS


async def test_appending_the_same_again_changes_nothing(handlers):
    names = []

    @handlers.handler("generate")
    async def generate(operation):
        for _ in range(2):
            names.append(await operation.append([node("a")]))

    handlers.handler("work")(generate_nothing)
    run = run_of(handlers, node("gen", kind="generate"))
    assert await run.run() is None
    assert names == [("a",), ()]
    assert len(run.take_changes().appended) == 1


async def generate_nothing(operation):
    return None


@pytest.mark.parametrize(
    ("new", "field", "says"),
    [
        ([node("GEN")], "operations[0].name", "taken by another operation"),
        ([node("a"), node("A", payload=1)], "operations[1].name", "taken"),
        ([node("a", "gone")], "operations[0].depends_on[0]", "no operation of this agenda"),
        ([node("a", payload="@<gone.out>")], "operations[0].payload", "refers neither"),
        ([node("a", "b"), node("b", "a")], "operations", "wait for each other"),
        ([{"name": "a"}], "operations[0].type", "required"),
        ([node("a", payload="x" * 300_000)], "operations[0]", "at most 262144"),
        ([node("a", payload="\0")], "operations", "NUL"),
        ([node("a", payload=object())], "operations", "is not JSON"),
        ("a", "operations", "valid array"),
    ],
)
async def test_what_is_not_sound_is_refused_whole_with_field_and_remedy(
    handlers, new, field, says
):
    refused = []

    @handlers.handler("generate")
    async def generate(operation):
        try:
            await operation.append(new)
        except SubmissionError as error:
            refused.extend(error.issues)

    run = run_of(handlers, node("gen", kind="generate"))
    assert await run.run() is None
    (issue,) = refused
    assert issue.field == field
    assert says in issue.message
    assert not run.take_changes().appended


async def test_type_without_a_handler_fails_the_agenda_finally_but_is_remembered(handlers):
    generator(handlers, node("a", kind="transcode"))
    run = run_of(handlers, node("gen", kind="generate"))
    failure = await run.run()
    assert failure is not None
    assert not failure.retryable
    assert len(run.take_changes().appended) == 1


async def test_later_attempt_knows_what_an_earlier_one_appended(handlers):
    ran = []

    @handlers.handler("work")
    async def work(operation):
        ran.append((operation.name, operation.payload))

    handlers.handler("generate")(generate_nothing)
    new = known(node("a"), node("b", payload="@<a.out>"), by="gen")
    earlier = PriorResults({"gen": b"", "a": b"7"}, appended=new)
    run = run_of(handlers, node("gen", kind="generate"), earlier=earlier)
    assert await run.run() is None
    assert ran == [("b", 7)]


def known(*nodes, by):
    """Operations as an earlier attempt has appended them."""
    return tuple(
        AppendedOperation(by=by, at=AT, operation=msgspec.Raw(msgspec.json.encode(one)))
        for one in nodes
    )


async def test_what_waits_for_an_operation_that_is_no_more_fails_the_attempt(handlers):
    """Its appender was reset and has appended something else; the agenda has not succeeded."""
    ran = []

    @handlers.handler("work")
    async def work(operation):
        ran.append(operation.name)

    @handlers.handler("generate")
    async def generate(operation):
        await operation.append([node("other")])

    earlier = PriorResults({"kept": b""}, appended=known(node("c", "gone"), by="kept"))
    run = run_of(handlers, node("gen", kind="generate"), node("kept"), earlier=earlier)
    failure = await run.run()
    assert ran == ["other"]
    assert (failure.retryable, "it waits for gone" in failure.message) == (False, True)
    states = {one.name: one.state for one in run.take_changes().operations}
    assert states["c"] == "failed"


async def test_what_waits_for_an_operation_that_is_appended_again_runs(handlers):
    ran = []

    @handlers.handler("work")
    async def work(operation):
        ran.append(operation.name)

    @handlers.handler("generate")
    async def generate(operation):
        await operation.append([node("again")])

    earlier = PriorResults({"kept": b""}, appended=known(node("c", "again"), by="kept"))
    run = run_of(handlers, node("gen", kind="generate"), node("kept"), earlier=earlier)
    assert await run.run() is None
    assert ran == ["again", "c"]


async def test_thread_may_append(handlers):
    @handlers.handler("generate")
    def generate(operation):
        assert threading.current_thread() is not threading.main_thread()
        return list(operation.append([node("a")]))

    handlers.handler("work")(generate_nothing)
    with pool() as threads:
        run = run_of(handlers, node("gen", kind="generate"), threads=threads)
        assert await run.run() is None
    reported = {one.name: one for one in run.take_changes().operations}
    assert msgspec.json.decode(reported["gen"].result) == ["a"]
    assert reported["a"].state == "succeeded"


async def test_operation_that_has_ended_appends_nothing_more(handlers):
    kept = []

    @handlers.handler("generate")
    async def generate(operation):
        kept.append(operation)

    await run_of(handlers, node("gen", kind="generate")).run()
    with pytest.raises(RuntimeError, match="'gen' has ended"):
        await kept[0].append([node("a")])
