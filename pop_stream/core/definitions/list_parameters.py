"""Reads what a client asks of a list, and says of each parameter what is wrong with it."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Final, get_args

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from pop_stream.core.definitions.definitions import Kind
from pop_stream.core.definitions.field_types import type_at
from pop_stream.core.definitions.listing import (
    DEFAULT_LIMIT,
    MAX_LISTED,
    RESERVED,
    Filter,
    ListQuery,
    ListRequest,
    Sort,
    fields_of,
    is_scalar,
    keys_of,
    microseconds,
    reject_non_json_number,
)
from pop_stream.core.errors import Issue, QueryError
from pop_stream.core.values.faults import shorten

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
            if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in name + text):
                message = "holds a character that no text can"
                raise QueryError([Issue("query", ascii(shorten(name + text)), message)])

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
