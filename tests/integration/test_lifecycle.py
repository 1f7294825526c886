"""Retries, stops, holds, dues and leases, decided by a real scheduler on a real Kafka.

Pullers are played by hand, so that each one fails, falls silent or obeys when the test wants.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest_asyncio
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.errors import KafkaError
from deadlines import scaled, within
from part_processes import process

from pop_stream.clock import WallClock
from pop_stream.kafka import clients, connections
from pop_stream.kafka.definitions import publish_definitions
from pop_stream.kafka.lifecycle_reader import lifecycle_records
from pop_stream.kafka.topic_reader import read_topic
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions, Insight, Mappers
from pop_stream.model.errors import TransitionError
from pop_stream.model.events.codec import (
    decode_emitted,
    decode_lifecycle,
    decode_query_reply,
    decode_ready,
    decode_stop,
    encode,
)
from pop_stream.model.events.lifecycle import (
    AgendaClaimed,
    AgendaCommanded,
    AgendaFailed,
    AgendaHeartbeat,
    AgendaRestarted,
    AgendaStopped,
    AgendaSucceeded,
)
from pop_stream.model.events.scheduling import (
    AttemptStop,
    EmittedAgenda,
    InsightAttemptsReported,
    QueueQueried,
    RecordRefused,
    RoutedAgenda,
)
from pop_stream.model.partitioning import partition_of
from pop_stream.model.retry import Backoff
from pop_stream.operations import provisioning
from pop_stream.policy.lifecycle.fold import fold
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.ports.publisher import Record
from pop_stream.settings import Settings

PATIENCE_S = 90
LEASE_S = 4.0
MEDIA = Insight(
    id="media",
    mappers=Mappers(operation_types=("noop",)),
    target=16,
    max_attempts=2,
    backoff=Backoff(first_s=0.3, jitter=0),
)
HANGING = (
    "import asyncio\n"
    "from pop_stream.composition.scheduler import run_scheduler\n"
    "from pop_stream.scheduler.event_handler import Rounds\n"
    "from pop_stream.settings import Settings\n"
    "async def handle(*_, **__): await asyncio.Event().wait()\n"
    "Rounds.handle = handle\n"
    "asyncio.run(run_scheduler(Settings(), asyncio.Event()))\n"
)


class Story:
    """What is known of agendas, and every event that a part can publish.

    Attributes:
        summaries: Folded from the lifecycle, by agenda.
        emitted: What pullers read, in order of arrival.
        stops: What pullers receive.
        letters: Dead letters.
        lease_s: Of the insight; as long as the machine needs it now.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.topics = Topics(settings.topic_prefix)
        self.clock = WallClock()
        self.publisher = connections.publisher(settings, client_id="story")
        self.summaries: dict[str, Summary] = {}
        self.emitted: list[EmittedAgenda] = []
        self.stops: list[AttemptStop] = []
        self.letters: list[RecordRefused] = []
        self.answers: list[Any] = []
        self.lease_s = scaled(LEASE_S)
        self._changed = asyncio.Condition()
        self._pulling: asyncio.Task[None] | None = None

    # ---- what is received ----

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until it is true of what was received; returns what it gave."""
        async with within(PATIENCE_S), self._changed:
            return await self._changed.wait_for(condition)

    async def state(self, agenda_id: str, state: State, attempt: int = 1) -> Summary:
        def reached() -> Summary | None:
            known = self.summaries.get(agenda_id)
            return known if known and (known.state, known.attempt) == (state, attempt) else None

        return await self.until(reached)

    async def attempt(self, agenda_id: str, attempt: int = 1) -> EmittedAgenda:
        return await self.until(
            lambda: next(
                (
                    one
                    for one in self.emitted
                    if (one.agenda_id, one.attempt) == (agenda_id, attempt)
                ),
                None,
            )
        )

    async def listen(self) -> None:
        topics = {
            self.topics.agenda_events: self._apply_lifecycle,
            self.topics.controls: lambda value: self.stops.append(decode_stop(value)),
            self.topics.query_replies: lambda value: self.answers.append(
                decode_query_reply(value)
            ),
            self.topics.dead_letters: lambda value: self.letters.append(
                msgspec.json.decode(value, type=RecordRefused)
            ),
        }
        consumer = clients.consumer(self.settings, *topics, client_id="listen", group_id=None)
        async with consumer:
            while True:
                fetched = await consumer.getmany(timeout_ms=100)
                async with self._changed:
                    for tp, records in fetched.items():
                        for record in records:
                            topics[tp.topic](record.value)
                    self._changed.notify_all()

    async def _until_led(self, consumer: Any, places: list[TopicPartition]) -> None:
        """A new topic's leaders may not know yet that they are; it reads nothing then."""
        while True:
            try:
                await consumer.beginning_offsets(places)
            except KafkaError:
                await asyncio.sleep(0.1)
            else:
                return

    def _apply_lifecycle(self, value: bytes) -> None:
        for event in decode_lifecycle(value):
            with suppress(TransitionError):
                known = self.summaries.get(event.agenda_id)
                self.summaries[event.agenda_id] = fold(known, event)

    async def pull(self) -> None:
        """Read the insight's topic as its pullers' group, and commit at once."""
        topic = self.topics.insight("media")
        group = self.topics.puller_group("media")
        consumer = clients.consumer(self.settings, client_id="pull", group_id=group)
        async with consumer:
            while topic not in await consumer.topics():  # noqa: ASYNC110  # no event tells
                await asyncio.sleep(0.05)
            consumer.subscribe([topic])
            while True:
                fetched = await consumer.getmany(timeout_ms=100)
                async with self._changed:
                    for records in fetched.values():
                        self.emitted += [decode_emitted(one.value) for one in records]
                    self._changed.notify_all()
                if fetched:
                    await consumer.commit()

    async def relayed(self, agenda_ids: set[str]) -> None:
        """Wait until the scheduler's topic has a command of each."""
        left = set(agenda_ids)
        async with within(PATIENCE_S):
            while left:
                async for record in read_topic(self.settings, self.topics.ready):
                    for event in decode_ready(record.value):
                        if isinstance(event, InsightAttemptsReported):
                            left -= {one.agenda_id for one in event.commands}

    def start_pulling(self) -> None:
        self._pulling = asyncio.create_task(self.pull())

    async def stop_pulling(self) -> None:
        assert self._pulling is not None
        self._pulling.cancel()
        with suppress(asyncio.CancelledError):
            await self._pulling

    async def remove_emitted(self) -> None:
        """Take all there is off the insight's topic, as for its age."""
        topic = self.topics.insight("media")
        count = await self.publisher.partitions(topic)
        async with connections.admin_client(self.settings) as admin:
            await admin.delete_records(
                {TopicPartition(topic, n): RecordsToDelete(-1) for n in range(count)}
            )

    # ---- what is said ----

    async def submit(self, agenda_id: str, **fields: Any) -> None:
        document = {
            "id": agenda_id,
            "customer_id": "ann",
            "operations": [{"name": "only", "type": "noop"}],
        }
        value = json.dumps(document | fields, default=str).encode()
        await self.publisher.publish([Record(self.topics.submissions, None, value, 0)])

    async def command(self, agenda_id: str, action: Any, **fields: Any) -> None:
        await self.say(
            AgendaCommanded(
                agenda_id=agenda_id,
                at=self.clock.now(),
                insight_id="media",
                action=action,
                **fields,
            )
        )

    async def claim(self, one: EmittedAgenda) -> None:
        await self.tell(one, AgendaClaimed, puller_id="hand", lease_ms=one.lease_ms)

    async def renew(self, one: EmittedAgenda) -> None:
        await self.tell(one, AgendaHeartbeat, puller_id="hand", lease_ms=one.lease_ms)

    @asynccontextmanager
    async def beating(self, one: EmittedAgenda) -> AsyncIterator[None]:
        """Its puller gives signs of life."""

        async def beat() -> None:
            while True:
                await self.renew(one)
                await asyncio.sleep(self.lease_s / 4)

        task = asyncio.create_task(beat())
        try:
            yield
        finally:
            task.cancel()

    async def tell(self, one: EmittedAgenda, kind: Any, **fields: Any) -> None:
        await self.say(
            kind(
                agenda_id=one.agenda_id,
                at=self.clock.now(),
                insight_id="media",
                attempt=one.attempt,
                **fields,
            )
        )

    async def rerun(self, agenda_id: str, attempt: int) -> None:
        now = self.clock.now()
        placed = RoutedAgenda(
            agenda_id=agenda_id,
            customer_id="ann",
            accepted_at=now,
            agenda=msgspec.Raw(b"{}"),
            operation_types=("noop", "noop"),
            attempt=attempt,
        )
        await self.say(
            AgendaRestarted(
                agenda_id=agenda_id,
                at=now,
                insight_id="media",
                attempt=attempt,
                routed=msgspec.Raw(encode(placed)),
            )
        )

    async def say(self, event: Any) -> None:
        topic = self.topics.agenda_events
        await self.publisher.publish(await lifecycle_records(self.publisher, topic, [event]))

    async def ask(self, *agenda_ids: str) -> Any:
        """What the scheduler says of these agendas."""
        question = QueueQueried(
            insight_id="media", query_id=f"q{len(self.answers)}", agenda_ids=agenda_ids
        )
        partitions = await self.publisher.partitions(self.topics.ready)
        where = partition_of(b"media", partitions)
        record = Record(self.topics.ready, b"media", encode(question), where)
        await self.publisher.publish([record])
        return await self.until(
            lambda: next(
                (one for one in self.answers if one.query_id == question.query_id), None
            )
        )

    def later(self, seconds: float) -> str:
        return (self.clock.now() + timedelta(seconds=seconds)).isoformat()


