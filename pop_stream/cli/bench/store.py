"""What the benchmarks ask Postgres, past the API."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from pop_stream.settings import Settings
from pop_stream.store.pool import acquire_connection, open_pool
from pop_stream.store.queries import load_queries

if TYPE_CHECKING:
    from pop_stream.store.pool import Pool

QUERIES: Final = load_queries("bench")


class BenchStore:
    """Named queries on a pool of its own."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    async def states(self, run: str) -> Mapping[str, int]:
        """How many agendas whose id begins so are in each state; reads all rows there are."""
        async with acquire_connection(self._pool) as connection:
            rows = await connection.fetch(QUERIES["states_of_run"], run)
        return {row["state"]: row["agendas"] for row in rows}

    async def ended_among(self, agenda_ids: Sequence[str]) -> list[str]:
        """Those whose summary says that they have ended."""
        async with acquire_connection(self._pool) as connection:
            rows = await connection.fetch(QUERIES["ended_among"], agenda_ids)
        return [row["agenda_id"] for row in rows]

    async def make_floor(self) -> None:
        """Make the floor's table anew."""
        await self.drop_floor()
        async with acquire_connection(self._pool) as connection:
            await connection.execute(QUERIES["make_floor"])

    async def drop_floor(self) -> None:
        """Forget the floor's table."""
        async with acquire_connection(self._pool) as connection:
            await connection.execute(QUERIES["drop_floor"])


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[BenchStore]:
    """The queries, for as long as the context is open."""
    async with open_pool(settings) as pool:
        yield BenchStore(pool)
