"""Instants and numbers as JSON has them."""

import re
from datetime import UTC, datetime
from typing import Annotated, Final

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, StringConstraints

EARLIEST_INSTANT: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST_INSTANT: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""Every instant that anybody sends lies between them: from the first up to, not with, the last.

Beyond both there is room of centuries, and every duration is bounded by years: whatever a part
adds to an instant, or subtracts, is an instant too.
"""

JsonPointer = Annotated[str, StringConstraints(pattern=r"^(/([^~/]|~[01])*)+$", max_length=500)]
"""RFC 6901, other than the whole document."""

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


def check_instant(instant: datetime) -> datetime:
    """The instant, if any part can reckon with it.

    Raises:
        ValueError: If it is not within the range.
    """
    if not EARLIEST_INSTANT <= instant < LATEST_INSTANT:
        msg = (
            f"must lie from {EARLIEST_INSTANT:%Y-%m-%d} up to, not with, "
            f"{LATEST_INSTANT:%Y-%m-%d}, in UTC; leave it out if there is no such instant"
        )
        raise ValueError(msg)
    return instant


InstantField = Annotated[AwareDatetime, BeforeValidator(_read), AfterValidator(check_instant)]
"""A field with an instant; text must be RFC 3339, for "0.5" is no half second past 1970."""


def _whole(value: object) -> object:
    """A whole number that is written with a point, as a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE_NUMBER: Final = BeforeValidator(_whole)
"""With an int: 3.0 is one, as JSON Schema says; strictly read, "3" and true are none.

Annotate bounds before it, or JSON schemas do not show them.
"""
