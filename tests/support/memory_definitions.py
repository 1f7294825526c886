"""Definitions in dicts; passes the contract suite of the real store."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cmp_to_key
from itertools import count
from typing import Any

from fakes import ManualClock

from pop_stream.model.definition_lists import (
    DefinitionListPage,
    Filter,
    ListQuery,
    Sort,
    microseconds,
)
from pop_stream.model.definitions import (
    CUSTOMERS_KINDS,
    Customer,
    Definition,
    Kind,
    deletion_blocked_by,
    encode_definition,
    kind_of,
    references_of,
)
from pop_stream.model.errors import DefinitionError, InUseError, Issue
from pop_stream.model.identity import Ownership
from pop_stream.model.revisions import (
    DEFAULT_LIMITS,
    Author,
    CustomerLimits,
    Revision,
    VersionedDefinition,
)
from pop_stream.model.sharing import SharedDefinition
from pop_stream.ports.definitions import OutboxRow

RANKS = {type(None): 0, str: 1, int: 2, float: 2, bool: 3, list: 4, dict: 5}
"""How jsonb orders values of different types."""


class MemoryDefinitions:
    """The port `DefinitionStore`, and the port `Outbox`."""

    def __init__(
        self, *definitions: Definition, limits: CustomerLimits = DEFAULT_LIMITS
    ) -> None:
        self.limits = limits
        self.changed: Counter[str | None] = Counter()
        self.authors: list[Author] = []
        self.clock = ManualClock()
        self.rows: dict[tuple[str, str], VersionedDefinition] = {}
        self.versions: dict[tuple[str, str], list[VersionedDefinition | None]] = {}
        self.outbox: list[OutboxRow] = []
        self.changes: list[tuple[str, str]] = []
        self.unfinished: dict[str, list[str]] = {}
        self._numbers = count(1)
        for one in definitions:
            self._keep(kind_of(one), one.id, one)

    async def get(
        self, kind: Kind, object_id: str, *, seen_by: str | None = None
    ) -> VersionedDefinition | None:
        stored = self.rows.get((kind, object_id))
        is_seen = stored and (seen_by is None or ownership(stored).is_seen_by(seen_by))
        return stored if is_seen else None

    async def version(
        self, kind: Kind, object_id: str, version: int, *, seen_by: str | None = None
    ) -> VersionedDefinition | None:
        known = self.versions.get((kind, object_id), [])
        found = known[version - 1] if 1 <= version <= len(known) else None
        last = next((one for one in reversed(known) if one), None)
        judged = [one for one in (found, last) if one]
        if seen_by and not all(ownership(one).is_seen_by(seen_by) for one in judged):
            return None
        return found

    async def find_by_name(self, kind: Kind, named: str) -> Sequence[str]:
        ids = sorted(one for known, one in self.rows if known == kind)
        return [one for one in ids if one.partition("@")[0] == named][:3]

    async def list(self, query: ListQuery) -> DefinitionListPage:
        kept = [one for one in self.rows.values() if one.kind == query.kind]
        if query.seen_by is not None:
            kept = [one for one in kept if ownership(one).is_seen_by(query.seen_by)]
        kept = [one.as_seen_by(query.seen_by) for one in kept]
        kept = [one for one in kept if all(fits(one, f) for f in query.filters)]
        kept.sort(
            key=cmp_to_key(lambda a, b: compare(keys(a, query), keys(b, query), query.sorts))
        )
        total = len(kept)
        if query.after is not None:
            after = list(query.after)
            kept = [one for one in kept if compare(keys(one, query), after, query.sorts) > 0]
        page = kept[: query.limit]
        more = len(kept) > query.limit
        whole = tuple(self.rows[one.kind, one.definition.id] for one in page)
        return DefinitionListPage(whole, total, tuple(keys(page[-1], query)) if more else None)

    async def change(
        self, revisions: Sequence[Revision], author: Author
    ) -> Sequence[VersionedDefinition | None]:
        before = dict(self.rows), {k: [*v] for k, v in self.versions.items()}, [*self.outbox]
        customer_id = author.principal.customer_id
        if customer_id is not None:
            self.limits.check_changes(customer_id, self.changed[customer_id])
        try:
            rules = self._count_rules()
            outcomes = [self._make(one) for one in revisions]
            if self._count_rules() > rules:
                self.limits.check_rules(self._count_rules())
            if customer_id is not None:
                self._check_number(customer_id)
            self._expect_needs([one.definition for one in outcomes if one])
            for revision, outcome in zip(revisions, outcomes, strict=True):
                if outcome is None:
                    self._expect_unused(f"{revision.kind}/{revision.object_id}")
        except BaseException:
            self.rows, self.versions, self.outbox = before
            raise
        self.changed[customer_id] += len(revisions)
        self.authors.append(author)
        self.changes += [
            (author.principal.name, f"{one.kind}/{one.object_id}") for one in revisions
        ]
        return outcomes

    @asynccontextmanager
    async def claim_batch(self, most: int) -> AsyncIterator[Sequence[OutboxRow]]:
        rows = self.outbox[:most]
        yield rows
        self.outbox = self.outbox[len(rows) :]

    async def latest_versions(self) -> Sequence[OutboxRow]:
        return [
            OutboxRow(0, f"{kind}/{name}", len(known), known[-1] and body(known[-1].definition))
            for (kind, name), known in self.versions.items()
        ]

    def _make(self, revision: Revision) -> VersionedDefinition | None:
        before = self.rows.get((revision.kind, revision.object_id))
        wanted = revision.decide(before)
        if before and wanted == before.definition:
            return before
        return self._keep(revision.kind, revision.object_id, wanted)

    def _keep(
        self, kind: Kind, name: str, wanted: Definition | None
    ) -> VersionedDefinition | None:
        known = self.versions.setdefault((kind, name), [])
        before = self.rows.pop((kind, name), None)
        version, now = len(known) + 1, self.clock.now()
        stored = wanted and VersionedDefinition(
            wanted, version, before.created_at if before else now, now
        )
        known.append(stored)
        known[: -self.limits.versions] = [None] * len(known[: -self.limits.versions])
        if stored:
            self.rows[kind, name] = stored
        content = body(wanted) if wanted else None
        self.outbox.append(OutboxRow(next(self._numbers), f"{kind}/{name}", version, content))
        return stored

    def _count_rules(self) -> int:
        return sum(kind == "rule" for kind, _ in self.rows)

    def _check_number(self, owner: str) -> None:
        for wanted in CUSTOMERS_KINDS:
            defined = [one for (kind, _), one in self.rows.items() if kind == wanted]
            owned = sum(ownership(one).owner == owner for one in defined)
            self.limits.check_owned(owner, wanted, owned)

    def _expect_needs(self, defined: Iterable[Definition]) -> None:
        for one in defined:
            for field, key in references_of(one):
                kind, _, name = key.partition("/")
                if (kind, name) not in self.rows:
                    raise DefinitionError(
                        kind_of(one), [Issue(field, name, f"there is no {key}")]
                    )

    def _expect_unused(self, key: str) -> None:
        users = [
            f"{kind}/{name}"
            for (kind, name), one in sorted(self.rows.items())
            if key in deletion_blocked_by(one.definition)
        ]
        if agendas := self.unfinished.get(key):
            users.append(f"{len(agendas)} agendas that have not ended, such as {agendas[0]}")
        if users:
            raise InUseError(key, users)


def body(definition: Definition) -> bytes:
    return encode_definition(definition)


def ownership(stored: VersionedDefinition) -> Ownership:
    one = stored.definition
    return one.ownership if isinstance(one, SharedDefinition | Customer) else Ownership(None)


def document(stored: VersionedDefinition) -> Mapping[str, Any]:
    return {
        **json.loads(stored.definition.model_dump_json()),
        "version": stored.version,
        "created_at": microseconds(stored.created_at),
        "updated_at": microseconds(stored.updated_at),
    }


def at(stored: VersionedDefinition, path: Sequence[str]) -> Any:
    node: Any = document(stored)
    for part in path:
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def fits(stored: VersionedDefinition, one: Filter) -> bool:
    node = at(stored, one.path)
    return any(
        same(node, value) or (isinstance(node, list) and any(same(n, value) for n in node))
        for value in one.values
    )


def same(one: Any, other: Any) -> bool:
    return RANKS[type(one)] == RANKS[type(other)] and one == other


def keys(stored: VersionedDefinition, query: ListQuery) -> list[Any]:
    return [at(stored, sort.path) for sort in query.sorts]


def compare(one: Sequence[Any], other: Sequence[Any], sorts: Sequence[Sort]) -> int:
    for mine, theirs, sort in zip(one, other, sorts, strict=True):
        a, b = (RANKS[type(mine)], mine), (RANKS[type(theirs)], theirs)
        if a != b:
            return (1 if a > b else -1) * (-1 if sort.descending else 1)
    return 0
