"""The port `ReadyTable` on a Faust table of raw bytes."""

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence, Set
from contextlib import aclosing
from typing import Any

from aiokafka import ConsumerRecord, TopicPartition

from pop_stream.ports.wire import Publisher
from pop_stream.scheduler.outgoing import Outgoing

ReadOn = Callable[
    [Mapping[TopicPartition, int]],
    AsyncGenerator[tuple[int, Sequence[ConsumerRecord], int], None],
]
"""Reads partitions from offsets to their ends; see `bus.whole.read_on`."""


class FaustReadyTable:
    """Rows keyed by text that starts with the partition the row belongs to, and a slash.

    Faust would write and read their changelog a record at a time; here that is done beside it,
    in lots.

    Args:
        table: A Faust table with raw keys and values, kept in memory.
        publisher: Writes the changelog.
        read_on: Reads the changelog.
        is_sure_of: Whether a partition is surely this worker's at the moment: one that was
            frozen may write nothing of what it had gathered.

    Attributes:
        recovered: Rows read so far, deletions among them.
    """

    def __init__(
        self,
        table: Any,  # noqa: ANN401  # Faust is untyped
        publisher: Publisher,
        read_on: ReadOn,
        is_sure_of: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self._table = table
        self._read_on = read_on
        self._next: dict[int, int] = {}
        self._unread: set[int] = set()
        self._settled_at = 0
        self.recovered = 0
        self._held: Set[int] = frozenset()
        self._outgoing = Outgoing(
            publisher,
            self._changelog,
            present=self._present,
            is_held=lambda partition: partition in self._held,
            is_sure_of=is_sure_of,
        )

    def get(self, key: str) -> bytes | None:
        """See the port."""
        return self._present(key.encode())

    def put(self, key: str, value: bytes) -> None:
        """See the port."""
        row = key.encode()
        self._table.data[row] = value
        self._write(row, value)

    def delete(self, key: str) -> None:
        """See the port."""
        row = key.encode()
        if self._table.data.data.pop(row, None) is not None:
            self._write(row, None)

    def rows(self, partition: int) -> Iterator[tuple[str, bytes]]:
        """See the port."""
        for key, value in self._table.data.data.items():
            if _owner(key) == partition:
                yield key.decode(errors="replace"), value

    @property
    def written(self) -> int:
        """See the port."""
        return self._outgoing.written

    def send(self) -> None:
        """See the port."""
        self._outgoing.send()

    async def kept(self, written: int | None = None) -> None:
        """See the port."""
        await self._outgoing.kept(self.written if written is None else written)

    def settle(self, partitions: Set[int]) -> None:
        """The group has settled, and these are this worker's; to be called each time.

        Rows of a partition that stays are kept, and only what was written since, here or by
        somebody who had it meanwhile, is read.
        """
        for partition in self._held ^ partitions:
            self._forget(partition)
        self._held = frozenset(partitions)
        self._unread = set(partitions)
        self._settled_at = self._table.app.rebalancing_count

    @property
    def is_whole(self) -> bool:
        """Whether all rows of this worker's partitions have been read."""
        return not self._unread

    async def recover(self) -> bool:
        """Read what is still unread of this worker's partitions; before anything else is done.

        Returns:
            Whether they are whole; not if another rebalance has begun, which waits for this.

        Raises:
            KafkaError, OSError: If the brokers do not tell; what was read so far is kept.
        """
        if self.is_whole:
            return True
        topic = self._changelog()
        starts = {TopicPartition(topic, one): self._next.get(one, 0) for one in self._unread}
        rows = self._table.data.data
        async with aclosing(self._read_on(starts)) as lots:
            async for partition, records, reached in lots:
                if self._is_disturbed:
                    return False
                for record in records:
                    if record.value is None:
                        rows.pop(record.key, None)
                    else:
                        rows[record.key] = record.value
                self._next[partition] = reached
                self.recovered += len(records)
        if self._is_disturbed:
            return False
        self._unread.clear()
        return True

    @property
    def _is_disturbed(self) -> bool:
        count: int = self._table.app.rebalancing_count
        return count != self._settled_at

    def _forget(self, partition: int) -> None:
        """Have the partition read from its first row, should it be this worker's.

        Faust's memory store keeps what was written locally, also once the partition is lost;
        after its return those rows would hide deletions made elsewhere.
        """
        local = self._table.data.data
        for key in [key for key in local if _owner(key) == partition]:
            del local[key]
        self._outgoing.drop(partition)
        self._next.pop(partition, None)

    def _write(self, row: bytes, value: bytes | None) -> None:
        owner = _owner(row)
        if owner is None:
            msg = f"the key {row!r} names no partition"
            raise ValueError(msg)
        self._outgoing.add(owner, row, value)

    def _present(self, row: bytes) -> bytes | None:
        # Not through the table itself, which asks its sensors around every look-up.
        value: bytes | None = self._table.data.data.get(row)
        return value

    def _changelog(self) -> str:
        name: str = self._table.changelog_topic.get_topic_name()
        return name


def _owner(key: bytes) -> int | None:
    """The partition in a row's key; None for one that no version of this code has written."""
    head = key.partition(b"/")[0]
    return int(head) if head.isdigit() and key.count(b"/") > 1 else None
