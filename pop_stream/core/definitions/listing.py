"""Lists of definitions: filters on every field, any order, selected fields, pages."""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from pop_stream.core.definitions.definitions import KINDS, Kind
from pop_stream.core.definitions.revisions import StoredDefinition

DEFAULT_LIMIT: Final = 100
MAX_LISTED: Final = 1000
"""Of one page; `next` leads on, and `total` counts all."""

RESERVED: Final = ("sort", "fields", "limit", "cursor")
"""Parameters that are no filters; no field is called so."""

_META: Final[Mapping[str, Any]] = {
    "version": int,
    "created_at": datetime,
    "updated_at": datetime,
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps what has one of the values at a path, or holds one in a list there."""

    path: tuple[str, ...]
    values: tuple[JsonValue, ...]


@dataclass(frozen=True, slots=True)
class Sort:
    """One key of the order; what is missing there counts as null, which comes first."""

    path: tuple[str, ...]
    descending: bool = False


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Which definitions, in which order, from where.

    Attributes:
        sorts: The last is by id, so that no two are in the same place.
        after: The sort keys of the last one that was seen; None starts at the beginning.
        seen_by: Only what this customer sees; None sees all.
    """

    kind: Kind
    filters: tuple[Filter, ...] = ()
    sorts: tuple[Sort, ...] = (Sort(("id",)),)
    limit: int = DEFAULT_LIMIT
    after: tuple[JsonValue, ...] | None = None
    seen_by: str | None = None


@dataclass(frozen=True, slots=True)
class DefinitionPage:
    """One page.

    Attributes:
        total: Of all that the query keeps, exact at the moment of this page.
        last: Sort keys of the last one, if there are more.
    """

    found: tuple[StoredDefinition, ...]
    total: int
    last: tuple[JsonValue, ...] | None


@dataclass(frozen=True, slots=True)
class ListRequest:
    """A query, and which fields of the outcome are wanted; None is all."""

    query: ListQuery
    fields: tuple[str, ...] | None


def fields_of(kind: Kind) -> Mapping[str, Any]:
    """The fields that can be filtered and sorted by, with their types."""
    model = KINDS[kind]
    return {**{name: one.annotation for name, one in model.model_fields.items()}, **_META}


def defaults_of(kind: Kind) -> Mapping[str, JsonValue]:
    """What a definition that leaves fields out has in them."""
    found: dict[str, JsonValue] = {}
    for name, info in KINDS[kind].model_fields.items():
        if not info.is_required():
            found[name] = to_jsonable_python(info.get_default(call_default_factory=True))
    return found


def cursor_of(sorts: Sequence[Sort], keys: Sequence[JsonValue]) -> str:
    """Where the next page begins, as clients hold it: opaque, for this order alone."""
    text = json.dumps([_order(sorts), *keys], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def keys_of(cursor: str, sorts: Sequence[Sort]) -> tuple[JsonValue, ...] | None:
    """The sort keys that a cursor of this order holds; None if it is none."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        raw = base64.b64decode(padded, altchars=b"-_", validate=True)
        order, *keys = json.loads(raw, parse_constant=reject_non_json_number)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        return None
    fits = order == _order(sorts) and len(keys) == len(sorts) and all(map(is_scalar, keys))
    return tuple(keys) if fits else None


def reject_non_json_number(text: str) -> float:
    """Refuse what is no JSON: `NaN` and its like.

    Raises:
        ValueError: Always.
    """
    raise ValueError(text)


def is_scalar(value: object) -> bool:
    """Whether a filter or a sort can be by this value."""
    return value is None or isinstance(value, str | int | float)


def microseconds(instant: datetime) -> int:
    """An instant as lists compare it: since 1970."""
    return (instant - _EPOCH) // timedelta(microseconds=1)


def _order(sorts: Sequence[Sort]) -> str:
    return ",".join(("-" if one.descending else "") + ".".join(one.path) for one in sorts)
