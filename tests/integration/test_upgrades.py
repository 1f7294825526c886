"""Migrations beside the previous version: what it did before, it can do after each of them.

A new version migrates while processes of the old one still run. So after each migration, every
statement over the tables and columns of the schema before it must go on working.
"""

# ruff: noqa: S608  # the names come from the schema itself

from graphlib import TopologicalSorter

import asyncpg
import pytest

from pop_stream.postgres.migrate import Migration, load_migrations, migrate

MIGRATIONS = load_migrations()
NEXT = Migration(
    number=9999,
    name="9999_next",
    sql="alter table agendas add column region text; create table regions (region text);",
)
STEPS = (*MIGRATIONS, NEXT)
"""What a next version may do comes last: so the first migration has one after it, too."""
SAMPLES = {
    "text": "x", "integer": 1, "bigint": 1, "real": 1.0, "double precision": 1.0,
    "boolean": True, "bytea": b"x", "json": "{}", "jsonb": "{}", "ARRAY": ["x"],
}  # fmt: skip
SPECIAL = {
    ("agendas", "state"): "ready",
    ("operations", "state"): "waiting",
    ("api_keys", "secret_sha256"): "0" * 64,
    ("api_keys", "roles"): ["read"],
    ("dead_letters", "kind"): "refused",
    ("dead_letters", "state"): "open",
    ("stats", "waits"): [1],
    ("occurrences", "decision"): "fired",
    ("completions", "outcome"): "succeeded",
    ("stats", "runs"): [1],
    ("definitions", "kind"): "insight",
    ("definitions", "visibility"): "owner",
    ("definition_versions", "kind"): "insight",
}
APPEND_ONLY = {"audit_log"}
SINGLE_ROW = {"removal_watermark"}  # the migration writes it
COLUMNS = """
select table_name, column_name, data_type
from information_schema.columns
where table_schema = 'public' and is_identity = 'NO' and is_generated = 'NEVER'
    and table_name <> 'schema_migrations'
order by table_name, ordinal_position
"""
KEYS = """
select relname as table_name, attname as column_name
from pg_index
join pg_class on pg_class.oid = indrelid
join pg_attribute on attrelid = indrelid and attnum = any(indkey)
where indisunique and relnamespace = 'public'::regnamespace
"""

REFERENCES = """
select conrelid::regclass::text as table_name, confrelid::regclass::text as referenced
from pg_constraint
where contype = 'f' and connamespace = 'public'::regnamespace
"""


class Previous:
    """What a version knows of the schema, and does with it.

    It writes a table after those that its own schema has it refer to, as it would. A foreign
    key that only a later schema has is nothing that it knows of.
    """

    def __init__(self, columns, keys):
        self.columns = columns
        self.keys = keys

    @classmethod
    async def of(cls, connection):
        columns = {}
        for row in await connection.fetch(COLUMNS):
            columns.setdefault(row["table_name"], {})[row["column_name"]] = row["data_type"]
        keys = {(row["table_name"], row["column_name"]) for row in await connection.fetch(KEYS)}
        referenced = {table: set() for table in columns}
        for row in await connection.fetch(REFERENCES):
            referenced[row["table_name"]].add(row["referenced"])
        order = TopologicalSorter(referenced).static_order()
        return cls({table: columns[table] for table in order}, keys)

    async def write(self, connection, number):
        """Insert a row into every table, update, read and delete it, by all known columns."""
        await self.insert(connection, number)
        for table, columns in self.columns.items():
            assert await connection.fetchval(f"select count(*) from {table}")
            await self.read(connection, table)
            if table in APPEND_ONLY | SINGLE_ROW:
                continue
            for name, kind in columns.items():
                if (table, name) not in self.keys:
                    value = self._sample(table, name, kind, number)
                    await connection.execute(f'update {table} set "{name}" = $1', value)
        for table in reversed(self.columns):
            if table not in APPEND_ONLY | SINGLE_ROW:
                await connection.execute(f"delete from {table}")

    async def insert(self, connection, number):
        """Insert a row into every table that takes more than one."""
        for table, columns in self.columns.items():
            if table in SINGLE_ROW:
                continue
            values = [self._sample(table, name, columns[name], number) for name in columns]
            places = ", ".join(f"${place}" for place in range(1, len(values) + 1))
            await connection.execute(
                f"insert into {table} ({self._names(table)}) values ({places})", *values
            )

    async def read(self, connection, table):
        """All rows of a table, by the known columns."""
        rows = await connection.fetch(f"select {self._names(table)} from {table}")
        return [tuple(row) for row in rows]

    def _names(self, table):
        return ", ".join(f'"{name}"' for name in self.columns[table])

    def _sample(self, table, name, kind, number):
        if (table, name) in SPECIAL:
            return SPECIAL[table, name]
        if kind.startswith("timestamp"):
            return self.now
        value = SAMPLES[kind]
        is_key = (table, name) in self.keys
        return f"{value}{number}" if is_key and kind == "text" else value

    now = None


@pytest.fixture
async def connection(dsn):
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.mark.parametrize("place", range(1, len(STEPS)), ids=lambda n: STEPS[n].name)
async def test_what_worked_before_a_migration_works_after_it(dsn, connection, place):
    await migrate(dsn, STEPS[:place])
    previous = await Previous.of(connection)
    previous.now = await connection.fetchval("select now()")
    await previous.write(connection, 1)
    await migrate(dsn, STEPS[: place + 1])
    await previous.write(connection, 2)


@pytest.mark.parametrize("place", range(1, len(STEPS)), ids=lambda n: STEPS[n].name)
async def test_rows_of_before_are_kept_by_a_migration(dsn, connection, place):
    await migrate(dsn, STEPS[:place])
    previous = await Previous.of(connection)
    previous.now = await connection.fetchval("select now()")
    await previous.insert(connection, 1)
    kept = {table: await previous.read(connection, table) for table in previous.columns}
    assert all(kept.values())
    await migrate(dsn, STEPS[: place + 1])
    for table, before in kept.items():
        after = await previous.read(connection, table)
        assert [one for one in after if one in before] == before


async def test_a_migration_that_would_break_the_previous_version_is_caught(dsn, connection):
    """The test of the test: a renamed column, one that the old version does not fill, and a
    foreign key that it does not know of."""
    await migrate(dsn, MIGRATIONS)
    previous = await Previous.of(connection)
    previous.now = await connection.fetchval("select now()")
    for change, error in (
        ("alter table agendas rename column title to name", asyncpg.UndefinedColumnError),
        ("alter table agendas add column region text not null", asyncpg.NotNullViolationError),
        (
            "alter table agendas add foreign key (agenda_id) references api_keys (key_id)",
            asyncpg.ForeignKeyViolationError,
        ),
    ):
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(change)
        with pytest.raises(error):
            await previous.write(connection, 3)
        await transaction.rollback()
