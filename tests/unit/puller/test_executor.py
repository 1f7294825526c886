"""Attempts from start to end, and the leases meanwhile."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from time import monotonic
from types import SimpleNamespace

import msgspec
import pytest
from deadlines import within
from fakes import ManualClock
from msgspec.structs import replace
from puller_fakes import AT, emitted, node, pool, run_context
from structlog.testing import capture_logs

from pop_stream.model.events.lifecycle import (
    AgendaFailed,
    AgendaHeartbeat,
    AgendaProgressed,
    AgendaStopped,
    AgendaSucceeded,
)
from pop_stream.model.events.scheduling import AttemptStop
from pop_stream.puller import FinalError, Handlers
from pop_stream.puller.claiming.capacity import Capacity
from pop_stream.puller.claiming.claims import ClaimedAttempt
from pop_stream.puller.execution import executor as module
from pop_stream.puller.execution.agenda_run import PriorResults
from pop_stream.puller.execution.executor import AttemptExecutor
from pop_stream.puller.reporting.lease_renewer import LeaseRenewer


class Reported(list):
    """Stands in for the reporter."""

    def add(self, lifecycle):
        self.extend(lifecycle)


@pytest.fixture(autouse=True)
async def bounded():
    async with within(10):
        yield


@pytest.fixture
def handlers():
    return Handlers()


@asynccontextmanager
async def puller(handlers, slots=4, prior_results_reader=None):
    reported, capacity = Reported(), Capacity(slots)
    with pool() as threads:
        async with asyncio.TaskGroup() as group:
            running = AttemptExecutor(
                group, run_context(handlers, threads), reported, capacity, prior_results_reader
            )
            yield SimpleNamespace(running=running, reported=reported, capacity=capacity)


def start(one, *agendas):
    for agenda in agendas:
        assert one.capacity.acquire(1) == 1
        one.running.start(agenda, claimed_s=monotonic())


async def test_ended_attempt_is_reported_and_frees_its_slot(handlers):
    @handlers.handler("work")
    async def work(operation):
        return 1

    async with puller(handlers, slots=1) as one:
        start(one, emitted(node("a")))
        assert one.capacity.free == 0
        await one.running.ended()
        assert one.capacity.free == 1
    (end,) = one.reported
    assert isinstance(end, AgendaSucceeded)
    assert [op.name for op in end.operations] == ["a"]


async def test_every_end_of_an_agenda_and_of_an_operation_is_a_line_of_the_log(handlers):
    @handlers.handler("work")
    async def work(operation):
        if operation.agenda_id == "bad":
            message = "no disk"
            raise FinalError(message)

    with capture_logs() as logs:
        async with puller(handlers) as one:
            start(one, *(emitted(node("a"), agenda_id=name) for name in ("good", "bad")))
            await one.running.ended()
    reported = {line["event"]: line for line in logs}
    for thing, name in (("agenda", "good"), ("operation", "good")):
        assert reported[f"{thing}.succeeded"]["log_level"] == "debug"
        assert reported[f"{thing}.succeeded"]["agenda_id"] == name
    for thing in ("agenda", "operation"):
        line = reported[f"{thing}.failed"]
        assert (line["log_level"], line["agenda_id"]) == ("info", "bad")
        assert "no disk" in line["reason"]
    assert (
        reported["agenda.succeeded"].items()
        >= {
            "customer_id": "acme",
            "insight_id": "media",
            "attempt": 1,
        }.items()
    )
    assert reported["operation.succeeded"]["operation_type"] == "work"
    assert all(line["took_s"] >= 0 for name, line in reported.items() if "agenda." in name)


async def test_agenda_that_is_not_sound_fails_finally(handlers):
    broken = msgspec.structs.replace(emitted(), agenda=msgspec.Raw(b'{"id": 7}'))
    async with puller(handlers) as one:
        start(one, broken)
        await one.running.ended()
    (end,) = one.reported
    assert isinstance(end, AgendaFailed)
    assert not end.retryable
    assert "customer_id" in end.message


async def test_fault_of_our_own_fails_one_agenda_only(handlers, monkeypatch):
    def broken(*_):
        msg = "bug"
        raise RuntimeError(msg)

    handlers.handler("work")(broken)
    monkeypatch.setattr(module, "AgendaRun", broken)
    async with puller(handlers) as one:
        start(one, emitted(node("a")))
        await one.running.ended()
    (end,) = one.reported
    assert (end.retryable, end.message) == (True, "the puller failed: RuntimeError('bug')")


async def test_stop_cancels_what_runs_and_tells_that_it_may_be_retried(handlers):
    begun = asyncio.Event()

    @handlers.handler("work")
    async def work(operation):
        begun.set()
        await asyncio.Event().wait()

    async with puller(handlers) as one:
        start(one, emitted(node("a")))
        await begun.wait()
        await one.running.stop()
        assert len(one.running) == 0
    (end,) = one.reported
    assert (end.message, end.retryable) == ("puller stopped", True)
    assert [(op.name, op.state) for op in end.operations] == [("a", "failed")]


async def test_attempt_stopped_before_its_task_began_is_reported_too(handlers):
    handlers.handler("work")(lambda operation: None)
    async with puller(handlers) as one:
        start(one, emitted(node("a")))
        await one.running.stop()
        assert one.capacity.free == 4
    assert [event.message for event in one.reported] == ["puller stopped"]


async def test_handler_that_ignores_its_cancellation_is_left_behind(handlers, monkeypatch):
    begun, let_go = asyncio.Event(), asyncio.Event()

    @handlers.handler("work")
    async def work(operation):
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await let_go.wait()

    monkeypatch.setattr(module, "CLEAN_UP_S", 0.01)
    async with puller(handlers) as one:
        start(one, emitted(node("a")))
        await begun.wait()
        await one.running.stop()
        assert [event.message for event in one.reported] == ["puller stopped"]
        let_go.set()
    assert len(one.reported) == 1


async def test_newer_attempt_cancels_the_older_which_tells_nothing_more(handlers):
    begun = asyncio.Event()

    @handlers.handler("work")
    async def work(operation):
        if operation.attempt == 1:
            begun.set()
            await asyncio.Event().wait()

    async with puller(handlers) as one:
        start(one, emitted(node("a")))
        await begun.wait()
        start(one, emitted(node("a"), attempt=2))
        await one.running.ended()
    assert [(type(event), event.attempt) for event in one.reported] == [(AgendaSucceeded, 2)]
    assert one.capacity.free == 4


@asynccontextmanager
async def one_running_two_waiting(handlers):
    """Three agendas claimed by a puller with one runner; the first runs until `go_on`."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    started = []

    @handlers.handler("work")
    async def work(operation):
        started.append((operation.agenda_id, operation.attempt))
        begun.set()
        await go_on.wait()

    async with puller(handlers, slots=1) as one:
        one.capacity._held = 3  # as if two were claimed ahead
        for agenda_id in ("a1", "a2", "a3"):
            one.running.start(emitted(node("a"), agenda_id=agenda_id), claimed_s=monotonic())
        await begun.wait()
        yield one, started, go_on


