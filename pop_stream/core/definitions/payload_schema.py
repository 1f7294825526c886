"""JSON schemas of payloads: compiled once, never fetched, and checked in linear time."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Final

import jsonschema_rs
import msgspec

from pop_stream.core.errors import Issue, SubmissionError
from pop_stream.core.values.faults import path_of, shorten

_COMPILED: Final = 512
"""Schemas kept compiled; each change of a template makes a new one."""


def schema_error(schema: Mapping[str, object] | bool) -> str | None:
    """Why the document is no schema that payloads can be held to; None if it is one.

    References to other documents are refused, and so are patterns with look-around or back
    references, whose matching time has no bound.
    """
    try:
        _compiled(msgspec.json.encode(schema).decode())
    except ValueError as error:
        return shorten(str(error).split("\n", 1)[0])
    return None


def payload_issues(
    schema: Mapping[str, object] | bool, payload: object, *, field: str
) -> Iterator[Issue]:
    """What is wrong with a payload, at most as much as a refusal lists.

    Args:
        schema: One that `schema_error` finds nothing wrong with.
        payload: Any JSON.
        field: What the payload is called in the issues.
    """
    validator = _compiled(msgspec.json.encode(schema).decode())
    for error in islice(validator.iter_errors(payload), SubmissionError.MAX_ISSUES):
        path = path_of((field, *error.instance_path), document=field)
        rule = "/".join(str(part) for part in error.schema_path)
        yield Issue(
            path, shorten(error.instance), f"{shorten(error.message)} (schema: /{rule})"
        )


@lru_cache(maxsize=_COMPILED)
def _compiled(schema: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(
        msgspec.json.decode(schema),
        validate_formats=True,
        offline=True,
        pattern_options=jsonschema_rs.RegexOptions(),
    )
