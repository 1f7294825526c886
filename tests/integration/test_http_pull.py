"""Workers that pull over HTTP, from several processes of the API, on a real Kafka."""

import asyncio
import sys
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import aiohttp
import msgspec
import pytest
from deadlines import within
from http_worker import HttpWorker
from parts_in_process import ending_in_order
from puller_world import WITHIN_S, agenda, open_world, serving, work

from pop_stream.clock import WallClock
from pop_stream.composition.api import run_api
from pop_stream.http_pull.dispatcher import Dispatcher
from pop_stream.kafka.deliveries import KafkaHttpDeliveries
from pop_stream.kafka.topics import Topics
from pop_stream.model.events.lifecycle import (
    AgendaAccepted,
    AgendaClaimed,
    AgendaHeartbeat,
    AgendaProgressed,
    AgendaStopped,
    AgendaSucceeded,
)
from pop_stream.operations import provisioning
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.summaries import PostgresSummaries
from pop_stream.puller import Puller
from pop_stream.puller.handlers.builtin import builtin

WAIT = timedelta(seconds=30)
DEFINITIONS = """
[customers.acme]
[insights.media]
partitions = 4
[insights.media.mappers]
operation_types = ["work"]
[insights.shared]
group_type = "share"
partitions = 1
"""


@asynccontextmanager
async def served(settings):
    """One process's worth of the API, in this process."""
    stop, url = asyncio.Event(), asyncio.get_running_loop().create_future()
    async with ending_in_order(stop, run_api(settings, stop, url.set_result)):
        yield await url


@pytest.fixture
async def world(settings, tmp_path):
    file = tmp_path / "definitions.toml"
    file.write_text(DEFINITIONS)
    settings = settings.model_copy(update={"definitions_file": file})
    await provisioning.migrate(settings)
    names = Topics(settings.topic_prefix)
    async with open_world(settings, names.controls) as opened:
        await opened.create(partitions=4)
        yield opened


