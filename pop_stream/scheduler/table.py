"""The port `ReadyTable` on a Faust table of raw bytes."""

import asyncio
from collections.abc import Iterator, Set
from functools import partial
from typing import Any

from faust.types import TP


class FaustReadyTable:
    """Rows keyed by text that starts with the partition the row belongs to, and a slash.

    Args:
        table: A Faust table with raw keys and values, kept in memory.
    """

    def __init__(self, table: Any) -> None:  # noqa: ANN401  # Faust is untyped
        self._table = table
        self._held: Set[int] = frozenset()
        self._sent: set[asyncio.Future[Any]] = set()

    def get(self, key: str) -> bytes | None:
        """See the port."""
        value: bytes | None = self._table.get(key.encode())
        return value

    def put(self, key: str, value: bytes) -> None:
        """See the port."""
        row = key.encode()
        self._table.data[row] = value
        self._send(row, value)

    def delete(self, key: str) -> None:
        """See the port."""
        row = key.encode()
        if self._table.data.data.pop(row, None) is not None:
            self._send(row, None)

    def rows(self, partition: int) -> Iterator[tuple[str, bytes]]:
        """See the port."""
        for key, value in self._table.items():
            if _owner(key) == partition:
                yield key.decode(errors="replace"), value

    async def kept(self) -> None:
        """See the port."""
        while self._sent:
            await asyncio.wait(tuple(self._sent))

    def settle(self, partitions: Set[int]) -> None:
        """The group has settled, and these are this worker's; to be called each time.

        Rows of a partition that stays are kept: Faust then reads only what it has not read
        before. So whenever rows are forgotten, how far they were read is forgotten too.
        """
        for partition in self._held ^ partitions:
            self._forget(partition)
        self._held = frozenset(partitions)

    def _forget(self, partition: int) -> None:
        """Have the partition read from its first row, should it be this worker's.

        Faust's memory store keeps what was written locally, also once the partition is lost;
        after its return those rows would hide deletions made elsewhere.
        """
        local = self._table.data.data
        for key in [key for key in local if _owner(key) == partition]:
            del local[key]
        read_until = self._table.app.tables.recovery.active_offsets
        changelog = TP(self._table.changelog_topic.get_topic_name(), partition)
        if changelog in read_until:
            read_until[changelog] = None

    def _send(self, row: bytes, value: bytes | None) -> None:
        """Faust writes in the background, and of what fails it only logs that it did."""
        sent = self._table.send_changelog(_owner(row), row, value, value_serializer="raw")
        self._sent.add(sent)
        sent.add_done_callback(partial(self._note_sent, row))

    def _note_sent(self, row: bytes, sent: "asyncio.Future[Any]") -> None:
        self._sent.discard(sent)
        failed = not sent.cancelled() and sent.exception() is not None
        if failed and _owner(row) in self._held:
            self._send(row, self._table.data.data.get(row))  # as it is by now


def _owner(key: bytes) -> int | None:
    """The partition in a row's key; None for one that no version of this code has written."""
    head = key.partition(b"/")[0]
    return int(head) if head.isdigit() and key.count(b"/") > 1 else None