async def test_what_is_claimed_ahead_waits_for_a_runner_in_order(handlers):
    async with one_running_two_waiting(handlers) as (one, started, go_on):
        assert (started, len(one.running)) == ([("a1", 1)], 3)
        go_on.set()
        await one.running.ended()
        assert one.capacity.free == 1
    assert started == [("a1", 1), ("a2", 1), ("a3", 1)]
    assert [type(event) for event in one.reported] == [AgendaSucceeded] * 3


async def until(seen):
    async with within(5):
        while not seen():  # noqa: ASYNC110  # nothing tells
            await asyncio.sleep(0)


class Away:
    """Stands in for what asks the API, while nobody answers."""

    def __init__(self, known=None):
        self.back = asyncio.Event()
        self.known = known or PriorResults()

    async def read(self, emitted, tell):
        await self.back.wait()
        return self.known


def resuming(name):
    return emitted(node("a"), node("b"), agenda_id=name, attempt=2)


async def test_what_waits_for_earlier_results_keeps_no_runner_from_others(handlers):
    ran, away = [], Away()

    @handlers.handler("work")
    async def work(operation):
        ran.append(operation.agenda_id)

    async with puller(handlers, slots=2, prior_results_reader=away) as one:
        start(one, resuming("r1"), resuming("r2"))
        await until(lambda: one.capacity.free == 2)
        start(one, *(emitted(node("a"), agenda_id=name) for name in ("f1", "f2")))
        await until(lambda: len(one.running) == 2)
        assert (sorted(ran), one.capacity.free) == (["f1", "f2"], 2)
        away.back.set()
        await one.running.ended()
        assert (sorted(ran[2:]), one.capacity.free) == (["r1", "r1", "r2", "r2"], 2)


