"""API keys and the audit log in Postgres: a key and its entry, in one transaction.

A key goes into the outbox of definitions too, without its secret: parts that read
`pop.definitions` know keys while Postgres is away. Entries of the audit log are never
changed.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pop_stream.model.api_keys import ApiKey, rotate
from pop_stream.model.definitions import api_key_record
from pop_stream.model.errors import NotFoundError
from pop_stream.model.revisions import (
    DEFAULT_LIMITS,
    AuditAction,
    AuditRecord,
    Author,
    CustomerLimits,
)
from pop_stream.ports.audit import AuditEntry, AuditFilter
from pop_stream.postgres.pool import acquire_connection, load_queries

if TYPE_CHECKING:
    from collections.abc import Mapping

    import asyncpg

    from pop_stream.postgres.pool import Connection, Pool

_AUDIT_SQL: Final = load_queries("audit")
_BEFORE_ALL: Final = 2**63 - 1


async def record_audit_entry(connection: "Connection", entry: AuditRecord) -> None:
    """Write an entry of the audit log, inside the transaction of the change itself.

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
        entry.author.reason,
    )


async def check_change_rate(
    connection: "Connection", author: Author, limits: CustomerLimits
) -> None:
    """Check that a customer may make another change now, before any lock is taken for it.

    Raises:
        RateLimitError: If it made as many as it may.
    """
    customer_id = author.principal.customer_id
    if customer_id is not None:
        most = limits.changes_per_hour
        made = await connection.fetchval(_AUDIT_SQL["count_recent"], customer_id, most)
        limits.check_changes(customer_id, made)


@dataclass(frozen=True, slots=True)
class PostgresAuditLog:
    """The port `AuditLog`."""

    pool: "Pool"
    limits: CustomerLimits = DEFAULT_LIMITS

    async def record(self, entry: AuditRecord) -> None:
        """Write an entry; see the port."""
        async with acquire_connection(self.pool) as connection:
            await check_change_rate(connection, entry.author, self.limits)
            await record_audit_entry(connection, entry)

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


_SQL: Final = load_queries("keys")
_OUTBOX: Final = load_queries("definitions")


class PostgresKeys:
    """The port `KeyStore`."""

    def __init__(self, pool: "Pool", limits: CustomerLimits = DEFAULT_LIMITS) -> None:
        self._pool = pool
        self._limits = limits

    async def find(self, key_id: str) -> ApiKey | None:
        """The key, whatever its state; see the port."""
        async with acquire_connection(self._pool) as connection:
            row = await connection.fetchrow(_SQL["find"], key_id)
        return None if row is None else _key(row)

    async def keys(
        self, *, customer_id: str | None, after: str = "", limit: int
    ) -> list[ApiKey]:
        """A page of keys, by id; see the port."""
        async with acquire_connection(self._pool) as connection:
            rows = await connection.fetch(_SQL["list"], customer_id, after, limit)
        return [_key(row) for row in rows]

    async def create(self, key: ApiKey, author: Author) -> None:
        """Store a new key; see the port."""
        async with acquire_connection(self._pool) as connection, connection.transaction():
            await check_change_rate(connection, author, self._limits)
            await connection.execute(_OUTBOX["lock_for_write"])
            await _insert(connection, key)
            await self._check_number(connection, key, author)
            await _note(connection, author, "created", after=key)

    async def rotate(
        self, key_id: str, to: ApiKey, author: Author, *, grace: timedelta
    ) -> ApiKey:
        """Store a new key in place of another; see the port."""
        async with acquire_connection(self._pool) as connection, connection.transaction():
            await check_change_rate(connection, author, self._limits)
            await connection.execute(_OUTBOX["lock_for_write"])
            old = await _held(connection, key_id)
            new, ending = rotate(old, to, grace=grace)
            await _insert(connection, new)
            await _update(connection, ending)
            await self._check_number(connection, new, author)
            await _note(connection, author, "created", after=new)
            await _note(connection, author, "rotated", before=old, after=ending)
        return new

    async def revoke(self, key_id: str, author: Author, *, at: datetime) -> ApiKey:
        """End a key at once; see the port."""
        async with acquire_connection(self._pool) as connection, connection.transaction():
            await connection.execute(_OUTBOX["lock_for_write"])
            old = await _held(connection, key_id)
            if old.revoked_at is not None:
                return old
            revoked = old.model_copy(update={"revoked_at": at})
            await _update(connection, revoked)
            await _note(connection, author, "revoked", before=old, after=revoked)
        return revoked

    async def _check_number(
        self, connection: "Connection", new: ApiKey, author: Author
    ) -> None:
        if author.principal.customer_id is not None and new.customer_id is not None:
            whose = (new.customer_id, new.created_at)
            there_are = await connection.fetchval(_SQL["count_active"], *whose)
            self._limits.check_keys(new.customer_id, there_are)


async def _held(connection: "Connection", key_id: str) -> ApiKey:
    row = await connection.fetchrow(_SQL["find_for_change"], key_id)
    if row is None:
        kind = "key"
        raise NotFoundError(kind, key_id)
    return _key(row)


async def _insert(connection: "Connection", key: ApiKey) -> None:
    await connection.execute(
        _SQL["insert"],
        key.id,
        key.secret_sha256,
        key.customer_id,
        sorted(key.roles),
        key.title,
        key.created_at,
        key.created_by,
        key.expires_at,
        key.revoked_at,
        key.replaced_by,
    )


async def _update(connection: "Connection", key: ApiKey) -> None:
    await connection.execute(
        _SQL["update"], key.id, key.expires_at, key.revoked_at, key.replaced_by
    )


async def _note(
    connection: "Connection",
    author: Author,
    action: AuditAction,
    *,
    before: ApiKey | None = None,
    after: ApiKey,
) -> None:
    """Put a change into the audit log and the outbox."""
    change = AuditRecord(
        author=author,
        action=action,
        kind="key",
        object_id=after.id,
        before=None if before is None else _shown(before),
        after=_shown(after),
    )
    await record_audit_entry(connection, change)
    version = await connection.fetchval(_OUTBOX["next_version"], "key", after.id)
    body = api_key_record(after)
    nobodys = (None, "owner", ())  # no customer is shown versions of keys
    record = ("key", after.id, version, body, *nobodys)
    await connection.execute(_OUTBOX["record_version"], *record)


def _shown(key: ApiKey) -> "Mapping[str, object]":
    return key.model_dump(mode="json", exclude={"secret_sha256"}, exclude_none=True)


def _key(row: "asyncpg.Record") -> ApiKey:
    columns: dict[str, Any] = dict(row)
    return ApiKey(id=columns.pop("key_id"), **columns)
