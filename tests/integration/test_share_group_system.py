"""An insight of a share group, from submission to its end, while a puller is killed with -9."""

import asyncio
import json
import os
import signal
from collections import Counter, defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import crash_points
import pytest
import pytest_asyncio
from deadlines import scaled, within
from part_processes import process

from pop_stream.kafka import clients, connections
from pop_stream.kafka.definitions import publish_definitions
from pop_stream.kafka.topics import Topics
from pop_stream.lab.chaos.handlers import STARTS, WORK, read_starts
from pop_stream.model.definitions import Definitions, Insight, Mappers
from pop_stream.model.events.codec import decode_lifecycle
from pop_stream.model.events.lifecycle import AgendaFailed, AgendaSucceeded
from pop_stream.operations import provisioning
from pop_stream.policy.lifecycle.fold import fold_all
from pop_stream.policy.lifecycle.states import State
from pop_stream.ports.publisher import Record
from pop_stream.puller.claiming.capacity import MAX_PREFETCH_PER_RUNNER

PATIENCE_S = 90
RUNNERS = 2
SHARED = Insight(
    id="shared",
    mappers=Mappers(operation_types=(WORK,)),
    group_type="share",
    partitions=1,
    max_attempts=10,
)


class World:
    def __init__(self, settings, publisher, consumer, starts):
        self.settings = settings
        self.starts_file = starts
        self.events = []
        self._publisher = publisher
        self._consumer = consumer
        self._names = Topics(settings.topic_prefix)

    async def submit(self, first, count, *, takes_s=0.1):
        operation = {"name": "only", "type": WORK, "payload": takes_s}
        values = [
            {"id": f"a{n}", "customer_id": f"c{n % 3}", "operations": [operation]}
            for n in range(first, first + count)
        ]
        topic = self._names.submissions
        await self._publisher.publish(
            [Record(topic, None, json.dumps(one).encode(), 0) for one in values]
        )
        return {one["id"] for one in values}

    async def until(self, is_enough):
        async with within(PATIENCE_S):
            while not is_enough():
                for records in (await self._consumer.getmany(timeout_ms=200)).values():
                    for record in records:
                        self.events.extend(decode_lifecycle(record.value))

    async def until_fewer_wait(self, count, wanted):
        await self.until(lambda: len(wanted - self.ids(AgendaSucceeded)) < count)

    def ids(self, *kinds):
        return {one.agenda_id for one in self.events if isinstance(one, kinds)}

    def summaries(self):
        events = defaultdict(list)
        for one in self.events:
            events[one.agenda_id].append(one)
        return {agenda_id: fold_all(None, some)[0] for agenda_id, some in events.items()}

    def starts(self):
        return [*read_starts(self.starts_file)]

    def starts_of(self, pid):
        return [one for one in self.starts() if one.pid == pid]

    @asynccontextmanager
    async def puller(self, crash_point=None):
        """A puller with two runners, in a process of its own; killed at the end."""
        command = ("pull", "--insight=shared", f"--concurrency={RUNNERS}")
        started = await asyncio.create_subprocess_exec(
            *crash_points.command(crash_point),
            *command,
            "--handlers=pop_stream.lab.chaos.handlers:handlers",
            env=os.environ
            | {
                "POP_KAFKA_BOOTSTRAP": self.settings.kafka_bootstrap,
                "POP_TOPIC_PREFIX": self.settings.topic_prefix,
                STARTS: str(self.starts_file),
            },
        )
        try:
            yield started
        finally:
            if started.returncode is None:
                started.kill()
            await started.wait()


@pytest_asyncio.fixture
async def world(settings, tmp_path):
    known = settings.model_copy(
        update={
            "scheduler_data": tmp_path / "table",
            "session_timeout": scaled(timedelta(seconds=6)),
        }
    )
    names = Topics(known.topic_prefix)
    await provisioning.ensure_topics(known)
    consumer = clients.consumer(known, names.agenda_events, client_id="look", group_id=None)
    async with (
        connections.publisher(known, client_id="test") as publisher,
        consumer,
        process("run_ingest", known),
        process("run_scheduler", known),
    ):
        leased = SHARED.model_copy(update={"lease_ms": int(scaled(3_000.0))})
        await publish_definitions(publisher, names, [leased], Definitions())
        yield World(known, publisher, consumer, tmp_path / "starts")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("place", [None, "puller.claimed:4", "puller.committed:4"])
async def test_a_killed_puller_loses_nothing_and_only_what_it_had_is_run_again(world, place):
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(world.puller())
        victim = await stack.enter_async_context(world.puller(place))
        wanted = set()
        while victim.returncode is None:
            wanted |= await world.submit(len(wanted), 20)
            await world.until_fewer_wait(20, wanted)
            if place is None and len(world.starts_of(victim.pid)) >= 4:
                victim.kill()
                await victim.wait()
        await world.until_fewer_wait(1, wanted)
    starts = world.starts()
    assert {one.agenda_id for one in starts} == wanted
    # No attempt was started twice, whatever the puller died of.
    assert max(Counter((one.agenda_id, one.attempt) for one in starts).values()) == 1
    assert len({one.pid for one in starts}) == 3
    again = {one.agenda_id for one in starts if one.attempt > 1}
    held = {one.agenda_id for one in starts if one.pid == victim.pid}
    # Its runners' agendas, and what it had claimed and not started.
    assert len(again - held) <= MAX_PREFETCH_PER_RUNNER * RUNNERS
    assert place != "puller.claimed:4" or again <= held
    assert not world.ids(AgendaFailed)


@pytest.mark.timeout(300)
async def test_a_puller_frozen_past_its_lease_is_fenced_and_takes_part_again(world):
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(world.puller())
        victim = await stack.enter_async_context(world.puller())
        wanted = set()
        while len(world.starts_of(victim.pid)) < RUNNERS + 1:
            wanted |= await world.submit(len(wanted), 12, takes_s=0.5)
            await world.until_fewer_wait(12, wanted)
        victim.send_signal(signal.SIGSTOP)
        await world.until_fewer_wait(1, wanted)
        before = len(world.starts_of(victim.pid))
        victim.send_signal(signal.SIGCONT)
        while len(world.starts_of(victim.pid)) == before:
            wanted |= await world.submit(len(wanted), 12)
            await world.until_fewer_wait(12, wanted)
        await world.until_fewer_wait(1, wanted)
    starts = world.starts()
    assert max(Counter((one.agenda_id, one.attempt) for one in starts).values()) == 1
    again = {one.agenda_id for one in starts if one.attempt > 1}
    held = {one.agenda_id for one in starts if one.pid == victim.pid and one.attempt == 1}
    assert again & held  # it was frozen while it ran something
    # Whatever it says of its old attempts: they ended by the newest.
    last = {one.agenda_id: one.attempt for one in sorted(starts, key=lambda one: one.attempt)}
    summaries = world.summaries()
    assert {*summaries} == wanted
    assert {one.state for one in summaries.values()} == {State.SUCCEEDED}
    assert {one: summaries[one].attempt for one in wanted} == last
