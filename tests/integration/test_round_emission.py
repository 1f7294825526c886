"""From `pop.submissions` to an insight's topic, on a real Kafka, with restarts and kills."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from deadlines import scaled, within
from part_processes import process
from parts_in_process import ending_in_order

from pop_stream.clock import WallClock
from pop_stream.composition.ingest import run_ingest
from pop_stream.composition.scheduler import run_scheduler
from pop_stream.kafka import clients, connections
from pop_stream.kafka.definitions import publish_definitions
from pop_stream.kafka.lifecycle_reader import lifecycle_records
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Customer, Definitions, Insight, Mappers
from pop_stream.model.events.codec import decode_emitted
from pop_stream.model.events.lifecycle import AgendaClaimed, AgendaSucceeded
from pop_stream.model.events.scheduling import EmittedAgenda
from pop_stream.operations import provisioning
from pop_stream.ports.publisher import Record
from pop_stream.settings import Settings

PATIENCE_S = 45
MEDIA = Insight(id="media", mappers=Mappers(operation_types=("noop",)), target=16)


class Bench:
    """One insight's way, driven by hand.

    Attributes:
        seen: Every record of the insight's topic, in order of arrival.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.topics = Topics(settings.topic_prefix)
        self.seen: list[EmittedAgenda] = []
        self.publisher = connections.publisher(settings, client_id="bench")
        self._clock = WallClock()

    async def submit(self, customer_id: str, count: int, first: int = 0) -> list[str]:
        ids = [f"{customer_id}-{number}" for number in range(first, first + count)]
        await self.publish(*({"id": one, **agenda(customer_id)} for one in ids))
        return ids

    async def publish(self, *documents: Any) -> None:
        values = [
            one if isinstance(one, bytes) else json.dumps(one).encode() for one in documents
        ]
        await self.publisher.publish(
            [Record(self.topics.submissions, None, one, 0) for one in values]
        )

    async def define(self, *definitions: Any) -> None:
        await publish_definitions(self.publisher, self.topics, definitions, Definitions())

    async def pull(self, until: Callable[[], bool], *, settle: bool = True) -> None:
        """Read the insight's topic, and claim and settle what comes, until a condition."""
        async with within(PATIENCE_S), self._consumer() as consumer:
            while not until():
                fetched = await consumer.getmany(timeout_ms=100, max_records=50)
                records = [one for some in fetched.values() for one in some]
                emitted = [decode_emitted(record.value) for record in records]
                self.seen += emitted
                if settle and emitted:
                    await self._settle(emitted)
                    await consumer.commit()

    async def records(self, topic: str, count: int) -> list[Any]:
        """The first so many records of a topic."""
        async with within(PATIENCE_S):
            consumer = clients.consumer(self.settings, topic, client_id="look", group_id=None)
            found: list[Any] = []
            async with consumer:
                while len(found) < count:
                    fetched = await consumer.getmany(timeout_ms=100)
                    found += [json.loads(r.value) for some in fetched.values() for r in some]
            return found

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[Any]:
        topic = self.topics.insight("media")
        group = self.topics.puller_group("media")
        consumer = clients.consumer(self.settings, client_id="pull", group_id=group)
        async with consumer:
            while not await _is_there(topic, consumer):  # noqa: ASYNC110  # no event tells
                await asyncio.sleep(0.05)
            consumer.subscribe([topic])
            yield consumer

    async def _settle(self, emitted: list[EmittedAgenda]) -> None:
        now = self._clock.now()
        claims = [
            AgendaClaimed(
                agenda_id=one.agenda_id,
                at=now,
                insight_id="media",
                attempt=one.attempt,
                puller_id="bench",
                lease_ms=one.lease_ms,
            )
            for one in emitted
        ]
        ends = [
            AgendaSucceeded(
                agenda_id=one.agenda_id, at=now, insight_id="media", attempt=one.attempt
            )
            for one in emitted
        ]
        topic = self.topics.agenda_events
        await self.publisher.publish(
            await lifecycle_records(self.publisher, topic, [*claims, *ends])
        )


def agenda(customer_id: str) -> dict[str, Any]:
    return {"customer_id": customer_id, "operations": [{"name": "only", "type": "noop"}]}


async def _is_there(topic: str, consumer: AIOKafkaConsumer) -> bool:
    """A broker that is busy with other tests may have to be asked again."""
    with suppress(KafkaError):
        return topic in await consumer.topics()
    return False


@asynccontextmanager
async def part(run: Callable[..., Any], settings: Settings) -> AsyncIterator[None]:
    """A part in this process, stopped in order at the end."""
    stop = asyncio.Event()
    async with ending_in_order(stop, run(settings, stop)):
        yield


@pytest_asyncio.fixture
async def bench(settings: Settings, tmp_path) -> AsyncIterator[Bench]:
    known = settings.model_copy(
        update={
            "scheduler_data": tmp_path / "table",
            "session_timeout": scaled(timedelta(seconds=6)),
        }
    )
    await provisioning.ensure_topics(known)
    bench = Bench(known)
    async with bench.publisher:
        await bench.define(MEDIA)
        yield bench


