"""Instants as JSON has them."""

import re
from typing import Final

from pydantic import BeforeValidator

_BEGINS: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]")


def _told(value: object) -> object:
    if isinstance(value, str) and not _BEGINS.match(value):
        msg = "must be an instant as in 2026-01-31T12:00:00Z (RFC 3339)"
        raise ValueError(msg)
    return value


INSTANT: Final = BeforeValidator(_told)
"""With an AwareDatetime: text must be RFC 3339; "0.5" is no half second past 1970."""
