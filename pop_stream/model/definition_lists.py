"""What a client may ask of a list of definitions: filters on every field, order, fields, pages.

Parameters are parsed by the type that the values at their path have, and every one that
cannot be used is answered with what is wrong with it.
"""

import base64
import binascii
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from datetime import UTC, datetime, timedelta
from math import isfinite
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from pop_stream.model.definitions import KINDS, Kind
from pop_stream.model.errors import Issue, QueryError
from pop_stream.model.revisions import VersionedDefinition
from pop_stream.model.validation import (
    MAX_QUERY_VALUES,
    excess_issue,
    is_storable,
    shorten,
    unstorable_issue,
)

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
class DefinitionListPage:
    """One page.

    Attributes:
        total: Of all that the query keeps, exact at the moment of this page.
        last: Sort keys of the last one, if there are more.
    """

    found: tuple[VersionedDefinition, ...]
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
    if isinstance(value, str):
        return is_storable(value)
    return value is None or isinstance(value, int | float)


def microseconds(instant: datetime) -> int:
    """An instant as lists compare it: since 1970."""
    return (instant - _EPOCH) // timedelta(microseconds=1)


def _order(sorts: Sequence[Sort]) -> str:
    return ",".join(("-" if one.descending else "") + ".".join(one.path) for one in sorts)


def type_at(kind: Any, path: Sequence[str]) -> Any:  # noqa: ANN401  # types are no one type
    """The type of a single value at a path; None where any JSON may be."""
    if get_origin(kind) is tuple:
        kind = get_args(kind)[0]
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in {Union, UnionType}:
        models = [one for one in get_args(kind) if _is_model(one)]
        kind = models[0] if models else kind
    if _is_model(kind):
        info = kind.model_fields.get(path[0]) if path else None
        return type_at(info.annotation, path[1:]) if info else None
    if any(is_dataclass(one) for one in (kind, *get_args(kind))):
        return None
    if (
        path
        or get_origin(kind) is dict
        or any(get_origin(one) is dict for one in get_args(kind))
    ):
        return None
    return _bare(kind)


def _bare(kind: Any) -> Any:  # noqa: ANN401  # types are no one type
    """The type without its bounds: what nothing can have is found nowhere, and no fault."""
    if get_origin(kind) is Annotated:
        return _bare(get_args(kind)[0])
    if get_origin(kind) in {Union, UnionType}:
        return Union[tuple(map(_bare, get_args(kind)))]  # noqa: UP007  # made of a tuple
    return kind


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


_MAX_DEPTH: Final = 8
_LIMIT: Final = re.compile(r"[0-9]{1,9}")


def parse_list(
    kind: Kind, parameters: Sequence[tuple[str, str]], *, seen_by: str | None
) -> ListRequest:
    """What a client asks for.

    Args:
        kind: Of the definitions.
        parameters: Of the URL; a filter given twice keeps what fits either.
        seen_by: Only what this customer sees; None sees all.

    Raises:
        QueryError: With one issue per parameter that cannot be used.
    """
    reader = _ParameterReader(kind)
    reader.expect_text(parameters)
    single = reader.reserved(parameters)
    sorts = reader.sorts(single.get("sort"))
    query = ListQuery(
        kind=kind,
        filters=reader.filters(parameters),
        sorts=sorts,
        limit=reader.limit(single.get("limit")),
        after=reader.after(single.get("cursor"), sorts),
        seen_by=seen_by,
    )
    fields = reader.fields(single.get("fields"))
    if reader.issues:
        raise QueryError(reader.issues)
    return ListRequest(query, fields)


