"""What was decided about occurrences, in memory and in Postgres."""

from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
import pytest_asyncio
from memory_occurrences import MemoryOccurrences
from memory_summaries import MemorySummaries

from pop_stream.model.errors import UnstorableError
from pop_stream.model.events.lifecycle import AgendaAccepted, AgendaClaimed, AgendaSucceeded
from pop_stream.model.events.occasions import (
    OccurrenceBuffered,
    OccurrenceFired,
    OccurrenceSkipped,
)
from pop_stream.policy.lifecycle.states import OccurrenceState, State
from pop_stream.ports.occurrences import OccurrenceFilter
from pop_stream.postgres.agendas import PostgresRetention
from pop_stream.postgres.migrate import migrate
from pop_stream.postgres.occurrences import PostgresOccurrences
from pop_stream.postgres.pool import open_pool
from pop_stream.postgres.summaries import PostgresSummaries

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def agenda_id(hour, extra=""):
    return f"tick.{NOON + hour * HOUR:%Y%m%dT%H%M%SZ}{extra}@acme"


def event(kind, hour, *, extra="", later=0, schedule_id="tick@acme", **fields):
    nominal = NOON + hour * HOUR
    at = nominal + timedelta(seconds=later)
    named = agenda_id(hour, extra).replace("tick@acme", schedule_id)
    return kind(schedule_id=schedule_id, agenda_id=named, nominal=nominal, at=at, **fields)


def fired(hour, **fields):
    return event(OccurrenceFired, hour, **fields)


def skipped(hour, reason="overlap", **fields):
    return event(OccurrenceSkipped, hour, reason=reason, **fields)


def buffered(hour, **fields):
    return event(OccurrenceBuffered, hour, **fields)


@pytest_asyncio.fixture
async def pool(settings):
    await migrate(settings.postgres_dsn.get_secret_value())
    async with open_pool(settings) as pool:
        yield pool


@pytest.fixture(params=["memory", "postgres"])
def stores(request):
    """Occurrences and the summaries of their agendas."""
    if request.param == "memory":
        summaries = MemorySummaries()
        return MemoryOccurrences(summaries.agendas), summaries
    pool = request.getfixturevalue("pool")
    return PostgresOccurrences(pool), PostgresSummaries(pool)


async def run(summaries, *ids):
    """Agendas that have succeeded in their second attempt."""
    for number, one in enumerate(ids):
        about = {"agenda_id": one, "at": NOON, "insight_id": "media"}
        claim = {**about, "attempt": 2, "puller_id": "p1", "lease_ms": 1}
        events = [
            AgendaAccepted(**about, customer_id="acme", agenda=b"{}"),
            AgendaClaimed(**claim),
            AgendaSucceeded(**about, attempt=2),
        ]
        await summaries.fold("t", {number: (0, 1)}, events)


async def page(store, limit=9, **wanted):
    return await store.page(OccurrenceFilter("tick@acme", **wanted), limit=limit)


def hours(found):
    return [(one.nominal - NOON) / HOUR for one in found.occurrences]


async def test_each_instant_is_listed_with_its_runs_latest_first(stores):
    store, summaries = stores
    await run(summaries, agenda_id(1), agenda_id(2, "~b7"))
    await store.add([fired(1), skipped(2), buffered(3), fired(2, extra="~b7", later=60)])
    await store.add([fired(1, schedule_id="other@acme")])
    found = await page(store)
    assert hours(found) == [3, 2, 1]
    assert [one.state for one in found.occurrences] == ["buffered", "succeeded", "succeeded"]
    made_up = found.occurrences[1]
    assert (made_up.reason, [one.agenda_id for one in made_up.runs]) == (
        "overlap", [agenda_id(2, "~b7")]
    )  # fmt: skip
    [one] = found.occurrences[2].runs
    assert (one.attempt, one.state, one.ended_at) == (2, "succeeded", NOON)
    assert found.next is None


async def test_what_was_fired_stays_so_whatever_is_reported_later(stores):
    store, _ = stores
    await store.add([buffered(1), fired(1)])
    await store.add([skipped(1, "late"), buffered(1)])
    await store.add([buffered(2), skipped(2, "superseded")])
    found = await page(store)
    assert [one.state for one in found.occurrences] == ["skipped", "submitted"]
    assert [one.reason for one in found.occurrences] == ["superseded", None]
    assert found.occurrences[1].runs[0].attempt == 0


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, [4, 3, 2, 1]),
        ({"states": ("skipped", "buffered")}, [4, 3]),
        ({"states": ("succeeded",)}, [1]),
        ({"nominal_from": NOON + 2 * HOUR, "nominal_before": NOON + 4 * HOUR}, [3, 2]),
        ({"states": ("failed",)}, []),
    ],
)
async def test_a_list_is_narrowed_by_state_and_instant(stores, wanted, expected):
    store, summaries = stores
    await run(summaries, agenda_id(1))
    await store.add([fired(1), fired(2), buffered(3), skipped(4, "paused")])
    assert hours(await page(store, **wanted)) == expected


async def test_pages_follow_each_other(stores):
    store, _ = stores
    await store.add([fired(hour) for hour in range(5)])
    first = await page(store, limit=2)
    assert hours(first) == [4, 3]
    second = await page(store, limit=2, nominal_before=first.next)
    assert hours(second) == [2, 1]
    assert hours(await page(store, limit=2, nominal_before=second.next)) == [0]


# ---- on Postgres alone ----


async def test_what_no_row_can_hold_is_refused(pool):
    store = PostgresOccurrences(pool)
    with pytest.raises(UnstorableError):
        await store.add([fired(1), skipped(2, schedule_id="a\0@acme")])
    assert hours(await page(store)) == []


async def test_decisions_are_removed_once_they_are_old_and_their_agendas_gone(pool):
    store = PostgresOccurrences(pool)
    await run(PostgresSummaries(pool), agenda_id(1))
    await store.add([fired(1), fired(2), skipped(3), fired(9)])
    retention = PostgresRetention(pool)
    assert await retention.remove_occurrences(NOON + 5 * HOUR, dry_run=True) == 2
    assert await retention.remove_occurrences(NOON + 5 * HOUR) == 2
    assert hours(await page(store)) == [9, 1]


def test_an_occurrence_is_in_any_state_of_an_agenda_or_in_one_of_its_own():
    own = {"submitted", "buffered", "skipped"}
    assert {*get_args(OccurrenceState)} == {one.value for one in State} | own
