"""Definitions in Postgres: revisions under a lock, lists, and the outbox to Kafka.

Every version is written to `definition_versions` in the transaction of the change; those that
are not published yet are the outbox. Writers take turns, so numbers grow in the order of
commits. Lists are built as SQL from what a client asks: every value is a parameter, every
name one of ours.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import asyncpg
import msgspec

from pop_stream.model.definition_lists import (
    DefinitionListPage,
    Filter,
    ListQuery,
    Sort,
    defaults_of,
)
from pop_stream.model.definitions import (
    CUSTOMERS_KINDS,
    Customer,
    Definition,
    Kind,
    decode_definition,
    deletion_blocked_by,
    encode_definition,
    kind_of,
    references_of,
)
from pop_stream.model.errors import DefinitionError, InUseError, Issue, UnavailableError
from pop_stream.model.identity import Ownership
from pop_stream.model.revisions import (
    DEFAULT_LIMITS,
    AuditRecord,
    Author,
    CustomerLimits,
    Revision,
    VersionedDefinition,
)
from pop_stream.model.sharing import SharedDefinition
from pop_stream.model.validation import without_nul
from pop_stream.policy.lifecycle.states import TERMINAL
from pop_stream.ports.definitions import OutboxRow
from pop_stream.postgres.keys import check_change_rate, record_audit_entry
from pop_stream.postgres.pool import acquire_connection, load_queries

if TYPE_CHECKING:
    from pop_stream.postgres.pool import Connection, Pool

_NULL: Final = "'null'::jsonb"

_SHOWN: Final = """\
with shown as (
    select kind, id, version, body, created_at, updated_at,
        $2::jsonb || body::jsonb || jsonb_build_object(
            'version', version,
            'created_at', (extract(epoch from created_at) * 1000000)::bigint,
            'updated_at', (extract(epoch from updated_at) * 1000000)::bigint
        ) || case when $3::text is null or owner_id = $3 or cardinality(allowed) = 0
            then '{}'::jsonb
            else jsonb_build_object('allowed', (
                select coalesce(jsonb_agg(one), '[]')
                from jsonb_array_elements_text(body::jsonb -> 'allowed') as one
                where lower(one) = $4
            ))
        end as doc
    from definitions
    where kind = $1 and (
        $3::text is null or visibility = 'global' or owner_id = $3
        or (visibility = 'allowed' and $4::text = any(allowed))
    )
)
"""


class ListStatement:
    """A list's two statements and what is bound to them.

    Attributes:
        count: Counts all that the filters keep; takes `counted` as arguments.
        page: One row more than the page holds; takes `arguments`.
    """

    def __init__(self, query: ListQuery) -> None:
        seen_by = query.seen_by
        folded = seen_by.casefold() if seen_by is not None else None
        defaults = msgspec.json.encode(defaults_of(query.kind)).decode()
        self.arguments: list[Any] = [query.kind, defaults, seen_by, folded]
        kept = " and ".join(["true", *map(self._filter, query.filters)])
        self.count = f"{_SHOWN}select count(*) from shown where {kept}"  # noqa: S608  # no value
        self.counted = tuple(self.arguments)
        nodes = [self._node(one.path) for one in query.sorts]
        if query.after is not None:
            kept = f"{kept} and {self._after(query.sorts, nodes, query.after)}"
        order = ", ".join(
            f"{node} {'desc' if one.descending else 'asc'}"
            for one, node in zip(query.sorts, nodes, strict=True)
        )
        self.page = (
            f"{_SHOWN}select kind, id, version, body, created_at, updated_at, "  # noqa: S608
            f"array[{', '.join(nodes)}]::text[] as keys "
            f"from shown where {kept} order by {order} limit {self._bind(query.limit + 1)}"
        )

    def _bind(self, value: object) -> str:
        self.arguments.append(value)
        return f"${len(self.arguments)}"

    def _node(self, path: Sequence[str]) -> str:
        """What is at a path; the id is compared as its column is, by code point."""
        return f"coalesce(doc #> {self._bind(list(path))}::text[], {_NULL})"

    def _filter(self, one: Filter) -> str:
        node = self._node(one.path)
        values = self._bind([_json(value) for value in one.values])
        return (
            f"exists (select from unnest({values}::text[]) as wanted (value) "
            f"where {node} = wanted.value::jsonb or (jsonb_typeof({node}) = 'array' "
            f"and {node} @> wanted.value::jsonb))"
        )

    def _after(self, sorts: Sequence[Sort], nodes: Sequence[str], after: Sequence[Any]) -> str:
        """The condition for rows after these keys, compared from the first to the last."""
        beyond = "false"
        for one, node, value in reversed([*zip(sorts, nodes, after, strict=True)]):
            bound = f"{self._bind(_json(value))}::text::jsonb"
            further = "<" if one.descending else ">"
            beyond = f"({node} {further} {bound} or ({node} = {bound} and {beyond}))"
        return beyond


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


_SQL: Final = load_queries("definitions")
_USERS_SHOWN: Final = 10
_ENDED: Final = sorted(state.value for state in TERMINAL)
_UNFINISHED_QUERIES: Final[Mapping[str, str]] = {
    "customer": "unfinished_of_customer",
    "insight": "unfinished_of_insight",
}


class PostgresDefinitions:
    """The port `DefinitionStore`."""

    def __init__(self, pool: "Pool", limits: CustomerLimits = DEFAULT_LIMITS) -> None:
        self._pool = pool
        self._limits = limits

    async def get(
        self, kind: Kind, object_id: str, *, seen_by: str | None = None
    ) -> VersionedDefinition | None:
        """One definition; see the port."""
        folded = None if seen_by is None else seen_by.casefold()
        async with acquire_connection(self._pool) as connection:
            row = await connection.fetchrow(_SQL["get"], kind, object_id, seen_by, folded)
            return _stored(row)

    async def version(
        self, kind: Kind, object_id: str, version: int, *, seen_by: str | None = None
    ) -> VersionedDefinition | None:
        """What it was in one version; see the port."""
        folded = None if seen_by is None else seen_by.casefold()
        wanted = (kind, object_id, version, seen_by, folded)
        async with acquire_connection(self._pool) as connection:
            return _stored(await connection.fetchrow(_SQL["get_version"], *wanted))

    async def find_by_name(self, kind: Kind, named: str) -> Sequence[str]:
        """Ids of those of a kind that someone calls so; see the port."""
        async with acquire_connection(self._pool) as connection:
            rows = await connection.fetch(_SQL["ids_of"], kind, named)
        return [row["id"] for row in rows]

    async def list(self, query: ListQuery) -> DefinitionListPage:
        """One page; see the port."""
        statement = ListStatement(query)
        async with (
            acquire_connection(self._pool) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            total = await connection.fetchval(statement.count, *statement.counted)
            rows = await connection.fetch(statement.page, *statement.arguments)
        shown = rows[: query.limit]
        last = shown[-1]["keys"] if len(rows) > query.limit else None
        return DefinitionListPage(
            found=tuple(one for row in shown if (one := _stored(row))),
            total=total,
            last=last and tuple(msgspec.json.decode(key) for key in last),
        )

    async def change(
        self, revisions: Sequence[Revision], author: Author
    ) -> Sequence[VersionedDefinition | None]:
        """Make changes, all or none; see the port."""
        async with acquire_connection(self._pool) as connection, connection.transaction():
            await check_change_rate(connection, author, self._limits)
            await connection.execute(_SQL["lock_for_write"])
            rules = await _count_rules(connection, revisions)
            outcomes = [await _make(connection, one, author, self._limits) for one in revisions]
            if (there_are := await _count_rules(connection, revisions)) > rules:
                self._limits.check_rules(there_are)
            owner = author.principal.customer_id
            if owner is not None:  # a customer defines nothing but its own
                for kind in {one.kind for one in revisions} & CUSTOMERS_KINDS:
                    owned = await connection.fetchval(_SQL["count_owned"], kind, owner)
                    self._limits.check_owned(owner, kind, owned)
            await _expect_needs(connection, [one.definition for one in outcomes if one])
            gone = [
                revision
                for revision, outcome in zip(revisions, outcomes, strict=True)
                if outcome is None
            ]
            for revision in gone:
                await _expect_unused(connection, revision)
        return outcomes


async def _count_rules(connection: "Connection", revisions: Sequence[Revision]) -> int:
    """How many there are; 0 if none is changed."""
    if not any(one.kind == "rule" for one in revisions):
        return 0
    return int(await connection.fetchval(_SQL["count_rules"]))


class PostgresDefinitionOutbox:
    """The port `Outbox`."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    @asynccontextmanager
    async def claim_batch(self, most: int) -> AsyncIterator[Sequence[OutboxRow]]:
        """Rows to publish; see the port."""
        async with acquire_connection(self._pool) as connection, connection.transaction():
            await connection.execute(_SQL["lock_for_publish"])
            rows = [
                _outbox_row(row) for row in await connection.fetch(_SQL["unpublished"], most)
            ]
            yield rows
            if rows:
                numbers = [row.number for row in rows]
                await connection.execute(_SQL["mark_published"], numbers)

    async def oldest_unpublished(self) -> tuple[str, timedelta] | None:
        """The key that waits for longest to be published, and for how long; None if none."""
        async with acquire_connection(self._pool) as connection:
            row = await connection.fetchrow(_SQL["oldest_unpublished"])
        return None if row is None else (row["key"], row["age"])

    async def latest_versions(self) -> Sequence[OutboxRow]:
        """The last version of everything; see the port."""
        async with acquire_connection(self._pool) as connection:
            return [_outbox_row(row) for row in await connection.fetch(_SQL["newest"])]


