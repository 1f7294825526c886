"""A puller on a real broker: what it claims, commits, runs, tells, and how it stops."""

import asyncio
import os
import signal
import sys
import textwrap
from datetime import timedelta

import pytest
from deadlines import within
from puller_world import WITHIN_S, agenda, open_world, progress, serving, with_api, work

from pop_stream.model.events.lifecycle import (
    AgendaClaimed,
    AgendaFailed,
    AgendaHeartbeat,
    AgendaProgressed,
    AgendaSucceeded,
)
from pop_stream.puller import Puller
from pop_stream.puller.consuming.insight_consumer import ClaimCommitter
from pop_stream.puller.handlers.builtin import builtin


@pytest.fixture
async def world(settings):
    async with open_world(settings) as opened:
        yield opened


async def test_agenda_is_claimed_run_and_reported_with_its_results(world):
    await world.create()
    puller = Puller("media", settings=world.settings)

    @puller.handler("measure")
    async def measure(operation):
        return {"size": 12}

    @puller.handler("double")
    def double(operation):
        return operation.payload * 2

    operations = [work("a", "measure"), work("b", "double", payload="@<a.out::/size>")]
    await world.emit(agenda("a1", *operations, lease_ms=45_000))
    async with serving(puller):
        await world.until_ended(1)
    claimed, ended = world.events
    assert isinstance(claimed, AgendaClaimed)
    assert (claimed.agenda_id, claimed.attempt, claimed.insight_id) == ("a1", 1, "media")
    assert claimed.lease_ms == 45_000
    assert isinstance(ended, AgendaSucceeded)
    assert {one.name: bytes(one.result) for one in ended.operations} == {
        "a": b'{"size":12}',
        "b": b"24",
    }
    assert set(ended.spent_s) == {"measure", "double"}


async def test_puller_that_is_there_before_the_topic_picks_it_up(world):
    async with serving(
        Puller("media", handlers=builtin(world.settings), settings=world.settings)
    ):
        await world.create()
        await world.emit(agenda("a1"))
        await world.until_ended(1)
    assert world.ids(AgendaSucceeded) == ["a1"]


async def test_offsets_are_committed_only_once_the_claims_can_be_read(world, monkeypatch):
    await world.create()
    await world.emit(*[agenda(f"a{i}") for i in range(20)])
    commit = ClaimCommitter.commit
    seen = []

    async def check(commits, offsets):
        claimed = sum(offsets.values())
        await world.until(lambda: len(world.of(AgendaClaimed)) >= claimed)
        seen.append((await world.committed(), len(world.of(AgendaSucceeded))))
        return await commit(commits, offsets)

    monkeypatch.setattr(ClaimCommitter, "commit", check)
    puller = Puller(
        "media", handlers=builtin(world.settings), settings=world.settings, concurrency=20
    )
    async with serving(puller):
        await world.until_ended(20)
    assert seen[0] == (0, 0)
    assert await world.committed() == 20


async def test_only_as_many_are_claimed_as_may_run_and_the_rest_is_lag(world):
    await world.create()
    await world.emit(*[agenda(f"a{i}", work()) for i in range(5)])
    puller = Puller("media", settings=world.settings, concurrency=2)
    full, go_on = asyncio.Barrier(3), asyncio.Event()

    @puller.handler("work")
    async def one(operation):
        if not go_on.is_set():
            await full.wait()
        await go_on.wait()

    async with serving(puller):
        await full.wait()
        await world.until(lambda: len(world.of(AgendaClaimed)) >= 2)
        # Longer than a poll: were it to take more, it would have.
        await world.read()
        await world.read()
        assert sorted(world.ids(AgendaClaimed)) == ["a0", "a1"]
        assert await world.committed() == 2
        go_on.set()
        await world.until_ended(5)
    assert await world.committed() == 5


async def test_long_agenda_keeps_its_lease_tells_its_progress_and_blocks_nobody(world):
    await world.create()
    puller = Puller("media", handlers=builtin(world.settings), settings=world.settings)
    go_on = asyncio.Event()

    @puller.handler("work")
    async def long(operation):
        await operation.report(40, "half way")
        await go_on.wait()

    await world.emit(agenda("long", work(), lease_ms=1000))
    async with serving(puller):
        await world.until(lambda: world.of(AgendaHeartbeat) and world.of(AgendaProgressed))
        await world.emit(agenda("short"))
        await world.until_ended(1)
        assert world.ids(AgendaSucceeded) == ["short"]
        go_on.set()
        await world.until_ended(2)
    (progressed,) = world.of(AgendaProgressed)
    (reported,) = progressed.operations
    assert (reported.name, reported.state, reported.percent, reported.message) == (
        "a",
        "running",
        40,
        "half way",
    )
    assert {event.lease_ms for event in world.of(AgendaHeartbeat)} == {1000}


async def test_repeats_and_outdated_attempts_are_dropped(world):
    await world.create()
    one, two = agenda("a1"), agenda("a1", attempt=2)
    await world.emit(one, one, two, one, two, agenda("a2"))
    async with with_api(world.settings, (200, progress(2))) as (settings, _):
        puller = Puller("media", handlers=builtin(settings), settings=settings, concurrency=1)
        async with serving(puller):
            await world.until_ended(3)
    await world.read()
    ended = [(event.agenda_id, event.attempt) for event in world.of(AgendaSucceeded)]
    assert sorted(ended) == [("a1", 1), ("a1", 2), ("a2", 1)]
    assert await world.committed() == 6


