"""Schedules on real servers: what is due is submitted, once, whoever dies meanwhile."""

import asyncio
import signal
from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
import pytest_asyncio
from aiohttp import ClientSession
from deadlines import within
from ledger_world import parts, running_ledger_world
from part_processes import process
from parts_in_process import all_but_pullers
from puller_world import serving

from pop_stream.composition.rollup import run_rollup
from pop_stream.composition.scheduler import run_scheduler
from pop_stream.kafka import connections
from pop_stream.kafka.definitions import publish_definitions
from pop_stream.kafka.topic_reader import read_topic
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions, Insight, Mappers
from pop_stream.model.events.codec import decode_schedule_state
from pop_stream.model.schedule import Schedule, nominal_of
from pop_stream.ports.occurrences import OccurrenceFilter
from pop_stream.ports.publisher import Record
from pop_stream.postgres.occurrences import PostgresOccurrences
from pop_stream.postgres.pool import open_pool
from pop_stream.puller import Puller

PATIENCE_S = 60
MEDIA = Insight(id="media", mappers=Mappers(operation_types=("noop",)), partitions=1)
SUBMISSION = {
    "customer_id": "acme",
    "operations": [
        {"name": "a", "type": "noop", "payload": {"at": "@<pop.occasion::/nominal>"}}
    ],
}


def schedule(schedule_id="tick@acme", **fields):
    defaults = {"owner": "acme", "trigger": {"every_s": 1}, "submission": SUBMISSION}
    return Schedule.model_validate({"id": schedule_id, **defaults, **fields})


@pytest_asyncio.fixture
async def world(settings, tmp_path):
    async with running_ledger_world(settings, tmp_path, MEDIA) as world:
        yield world


async def define(world, *schedules):
    async with connections.publisher(world.settings, client_id="test") as publisher:
        await publish_definitions(
            publisher, Topics(world.settings.topic_prefix), [*schedules], Definitions()
        )


class Seen:
    """A puller that keeps the nominal instants of what it ran, by agenda."""

    def __init__(self, settings):
        self.runs = []
        self.free = asyncio.Event()
        self.free.set()
        self.puller = Puller("media", settings=settings)
        self.puller.handler("noop")(self.run)

    async def run(self, call):
        self.runs.append((call.agenda_id, call.payload["at"]))
        await self.free.wait()

    @property
    def instants(self):
        return [datetime.fromisoformat(at) for _, at in self.runs]

    async def until(self, count):
        async with within(PATIENCE_S):
            while len(self.runs) < count:  # noqa: ASYNC110  # the puller runs beside
                await asyncio.sleep(0.02)


async def test_every_instant_is_run_once_in_order_and_names_itself(world):
    seen = Seen(world.settings)
    async with all_but_pullers(world.settings, within_s=2 * PATIENCE_S), serving(seen.puller):
        await define(world, schedule())
        await seen.until(5)
    gaps = {after - before for before, after in pairwise(seen.instants)}
    assert gaps == {timedelta(seconds=1)}
    agenda_id, at = seen.runs[0]
    assert agenda_id == f"tick.{datetime.fromisoformat(at):%Y%m%dT%H%M%SZ}@acme"
    assert set(Counter(one for one, _ in seen.runs).values()) == {1}


async def states(world):
    topic = Topics(world.settings.topic_prefix).timekeeper
    found = {}
    async for record in read_topic(world.settings, topic):
        found[record.key.decode()] = record.value and decode_schedule_state(record.value)
    return found


