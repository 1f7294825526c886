"""Brings the schema up to date: numbered files, each applied once, never backwards.

A file is one transaction, unless lines `-- step` divide it: for what would keep a large table
from others for long. Each step is sent on its own then: several statements are a transaction,
and one alone may be what none takes, such as `create index concurrently`. A file that did not
come to its end begins anew, so its steps must be repeatable.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import asyncpg

from pop_stream.model.errors import MigrationError
from pop_stream.postgres.pool import CONNECT_S, STATEMENT_S, load_queries, translate_errors
from pop_stream.resources import resource_folder

if TYPE_CHECKING:
    from typing import TypeAlias

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

_SQL: Final = load_queries("migrations")
_MIGRATION_ERRORS: Final = (
    asyncpg.SyntaxOrAccessError,
    asyncpg.FeatureNotSupportedError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.DataError,
)
_LOCK_CONFLICTS: Final = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)
"""Others are at the same tables; they go first."""

_FILE: Final = re.compile(r"(\d{4})_[a-z0-9_]+")
_STEP: Final = re.compile(r"^-- step$", re.MULTILINE)
_TRIES: Final = 30
_RETRY_S: Final = 1.0
_LOCK_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of `sql/migrations`."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text; another one than was applied means that the file was changed."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def steps(self) -> Sequence[str]:
        """Statements that are sent on their own, in order; the last in a transaction."""
        return _STEP.split(self.sql)


def load_migrations(directory: Path | None = None) -> Sequence[Migration]:
    """All migrations, in order.

    Raises:
        MigrationError: If a file is not called `NNNN_name.sql` or a number is taken twice.
    """
    directory = directory or resource_folder("sql") / "migrations"
    found: dict[int, Migration] = {}
    for path in sorted(directory.glob("*.sql")):
        match = _FILE.fullmatch(path.stem)
        if match is None or int(match[1]) in found:
            msg = f"{path.name} is not called NNNN_name.sql with a number of its own"
            raise MigrationError(msg)
        found[int(match[1])] = Migration(int(match[1]), path.stem, path.read_text())
    return list(found.values())


async def migrate(dsn: str, migrations: Sequence[Migration] | None = None) -> list[str]:
    """Apply what is missing; of several starters at once, one does and the others wait.

    A database that is ahead of this code is left as it is.

    Returns:
        Names of the migrations applied by this call.

    Raises:
        MigrationError: If an applied file was changed, or one cannot be applied.
        UnavailableError: If the database is away.
    """
    wanted = load_migrations() if migrations is None else migrations
    async with _connected(dsn) as connection:
        async with asyncio.timeout(STATEMENT_S):
            # Asked for again and again: whoever waits in a statement is waited for by those
            # that build an index beside everybody.
            while not await connection.fetchval(_SQL["lock"]):  # noqa: ASYNC110  # no event
                await asyncio.sleep(_LOCK_POLL_S)
        await connection.execute(_SQL["set_lock_timeout"])
        await connection.execute(_SQL["create_table"])
        missing = _missing(wanted, await _applied(connection))
        for migration in missing:
            await _apply(connection, migration)
    return [migration.name for migration in missing]


async def pending_migrations(dsn: str) -> list[str]:
    """Names of the migrations that `migrate` would apply; changes nothing.

    Raises:
        MigrationError: If an applied file was changed.
        UnavailableError: If the database is away.
    """
    async with _connected(dsn) as connection:
        known = await connection.fetchval(_SQL["table_exists"])
        missing = _missing(load_migrations(), await _applied(connection) if known else {})
    return [migration.name for migration in missing]


async def ensure_database(dsn: str) -> bool:
    """Create the database that the DSN names unless it exists; whether it was created.

    Raises:
        UnavailableError: If the server is away, or does not let this user create one.
    """
    name = unquote(urlsplit(dsn).path.removeprefix("/"))
    with translate_errors(), suppress(asyncpg.InvalidCatalogNameError):
        connection = await asyncpg.connect(dsn, timeout=CONNECT_S)
        await connection.close()
        return False
    async with _connected(dsn, database="postgres") as connection:
        quoted = name.replace('"', '""')
        try:
            await connection.execute(f'create database "{quoted}"')
        except (asyncpg.DuplicateDatabaseError, asyncpg.UniqueViolationError):
            return False  # another starter was first
    return True


@asynccontextmanager
async def _connected(dsn: str, database: str | None = None) -> AsyncIterator["Connection"]:
    with translate_errors():
        connection = await asyncpg.connect(dsn, database=database, timeout=CONNECT_S)
        try:
            yield connection
        finally:
            await connection.close()  # which also gives the lock back


async def _applied(connection: "Connection") -> Mapping[int, str]:
    rows = await connection.fetch(_SQL["applied"])
    return {row["number"]: row["checksum"] for row in rows}


def _missing(wanted: Sequence[Migration], applied: Mapping[int, str]) -> Sequence[Migration]:
    for migration in wanted:
        if applied.get(migration.number, migration.checksum) != migration.checksum:
            msg = f"{migration.name} was changed after it was applied; add a new file instead"
            raise MigrationError(msg)
    return [migration for migration in wanted if migration.number not in applied]


async def _apply(connection: "Connection", migration: Migration) -> None:
    for left in reversed(range(_TRIES)):
        try:
            return await _apply_now(connection, migration)
        except _LOCK_CONFLICTS as error:
            if not left:
                msg = f"{migration.name} cannot be applied beside what else runs: {error}"
                raise MigrationError(msg) from error
        except _MIGRATION_ERRORS as error:
            msg = f"{migration.name} cannot be applied: {error}"
            raise MigrationError(msg) from error
        await asyncio.sleep(_RETRY_S)
    return None


async def _apply_now(connection: "Connection", migration: Migration) -> None:
    *steps, last = migration.steps
    for step in steps:
        await connection.execute(step)
    async with connection.transaction():
        await connection.execute(last)
        await connection.execute(
            _SQL["record"], migration.number, migration.name, migration.checksum
        )
