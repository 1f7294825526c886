"""The schema version of records: every record says which it is of, every reader looks.

It goes up when a reader of the version before could misunderstand what is written: when a
field changes its meaning or goes away. A new field or a new kind of event does not need it.
Records without a version are of the first: whoever knows nothing of versions may write.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from pop_stream.core.errors import UnreadableRecordError

SCHEMA_VERSION: Final = 2
"""What this code writes; it reads the version before too, and the one after."""

SCHEMA_HEADER: Final = "pop-schema"
"""The header of a record that tells its version, in digits."""

_UNMARKED: Final = 1
_STAMP: Final = (SCHEMA_HEADER, b"%d" % SCHEMA_VERSION)
_STAMPED: Final = (_STAMP,)
_LEAST: Final = max(SCHEMA_VERSION - 1, _UNMARKED)
_MOST: Final = SCHEMA_VERSION + 1
_READ: Final = frozenset(b"%d" % version for version in range(_LEAST, _MOST + 1))
_SHOWN: Final = 20


class Marked(Protocol):
    """A record as it is read."""

    @property
    def value(self) -> bytes | None:
        """None deletes."""
        ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Names and values; a header without a value counts as none."""
        ...


def stamped(headers: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """The headers with the version of this code; one that tells a version keeps it."""
    if not headers:
        return [_STAMP]
    if any(name == SCHEMA_HEADER for name, _ in headers):
        return [*headers]
    return [*headers, _STAMP]


def value_of(record: Marked) -> bytes | None:
    """The record's value, if this code may read it.

    Raises:
        UnreadableRecordError: If it is of a version more than one away; names both.
    """
    if not record.headers or record.headers == _STAMPED:
        return record.value
    for name, told in record.headers:
        if name == SCHEMA_HEADER and told and told not in _READ:
            shown = told[:_SHOWN].decode(errors="replace")
            msg = f"of schema version {shown!r}, but {_LEAST} to {_MOST} can be read here"
            raise UnreadableRecordError(msg)
    return record.value
