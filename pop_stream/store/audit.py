"""The audit log in Postgres: written with each change, never changed itself."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from pop_stream.core.definitions.deeds import Deed
from pop_stream.ports.audit import AuditEntry, AuditFilter
from pop_stream.store.pool import borrow
from pop_stream.store.queries import load_queries

if TYPE_CHECKING:
    from pop_stream.store.pool import Connection, Pool

_SQL: Final = load_queries("audit")
_BEFORE_ALL: Final = 2**63 - 1


async def record_deed(connection: "Connection", deed: Deed) -> None:
    """Note a deed; call it inside the transaction that makes the change.

    Args:
        connection: In that transaction.
        deed: Of which nothing may be secret.
    """
    await connection.execute(
        _SQL["record"],
        deed.author.principal.name,
        deed.author.principal.customer_id,
        deed.author.request_id,
        deed.action,
        deed.kind,
        deed.object_id,
        None if deed.before is None else msgspec.json.encode(deed.before),
        None if deed.after is None else msgspec.json.encode(deed.after),
    )


@dataclass(frozen=True, slots=True)
class PostgresAuditLog:
    """The port `AuditLog`."""

    pool: "Pool"

    async def entries(
        self, wanted: AuditFilter, *, before: int | None, limit: int
    ) -> list[AuditEntry]:
        """A page of changes, newest first; see the port."""
        async with borrow(self.pool) as connection:
            rows = await connection.fetch(
                _SQL["list"],
                _BEFORE_ALL if before is None else before,
                wanted.kind,
                wanted.object_id,
                wanted.principal,
                limit,
            )
        return [AuditEntry(**dict(row)) for row in rows]