class _ParameterReader:
    """Reads parameters one by one, and notes what is wrong with each."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._fields = fields_of(kind)
        self.issues: list[Issue] = []

    def expect_text(self, parameters: Sequence[tuple[str, str]]) -> None:
        """Refuse what no database text can hold, before anything else is said of it."""
        for name, text in parameters:
            if not is_storable(name + text):
                raise QueryError([unstorable_issue("query", name + text)])

    def reserved(self, parameters: Sequence[tuple[str, str]]) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for name, text in parameters:
            if name not in RESERVED:
                continue
            if name in found:
                self._refuse(name, text, "is given twice; give it once")
            found[name] = text
        return found

    def filters(self, parameters: Sequence[tuple[str, str]]) -> tuple[Filter, ...]:
        found: dict[tuple[str, ...], list[JsonValue]] = {}
        for name, text in parameters:
            if name not in RESERVED and (path := self._path(name, name, text)):
                found.setdefault(path, []).extend(self._values(path, name, text))
        given = Counter(name for name, _ in parameters if name not in RESERVED)
        self.issues += [
            excess_issue(shorten(name), times, MAX_QUERY_VALUES)
            for name, times in given.items()
            if times > MAX_QUERY_VALUES
        ]
        return tuple(Filter(path, tuple(values)) for path, values in found.items())

    def sorts(self, text: str | None) -> tuple[Sort, ...]:
        found: list[Sort] = []
        for name in () if text is None else text.split(","):
            path = self._path(name.removeprefix("-"), "sort", name)
            if path and path not in {one.path for one in found}:
                found.append(Sort(path, descending=name.startswith("-")))
            if path == ("id",):
                return tuple(found)
        return (*found, Sort(("id",)))

    def limit(self, text: str | None) -> int:
        if text is None:
            return DEFAULT_LIMIT
        if _LIMIT.fullmatch(text) and 1 <= int(text) <= MAX_LISTED:
            return int(text)
        self._refuse("limit", text, f"must be a whole number from 1 to {MAX_LISTED}")
        return DEFAULT_LIMIT

    def fields(self, text: str | None) -> tuple[str, ...] | None:
        if text is None:
            return None
        names = tuple(dict.fromkeys(text.split(",")))
        shown = {*self._fields, "insight_ids"} if self._kind == "pool" else {*self._fields}
        for name in names:
            if name not in shown:
                known = ", ".join(sorted(shown))
                self._refuse("fields", name, f"no field of a {self._kind}; it has {known}")
        return names

    def after(self, text: str | None, sorts: Sequence[Sort]) -> tuple[JsonValue, ...] | None:
        if text is None:
            return None
        keys = keys_of(text, sorts)
        if keys is None:
            self._refuse(
                "cursor", text, "is none of this list in this order; begin again without it"
            )
        return keys

    def _path(self, dotted: str, parameter: str, text: str) -> tuple[str, ...] | None:
        path = tuple(dotted.split("."))
        if path[0] not in self._fields or len(path) > _MAX_DEPTH or "" in path:
            known = ", ".join(sorted(self._fields))
            hint = f"no field of a {self._kind}; it has {known}"
            self._refuse(parameter, text, hint)
            return None
        return path

    def _values(self, path: tuple[str, ...], name: str, text: str) -> list[JsonValue]:
        kind = type_at(self._fields[path[0]], path[1:])
        if kind is None:
            return [*dict.fromkeys(_readings(text))]
        if text == "null" and type(None) in get_args(kind):
            return [None]
        try:
            value = TypeAdapter(kind).validate_strings(text)
        except ValidationError as error:
            self._refuse(name, text, error.errors(include_url=False)[0]["msg"])
            return []
        if isinstance(value, datetime):
            return [microseconds(value if value.tzinfo else value.replace(tzinfo=UTC))]
        if isinstance(value, float) and not isfinite(value):
            self._refuse(name, text, "is no number that JSON has")
            return []
        return [to_jsonable_python(value)]

    def _refuse(self, parameter: str, value: str, message: str) -> None:
        self.issues.append(Issue(shorten(parameter), shorten(value), message))


def _readings(text: str) -> Iterator[JsonValue]:
    """What a text may stand for where any JSON may be."""
    yield text
    try:
        value = json.loads(text, parse_constant=reject_non_json_number)
    except (ValueError, RecursionError):
        return
    if is_scalar(value):
        yield value
