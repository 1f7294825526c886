"""Finds agendas by what is known of them, and removes in batches those that ended long ago."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from pop_stream.model.errors import UnstorableError
from pop_stream.model.events.base import OperationProgress
from pop_stream.policy.lifecycle.states import TERMINAL, State
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.ports.agendas import (
    MAX_COUNTED,
    AgendaCount,
    AgendaCursor,
    AgendaFilter,
    AgendaListItem,
    AgendaPage,
)
from pop_stream.postgres.agenda_search import AgendaSearch, Statement
from pop_stream.postgres.pool import acquire_connection, load_queries
from pop_stream.postgres.summaries import affected
from pop_stream.postgres.summary_rows import operation_of, summary_of

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Connection, Pool

_SQL: Final = load_queries("agendas")

_COLUMNS: Final = (
    "agenda_id, version, state, attempt, insight_id, customer_id, title, link_id, priority, "
    "operation_names, percent, message, puller_id, last_heartbeat_at, lease_ms, accepted_at, "
    "emitted_at, started_at, ended_at, issues, diagnostics, waiting_until, waiting_for, "
    "stopping, history, callback_url, callback_format, appended, external_id, correlation_id, "
    "template_id"
)


class PostgresAgendas:
    """The port `AgendaStore`."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    async def find(
        self,
        wanted: AgendaFilter,
        *,
        limit: int,
        after: AgendaCursor | None = None,
        newest_first: bool = True,
    ) -> Sequence[Summary]:
        """At most `limit` agendas, by acceptance; see the port."""
        search = AgendaSearch(_SQL, wanted, newest_first=newest_first)
        statement = search.page(_COLUMNS, limit, after)
        return [summary_of(row, {}) for row in await self._fetch(statement)]

    async def page(
        self,
        wanted: AgendaFilter,
        *,
        limit: int,
        after: AgendaCursor | None = None,
        newest_first: bool = True,
    ) -> AgendaPage:
        """The same, each with how far it is; see the port."""
        search = AgendaSearch(_SQL, wanted, newest_first=newest_first, is_windowed=True)
        statement = search.page(_COLUMNS, limit + 1, after)
        try:
            async with self._snapshot() as connection:
                rows = await _run(connection, statement)
                end = None
                if search.has_window and (len(rows) <= limit or not search.is_one_list):
                    end = await _position(connection, search.window_end(after))
                if end is not None and not search.is_one_list:
                    # Windows of several lists: only up to the first one's end are they whole.
                    bounded = search.page(_COLUMNS, limit + 1, after, until=end)
                    rows = await _run(connection, bounded)
        except UnstorableError:
            rows, end = [], None  # asked for an id that no row can hold
        shown = [_listed(row) for row in rows[:limit]]
        return AgendaPage(shown, _cursor(rows[limit - 1]) if len(rows) > limit else end)

    async def count(self, wanted: AgendaFilter) -> AgendaCount:
        """How many agendas fit; see the port."""
        search = AgendaSearch(_SQL, wanted, is_windowed=True)
        end = None
        try:
            async with self._snapshot() as connection:
                rows = await _run(connection, search.count(MAX_COUNTED + 1))
                found = int(rows[0]["count"])
                if search.has_window and found <= MAX_COUNTED:
                    end = await _position(connection, search.window_end(None))
        except UnstorableError:
            return AgendaCount(0, is_capped=False)
        return AgendaCount(min(found, MAX_COUNTED), found > MAX_COUNTED or end is not None)

    async def load_details(self, summaries: Sequence[Summary]) -> Sequence[Summary]:
        """The same summaries with bodies and operations; see the port."""
        ids = [one.agenda_id for one in summaries]
        async with acquire_connection(self._pool) as connection:
            bodies = {
                row["agenda_id"]: row["body"] or b""
                for row in await connection.fetch(_SQL["bodies"], ids)
            }
            operations: dict[str, dict[str, OperationProgress]] = {}
            for row in await connection.fetch(_SQL["operation_states"], ids):
                known = operations.setdefault(row["agenda_id"], {})
                known[row["name"]] = operation_of(row)
        return [
            replace(
                one,
                body=bodies.get(one.agenda_id, b""),
                operations=operations.get(one.agenda_id, {}),
            )
            for one in summaries
        ]

    async def delete(self, agenda_ids: Sequence[str]) -> Sequence[str]:
        """Remove those that have ended; see the port."""
        ended = sorted(state.value for state in TERMINAL)
        statement = Statement(_SQL["delete"], [agenda_ids, ended])
        return [row["agenda_id"] for row in await self._fetch(statement)]

    async def _fetch(self, statement: Statement) -> Sequence[Any]:
        try:
            async with acquire_connection(self._pool) as connection:
                return await _run(connection, statement)
        except UnstorableError:
            return []  # asked for an id that no row can hold

    @asynccontextmanager
    async def _snapshot(self) -> AsyncIterator["Connection"]:
        """A connection whose statements all see the same agendas."""
        async with (
            acquire_connection(self._pool) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            yield connection


async def _run(connection: "Connection", statement: Statement) -> Sequence[Any]:
    return await connection.fetch(statement.query, *statement.values)


async def _position(connection: "Connection", statement: Statement) -> AgendaCursor | None:
    rows = await _run(connection, statement)
    return _cursor(rows[0]) if rows else None


def _cursor(row: Any) -> AgendaCursor:  # noqa: ANN401  # a record of the driver
    return AgendaCursor(row["accepted_at"], row["agenda_id"])


def _listed(row: Any) -> AgendaListItem:  # noqa: ANN401  # a record of the driver
    return AgendaListItem(
        summary_of(row, {}),
        row["percent"],
        row["external_id"],
        row["correlation_id"],
        row["template_id"],
    )


_RETENTION_SQL: Final = load_queries("retention")

BATCH: Final = 1_000
"""Agendas of one transaction: few enough that nobody waits for its locks."""

KEPT_LETTER_BYTES: Final = 2 * 1024**3
"""Of the newest dead letters, each with a kilobyte besides its value; others are removed."""

_PULLERS_SQL: Final = load_queries("pullers")
_LETTERS_SQL: Final = load_queries("dead_letters")
_STATS_SQL: Final = load_queries("stats")
_OCCURRENCES_SQL: Final = load_queries("occurrences")
_BATCH_PAUSE_S: Final = 0.02
_FIRST: Final = datetime.min.replace(tzinfo=UTC)


class PostgresRetention:
    """Several processes may do it at once; UnavailableError says that the database is away."""

    def __init__(self, pool: "Pool", *, kept_letter_bytes: int = KEPT_LETTER_BYTES) -> None:
        self._pool = pool
        self._kept_letter_bytes = kept_letter_bytes

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
        accepted_at, last_id = _FIRST, ""
        latest = max(before.values())
        while True:
            async with acquire_connection(self._pool) as connection:
                page = await connection.fetch(
                    _RETENTION_SQL["page"], *aged, accepted_at, last_id, latest, BATCH
                )
                found = [row for row in page if row["is_aged"]]
                if dry_run:
                    removed.update(State(row["state"]) for row in found)
                elif found:
                    ids = [row["agenda_id"] for row in found]
                    removed.update(await _remove(connection, aged, ids))
            if len(page) < BATCH:
                return removed
            accepted_at, last_id = page[-1]["accepted_at"], page[-1]["agenda_id"]
            await asyncio.sleep(_BATCH_PAUSE_S)

    async def remove_webhooks(self, before: datetime, *, dry_run: bool = False) -> int:
        """Remove webhooks that were exhausted before an instant; how many."""
        removed = 0
        async with acquire_connection(self._pool) as connection:
            if dry_run:
                return int(
                    await connection.fetchval(
                        _RETENTION_SQL["count_exhausted_webhooks"], before
                    )
                )
            while some := affected(
                await connection.execute(
                    _RETENTION_SQL["delete_exhausted_webhooks"], before, BATCH
                )
            ):
                removed += some
        return removed

    async def remove_silent_pullers(self, before: datetime, *, dry_run: bool = False) -> int:
        """Forget pullers that gave no sign of life since an instant; how many."""
        async with acquire_connection(self._pool) as connection:
            if dry_run:
                return int(await connection.fetchval(_PULLERS_SQL["count_silent"], before))
            return affected(await connection.execute(_PULLERS_SQL["delete_silent"], before))

    async def remove_dead_letters(self, before: datetime, *, dry_run: bool = False) -> int:
        """Remove letters written before an instant, and the oldest of too many; how many."""
        removed = 0
        async with acquire_connection(self._pool) as connection:
            excess = await connection.fetchval(_LETTERS_SQL["excess"], self._kept_letter_bytes)
            aged = (before, excess or 0)
            if dry_run:
                return int(await connection.fetchval(_LETTERS_SQL["count_aged"], *aged))
            while some := affected(
                await connection.execute(_LETTERS_SQL["delete_aged"], *aged, BATCH)
            ):
                removed += some
        return removed

    async def remove_stats(self, before: datetime, *, dry_run: bool = False) -> int:
        """Remove what was counted in hours before an instant; how many rows."""
        return await self._remove_aged(_STATS_SQL, before, dry_run=dry_run)

    async def remove_occurrences(self, before: datetime, *, dry_run: bool = False) -> int:
        """Remove decisions made before an instant of which no agenda is left; how many."""
        return await self._remove_aged(_OCCURRENCES_SQL, before, dry_run=dry_run)

    async def _remove_aged(
        self, queries: Mapping[str, str], before: datetime, *, dry_run: bool
    ) -> int:
        removed = 0
        async with acquire_connection(self._pool) as connection:
            if dry_run:
                return int(await connection.fetchval(queries["count_aged"], before))
            while some := affected(
                await connection.execute(queries["delete_aged"], before, BATCH)
            ):
                removed += some
        return removed


async def _remove(
    connection: "Connection", aged: tuple[list[str], list[datetime]], ids: list[str]
) -> Mapping[State, int]:
    rows = await connection.fetch(_RETENTION_SQL["delete_aged"], *aged, ids)
    return {State(row["state"]): row["agendas"] for row in rows}
