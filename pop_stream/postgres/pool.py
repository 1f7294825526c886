"""The pool of connections, the one place where the driver's errors become ours, and queries.

Queries are the named statements of `sql/queries`, loaded when a module is imported.
"""

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

import asyncpg

from pop_stream.model.errors import UnavailableError, UnstorableError
from pop_stream.resources import resource_folder
from pop_stream.settings import Settings

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]
    Connection: TypeAlias = PoolConnectionProxy[asyncpg.Record]

CONNECT_S: Final = 5.0
"""To reach the server, or to get a connection of a pool that is used up."""

STATEMENT_S: Final = 60.0
"""For one statement; far above what a batch needs, so only a dead server takes longer."""

# The internal error is of a connection that is lost while it is being got ready to be used.
_UNAVAILABLE_ERRORS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)

# The driver cannot encode half of a surrogate pair, nor an instant before the first in UTC.
_UNSTORABLE_ERRORS: Final = (
    asyncpg.DataError,
    asyncpg.ProgramLimitExceededError,
    UnicodeEncodeError,
    OverflowError,
)

# A plan that is kept is of the table as it was: a scan of an empty one is kept while it fills
# up, and then compares each of its rows with each id that is asked for.
_FOR_ALL: Final = {"plan_cache_mode": "force_custom_plan"}
_FOR_ROLLUP: Final = {"synchronous_commit": "off", "enable_seqscan": "off"}


@asynccontextmanager
async def open_pool(settings: Settings, *, for_rollup: bool = False) -> AsyncIterator["Pool"]:
    """A pool that connects when first used, so a process starts while the database is away.

    Args:
        settings: Where the database is, and how many connections may be open.
        for_rollup: Whether commits need not wait until they are on disk, so that a crash of
            the server may lose the last ones, wholly and in order: only for what is read
            from Kafka, with its offsets in the same transaction, and so is done again.
    """
    pool = asyncpg.create_pool(
        settings.postgres_dsn.get_secret_value(),
        min_size=0,
        max_size=settings.postgres_pool,
        timeout=CONNECT_S,
        command_timeout=STATEMENT_S,
        init=_prepare,
        server_settings=_FOR_ROLLUP if for_rollup else _FOR_ALL,
    )
    async with pool:
        yield pool


async def accepts_connections(dsn: str) -> bool:
    """Whether the server at this address lets a client in; False while it starts or is away.

    Raises:
        asyncpg.PostgresError: If it is there and refuses the client.
    """
    try:
        connection = await asyncpg.connect(dsn, timeout=CONNECT_S)
    except (OSError, TimeoutError, asyncpg.CannotConnectNowError):
        return False
    await connection.close()
    return True


@asynccontextmanager
async def acquire_connection(pool: "Pool") -> AsyncIterator["Connection"]:
    """A connection for the block; errors of the driver inside it are translated.

    Raises:
        UnavailableError: If the database is away, or not as this code needs it.
        UnstorableError: If it is there but refused a value for what it is.
    """
    with translate_errors():
        async with pool.acquire(timeout=CONNECT_S) as connection:
            yield connection


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn errors of the driver into ours."""
    try:
        yield
    except _UNSTORABLE_ERRORS as error:
        raise UnstorableError(str(error)) from error
    except _UNAVAILABLE_ERRORS as error:
        msg = f"the database does not answer: {error!r}"
        raise UnavailableError(msg) from error


async def _prepare(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    # JSON crosses as the bytes it is stored as: no part of ours needs it parsed here.
    await connection.set_type_codec(
        "json", schema="pg_catalog", encoder=_as_is, decoder=_as_is, format="binary"
    )


def _as_is(value: bytes) -> bytes:
    return value


_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def load_queries(aggregate: str) -> Mapping[str, str]:
    """The queries of `sql/queries/<aggregate>.sql` by name.

    Raises:
        ValueError: If a name is taken twice or a query does not say what it is for.
    """
    return parse_queries((resource_folder("sql") / "queries" / f"{aggregate}.sql").read_text())


def parse_queries(text: str) -> Mapping[str, str]:
    """Queries by name; each begins with `-- name: ...` and a comment.

    Raises:
        ValueError: If a name is taken twice or a query does not say what it is for.
    """
    _, *parts = _NAME.split(text)
    queries: dict[str, str] = {}
    for name, query in zip(parts[::2], parts[1::2], strict=True):
        if name in queries:
            msg = f"two queries are called {name!r}"
            raise ValueError(msg)
        if not query.startswith("-- "):
            msg = f"query {name!r} has no comment that says what it is for"
            raise ValueError(msg)
        queries[name] = query.strip()
    return MappingProxyType(queries)