@pytest_asyncio.fixture
async def story(settings: Settings, tmp_path: Any) -> AsyncIterator[Story]:
    """A story without ingest and scheduler yet."""
    known = settings.model_copy(
        update={
            "scheduler_data": tmp_path / "table",
            "session_timeout": scaled(timedelta(seconds=6)),
        }
    )
    await provisioning.ensure_topics(known)
    story = Story(known)
    async with story.publisher, asyncio.TaskGroup() as tasks:
        leased = MEDIA.model_copy(update={"lease_ms": int(story.lease_s * 1000)})
        await publish_definitions(story.publisher, story.topics, [leased], Definitions())
        listening = tasks.create_task(story.listen())
        story.start_pulling()
        yield story
        await story.stop_pulling()
        listening.cancel()


@pytest_asyncio.fixture
async def parts(story: Story) -> AsyncIterator[dict[str, asyncio.subprocess.Process]]:
    """Ingest with its relay, and the scheduler, each in a process."""
    async with AsyncExitStack() as stack:
        started = {
            name: await stack.enter_async_context(process(name, story.settings))
            for name in ("run_ingest", "run_scheduler")
        }
        await story.submit("first")  # so that instants are not spent on waiting for the start
        await story.tell(await story.attempt("first"), AgendaSucceeded)
        await story.state("first", State.SUCCEEDED)
        yield started


