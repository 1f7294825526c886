"""Finds agendas by what is known of them, and removes in batches those that ended long ago."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from pop_stream.model.errors import UnstorableError
from pop_stream.model.events.base import OperationProgress
from pop_stream.policy.lifecycle.states import TERMINAL, State
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.ports.agendas import AgendaCursor, AgendaFilter, AgendaListItem
from pop_stream.postgres.pool import acquire_connection, load_queries
from pop_stream.postgres.summaries import affected
from pop_stream.postgres.summary_rows import operation_of, summary_of

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Connection, Pool

_SQL: Final = load_queries("agendas")

_ACCEPTED: Final = "coalesce(accepted_at, '-infinity')"

_PROGRESS: Final = ", percent, external_id, correlation_id"

_CONDITIONS: Final[Mapping[str, str]] = {
    "ids": "agenda_id = any({}::text[])",
    "customer_ids": "customer_id = any({}::text[])",
    "insight_ids": "insight_id = any({}::text[])",
    "link_ids": "link_id = any({}::text[])",
    "titles": "title = any({}::text[])",
    "external_ids": "external_id = any({}::text[])",
    "correlation_ids": "correlation_id = any({}::text[])",
    "states": "state = any({}::text[])",
    "accepted_from": f"{_ACCEPTED} >= {{}}::timestamptz",
    "accepted_before": f"{_ACCEPTED} < {{}}::timestamptz",
}


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
        rows = await self._select("", wanted, limit, after, newest_first=newest_first)
        return [summary_of(row, {}) for row in rows]

    async def page(
        self,
        wanted: AgendaFilter,
        *,
        limit: int,
        after: AgendaCursor | None = None,
        newest_first: bool = True,
    ) -> Sequence[AgendaListItem]:
        """The same, each with how far it is; see the port."""
        rows = await self._select(_PROGRESS, wanted, limit, after, newest_first=newest_first)
        return [
            AgendaListItem(
                summary_of(row, {}),
                row["percent"],
                row["external_id"],
                row["correlation_id"],
            )
            for row in rows
        ]

    async def count(self, wanted: AgendaFilter) -> int:
        """How many agendas fit; see the port."""
        values: list[object] = []
        conditions = _conditions(wanted, values)
        query = _SQL["count"].format(filter=" and ".join(conditions) or "true")
        rows = await self._fetch(query, values)
        return int(rows[0]["count"]) if rows else 0

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
        return [
            row["agenda_id"] for row in await self._fetch(_SQL["delete"], [agenda_ids, ended])
        ]

    async def _select(
        self,
        more: str,
        wanted: AgendaFilter,
        limit: int,
        after: AgendaCursor | None,
        *,
        newest_first: bool,
    ) -> Sequence[Any]:
        values: list[object] = []
        conditions = _conditions(wanted, values)
        if after is not None:
            values += [after.accepted_at, after.agenda_id]
            sign, at = "<" if newest_first else ">", len(values) - 1
            conditions.append(
                f"({_ACCEPTED}, agenda_id) {sign} "
                f"(coalesce(${at}::timestamptz, '-infinity'), ${at + 1}::text)"
            )
        values.append(limit)
        query = _SQL["find"].format(
            filter=" and ".join(conditions) or "true",
            direction="desc" if newest_first else "asc",
            more=more,
            limit=f"${len(values)}",
        )
        return await self._fetch(query, values)

    async def _fetch(self, query: str, values: Sequence[object]) -> Sequence[Any]:
        try:
            async with acquire_connection(self._pool) as connection:
                return await connection.fetch(query, *values)
        except UnstorableError:
            return []  # asked for an id that no row can hold


def _conditions(wanted: AgendaFilter, values: list[object]) -> list[str]:
    """What the filter says as SQL; its values are added to the list, by position."""
    values_by_name = {
        "ids": wanted.ids,
        "customer_ids": wanted.customer_ids,
        "insight_ids": wanted.insight_ids,
        "link_ids": wanted.link_ids,
        "titles": wanted.titles,
        "external_ids": wanted.external_ids,
        "correlation_ids": wanted.correlation_ids,
        "states": [state.value for state in wanted.states],
        "accepted_from": wanted.accepted_from,
        "accepted_before": wanted.accepted_before,
    }
    conditions: list[str] = []
    for name, value in values_by_name.items():
        if value:
            values.append(value)
            conditions.append(_CONDITIONS[name].format(f"${len(values)}"))
    return conditions


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


async def _remove(
    connection: "Connection", aged: tuple[list[str], list[datetime]], ids: list[str]
) -> Mapping[State, int]:
    rows = await connection.fetch(_RETENTION_SQL["delete_aged"], *aged, ids)
    return {State(row["state"]): row["agendas"] for row in rows}
