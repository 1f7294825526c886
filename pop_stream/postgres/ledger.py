"""What the summaries say of many agendas, for those who check them against Kafka."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from pop_stream.policy.lifecycle.reconcile import LedgerRow
from pop_stream.policy.lifecycle.states import OUTCOMES, TERMINAL, State
from pop_stream.postgres.pool import acquire_connection, load_queries
from pop_stream.postgres.summaries import read_offsets

if TYPE_CHECKING:
    import asyncpg

    from pop_stream.postgres.pool import Pool

_SQL: Final = load_queries("ledger")
_IDS_AT_ONCE: Final = 5_000
_OPEN: Final = [state.value for state in State if state not in TERMINAL]
_ENDED: Final = [state.value for state in OUTCOMES]


@dataclass(frozen=True, slots=True)
class SummaryState:
    """Where one agenda stands by its summary."""

    agenda_id: str
    state: State
    attempt: int
    insight_id: str


class PostgresSummaryScan:
    """Reads summaries past the API.

    Every method raises UnavailableError while the database is away.
    """

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    async def states(self, agenda_ids: Sequence[str]) -> Mapping[str, SummaryState]:
        """Those of the agendas that have a summary."""
        found: dict[str, SummaryState] = {}
        async with acquire_connection(self._pool) as connection:
            for some in _chunks(agenda_ids):
                for row in await connection.fetch(_SQL["states"], some):
                    found[row["agenda_id"]] = SummaryState(
                        agenda_id=row["agenda_id"],
                        state=State(row["state"]),
                        attempt=row["attempt"],
                        insight_id=row["insight_id"],
                    )
        return found

    async def open_rows(self, quiet: timedelta, *, page: int) -> AsyncIterator[list[LedgerRow]]:
        """Agendas that have not ended and have not changed for so long, by pages."""
        last_id = ""
        while True:
            async with acquire_connection(self._pool) as connection:
                rows = await connection.fetch(_SQL["open_page"], last_id, _OPEN, quiet, page)
            if not rows:
                return
            yield [_row(row) for row in rows]
            last_id = rows[-1]["agenda_id"]

    async def ended_rows(self, quiet: timedelta, *, most: int) -> list[LedgerRow]:
        """Agendas that ended within the last day, the latest, but not just now."""
        async with acquire_connection(self._pool) as connection:
            rows = await connection.fetch(_SQL["recently_ended"], _ENDED, quiet, most)
        return [_row(row) for row in rows]

    async def count_recently_changed(self, quiet: timedelta) -> int:
        """How many agendas changed within this time, so that they are not compared yet."""
        async with acquire_connection(self._pool) as connection:
            count: int = await connection.fetchval(
                _SQL["count_recently_changed"], [*_OPEN, *_ENDED], quiet
            )
        return count

    async def rows_of(self, agenda_ids: Sequence[str]) -> list[LedgerRow]:
        """The rows of these agendas, as they are now."""
        async with acquire_connection(self._pool) as connection:
            return [
                _row(row)
                for some in _chunks(agenda_ids)
                for row in await connection.fetch(_SQL["rows_of"], some)
            ]

    async def accepted_at(self, agenda_ids: Sequence[str]) -> Mapping[str, datetime]:
        """When these agendas were accepted; absent where that is not known."""
        async with acquire_connection(self._pool) as connection:
            return {
                row["agenda_id"]: row["accepted_at"]
                for some in _chunks(agenda_ids)
                for row in await connection.fetch(_SQL["accepted_at"], some)
            }

    async def bodies(self, agenda_ids: Sequence[str]) -> Mapping[str, tuple[bytes, datetime]]:
        """What was submitted, and when it was accepted; absent where that is not known."""
        async with acquire_connection(self._pool) as connection:
            return {
                row["agenda_id"]: (row["body"], row["accepted_at"])
                for some in _chunks(agenda_ids)
                for row in await connection.fetch(_SQL["bodies"], some)
            }

    async def folded(self, topic: str) -> Mapping[int, int]:
        """How far each partition of the lifecycle's topic has been folded."""
        async with acquire_connection(self._pool) as connection:
            return await read_offsets(connection, topic)


def _row(row: "asyncpg.Record") -> LedgerRow:
    return LedgerRow(
        agenda_id=row["agenda_id"],
        insight_id=row["insight_id"],
        state=State(row["state"]),
        attempt=row["attempt"],
        version=row["version"],
    )


def _chunks(agenda_ids: Sequence[str]) -> Iterator[list[str]]:
    waiting = iter(agenda_ids)
    while some := list(islice(waiting, _IDS_AT_ONCE)):
        yield some