async def until_state(world, fits, schedule_id="tick@acme"):
    async with within(PATIENCE_S):
        while not ((state := (await states(world)).get(schedule_id)) and fits(state)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return state


async def until_listed(world, *states):
    """The occurrences of tick once some are in each of the states."""
    wanted = OccurrenceFilter("tick@acme")
    async with within(PATIENCE_S), open_pool(world.settings) as pool:
        store = PostgresOccurrences(pool)
        while True:
            found = (await store.page(wanted, limit=500)).occurrences
            if {*states} <= {one.state for one in found}:
                return found
            await asyncio.sleep(0.05)


async def test_while_one_runs_the_next_is_skipped_and_its_end_lets_the_next_start(world):
    seen = Seen(world.settings)
    seen.free.clear()
    async with all_but_pullers(world.settings, within_s=2 * PATIENCE_S), serving(seen.puller):
        await define(world, schedule(overlap="skip"))
        await seen.until(1)
        await until_state(world, lambda state: state.skipped >= 2)
        assert len(seen.runs) == 1
        seen.free.set()
        await seen.until(3)
        listed = await until_listed(world, "succeeded", "skipped")
    assert all(one.reason == "overlap" for one in listed if one.state == "skipped")
    [run] = listed[-1].runs
    assert (listed[-1].state, run.attempt) == ("succeeded", 1)
    gaps = {later.nominal - one.nominal for one, later in pairwise(reversed(listed))}
    assert gaps == {timedelta(seconds=1)}, "every instant is listed"
    assert seen.instants[1] - seen.instants[0] >= timedelta(seconds=3)


async def test_what_a_customer_may_not_submit_is_refused_under_the_occurrence_s_id(world):
    foreign = {"template_id": "secret", "payload": {}}
    async with all_but_pullers(world.settings, within_s=2 * PATIENCE_S) as url:
        await define(world, schedule(submission={**foreign, "customer_id": "acme"}))
        state = await until_state(world, lambda state: state.fired >= 1)
        stamp = nominal_of(state.previous).strftime("%Y%m%dT%H%M%SZ")
        async with ClientSession(url) as session, within(PATIENCE_S):
            path = f"/v1/agendas/tick.{stamp}@acme"
            while (answer := await session.get(path)).status == 404:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            body = await answer.json()
    assert body["state"] == "refused"
    assert "template" in str(body["issues"])


@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
async def test_no_instant_is_missed_or_run_twice_whatever_becomes_of_timekeepers(world, fault):
    seen = Seen(world.settings)
    async with parts(world.settings, run_scheduler, run_rollup), serving(seen.puller):
        await define(world, schedule())
        for runs in (2, 5):
            async with process("run_ingest", world.settings) as first:
                await seen.until(runs)
                first.send_signal(fault)
                if fault is signal.SIGSTOP:
                    async with process("run_ingest", world.settings):
                        await seen.until(runs + 2)
                        first.send_signal(signal.SIGCONT)
                        await seen.until(runs + 4)
        async with process("run_ingest", world.settings):
            await seen.until(12)
    found = seen.instants
    assert [count for count in Counter(found).values() if count > 1] == []
    span = (max(found) - min(found)) // timedelta(seconds=1)
    assert len(found) == span + 1


async def test_a_schedule_that_is_gone_fires_no_more_and_leaves_no_row(world):
    seen = Seen(world.settings)
    names = Topics(world.settings.topic_prefix)
    async with all_but_pullers(world.settings, within_s=2 * PATIENCE_S), serving(seen.puller):
        await define(world, schedule(), schedule("tock@acme"))
        await seen.until(2)
        async with connections.publisher(world.settings, client_id="test") as publisher:
            await publisher.publish([Record(names.definitions, b"schedule/tick@acme", None)])
        async with within(PATIENCE_S):
            while (await states(world)).get("tick@acme"):  # noqa: ASYNC110  # another part's
                await asyncio.sleep(0.1)
        fired = sum(one.startswith("tick") for one, _ in seen.runs)
        tocks = sum(one.startswith("tock") for one, _ in seen.runs)
        await seen.until(fired + tocks + 3)
        late = [one for one, _ in seen.runs[fired + tocks :] if one.startswith("tick")]
    assert len(late) <= 1  # what was submitted just before