@pytest.mark.parametrize(
    ("final_state", "kind"), [("succeeded", AgendaSucceeded), ("cancelled", AgendaFailed)]
)
async def test_an_attempt_of_an_agenda_that_had_ended_ends_without_a_run(
    handlers, final_state, kind
):
    @handlers.handler("work")
    async def work(_):
        pytest.fail("it had ended")

    known = Away(PriorResults(final_state=final_state))
    known.back.set()
    async with puller(handlers, slots=1, prior_results_reader=known) as one:
        start(one, resuming("r1"))
        await one.running.ended()
    [end] = one.reported
    assert (type(end), end.attempt, end.operations) == (kind, 2, ())
    assert not getattr(end, "retryable", False)


async def test_no_more_than_some_wait_beside_the_runners(handlers, monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITING_WITHOUT_RUNNER", 1)
    away = Away()
    async with puller(handlers, slots=1, prior_results_reader=away) as one:
        start(one, resuming("r1"))
        await until(lambda: one.capacity.free)
        start(one, resuming("r2"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert one.capacity.free == 0
        await one.running.stop()
        assert one.capacity.free == 1


async def test_what_waits_for_earlier_results_can_be_stopped_at_any_moment(handlers):
    away, go = Away(), asyncio.Event()

    @handlers.handler("work")
    async def work(operation):
        await go.wait()

    async with puller(handlers, slots=1, prior_results_reader=away) as one:
        start(
            one,
            resuming("r1"),
        )
        await until(lambda: one.capacity.free)
        start(one, emitted(node("a"), agenda_id="f1"))
        away.back.set()
        for _ in range(10):
            await asyncio.sleep(0)  # by now it waits for a runner again, which f1 has
        one.running.stop_attempt(stop_of(attempt=2, agenda_id="r1"))
        await until(lambda: len(one.running) == 1)
        go.set()
        await one.running.ended()
        assert one.capacity.free == 1
    assert sorted((type(e).__name__, e.agenda_id) for e in one.reported) == [
        ("AgendaStopped", "r1"),
        ("AgendaSucceeded", "f1"),
    ]


async def test_stop_tells_that_what_waited_may_be_retried(handlers):
    async with one_running_two_waiting(handlers) as (one, started, _):
        await one.running.stop()
        assert (len(one.running), one.capacity.free) == (0, 1)
    assert started == [("a1", 1)]
    reported = sorted((event.agenda_id, event.message) for event in one.reported)
    assert reported == [(name, "puller stopped") for name in ("a1", "a2", "a3")]


async def test_newer_attempt_takes_the_place_of_one_that_waits(handlers):
    async with one_running_two_waiting(handlers) as (one, started, go_on):
        one.capacity._held += 1
        newer = emitted(node("a"), agenda_id="a2", attempt=2)
        one.running.start(newer, claimed_s=monotonic())
        go_on.set()
        await one.running.ended()
        assert one.capacity.free == 1
    assert started == [("a1", 1), ("a3", 1), ("a2", 2)]
    assert len(one.reported) == 3


async def test_what_waits_for_a_runner_keeps_its_lease(handlers):
    async with one_running_two_waiting(handlers) as (one, _, go_on):
        due = keeper(one).due(monotonic() + 5.1)
        renewed = [event.agenda_id for event in due if isinstance(event, AgendaHeartbeat)]
        assert sorted(renewed) == ["a1", "a2", "a3"]
        go_on.set()
        await one.running.ended()


def keeper(one, heartbeat_s=5.0):
    return LeaseRenewer(
        one.running,
        (),
        one.reported,
        ManualClock(AT),
        puller_id="p1",
        heartbeat=timedelta(seconds=heartbeat_s),
        claimed_event=asyncio.Event(),
    )


@asynccontextmanager
async def long_agenda(handlers, **facts):
    """An agenda whose only operation reported 40 % and goes on until the end."""
    reported, go_on = asyncio.Event(), asyncio.Event()

    @handlers.handler("work")
    async def work(operation):
        await operation.report(40, "half way")
        reported.set()
        await go_on.wait()

    async with puller(handlers) as one:
        start(one, emitted(node("a"), **facts))
        await reported.wait()
        (held,) = one.running
        yield one, held.claimed_s
        go_on.set()


@pytest.mark.parametrize(
    ("lease_ms", "heartbeat_s", "interval_s"), [(60_000, 5, 5), (3_000, 5, 1)]
)
async def test_lease_is_renewed_at_the_heartbeat_or_a_third_of_the_lease(
    handlers, lease_ms, heartbeat_s, interval_s
):
    async with long_agenda(handlers, lease_ms=lease_ms) as (one, claimed_s):
        keep = keeper(one, heartbeat_s)

        def heartbeats(after_s):
            due = keep.due(claimed_s + after_s)
            return [event for event in due if isinstance(event, AgendaHeartbeat)]

        assert heartbeats(interval_s - 0.01) == []
        (renewed,) = heartbeats(interval_s)
        assert (renewed.agenda_id, renewed.attempt) == ("a1", 1)
        assert (renewed.puller_id, renewed.lease_ms) == ("p1", lease_ms)
        assert heartbeats(2 * interval_s - 0.01) == []
        assert len(heartbeats(2 * interval_s)) == 1


async def test_lease_of_what_is_claimed_and_waits_for_its_commit_is_renewed_too(handlers):
    async with puller(handlers) as one:
        waiting = [ClaimedAttempt(emitted(lease_ms=3_000), renewed_s=100.0)]
        keep = LeaseRenewer(
            one.running,
            waiting,
            one.reported,
            ManualClock(AT),
            puller_id="p1",
            heartbeat=timedelta(seconds=5),
            claimed_event=asyncio.Event(),
        )
        assert keep.due(100.9) == []
        (renewed,) = keep.due(101.0)
        assert isinstance(renewed, AgendaHeartbeat)
        assert (renewed.agenda_id, renewed.attempt, renewed.puller_id) == ("a1", 1, "p1")
        assert keep.due(101.9) == []
        assert len(keep.due(102.0)) == 1


async def test_progress_is_reported_once_and_not_before_the_agenda_ran_a_while(handlers):
    async with long_agenda(handlers) as (one, claimed_s):
        keep = keeper(one)
        assert keep.due(claimed_s + 0.49) == []
        (reported,) = keep.due(claimed_s + 0.5)
        assert isinstance(reported, AgendaProgressed)
        assert [(op.percent, op.message) for op in reported.operations] == [(40, "half way")]
        assert keep.due(claimed_s + 1.0) == []


async def test_keeper_waits_until_its_events_are_acknowledged_before_it_makes_more(handlers):
    added, acknowledge = asyncio.Event(), asyncio.Event()

    async with long_agenda(handlers, lease_ms=1) as (one, _):

        class Away(Reported):
            def add(self, lifecycle):
                super().add(lifecycle)
                added.set()

            async def wait_acknowledged(self):
                await acknowledge.wait()

        away = Away()
        keep = LeaseRenewer(
            one.running,
            (),
            away,
            ManualClock(AT),
            puller_id="p",
            heartbeat=timedelta(seconds=5),
            claimed_event=asyncio.Event(),
        )
        task = asyncio.create_task(keep.run())
        await added.wait()
        count = len(away)
        assert (await asyncio.wait([task], timeout=0.3))[1] == {task}
        task.cancel()
        await asyncio.wait([task])
    assert len(away) == count


def stop_of(attempt=1, reason="cancelled", agenda_id="a1"):
    return AttemptStop(agenda_id=agenda_id, insight_id="media", attempt=attempt, reason=reason)


@asynccontextmanager
async def endless(handlers, **facts):
    """An agenda of which one operation has ended and the other never does."""
    begun = asyncio.Event()

    @handlers.handler("quick")
    async def quick(operation):
        return 1

    @handlers.handler("work")
    async def work(operation):
        begun.set()
        await asyncio.Event().wait()

    async with puller(handlers) as one:
        start(one, emitted(node("q", kind="quick"), node("a", "q"), **facts))
        await begun.wait()
        yield one
        await one.running.ended()


@pytest.mark.parametrize("attempt", [2, 3])
async def test_stop_cancels_the_attempt_which_says_what_it_got_done(handlers, attempt):
    async with endless(handlers, attempt=2) as one:
        one.running.stop_attempt(stop_of(attempt))
        one.running.stop_attempt(stop_of(attempt))
    (stopped,) = one.reported
    assert isinstance(stopped, AgendaStopped)
    assert stopped.attempt == 2
    assert {op.name: op.state for op in stopped.operations} == {"q": "succeeded", "a": "failed"}
    assert set(stopped.spent_s) == {"quick", "work"}
    assert one.capacity.free == 4


async def test_what_uses_the_id_of_a_stopped_agenda_anew_runs(handlers):
    """Whether the stop comes before or after; one of its own is heeded."""
    old = replace(stop_of(3), accepted_at=AT - timedelta(hours=1))
    begun = asyncio.Event()

    @handlers.handler("work")
    async def work(operation):
        begun.set()
        await asyncio.Event().wait()

    async with puller(handlers) as one:
        one.running.stop_attempt(old)
        start(one, emitted(node("a"), accepted_at=AT))
        await begun.wait()
        one.running.stop_attempt(old)
        assert [held.stop for held in one.running] == [None]
        own = replace(stop_of(1), accepted_at=AT)
        one.running.stop_attempt(own)
        assert [held.stop for held in one.running] == [own]
        await one.running.ended()


async def test_stop_of_an_outdated_attempt_is_heeded_in_silence(handlers):
    async with endless(handlers) as one:
        one.running.stop_attempt(stop_of(reason="outdated"))
    assert one.reported == []
    assert one.capacity.free == 4


async def test_stop_of_an_older_attempt_or_another_agenda_changes_nothing(handlers):
    async with endless(handlers, attempt=2) as one:
        one.running.stop_attempt(stop_of(1))
        one.running.stop_attempt(stop_of(2, agenda_id="a2"))
        assert len(one.running) == 1
        assert all(held.stop is None for held in one.running)
        one.running.stop_attempt(stop_of(2))


@pytest.mark.parametrize(
    ("reason", "reported"), [("expired", [AgendaStopped]), ("outdated", [])]
)
async def test_attempt_that_was_stopped_before_it_was_claimed_never_runs(
    handlers, reason, reported
):
    handlers.handler("work")(lambda operation: pytest.fail("it ran"))
    async with puller(handlers) as one:
        one.running.stop_attempt(stop_of(2, reason=reason))
        start(one, emitted(node("a"), attempt=2))
        await one.running.ended()
        assert one.capacity.free == 4
    assert [type(event) for event in one.reported] == reported


async def test_attempt_after_a_stopped_one_runs(handlers):
    @handlers.handler("work")
    async def work(operation):
        return None

    async with puller(handlers) as one:
        one.running.stop_attempt(stop_of(1))
        start(one, emitted(node("a"), attempt=2))
        await one.running.ended()
    assert [type(event) for event in one.reported] == [AgendaSucceeded]


async def test_lease_of_a_stopping_attempt_is_not_renewed(handlers):
    begun, go_on = asyncio.Event(), asyncio.Event()

    @handlers.handler("work")
    async def work(operation):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await go_on.wait()

    async with puller(handlers) as one:
        start(one, emitted(node("a")))
        await begun.wait()
        (held,) = one.running
        one.running.stop_attempt(stop_of())
        due = keeper(one).due(held.claimed_s + 30)
        assert [event for event in due if isinstance(event, AgendaHeartbeat)] == []
        go_on.set()
        await one.running.ended()
