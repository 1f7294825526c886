"""The schema, brought up to date by one or several starters."""

import asyncio

import asyncpg
import pytest
from deadlines import within

from pop_stream.model.errors import MigrationError, UnavailableError
from pop_stream.policy.lifecycle.states import State
from pop_stream.postgres.migrate import (
    Migration,
    ensure_database,
    load_migrations,
    migrate,
    pending_migrations,
)
from pop_stream.postgres.pool import load_queries, parse_queries

FIRST = Migration(1, "0001_first", "create table first (id integer);")
SECOND = Migration(2, "0002_second", "alter table first add column name text;")
WITHIN_S = 20
BROKEN = Migration(2, "0002_broken", "create table second (); alter table nothing drop x;")


async def tables(dsn):
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            "select tablename from pg_tables where schemaname = 'public'"
        )
    finally:
        await connection.close()
    return {row["tablename"] for row in rows}


async def test_what_is_missing_is_applied_in_order_and_once(dsn):
    assert await migrate(dsn, [FIRST]) == ["0001_first"]
    assert await migrate(dsn, [FIRST, SECOND]) == ["0002_second"]
    assert await migrate(dsn, [FIRST, SECOND]) == []


async def test_starters_at_the_same_time_do_not_race(dsn):
    applied = await asyncio.gather(*(migrate(dsn, [FIRST, SECOND]) for _ in range(5)))
    assert sorted(applied) == [[], [], [], [], ["0001_first", "0002_second"]]


async def test_a_file_that_was_changed_after_it_was_applied_is_refused(dsn):
    await migrate(dsn, [FIRST])
    changed = Migration(1, "0001_first", "create table first (id bigint);")
    with pytest.raises(MigrationError, match="0001_first was changed"):
        await migrate(dsn, [changed, SECOND])
    assert await migrate(dsn, [FIRST, SECOND]) == ["0002_second"]


async def test_a_migration_that_fails_leaves_nothing_of_itself(dsn):
    with pytest.raises(MigrationError, match="0002_broken cannot be applied"):
        await migrate(dsn, [FIRST, BROKEN])
    assert await tables(dsn) == {"first", "schema_migrations"}
    assert await migrate(dsn, [FIRST, SECOND]) == ["0002_second"]


async def test_steps_are_sent_one_by_one_and_begin_anew_if_they_did_not_come_to_an_end(dsn):
    await migrate(dsn, [FIRST])
    steps = [
        "alter table first add column if not exists name text; insert into first values (1);",
        "create index concurrently if not exists firsts on first (name);",
        "alter table SECOND add column extra text;",
    ]
    stepwise = Migration(2, "0002_stepwise", "\n-- step\n".join(steps))
    with pytest.raises(MigrationError, match="0002_stepwise cannot be applied"):
        await migrate(dsn, [FIRST, stepwise])
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("create table second (id integer)")
        assert await migrate(dsn, [FIRST, stepwise]) == ["0002_stepwise"]
        assert await connection.fetchval("select count(*) from first") == 2
    finally:
        await connection.close()


async def test_a_lock_that_is_not_to_be_had_soon_keeps_nobody_from_the_table(dsn):
    await migrate(dsn, [FIRST])
    holder, reader = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    try:
        async with holder.transaction():
            await holder.fetch("select * from first")
            migrating = asyncio.create_task(migrate(dsn, [FIRST, SECOND]))
            waits = "select count(*) from pg_locks where not granted"
            async with within(WITHIN_S):
                while not await reader.fetchval(waits):  # noqa: ASYNC110  # no event
                    await asyncio.sleep(0.01)
                await reader.fetch("select * from first")
            assert not migrating.done()
        assert await migrating == ["0002_second"]
    finally:
        await holder.close()
        await reader.close()


async def test_a_database_ahead_of_this_code_is_left_as_it_is(dsn):
    await migrate(dsn, [FIRST, SECOND])
    assert await migrate(dsn, [FIRST]) == []


async def test_the_shipped_schema_can_be_applied_and_knows_every_state(dsn):
    names = [migration.name for migration in load_migrations()]
    assert await pending_migrations(dsn) == names
    assert await tables(dsn) == set()
    assert await migrate(dsn) == names
    assert await pending_migrations(dsn) == []
    assert await tables(dsn) >= {"agendas", "operations", "consumed_offsets"}
    connection = await asyncpg.connect(dsn)
    try:
        check = await connection.fetchval(
            "select pg_get_constraintdef(oid) from pg_constraint"
            " where conname = 'agendas_state_known'"
        )
    finally:
        await connection.close()
    assert all(f"'{state.value}'" in check for state in State)


@pytest.mark.parametrize("aggregate", ["offsets", "summaries", "reads"])
async def test_every_named_query_fits_the_schema(dsn, aggregate):
    await migrate(dsn)
    connection = await asyncpg.connect(dsn)
    try:
        for query in load_queries(aggregate).values():
            await connection.prepare(query)
    finally:
        await connection.close()


async def test_a_missing_database_is_created(dsn):
    head, _, query = dsn.partition("?")
    missing = f'{head}%20"new"?{query}'
    try:
        assert await ensure_database(missing) is True
        assert await ensure_database(missing) is False
        assert await migrate(missing, [FIRST]) == ["0001_first"]
    finally:
        connection = await asyncpg.connect(dsn)
        name = head.rpartition("/")[2]
        await connection.execute(f'drop database "{name} ""new""" with (force)')
        await connection.close()


async def test_a_server_that_is_away_is_reported_as_such(unused_tcp_port):
    dsn = f"postgresql://nobody@127.0.0.1:{unused_tcp_port}/nothing"
    for attempt in (migrate(dsn), pending_migrations(dsn), ensure_database(dsn)):
        with pytest.raises(UnavailableError):
            await attempt


@pytest.mark.parametrize("names", [["first.sql"], ["0001_a.sql", "0001_b.sql"]])
def test_files_need_a_number_of_their_own(tmp_path, names):
    for name in names:
        (tmp_path / name).write_text("select 1;")
    with pytest.raises(MigrationError, match="number of its own"):
        load_migrations(tmp_path)


def test_named_queries_say_what_they_are_for():
    text = "-- name: one\n-- Says so.\nselect 1;\n\n-- name: two\n-- So does it.\nselect 2;\n"
    assert dict(parse_queries(text)) == {
        "one": "-- Says so.\nselect 1;",
        "two": "-- So does it.\nselect 2;",
    }
    with pytest.raises(ValueError, match="no comment"):
        parse_queries("-- name: one\nselect 1;")
    with pytest.raises(ValueError, match="two queries"):
        parse_queries(text + text)
