"""Removes ended agendas by state and age, in batches; never one that has not ended."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pop_stream.core.lifecycle.lifecycle import State
from pop_stream.store.offsets import affected
from pop_stream.store.pool import acquire_connection
from pop_stream.store.queries import load_queries

if TYPE_CHECKING:
    from pop_stream.store.pool import Connection, Pool

_RETENTION_SQL: Final = load_queries("retention")

BATCH: Final = 1_000
"""Agendas of one transaction: few enough that nobody waits for its locks."""

_BATCH_PAUSE_S: Final = 0.02
_FIRST: Final = datetime.min.replace(tzinfo=UTC)


class PostgresRetention:
    """Several processes may do it at once; UnavailableError says that the database is away."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    async def remove(
        self, before: Mapping[State, datetime], *, dry_run: bool = False
    ) -> Mapping[State, int]:
        """Remove agendas that ended before the instant of their state, and their operations.

        Walks the agendas in order of acceptance, so it costs what is old, not what there is.

        Args:
            before: By state that is an end.
            dry_run: Remove nothing.

        Returns:
            How many were removed, or would be, by state.
        """
        aged = ([state.value for state in before], [*before.values()])
        removed: Counter[State] = Counter()
        place, last_id = _FIRST, ""
        latest = max(before.values())
        while True:
            async with acquire_connection(self._pool) as connection:
                page = await connection.fetch(
                    _RETENTION_SQL["page"], *aged, place, last_id, latest, BATCH
                )
                found = [row for row in page if row["is_aged"]]
                if dry_run:
                    removed.update(State(row["state"]) for row in found)
                elif found:
                    ids = [row["agenda_id"] for row in found]
                    removed.update(await _remove(connection, aged, ids))
            if len(page) < BATCH:
                return removed
            place, last_id = page[-1]["place"], page[-1]["agenda_id"]
            await asyncio.sleep(_BATCH_PAUSE_S)

    async def remove_webhooks(self, before: datetime, *, dry_run: bool = False) -> int:
        """Remove callbacks that were given up before an instant; how many."""
        removed = 0
        async with acquire_connection(self._pool) as connection:
            if dry_run:
                return int(await connection.fetchval(_RETENTION_SQL["count_callbacks"], before))
            while some := affected(
                await connection.execute(_RETENTION_SQL["remove_webhooks"], before, BATCH)
            ):
                removed += some
        return removed


async def _remove(
    connection: "Connection", aged: tuple[list[str], list[datetime]], ids: list[str]
) -> Mapping[State, int]:
    rows = await connection.fetch(_RETENTION_SQL["remove"], *aged, ids)
    return {State(row["state"]): row["agendas"] for row in rows}