async def _make(
    connection: "Connection", revision: Revision, author: Author, limits: CustomerLimits
) -> VersionedDefinition | None:
    """Make one change, its version in the outbox included."""
    identity = (revision.kind, revision.object_id)
    before = _stored(await connection.fetchrow(_SQL["get"], *identity, None, None))
    wanted = revision.decide(before)
    if before and wanted == before.definition:
        return before
    version = await connection.fetchval(_SQL["next_version"], *identity)
    body = without_nul(encode_definition(wanted), document=revision.kind) if wanted else None
    whose = _ownership(wanted) if wanted else Ownership(None)
    owned = (whose.owner, whose.visibility, sorted(whose.allowed))
    await connection.execute(_SQL["record_version"], *identity, version, body, *owned)
    await connection.execute(_SQL["prune_versions"], *identity, version, limits.versions)
    await record_audit_entry(connection, _audit_entry(revision, before, wanted, author))
    if wanted is None:
        await connection.execute(_SQL["delete"], *identity)
        return None
    row = await connection.fetchrow(
        _SQL["upsert"],
        *identity,
        version,
        body,
        deletion_blocked_by(wanted),
        *owned,
    )
    return _stored(row)


async def _expect_needs(connection: "Connection", defined: Sequence[Definition]) -> None:
    """Check that what definitions refer to is defined, now that all changes are made."""
    needs = [(one, field, key) for one in defined for field, key in references_of(one)]
    if not needs:
        return
    rows = await connection.fetch(_SQL["missing_references"], [key for _, _, key in needs])
    unknown = {row["key"] for row in rows}
    for definition, field, key in needs:
        if key in unknown:
            message = f"there is no {key}; define it first, or leave this out"
            issue = Issue(field, key.partition("/")[2], message)
            raise DefinitionError(kind_of(definition), [issue])


