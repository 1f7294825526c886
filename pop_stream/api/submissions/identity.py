"""Ids for agendas that come without one."""

import secrets
from datetime import datetime
from typing import Final
from uuid import UUID

_VERSION_7: Final = 7 << 76
_RFC_VARIANT: Final = 2 << 62


def time_ordered_id(now: datetime) -> str:
    """A UUID of version 7: unique, and in an index beside those of the same time.

    Source: RFC 9562, section 5.7.
    """
    milliseconds = int(now.timestamp() * 1000)
    random = secrets.randbits(74)
    high, low = random >> 62, random & ((1 << 62) - 1)
    return str(UUID(int=milliseconds << 80 | _VERSION_7 | high << 64 | _RFC_VARIANT | low))
