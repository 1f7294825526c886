"""Numbers as JSON has them."""

from typing import Final

from pydantic import BeforeValidator


def _whole(value: object) -> object:
    """A whole number that is written with a point, as a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE_NUMBER: Final = BeforeValidator(_whole)
"""With an int: 3.0 is one, as JSON Schema says; strictly read, "3" and true are none.

Annotate bounds before it, or JSON schemas do not show them.
"""