async def test_every_good_agenda_is_emitted_once_and_every_bad_one_is_refused_with_the_reason(
    bench,
):
    async with (
        part(run_ingest, bench.settings),
        part(run_scheduler, bench.settings),
    ):
        wanted = {*await bench.submit("a", 200), *await bench.submit("b", 200)}
        mixed = [{"id": "in-list", **agenda("c")}, {"id": "bad", "customer_id": "c"}, 7]
        await bench.publish(b"\xff\xfe", b"", mixed, agenda("keyless"))
        await bench.pull(lambda: len(bench.seen) >= 402)
        letters = await bench.records(bench.topics.dead_letters, 3)
    emitted = Counter(one.agenda_id for one in bench.seen)
    assert set(emitted.values()) == {1}
    assert {one for one in emitted if not one.startswith("0-")} == wanted | {"in-list"}
    assert {one["code"] for one in letters} == {"unreadable_record", "submission_refused"}
    assert any("operations" in one["reason"] for one in letters)


async def test_without_claims_no_more_than_the_target_is_emitted(bench):
    async with (
        part(run_ingest, bench.settings),
        part(run_scheduler, bench.settings),
    ):
        await bench.submit("a", 100)
        await bench.pull(lambda: len(bench.seen) >= MEDIA.target, settle=False)
        [decision] = await bench.records(bench.topics.decisions, 1)
    assert len(bench.seen) == MEDIA.target
    assert (decision["slots"], decision["ready"], decision["waiting"]) == (16, 84, "depth")
    assert decision["chosen"] == [one.agenda_id for one in sorted(
        bench.seen, key=lambda one: decision["chosen"].index(one.agenda_id)
    )]  # fmt: skip


async def test_an_orderly_restart_loses_nothing_and_repeats_nothing(bench):
    async with part(run_ingest, bench.settings):
        async with part(run_scheduler, bench.settings):
            wanted = await bench.submit("a", 300)
            await bench.pull(lambda: len(bench.seen) >= 60)
        async with part(run_scheduler, bench.settings):
            await bench.pull(lambda: len(bench.seen) >= 300)
    assert Counter(one.agenda_id for one in bench.seen) == Counter(wanted)


@pytest.mark.timeout(180)
async def test_a_killed_scheduler_loses_nothing_and_repeats_only_whole_attempts(bench):
    async with part(run_ingest, bench.settings):
        async with process("run_scheduler", bench.settings):
            wanted = await bench.submit("a", 300)
            await bench.pull(lambda: len(bench.seen) >= 60)
        async with process("run_scheduler", bench.settings):
            await bench.pull(lambda: len({one.agenda_id for one in bench.seen}) >= 300)
    assert {one.agenda_id for one in bench.seen} == set(wanted)
    assert {one.attempt for one in bench.seen} == {1}
    repeats = len(bench.seen) - 300
    assert repeats <= MEDIA.target


@pytest.mark.timeout(180)
async def test_a_scheduler_that_was_frozen_past_its_session_goes_on(bench):
    async with (
        part(run_ingest, bench.settings),
        process("run_scheduler", bench.settings) as frozen,
    ):
        wanted = await bench.submit("a", 20)
        await bench.pull(lambda: len(bench.seen) >= 20)
        frozen.send_signal(signal.SIGSTOP)
        wanted += await bench.submit("a", 20, first=20)
        await asyncio.sleep(1.5 * bench.settings.session_timeout.total_seconds())
        frozen.send_signal(signal.SIGCONT)
        await bench.pull(lambda: len({one.agenda_id for one in bench.seen}) >= 40)
    assert {one.agenda_id for one in bench.seen} == set(wanted)
    assert len(bench.seen) - 40 <= MEDIA.target


@pytest.mark.timeout(180)
async def test_a_killed_ingest_routes_nothing_twice(bench):
    async with part(run_scheduler, bench.settings):
        async with process("run_ingest", bench.settings):
            wanted = await bench.submit("a", 400)
            await bench.pull(lambda: len(bench.seen) >= 20)
        async with process("run_ingest", bench.settings):
            wanted += await bench.submit("a", 100, first=400)
            await bench.pull(lambda: len({one.agenda_id for one in bench.seen}) >= 500)
    assert Counter(one.agenda_id for one in bench.seen) == Counter(wanted)


async def test_a_new_weight_acts_on_the_standing_backlog(bench):
    async with (
        part(run_ingest, bench.settings),
        part(run_scheduler, bench.settings),
    ):
        await bench.submit("a", 400)
        await bench.submit("b", 400)
        await bench.pull(lambda: len(bench.seen) >= 200)
        await bench.define(Customer(id="a", weight=9.0))
        before = len(bench.seen)
        await bench.pull(lambda: len(bench.seen) >= before + 300)
    later = Counter(one.customer_id for one in bench.seen[before + 2 * MEDIA.target :])
    assert later["a"] > 4 * later["b"] > 0


async def test_a_paused_customer_keeps_its_backlog_until_it_goes_on(bench):
    await bench.define(Customer(id="a", paused=True))
    async with (
        part(run_ingest, bench.settings),
        part(run_scheduler, bench.settings),
    ):
        await bench.submit("a", 20)
        await bench.submit("b", 40)
        await bench.pull(lambda: len(bench.seen) >= 40)
        assert {one.customer_id for one in bench.seen} == {"b"}
        await bench.define(Customer(id="a"))
        await bench.pull(lambda: len(bench.seen) >= 60)
    assert Counter(one.customer_id for one in bench.seen) == {"a": 20, "b": 40}
