"""What follows from waits that are over, and what survives a crash between two steps."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from fakes import ManualClock, MemoryPublisher

from pop_stream.conditions.watcher import ConditionWatcher
from pop_stream.model.errors import UnavailableError
from pop_stream.model.events.codec import decode_lifecycle
from pop_stream.model.events.lifecycle import AgendaCommanded, AgendaResolved
from pop_stream.model.signal import AnsweredOperation, DecidedWait
from pop_stream.settings import Settings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANSWERED = AnsweredOperation(
    agenda_id="a1",
    insight_id="media",
    attempt=2,
    operation="waits",
    payload=b'{"amount":12}',
    given_by="bob",
)


def decided(unmet="", on_timeout="fail"):
    return DecidedWait(
        agenda_id="a2",
        insight_id="media",
        attempt=1,
        on_timeout=on_timeout,
        since=NOW - timedelta(seconds=90),
        unmet=unmet,
    )


class Waits:
    """The store, in which waits stay until something else ends them."""

    def __init__(self):
        self.operations = []
        self.agendas = []
        self.commanded = []
        self.is_away = False

    async def answered(self, now, limit):
        if self.is_away:
            msg = "away"
            raise UnavailableError(msg)
        return self.operations[:limit]

    async def remove_expired(self, now):
        pass

    async def decided(self, now, limit):
        return [one for one in self.agendas if one.agenda_id not in self.commanded][:limit]

    async def mark_commanded(self, agenda_ids, now):
        self.commanded += agenda_ids


@pytest.fixture
def waits():
    return Waits()


@pytest.fixture
def publisher():
    return MemoryPublisher()


@pytest.fixture
def watcher(waits, publisher):
    return ConditionWatcher(Settings(), waits, waits, publisher, ManualClock(NOW))


def published(publisher):
    return [event for one in publisher.records for event in decode_lifecycle(one.value)]


async def test_a_signal_ends_the_operation_with_its_payload(watcher, waits, publisher):
    waits.operations = [ANSWERED]
    assert await watcher.look() == 1
    [event] = published(publisher)
    assert isinstance(event, AgendaResolved)
    assert (event.agenda_id, event.attempt, event.operation) == ("a1", 2, "waits")
    assert (event.outcome, bytes(event.result), event.by) == (
        "succeeded",
        b'{"amount":12}',
        "bob",
    )


FAILED = replace(
    ANSWERED,
    payload=b"",
    outcome="failed",
    reason="it crashed",
    since=NOW - timedelta(seconds=90),
)


@pytest.mark.parametrize(
    ("failed", "code", "reason"),
    [
        (replace(FAILED, is_retryable=True), "operation_retryable", "it crashed"),
        (FAILED, "operation_final", "it crashed"),
        (
            replace(FAILED, outcome="timed_out"),
            "hand_over_timed_out",
            "nobody completed it within 90 s",
        ),
    ],
)
async def test_a_hand_over_fails_with_its_reason(
    watcher, waits, publisher, failed, code, reason
):
    waits.operations = [failed]
    await watcher.look()
    [event] = published(publisher)
    assert (event.outcome, event.code) == ("failed", code)
    assert reason in event.reason


@pytest.mark.parametrize(
    ("wait", "action", "reason"),
    [
        (decided(), "release", "all that it waited for has come"),
        (decided("signal go"), "fail", "it waited 90 s in vain for signal go"),
        (decided("signal go", "go_on"), "release", "it waited 90 s in vain for signal go"),
    ],
)
async def test_an_agenda_goes_or_fails(watcher, waits, publisher, wait, action, reason):
    waits.agendas = [wait]
    await watcher.look()
    [event] = published(publisher)
    assert isinstance(event, AgendaCommanded)
    assert (event.action, event.reason, event.by) == (action, reason, "conditions")
    assert waits.commanded == ["a2"]


async def test_what_could_not_be_published_is_found_again(watcher, waits, publisher):
    waits.operations, waits.agendas = [ANSWERED], [decided()]
    publisher.failures = [UnavailableError("away")]
    with pytest.raises(UnavailableError):
        await watcher.look()
    assert waits.commanded == []
    assert await watcher.look() == 2
    assert len(published(publisher)) == 2


async def test_while_the_store_is_away_nothing_is_published(watcher, waits, publisher):
    waits.agendas, waits.is_away = [decided()], True
    with pytest.raises(UnavailableError):
        await watcher.look()
    assert published(publisher) == []


@pytest.mark.parametrize(
    ("took_s", "pause_s"), [(0.001, 0.5), (0.1, 2.0), (4.0, 5.0), (300.0, 5.0)]
)
async def test_it_looks_less_often_where_that_takes_long_and_within_seconds_all_the_same(
    took_s, pause_s, watcher, monkeypatch
):
    pauses, now = [], 0.0

    async def look():
        nonlocal now
        now += took_s
        return 0

    async def waited(stop, seconds):
        pauses.append(seconds)
        return len(pauses) == 2

    monkeypatch.setattr(watcher, "look", look)
    monkeypatch.setattr("pop_stream.conditions.watcher.wait_until_set", waited)
    monkeypatch.setattr("pop_stream.conditions.watcher.monotonic", lambda: now)
    await watcher.run(asyncio.Event())
    assert pauses == [0.5, pytest.approx(pause_s)]
