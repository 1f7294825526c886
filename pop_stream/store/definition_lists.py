"""Lists of definitions as SQL: every value a parameter, every name one of ours."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pop_stream.core.definitions.listing import Filter, ListQuery, Sort, defaults_of

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
        """Further on than the keys: beyond the first, or level with it and beyond the next."""
        beyond = "false"
        for one, node, value in reversed([*zip(sorts, nodes, after, strict=True)]):
            bound = f"{self._bind(_json(value))}::text::jsonb"
            further = "<" if one.descending else ">"
            beyond = f"({node} {further} {bound} or ({node} = {bound} and {beyond}))"
        return beyond


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
