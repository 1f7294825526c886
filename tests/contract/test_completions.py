"""Completions are decided once for each hand-over; in memory as in the database."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from memory_completions import MemoryCompletions
from msgspec import Raw

from pop_stream.model.events.base import OperationProgress, OperationWait
from pop_stream.model.events.lifecycle import (
    AgendaAccepted,
    AgendaCancelled,
    AgendaClaimed,
    AgendaDeferred,
    AgendaWaiting,
)
from pop_stream.model.signal import OperationCompletion
from pop_stream.operations import provisioning
from pop_stream.postgres.completions import PostgresCompletions
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.signals import PostgresSignals
from pop_stream.postgres.summaries import PostgresSummaries

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FIRST, SECOND, THIRD = ({"token": f"d{number}"} for number in (1, 2, 3))
FACTS = {"agenda_id": "a1", "at": NOW, "insight_id": "media"}


def completion(**changes):
    known = OperationCompletion(
        agenda_id="a1",
        operation="calls",
        **FIRST,
        attempt=1,
        outcome="succeeded",
        result=b'{"size":12}',
        completed_at=NOW,
    )
    return replace(known, **changes)


def handed_over(digest="d1"):
    """The lifecycle of an agenda whose operation was handed over in attempt 1."""
    wait = OperationWait(
        since=NOW,
        until=NOW + timedelta(seconds=160),
        kind="completion",
        token=digest,
        gives_up_at=NOW + timedelta(seconds=100),
    )
    waits = OperationProgress(name="calls", state="waiting", ended_at=NOW, wait=wait)
    body = {"id": "a1", "customer_id": "acme", "operations": [{"name": "calls", "type": "c"}]}
    return [
        AgendaAccepted(
            **FACTS,
            customer_id="acme",
            operations=("calls",),
            agenda=Raw(msgspec.json.encode(body)),
        ),
        AgendaClaimed(**FACTS, attempt=1, puller_id="p1", lease_ms=60_000),
        AgendaDeferred(**FACTS, attempt=1, until=wait.until, operations=(waits,)),
        AgendaWaiting(**FACTS, attempt=2, until=wait.until, reason="not_yet"),
    ]


@pytest.fixture
async def pool(settings):
    await provisioning.migrate(settings)
    async with open_pool(settings) as opened:
        yield opened


async def keep(pool, lifecycle, *, at=0):
    await PostgresSummaries(pool).fold("events", {0: (at, at + 1)}, lifecycle)


@pytest.fixture
async def postgres_completions(pool):
    await keep(pool, handed_over())
    return PostgresCompletions(pool)


@pytest.fixture
def memory_completions():
    known = MemoryCompletions()
    known.removed.add("gone")
    return known


@pytest.fixture(params=["memory_completions", "postgres_completions"])
def store(request):
    return request.getfixturevalue(request.param)


async def test_the_first_by_a_token_counts(store):
    assert await store.find("a1", "calls") is None
    assert await store.decide(completion()) == completion()
    other = completion(outcome="failed", result=b"", reason="no", is_retryable=True)
    assert await store.decide(other) == completion()
    assert await store.find("a1", "calls") == completion()


async def test_a_later_hand_over_is_decided_anew_and_an_older_one_no_more(store):
    await store.decide(completion())
    later = completion(**SECOND, attempt=3, outcome="failed", result=b"", reason="no")
    assert await store.decide(later) == later
    assert await store.decide(completion()) == later
    again = completion(**THIRD, attempt=3)
    assert await store.decide(again) == again, "of two in one attempt, the later"


async def test_of_an_agenda_that_is_there_no_more_nothing_is_kept(store):
    assert await store.decide(completion(agenda_id="gone")) is None


# ---- what waits, in the database ----


async def test_what_has_been_completed_is_found_until_it_has_ended(pool):
    await keep(pool, handed_over())
    waits, completions = PostgresSignals(pool), PostgresCompletions(pool)
    assert not await waits.answered(NOW, 10)
    await completions.decide(completion())
    for _ in range(2):
        [found] = await waits.answered(NOW, 10)
        assert (found.agenda_id, found.operation, found.attempt) == ("a1", "calls", 2)
        assert (found.payload, found.outcome) == (b'{"size":12}', "succeeded")


async def test_a_completion_that_comes_before_the_hand_over_waits_for_it(pool):
    lifecycle = handed_over()
    await keep(pool, lifecycle[:2])
    waits = PostgresSignals(pool)
    await PostgresCompletions(pool).decide(completion())
    assert not await waits.answered(NOW, 10)
    await keep(pool, lifecycle[2:], at=1)
    assert len(await waits.answered(NOW, 10)) == 1


async def test_one_by_the_token_of_another_hand_over_ends_nothing(pool):
    await keep(pool, handed_over("d2"))
    await PostgresCompletions(pool).decide(completion())
    assert not await PostgresSignals(pool).answered(NOW, 10)


async def test_of_an_agenda_that_was_cancelled_nothing_is_found(pool):
    await keep(pool, [*handed_over(), AgendaCancelled(**FACTS, attempt=2)])
    await PostgresCompletions(pool).decide(completion())
    assert not await PostgresSignals(pool).answered(NOW + timedelta(hours=1), 10)


async def test_a_hand_over_times_out_once_and_for_all(pool):
    await keep(pool, handed_over())
    waits, completions = PostgresSignals(pool), PostgresCompletions(pool)
    assert not await waits.answered(NOW + timedelta(seconds=99), 10)
    late = NOW + timedelta(seconds=100)
    [found] = await waits.answered(late, 10)
    assert (found.outcome, found.is_retryable, found.since) == ("timed_out", True, NOW)
    assert (await completions.decide(completion())).outcome == "timed_out"


async def test_what_was_completed_in_time_does_not_time_out(pool):
    await keep(pool, handed_over())
    waits, completions = PostgresSignals(pool), PostgresCompletions(pool)
    await completions.decide(completion())
    [found] = await waits.answered(NOW + timedelta(hours=1), 10)
    assert found.outcome == "succeeded"