async def test_a_failing_agenda_is_tried_again_after_its_pause_and_then_dead_lettered(
    story, parts
):
    await story.submit("a")
    first = await story.attempt("a")
    await story.claim(first)
    failed_at = story.clock.now()
    await story.tell(first, AgendaFailed, message="no luck")
    second = await story.attempt("a", 2)
    assert second.emitted_at - failed_at >= timedelta(seconds=0.3)
    await story.claim(second)
    await story.tell(second, AgendaFailed, message="no luck again")
    ended = await story.state("a", State.FAILED, 2)
    assert ended.message == "no luck again"
    assert [(one.attempt, one.outcome) for one in ended.history] == [(1, "failed")]
    [letter] = await story.until(lambda: story.letters)
    assert (letter.code, letter.part) == ("attempts_exhausted", "scheduler")
    assert "no luck again" in letter.reason
    assert (await story.ask("a")).holds == ()


async def test_a_final_failure_is_not_tried_again(story, parts):
    await story.submit("a", max_attempts=9)
    await story.tell(await story.attempt("a"), AgendaFailed, message="bad", retryable=False)
    await story.state("a", State.FAILED)
    [letter] = await story.until(lambda: story.letters)
    assert letter.code == "final_failure"


async def test_a_silent_puller_loses_its_agenda_and_a_heartbeat_keeps_it(story, parts):
    await story.submit("dead")
    await story.submit("alive")
    dead, alive = await story.attempt("dead"), await story.attempt("alive")
    await story.claim(dead)
    await story.claim(alive)
    async with story.beating(alive):
        second = await story.attempt("dead", 2)
        waited = second.emitted_at - dead.emitted_at
        assert story.lease_s < waited.total_seconds() < story.lease_s + scaled(15.0)
        # Its first puller wakes up and learns that it is too late.
        await story.renew(dead)
        await story.until(
            lambda: [
                one for one in story.stops if one.reason == "outdated" and one.attempt == 1
            ]
        )
        await story.tell(second, AgendaSucceeded)
        ended = await story.state("dead", State.SUCCEEDED, 2)
        assert ended.history[0].outcome == "lost"
    await story.tell(alive, AgendaSucceeded)
    await story.state("alive", State.SUCCEEDED)


