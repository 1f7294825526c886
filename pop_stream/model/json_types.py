"""Instants and numbers as JSON has them."""

import re
from datetime import datetime
from typing import Final

from pydantic import BeforeValidator

_BEGINS: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:")


def _read(value: object) -> object:
    """Text as an instant; what is no text is left for the type to check."""
    if not isinstance(value, str):
        return value
    found = _parsed(value.upper())
    if found is None or found.tzinfo is None:
        msg = "must be an instant as in 2026-01-31T12:00:00Z (RFC 3339)"
        raise ValueError(msg)
    return found


def _parsed(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if _BEGINS.match(text) else None
    except ValueError:
        return None


INSTANT: Final = BeforeValidator(_read)
"""With an AwareDatetime: text must be RFC 3339; "0.5" is no half second past 1970."""


def _whole(value: object) -> object:
    """A whole number that is written with a point, as a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE_NUMBER: Final = BeforeValidator(_whole)
"""With an int: 3.0 is one, as JSON Schema says; strictly read, "3" and true are none.

Annotate bounds before it, or JSON schemas do not show them.
"""
