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

_FIRST_VERSION: Final = 1
_VERSION_HEADER: Final = (SCHEMA_HEADER, b"%d" % SCHEMA_VERSION)
_VERSION_HEADERS: Final = (_VERSION_HEADER,)
_MIN_VERSION: Final = max(SCHEMA_VERSION - 1, _FIRST_VERSION)
_MAX_VERSION: Final = SCHEMA_VERSION + 1
_READABLE: Final = frozenset(
    b"%d" % version for version in range(_MIN_VERSION, _MAX_VERSION + 1)
)
_MAX_SHOWN: Final = 20


class VersionedRecord(Protocol):
    """A record as it is read."""

    @property
    def value(self) -> bytes | None:
        """None deletes."""
        ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Names and values; a header without a value counts as none."""
        ...


def with_schema_version(headers: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """The headers with the version of this code; one that tells a version keeps it."""
    if not headers:
        return [_VERSION_HEADER]
    if any(name == SCHEMA_HEADER for name, _ in headers):
        return [*headers]
    return [*headers, _VERSION_HEADER]


def checked_value(record: VersionedRecord) -> bytes | None:
    """The record's value, if this code may read it.

    Raises:
        UnreadableRecordError: If it is of a version more than one away; names both.
    """
    if not record.headers or record.headers == _VERSION_HEADERS:
        return record.value
    for name, told in record.headers:
        if name == SCHEMA_HEADER and told and told not in _READABLE:
            shown = told[:_MAX_SHOWN].decode(errors="replace")
            msg = f"of schema version {shown!r}, but {_MIN_VERSION} to {_MAX_VERSION} can be read here"
            raise UnreadableRecordError(msg)
    return record.value