async def test_what_is_read_and_never_claimed_is_emitted_again(story, parts):
    await story.submit("a")
    await story.attempt("a", 1)
    second = await story.attempt("a", 2)
    await story.tell(second, AgendaSucceeded)
    await story.state("a", State.SUCCEEDED, 2)


async def test_what_is_removed_unread_is_emitted_again(story, parts):
    await story.stop_pulling()
    await story.submit("a")
    await story.state("a", State.EMITTED)
    await story.remove_emitted()
    story.start_pulling()
    second = await story.attempt("a", 2)
    await story.tell(second, AgendaSucceeded)
    await story.state("a", State.SUCCEEDED, 2)


async def test_cancel_takes_what_waits_and_stops_what_runs(story, parts):
    await story.submit("held", hold=True)
    await story.submit("run")
    await story.state("held", State.HELD)
    running = await story.attempt("run")
    await story.claim(running)
    await story.state("run", State.RUNNING)
    async with story.beating(running):
        for one in ("held", "run"):
            await story.command(one, "cancel", by="ann", reason="not wanted")
        cancelled = await story.state("held", State.CANCELLED)
        assert cancelled.message == "by ann: not wanted"
        await story.until(lambda: story.stops)
        assert story.stops[0].reason == "cancelled"
        await story.tell(running, AgendaStopped)
        await story.state("run", State.CANCELLED)
    await story.command("run", "cancel")
    assert (await story.ask("held", "run")).holds == ()


async def test_what_is_held_or_cancelled_while_no_scheduler_runs_never_starts(story):
    kept, held, cancelled = ([f"{what}-{n}" for n in range(4)] for what in "rhc")
    async with process("run_ingest", story.settings):
        for one in (*held, *cancelled, *kept):
            await story.submit(one)
        for one in (*held, *cancelled, *kept):
            await story.until(lambda one=one: one in story.summaries)
        for one in held:
            await story.command(one, "hold")
        for one in cancelled:
            await story.command(one, "cancel")
        await story.relayed({*held, *cancelled})
        async with process("run_scheduler", story.settings):
            for one in held:
                await story.state(one, State.HELD)
            for one in cancelled:
                await story.state(one, State.CANCELLED)
            for one in kept:
                await story.attempt(one)
    assert sorted(one.agenda_id for one in story.emitted) == kept


async def test_a_silent_puller_cannot_keep_its_agenda_from_being_cancelled(story, parts):
    await story.submit("a")
    await story.claim(await story.attempt("a"))
    await story.state("a", State.RUNNING)
    await story.command("a", "cancel")
    await story.state("a", State.CANCELLED)


async def test_a_start_in_the_future_a_hold_and_a_release(story, parts):
    due = story.clock.now() + timedelta(seconds=2)
    await story.submit("later", not_before=due.isoformat())
    await story.submit("held", hold=True)
    await story.state("later", State.WAITING)
    await story.state("held", State.HELD)
    emitted = await story.attempt("later")
    assert timedelta() <= emitted.emitted_at - due < scaled(timedelta(seconds=5))
    assert [one.agenda_id for one in story.emitted] == ["first", "later"]
    answer = await story.ask("later", "held", "nobody")
    assert [(one.agenda_id, one.state) for one in answer.holds] == [
        ("later", "emitted"),
        ("held", "held"),
    ]
    await story.command("held", "release")
    await story.attempt("held")