async def _expect_unused(connection: "Connection", revision: Revision) -> None:
    key = f"{revision.kind}/{revision.object_id}"
    rows = await connection.fetch(_SQL["referrers"], [key], _USERS_SHOWN)
    users = [f"{row['kind']}/{row['id']}" for row in rows]
    if query := _UNFINISHED_QUERIES.get(revision.kind):
        row = await connection.fetchrow(_SQL[query], revision.object_id, _ENDED)
        if row and row["agendas"]:
            some = ", ".join(row["some"])
            users.append(f"{row['agendas']} agendas that have not ended, such as {some}")
    if users:
        raise InUseError(key, users)


def _audit_entry(
    revision: Revision,
    before: VersionedDefinition | None,
    after: Definition | None,
    author: Author,
) -> AuditRecord:
    return AuditRecord(
        author=author,
        action="created" if before is None else "deleted" if after is None else "changed",
        kind=revision.kind,
        object_id=revision.object_id,
        before=_content(before.definition if before else None),
        after=_content(after),
    )


def _content(definition: Definition | None) -> dict[str, object] | None:
    return definition.model_dump(mode="json", exclude_defaults=True) if definition else None


def _ownership(definition: Definition) -> Ownership:
    """Whose it is; pools belong to the operators."""
    if isinstance(definition, SharedDefinition | Customer):
        return definition.ownership
    return Ownership(None)


def _stored(row: asyncpg.Record | None) -> VersionedDefinition | None:
    if row is None or row["body"] is None:
        return None
    key = f"{row['kind']}/{row['id']}"
    definition = decode_definition(key, row["body"])
    if definition is None:
        msg = f"{key} has no content"
        raise UnavailableError(msg)
    return VersionedDefinition(definition, row["version"], row["created_at"], row["updated_at"])


def _outbox_row(row: asyncpg.Record) -> OutboxRow:
    body = cast("bytes | None", row["body"])
    return OutboxRow(row["number"], f"{row['kind']}/{row['id']}", row["version"], body)