@pytest.fixture
async def workers(world):
    """Two workers, each at a process of its own."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        urls = [await stack.enter_async_context(served(world.settings)) for _ in range(2)]
        yield [HttpWorker(session, url, f"w{i}") for i, url in enumerate(urls, start=1)]


async def test_agenda_is_pulled_reported_on_and_completed_at_any_process(world, workers):
    first, second = workers
    waits = asyncio.create_task(first.pull())
    await world.emit(agenda("a1", work("one"), work("two", payload="@<one.out>")))
    (one,) = await waits
    assert (one["agenda_id"], one["attempt"]) == ("a1", 1)
    assert [operation["name"] for operation in one["agenda"]["operations"]] == ["one", "two"]
    second.name = first.name
    running = {"name": "one", "state": "running", "percent": 40}
    status, answer = await second.report(one, "progress", operations=[running])
    assert (status, answer["stop"]) == (200, None)
    assert (await first.report(one, "heartbeat"))[0] == 200
    done = [
        {"name": "one", "state": "succeeded", "result": {"size": 12}},
        {"name": "two", "state": "succeeded"},
    ]
    spent = {"work": 1.5}
    status, _ = await second.report(
        one, "complete", outcome="succeeded", operations=done, spent_s=spent
    )
    assert status == 200
    await world.until_ended(1)
    (ended,) = world.of(AgendaSucceeded)
    assert (ended.insight_id, ended.spent_s) == ("media", spent)
    assert bytes(ended.operations[0].result) == b'{"size":12}'
    assert [event.attempt for event in world.of(AgendaClaimed)] == [1]
    assert {event.puller_id for event in world.of(AgendaHeartbeat)} == {"w1"}
    assert len(world.of(AgendaProgressed)) == 1
    assert await world.committed() == 1


async def test_no_caller_waits_while_agendas_lie_in_anyones_partitions(world, workers):
    names = [f"a{i}" for i in range(40)]
    got = Counter()

    async def run(worker):
        while sum(got.values()) < len(names):
            for one in await worker.pull(wait_s=1):
                got[one["agenda_id"]] += 1
                await worker.report(one, "complete", outcome="succeeded")

    async with within(WITHIN_S), asyncio.TaskGroup() as group:
        running = [group.create_task(run(worker)) for worker in workers]
        for name in names:
            await world.emit(agenda(name, work()))
        await asyncio.gather(*running)
    assert got == Counter(names)
    await world.until(lambda: len(world.of(AgendaSucceeded)) == len(names))
    assert sorted(world.ids(AgendaClaimed)) == sorted(names)


async def test_agendas_of_a_share_group_are_pulled_at_any_process(world, workers):
    await world.create("shared", group_type="share")
    emitted = [agenda(f"a{i}", work(), insight="shared") for i in range(4)]
    await world.emit(*emitted, insight="shared", group_type="share")
    got = []
    async with within(WITHIN_S):
        while len(got) < 4:
            for worker in workers:
                for one in await worker.pull(insight="shared", wait_s=2):
                    got.append(one["agenda_id"])
                    await worker.report(one, "complete", outcome="succeeded")
    await world.until_ended(4)
    assert sorted(got) == sorted(world.ids(AgendaSucceeded)) == ["a0", "a1", "a2", "a3"]


async def test_a_share_group_that_nobody_can_serve_is_refused_with_the_remedy(
    world, workers, monkeypatch
):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    await world.create("shared", group_type="share")
    for worker in workers:  # whichever process is the dispatcher
        async with within(WITHIN_S):
            status, problem = await worker.post("insights/shared/pull", count=1, wait_s=20)
        assert (status, problem["code"]) == (503, "unserved")
        assert "pip install 'pop-stream[share]'" in problem["detail"]
    # All others are served.
    await world.emit(agenda("a1", work()))
    assert [one["agenda_id"] for one in await workers[0].pull()] == ["a1"]


async def test_lone_caller_gets_what_lies_in_all_partitions(world, workers):
    names = {f"a{i}" for i in range(12)}
    await world.emit(*[agenda(name, work()) for name in names])
    got = set()
    async with within(WITHIN_S):
        while got < names:
            got.update(one["agenda_id"] for one in await workers[1].pull(count=5))
    assert await world.committed() == 12


async def test_only_as_many_are_claimed_as_are_wanted(world, workers):
    await world.emit(*[agenda(f"a{i}", work()) for i in range(8)])
    assert len(await workers[0].pull(count=1)) == 1
    assert len(await workers[1].pull(count=1)) == 1
    await world.read()
    await world.read()
    assert len(world.of(AgendaClaimed)) == await world.committed() == 2


async def test_agenda_whose_caller_has_gone_goes_to_the_next(world, workers):
    first, second = workers
    # Waits until the dispatcher knows the process, so that it is sent the agenda.
    await world.emit(agenda("a0", work()))
    await first.pull()
    gone = asyncio.create_task(first.pull())
    await asyncio.sleep(0)
    async with within(WITHIN_S):
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        await world.emit(agenda("a1", work()))
        (one,) = await second.pull()
    assert (one["agenda_id"], one["attempt"]) == ("a1", 1)


async def test_what_waits_for_a_caller_when_the_dispatchers_change_goes_to_the_next_one(world):
    """Nobody else has it, and its lease runs for a minute."""
    settings, publisher, clock = world.settings, world._publisher, WallClock()
    await world.emit(agenda("a1", work()))
    async with AsyncExitStack() as stack:
        deliveries = await stack.enter_async_context(KafkaHttpDeliveries(settings, publisher))
        dispatchers = [Dispatcher(settings, publisher, clock) for _ in range(2)]
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        running = [tasks.create_task(dispatchers[0].run())]
        async with within(WITHIN_S):
            (one,) = await deliveries.poll("media", 1, WAIT, is_connected=lambda: True)
            deliveries.return_delivery(one)
            while not any(each.demand.has_returned for each in counters(dispatchers)):  # noqa: ASYNC110
                await asyncio.sleep(0)
            running.append(tasks.create_task(dispatchers[1].run()))
            while counters(dispatchers):  # noqa: ASYNC110
                await asyncio.sleep(0)
            (again,) = await deliveries.poll("media", 1, WAIT, is_connected=lambda: True)
        for each in running:
            each.cancel()
    assert (again.agenda_id, again.attempt) == ("a1", 1)


def counters(dispatchers):
    return [one for each in dispatchers for one in each._dispatches.values()]


async def test_wait_ends_with_nothing_when_there_is_nothing(workers):
    assert await workers[0].pull(wait_s=0.2) == []
    status, problem = await workers[0].post("insights/gone/pull")
    assert (status, problem["code"]) == (404, "not_found")


async def test_a_stop_is_in_every_answer_and_an_outdated_attempt_is_refused(world, workers):
    first, second = workers
    await world.emit(agenda("a1", work()), agenda("a2", work()))
    one, two = await first.pull(count=2) + await first.pull(count=2, wait_s=1)
    if one["agenda_id"] == "a2":
        one, two = two, one
    await world.stop("a1")
    await world.stop("a2", reason="outdated")
    async with within(WITHIN_S):
        while (await second.report(one, "heartbeat"))[1]["stop"] != "cancelled":
            pass
        while (await second.report(two, "heartbeat"))[0] != 409:
            pass
    status, problem = await second.report(two, "complete", outcome="succeeded")
    assert (status, problem["code"]) == (409, "lease_lost")
    assert (await first.report(one, "complete", outcome="stopped"))[0] == 200
    await world.until(lambda: world.of(AgendaStopped))
    assert world.ids(AgendaSucceeded) == []


async def test_what_had_ended_before_runs_nowhere_again_and_its_end_is_published(
    world, workers
):
    """Its success was reported as the scheduler took its attempt for lost; this one follows."""
    began = WallClock().now()
    life = [
        AgendaAccepted(
            agenda_id="a1",
            at=began,
            insight_id="media",
            customer_id="acme",
            operations=("only",),
            agenda=msgspec.Raw(b"{}"),
        ),
        AgendaSucceeded(agenda_id="a1", at=began, insight_id="media", attempt=1),
    ]
    async with open_pool(world.settings) as pool:
        await PostgresSummaries(pool).fold("events", {0: (0, 2)}, life)
    after = agenda("a1", work(), attempt=2, run_from=1)
    await world.emit(after, agenda("a2", work()))
    got = []
    async with within(WITHIN_S):
        while "a2" not in got:
            got += [one["agenda_id"] for one in await workers[0].pull(count=2)]
    await world.until_ended(1)
    assert got == ["a2"]
    (end,) = world.of(AgendaSucceeded)
    assert (end.agenda_id, end.attempt) == ("a1", 2)


async def test_workers_over_http_share_an_insight_with_pullers_on_kafka(world, workers):
    got, emitted = [], []

    async def run(worker):
        while True:
            for one in await worker.pull(wait_s=1):
                got.append(one["agenda_id"])
                await worker.report(one, "complete", outcome="succeeded")

    puller = Puller("media", handlers=builtin(world.settings), settings=world.settings)
    async with serving(puller), asyncio.TaskGroup() as group:
        task = group.create_task(run(workers[0]))
        async with within(WITHIN_S):
            while not (got and set(world.ids(AgendaSucceeded)) - set(got)):
                emitted.append(f"a{len(emitted)}")
                await world.emit(agenda(emitted[-1]))
                await world.read()
        await world.until(lambda: set(world.ids(AgendaSucceeded)) == set(emitted))
        task.cancel()
    assert sorted(world.ids(AgendaSucceeded)) == sorted(emitted)