async def test_a_deadline_ends_what_waits_and_stops_what_runs(story, parts):
    await story.submit("waits", expires_at=story.later(15), hold=True)
    await story.submit("runs", expires_at=story.later(15))
    running = await story.attempt("runs")
    await story.claim(running)
    async with story.beating(running):
        await story.state("waits", State.EXPIRED)
        await story.until(lambda: [one for one in story.stops if one.reason == "expired"])
        await story.tell(running, AgendaStopped)
        await story.state("runs", State.EXPIRED)


async def test_a_frozen_relay_ends_nobodys_lease(story, parts):
    await story.submit("a")
    first = await story.attempt("a")
    await story.claim(first)
    await story.state("a", State.RUNNING)
    parts["run_ingest"].send_signal(signal.SIGSTOP)
    for _ in range(6):
        await story.renew(first)
        await asyncio.sleep(story.lease_s / 4)
    parts["run_ingest"].send_signal(signal.SIGCONT)
    for _ in range(6):
        await story.renew(first)
        await asyncio.sleep(story.lease_s / 4)
    await story.tell(first, AgendaSucceeded)
    ended = await story.state("a", State.SUCCEEDED)
    assert ended.history == ()
    assert [one.agenda_id for one in story.emitted] == ["first", "a"]


async def test_a_killed_scheduler_loses_no_retry(story):
    ids = [f"a{number}" for number in range(12)]
    async with process("run_ingest", story.settings):
        async with process("run_scheduler", story.settings) as scheduler:
            for one in ids:
                await story.submit(one, backoff={"first_s": 4, "jitter": 0})
            for one in ids:
                first = await story.attempt(one)
                await story.claim(first)
                await story.tell(first, AgendaFailed, message="no")
            for one in ids:
                await story.state(one, State.WAITING, 2)
            scheduler.send_signal(signal.SIGKILL)
            await scheduler.wait()
        async with process("run_scheduler", story.settings):
            for one in ids:
                await story.tell(await story.attempt(one, 2), AgendaSucceeded)
            for one in ids:
                await story.state(one, State.SUCCEEDED, 2)


async def test_what_had_ended_runs_again_and_resumes(story, parts):
    await story.submit("a")
    await story.tell(await story.attempt("a"), AgendaSucceeded)
    await story.state("a", State.SUCCEEDED)
    await story.rerun("a", 2)
    second = await story.attempt("a", 2)
    assert second.run_from == 2
    await story.tell(second, AgendaSucceeded)
    await story.state("a", State.SUCCEEDED, 2)


async def test_a_cancel_that_a_crash_repeats_leaves_a_rerun_alone(story, parts):
    for agenda_id in ("a", "after"):
        await story.submit(agenda_id, hold=True)
        await story.state(agenda_id, State.HELD)
    parts["run_ingest"].send_signal(signal.SIGKILL)
    async with process("run_ingest", story.settings, crash_point="relay.published") as dying:
        # No attempt is named, as by a foreign program: the place alone tells that it is known.
        await story.command("a", "cancel")
        async with within(PATIENCE_S):
            assert await dying.wait() == -signal.SIGKILL
    await story.state("a", State.CANCELLED)
    await story.rerun("a", 2)
    await story.rerun("a", 2)  # as of two people at once
    async with process("run_ingest", story.settings):
        second = await story.attempt("a", 2)
        await story.command("after", "cancel")
        await story.state("after", State.CANCELLED)
        assert [(one.state, one.attempt) for one in (await story.ask("a")).holds] == [
            ("emitted", 2)
        ]
        assert not story.stops
        await story.tell(second, AgendaSucceeded)
        await story.state("a", State.SUCCEEDED, 2)
        await story.rerun("a", 2)
        await story.submit("last")
        await story.attempt("last")
        assert [one.attempt for one in story.emitted if one.agenda_id == "a"] == [2]


async def test_a_scheduler_that_hangs_ends_its_process(story):
    hanging = process("", story.settings, HANGING, POP_STALL_TIMEOUT="PT10S")
    async with process("run_ingest", story.settings), hanging as scheduler:
        await story.submit("a")
        async with within(PATIENCE_S):
            assert await scheduler.wait() not in {0, -signal.SIGKILL}
