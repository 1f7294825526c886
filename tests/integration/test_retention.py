"""What retention removes from a real Postgres, and what it never does."""

import asyncio
import itertools

import pytest
import pytest_asyncio
from agenda_rows import DAY, NOW, keep
from deadlines import within

from pop_stream.policy.lifecycle.retention import Retention
from pop_stream.policy.lifecycle.states import TERMINAL, State
from pop_stream.postgres import agendas as store
from pop_stream.postgres.agendas import PostgresRetention
from pop_stream.postgres.migrate import migrate
from pop_stream.postgres.pool import open_pool
from pop_stream.rollup.retention import remove_expired

KEPT = Retention(succeeded=10 * DAY, failed=40 * DAY, stopped=20 * DAY, refused=5 * DAY)


@pytest_asyncio.fixture
async def pool(settings):
    await migrate(settings.postgres_dsn.get_secret_value())
    async with open_pool(settings) as pool:
        yield pool


async def left(pool):
    agendas = {row["agenda_id"] for row in await pool.fetch("select agenda_id from agendas")}
    rows = await pool.fetch("select agenda_id from operations")
    assert {row["agenda_id"] for row in rows} == agendas  # operations go with their agenda
    return agendas


async def test_each_end_is_kept_for_its_own_span(pool):
    for state, days in itertools.product(sorted(TERMINAL, key=str), (4, 6, 11, 21, 41)):
        await keep(pool, f"{state.value}-{days}", state, ended=days * DAY)
    removed = await remove_expired(PostgresRetention(pool), KEPT, NOW)
    spans = {"succeeded": 10, "failed": 40, "cancelled": 20, "expired": 20, "refused": 5}
    assert await left(pool) == {
        f"{state}-{days}" for state, span in spans.items() for days in (4, 6, 11, 21, 41)
        if days < span
    }  # fmt: skip
    assert removed == {
        "succeeded": 3, "failed": 1, "cancelled": 2, "expired": 2, "refused": 4, "webhooks": 0,
        "dead_letters": 0, "pullers": 0, "stats": 0, "occurrences": 0,
    }  # fmt: skip


@pytest.mark.parametrize("state", sorted(set(State) - TERMINAL, key=str))
async def test_what_has_not_ended_is_never_removed(pool, state):
    # `retrying` has the instant of its last attempt's end, and goes on all the same.
    await keep(pool, "old", state, ended=90 * DAY)
    await keep(pool, "older", state, ended=None)
    removed = await remove_expired(PostgresRetention(pool), KEPT, NOW)
    assert await left(pool) == {"old", "older"}
    assert sum(removed.values()) == 0


async def test_a_dry_run_counts_and_removes_nothing(pool):
    await keep(pool, "old", State.SUCCEEDED, ended=50 * DAY)
    counted = await remove_expired(PostgresRetention(pool), KEPT, NOW, dry_run=True)
    assert counted == {
        "succeeded": 1,
        "webhooks": 0,
        "dead_letters": 0,
        "pullers": 0,
        "stats": 0,
        "occurrences": 0,
    }
    assert await left(pool) == {"old"}


async def test_more_than_a_batch_goes_and_what_lies_between_stays(pool, monkeypatch):
    monkeypatch.setattr(store, "BATCH", 7)
    for number in range(40):
        state = State.RUNNING if number % 5 == 0 else State.SUCCEEDED
        ended = None if state is State.RUNNING else 50 * DAY
        await keep(pool, f"a-{number}", state, ended=ended, accepted=(90 - number) * DAY)
    removed = await remove_expired(PostgresRetention(pool), KEPT, NOW)
    assert removed["succeeded"] == 32
    assert await left(pool) == {f"a-{number}" for number in range(0, 40, 5)}


async def test_one_that_runs_again_meanwhile_stays(pool):
    await keep(pool, "again", State.SUCCEEDED, ended=50 * DAY)
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(
            "update agendas set state = 'ready', ended_at = null where agenda_id = 'again'"
        )
        removing = asyncio.create_task(remove_expired(PostgresRetention(pool), KEPT, NOW))
        async with within(20):
            while not await pool.fetchval(  # noqa: ASYNC110  # the database tells
                "select count(*) from pg_stat_activity "
                "where wait_event_type = 'Lock' and datname = current_database()"
            ):
                await asyncio.sleep(0.02)
        await transaction.commit()
    removed = await removing
    assert await left(pool) == {"again"}
    assert sum(removed.values()) == 0


async def test_two_at_once_remove_everything_once(pool):
    for number in range(300):
        await keep(pool, f"a-{number}", State.SUCCEEDED, ended=50 * DAY)
    both = await asyncio.gather(
        *(remove_expired(PostgresRetention(pool), KEPT, NOW) for _ in range(2))
    )
    assert sum(one.get("succeeded", 0) for one in both) == 300
    assert await left(pool) == set()


async def test_callbacks_that_were_given_up_go_as_failures_do(pool):
    for number, days in enumerate((30, 50)):
        await pool.execute(
            "insert into webhooks "
            "(webhook_id, agenda_id, customer_id, url, body, exhausted_at) "
            "values ($1, 'a', 'anna', 'https://x.example', '{}', $2)",
            f"a/{number}", NOW - days * DAY,
        )  # fmt: skip
    await pool.execute(
        "insert into webhooks (webhook_id, agenda_id, customer_id, url, body, created_at)"
        " values ('a/9', 'a', 'anna', 'https://x.example', '{}', $1)",
        NOW - 99 * DAY,
    )
    assert (await remove_expired(PostgresRetention(pool), KEPT, NOW))["webhooks"] == 1
    rows = await pool.fetch("select webhook_id from webhooks")
    kept = [row["webhook_id"] for row in rows]
    assert sorted(kept) == ["a/0", "a/9"]
