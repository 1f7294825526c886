"""The audit log in Postgres: written with each change, never changed itself."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from pop_stream.core.definitions.deeds import AuditRecord
from pop_stream.ports.audit import AuditEntry, AuditFilter
from pop_stream.store.pool import acquire_connection
from pop_stream.store.queries import load_queries

if TYPE_CHECKING:
    from pop_stream.store.pool import Connection, Pool

_AUDIT_SQL: Final = load_queries("audit")
_BEFORE_ALL: Final = 2**63 - 1


async def record_audit_entry(connection: "Connection", entry: AuditRecord) -> None:
    """Note a deed; call it inside the transaction that makes the change.

    Args:
        connection: In that transaction.
        entry: Of which nothing may be secret.
    """
    await connection.execute(
        _AUDIT_SQL["record"],
        entry.author.principal.name,
        entry.author.principal.customer_id,
        entry.author.request_id,
        entry.action,
        entry.kind,
        entry.object_id,
        None if entry.before is None else msgspec.json.encode(entry.before),
        None if entry.after is None else msgspec.json.encode(entry.after),
    )


@dataclass(frozen=True, slots=True)
class PostgresAuditLog:
    """The port `AuditLog`."""

    pool: "Pool"

    async def entries(
        self, wanted: AuditFilter, *, before: int | None, limit: int
    ) -> list[AuditEntry]:
        """A page of changes, newest first; see the port."""
        async with acquire_connection(self.pool) as connection:
            rows = await connection.fetch(
                _AUDIT_SQL["list"],
                _BEFORE_ALL if before is None else before,
                wanted.kind,
                wanted.object_id,
                wanted.principal,
                limit,
            )
        return [AuditEntry(**dict(row)) for row in rows]
