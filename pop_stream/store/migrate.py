"""Brings the schema up to date: numbered files, each applied once, never backwards."""

import hashlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import asyncpg

from pop_stream.core.errors import MigrationError
from pop_stream.resources import folder
from pop_stream.store.pool import CONNECT_S, STATEMENT_S, translated
from pop_stream.store.queries import load_queries

if TYPE_CHECKING:
    from typing import TypeAlias

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

_SQL: Final = load_queries("migrations")
_FAULTS: Final = (
    asyncpg.SyntaxOrAccessError,
    asyncpg.FeatureNotSupportedError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.DataError,
)
_FILE: Final = re.compile(r"(\d{4})_[a-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of `sql/migrations`."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """Tells a file that was changed after it was applied."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def load_migrations(directory: Path | None = None) -> Sequence[Migration]:
    """All migrations, in order.

    Raises:
        MigrationError: If a file is not called `NNNN_name.sql` or a number is taken twice.
    """
    directory = directory or folder("sql") / "migrations"
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
        await connection.execute(_SQL["lock"], timeout=STATEMENT_S)
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
    with translated(), suppress(asyncpg.InvalidCatalogNameError):
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
    with translated():
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
    try:
        async with connection.transaction():
            await connection.execute(migration.sql)
            await connection.execute(
                _SQL["record"], migration.number, migration.name, migration.checksum
            )
    except _FAULTS as error:
        msg = f"{migration.name} cannot be applied: {error}"
        raise MigrationError(msg) from error
