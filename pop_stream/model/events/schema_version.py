"""The schema version of records: every record carries it in a header, every reader checks it.

It is raised when a reader of the version before could misunderstand what is written: when a
field changes its meaning or goes away. A new field or a new kind of event does not raise it.
Records without a version count as version 1, so programs that know nothing of it may write.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from pop_stream.model.errors import UnreadableRecordError

SCHEMA_VERSION: Final = 1
"""The version that this code writes; it also reads the one before and the one after."""

SCHEMA_HEADER: Final = "pop-schema"
"""The header with the version, in digits."""

UNREADABLE_HEADER: Final = "pop-unreadable"
"""The header, with the reason, of what stands for records that could not be read."""

_VERSION_HEADER: Final = (SCHEMA_HEADER, b"%d" % SCHEMA_VERSION)
_VERSION_HEADERS: Final = (_VERSION_HEADER,)
_MIN_VERSION: Final = max(SCHEMA_VERSION - 1, 1)
_MAX_VERSION: Final = SCHEMA_VERSION + 1
_READABLE: Final = frozenset(
    b"%d" % version for version in range(_MIN_VERSION, _MAX_VERSION + 1)
)
_MAX_SHOWN: Final = 20
_MAX_REASON: Final = 200


class VersionedRecord(Protocol):
    """What a version is checked of; any record that was read fits."""

    @property
    def value(self) -> bytes | None:
        """None deletes the key in a compacted topic."""
        ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Names and values; a version header without a value is ignored."""
        ...


def with_schema_version(headers: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """The headers with this code's version added, unless they have a version."""
    if not headers:
        return [_VERSION_HEADER]
    if any(name == SCHEMA_HEADER for name, _ in headers):
        return [*headers]
    return [*headers, _VERSION_HEADER]


def checked_value(record: VersionedRecord) -> bytes | None:
    """The record's value, if this code may read it.

    Raises:
        UnreadableRecordError: If its version is not among those that this code reads; the
            message names the version and those. Or if it stands for what could not be read.
    """
    if not record.headers or record.headers == _VERSION_HEADERS:
        return record.value
    for name, version in record.headers:
        if name == SCHEMA_HEADER and version and version not in _READABLE:
            shown = version[:_MAX_SHOWN].decode(errors="replace")
            readable = f"{_MIN_VERSION} to {_MAX_VERSION}"
            msg = f"of schema version {shown!r}, but {readable} can be read here"
            raise UnreadableRecordError(msg)
        if name == UNREADABLE_HEADER and record.value is None:
            raise UnreadableRecordError((version or b"").decode(errors="replace")[:_MAX_REASON])
    return record.value
