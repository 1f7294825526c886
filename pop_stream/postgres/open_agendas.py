"""Which agendas have not ended, found at a cost that does not grow with those that have.

Two scans go through the agendas by acceptance and list those that have not ended: one follows
what is new, the other goes round through all that there is, a bounded part at a time, for
what the first could not see (an agenda that runs again, or was accepted long before its event
arrived). What is listed stays listed until it has ended.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pop_stream.policy.lifecycle.reconcile import LedgerRow
from pop_stream.policy.lifecycle.states import TERMINAL, State
from pop_stream.postgres.pool import acquire_connection, load_queries

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Connection, Pool

NEW_PER_RUN: Final = 500_000
"""Agendas accepted lately that are scanned in one go; the next run goes on there."""

FULL_SCAN_PER_RUN: Final = 20_000
"""Agendas of any age, likewise."""

LISTED_PER_RUN: Final = 20_000
"""Agendas that have not ended and are listed in one go; the others come next."""

_PAGE: Final = 5_000
_LOCK_ID: Final = 7_305_441_102_958_117
"""Of the advisory lock: any number that nobody else has."""

_LATE_ACCEPTANCE: Final = timedelta(seconds=30)
"""So much later than its instant an acceptance may arrive, beside the quiet, and be new."""

_SQL: Final = load_queries("reconciliation")
_OPEN: Final = [state.value for state in State if state not in TERMINAL]
_OLDEST: Final = datetime(1, 1, 2, tzinfo=UTC)


class PostgresOpenAgendas:
    """The list of agendas that have not ended; for one process at a time.

    Every method raises UnavailableError while the database is away.
    """

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    @asynccontextmanager
    async def try_lock(self) -> AsyncIterator[bool]:
        """Whether it is this process' turn, for as long as the block runs."""
        async with acquire_connection(self._pool) as connection:
            is_locked = bool(await connection.fetchval(_SQL["try_lock"], _LOCK_ID))
            try:
                yield is_locked
            finally:
                if is_locked and not connection.is_closed():
                    await connection.execute(_SQL["unlock"], _LOCK_ID)

    async def scan(self, quiet: timedelta) -> int:
        """List what has not ended and was accepted so long ago; how many were scanned."""
        async with acquire_connection(self._pool) as connection:
            rows = await connection.fetch(_SQL["scan_positions"])
            positions = {row["scan"]: (row["accepted_at"], row["agenda_id"]) for row in rows}
            until = await connection.fetchval(_SQL["now"]) - quiet
            newest = max(until - _LATE_ACCEPTANCE, _OLDEST)
            accepted_at, agenda_id = positions.get("new", (newest, ""))
            begun = (min(accepted_at, newest), agenda_id if accepted_at <= newest else "")
            passed = await _advance_scan(connection, "new", begun, until, most=NEW_PER_RUN)
            begun = positions.get("full", (_OLDEST, ""))
            passed += await _advance_scan(
                connection, "full", begun, until, most=FULL_SCAN_PER_RUN
            )
        return passed

    async def listed(self, quiet: timedelta) -> AsyncIterator[Sequence[LedgerRow]]:
        """Those on the list that changed nothing for so long, by pages; others are left out.

        Goes on where it was left, up to `LISTED_PER_RUN` and not past the end of the list.
        """
        left = LISTED_PER_RUN
        async with acquire_connection(self._pool) as connection:
            positions = {
                row["scan"]: row["agenda_id"]
                for row in await connection.fetch(_SQL["scan_positions"])
            }
        last_id = positions.get("list", "")
        while left > 0:
            async with acquire_connection(self._pool) as connection:
                page = min(_PAGE, left)
                rows = await connection.fetch(
                    _SQL["open_agendas_page"], last_id, page, _OPEN, quiet
                )
                last_id = rows[-1]["agenda_id"] if len(rows) == page else ""
                gone = [row["agenda_id"] for row in rows if not row["is_open"]]
                if gone:
                    await connection.execute(_SQL["delete_open_agendas"], gone)
                await connection.execute(_SQL["save_scan_position"], "list", _OLDEST, last_id)
            yield [
                LedgerRow(
                    agenda_id=row["agenda_id"],
                    insight_id=row["insight_id"],
                    state=State(row["state"]),
                    attempt=row["attempt"],
                    version=row["version"],
                )
                for row in rows
                if row["is_open"] and row["is_stale"]
            ]
            left -= page
            if not last_id:
                return


async def _advance_scan(
    connection: "Connection",
    scan: str,
    begun: tuple[datetime, str],
    until: datetime,
    *,
    most: int,
) -> int:
    """Go on with a scan; the full one begins anew at its end."""
    passed, (accepted_at, agenda_id) = 0, begun
    while passed < most:
        row = await connection.fetchrow(
            _SQL["scan_open"], accepted_at, agenda_id, until, _PAGE, _OPEN
        )
        if row is None:
            if scan == "full":
                accepted_at, agenda_id = _OLDEST, ""
            break
        passed += row["passed"]
        accepted_at, agenda_id = row["accepted_at"], row["agenda_id"]
    await connection.execute(_SQL["save_scan_position"], scan, accepted_at, agenda_id)
    return passed
