"""The port `ReadyTable` on a Faust table of raw bytes."""

from collections.abc import Iterator
from typing import Any


class FaustReadyTable:
    """Rows keyed by text that starts with the partition the row belongs to, and a slash.

    Args:
        table: A Faust table with raw keys and values, kept in memory.
    """

    def __init__(self, table: Any) -> None:  # noqa: ANN401  # Faust is untyped
        self._table = table

    def get(self, key: str) -> bytes | None:
        """See the port."""
        value: bytes | None = self._table.get(key.encode())
        return value

    def put(self, key: str, value: bytes) -> None:
        """See the port."""
        self._table[key.encode()] = value

    def delete(self, key: str) -> None:
        """See the port."""
        if self._table.get(key.encode()) is not None:
            del self._table[key.encode()]

    def rows(self, partition: int) -> Iterator[tuple[str, bytes]]:
        """See the port."""
        for key, value in self._table.items():
            if _owner(key) == partition:
                yield key.decode(errors="replace"), value

    def purge(self, partition: int) -> None:
        """Forget a revoked partition's rows here, and only here.

        Faust's memory store keeps what was written locally; after a return of the
        partition those rows would hide deletions made elsewhere.
        """
        local = self._table.data.data
        for key in [key for key in local if _owner(key) == partition]:
            del local[key]


def _owner(key: bytes) -> int | None:
    """The partition in a row's key; None for one that no version of this code has written."""
    head = key.partition(b"/")[0]
    return int(head) if head.isdigit() and key.count(b"/") > 1 else None