async def test_foreign_records_go_to_the_dead_letters_and_the_partition_goes_on(world):
    await world.create()
    await world.emit(b"garbage", agenda("a1"))
    async with serving(
        Puller("media", handlers=builtin(world.settings), settings=world.settings)
    ):
        await world.until_ended(1)
    (letter,) = await world.dead_letters()
    assert (letter["topic"], letter["offset"]) == (world.topics.insight("media"), 0)
    assert (letter["part"], letter["code"]) == ("puller", "unreadable_record")
    assert await world.committed() == 2


async def test_one_puller_serves_several_insights_with_one_capacity(world):
    await world.create("media")
    await world.create("mail")
    puller = Puller(
        insights=("media", "mail"),
        handlers=builtin(world.settings),
        settings=world.settings,
        concurrency=1,
    )
    for insight in ("media", "mail"):
        many = [agenda(f"{insight}{i}", insight=insight) for i in range(10)]
        await world.emit(*many, insight=insight)
    async with serving(puller):
        await world.until_ended(20)
    assert {event.insight_id for event in world.of(AgendaSucceeded)} == {"media", "mail"}
    assert len(set(world.ids(AgendaClaimed))) == len(world.ids(AgendaClaimed)) == 20


async def test_nothing_is_started_twice_or_left_when_a_second_puller_joins_and_leaves(world):
    await world.create(partitions=4)
    started = []

    def puller():
        one = Puller("media", settings=world.settings, concurrency=4)

        @one.handler("work")
        async def note(operation):
            started.append(operation.agenda_id)

        return one

    names = [f"a{i}" for i in range(400)]

    async def emit_slowly():
        for start in range(0, 400, 20):
            await world.emit(*[agenda(name, work()) for name in names[start : start + 20]])
            await world.read()

    async with serving(puller()), asyncio.TaskGroup() as group:
        emitting = group.create_task(emit_slowly())
        await world.until(lambda: len(world.of(AgendaSucceeded)) >= 40)
        async with serving(puller()):
            await world.until(lambda: len(world.of(AgendaSucceeded)) >= 200)
        await emitting
        await world.until_ended(400)
    assert sorted(started) == sorted(names)


async def test_stop_leaves_the_group_at_once_and_lets_running_agendas_end(world):
    await world.create()
    puller = Puller("media", settings=world.settings)
    begun, go_on = asyncio.Event(), asyncio.Event()

    @puller.handler("work")
    async def one(operation):
        begun.set()
        await go_on.wait()
        return "ended in peace"

    await world.emit(agenda("a1", work()))
    async with serving(puller) as stop:
        await begun.wait()
        assert await world.members() == 1
        stop.set()
        async with within(WITHIN_S):
            while await world.members():
                pass
        go_on.set()
    await world.until_ended(1)
    (ended,) = world.of(AgendaSucceeded)
    assert bytes(ended.operations[0].result) == b'"ended in peace"'


async def test_what_outlives_the_grace_is_cancelled_and_may_be_retried(world):
    await world.create()
    puller = Puller("media", settings=world.settings, grace=timedelta(milliseconds=50))
    begun = asyncio.Event()

    @puller.handler("work")
    async def one(operation):
        begun.set()
        await asyncio.Event().wait()

    await world.emit(agenda("a1", work()))
    async with serving(puller):
        await begun.wait()
    await world.until_ended(1)
    (failed,) = world.of(AgendaFailed)
    assert (failed.message, failed.retryable) == ("puller stopped", True)


async def test_cancelled_serve_tells_what_it_stopped(world):
    await world.create()
    puller = Puller("media", settings=world.settings)
    begun = asyncio.Event()

    @puller.handler("work")
    async def one(operation):
        begun.set()
        await asyncio.Event().wait()

    await world.emit(agenda("a1", work()))
    task = asyncio.create_task(puller.serve(asyncio.Event()))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await world.until_ended(1)
    assert [event.message for event in world.of(AgendaFailed)] == ["puller stopped"]


async def test_large_results_arrive_in_records_of_bounded_size(world):
    await world.create()
    puller = Puller("media", settings=world.settings)

    @puller.handler("work")
    async def large(operation):
        return "x" * 200_000

    names = [f"o{i}" for i in range(12)]
    await world.emit(agenda("a1", *[work(name) for name in names]))
    async with serving(puller):
        await world.until_ended(1)
    reported = [
        one.name
        for event in world.of(AgendaProgressed, AgendaSucceeded)
        for one in event.operations
    ]
    assert sorted(reported) == sorted(names)


PROGRAM = """
    import asyncio, sys
    from pop_stream.puller import Puller

    puller = Puller(insight="media")

    @puller.handler("work")
    async def work(operation):
        await operation.report(40, "half way")
        await asyncio.sleep(1.5)
        return {"size": 12}

    puller.run()
"""


async def test_program_of_a_few_lines_ends_in_order_on_sigterm(world, tmp_path):
    await world.create()
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    await world.emit(agenda("a1", work()))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "POP_KAFKA_BOOTSTRAP": world.settings.kafka_bootstrap,
            "POP_TOPIC_PREFIX": world.settings.topic_prefix,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        await world.until(lambda: world.of(AgendaProgressed))
        process.send_signal(signal.SIGTERM)
        async with within(WITHIN_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, output.decode()
    await world.until_ended(1)
    assert world.ids(AgendaSucceeded) == ["a1"]
    assert await world.members() == 0
    assert await world.committed() == 1


def test_puller_without_insight_or_with_an_impossible_one_is_refused(settings):
    with pytest.raises(ValueError, match="insight is missing"):
        Puller(settings=settings)
    with pytest.raises(ValueError, match="insight = 'a b'"):
        Puller("a b", settings=settings)
    with pytest.raises(ValueError, match="concurrency = 0"):
        Puller("media", settings=settings, concurrency=0)


async def test_puller_without_handlers_is_refused(settings):
    with pytest.raises(ValueError, match="no handler is registered"):
        await Puller("media", settings=settings).serve(asyncio.Event())
