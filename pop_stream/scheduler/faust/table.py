"""The port `BacklogTable` on a Faust table of raw bytes."""

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence, Set
from contextlib import aclosing
from typing import Any

from pop_stream.ports.publisher import Publisher
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.scheduler.state.changelog import ChangelogWriter

ReadToEnd = Callable[
    [Mapping[TopicPartition, int]],
    AsyncGenerator[tuple[int, Sequence[ConsumedRecord], int], None],
]
"""Reads partitions from offsets to their ends; see `bus.whole.read_on`."""


class FaustReadyTable:
    """Rows keyed by text that starts with the partition the row belongs to, and a slash.

    Faust would write and read their changelog a record at a time; here that is done beside it,
    in lots.

    Args:
        table: A Faust table with raw keys and values, kept in memory.
        publisher: Writes the changelog.
        read_to_end: Reads the changelog.
        owns: Whether a partition is surely this worker's at the moment: one that was
            frozen may write nothing of what it had gathered.

    Attributes:
        rows_recovered: Rows read so far, deletions among them.
    """

    def __init__(
        self,
        table: Any,  # noqa: ANN401  # Faust is untyped
        publisher: Publisher,
        read_to_end: ReadToEnd,
        owns: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self._table = table
        self._read_to_end = read_to_end
        self._next: dict[int, int] = {}
        self._unread: set[int] = set()
        self._settled_at = 0
        self.rows_recovered = 0
        self._assigned: Set[int] = frozenset()
        self._changelog_writer = ChangelogWriter(
            publisher,
            self._changelog,
            current_value=self._current_value,
            is_assigned=lambda partition: partition in self._assigned,
            owns=owns,
        )

    def get(self, key: str) -> bytes | None:
        """See the port."""
        return self._current_value(key.encode())

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
            if _partition_of(key) == partition:
                yield key.decode(errors="replace"), value

    @property
    def written(self) -> int:
        """See the port."""
        return self._changelog_writer.written

    def send_now(self) -> None:
        """See the port."""
        self._changelog_writer.send_now()

    async def wait_durable(self, written: int | None = None) -> None:
        """See the port."""
        await self._changelog_writer.wait_durable(self.written if written is None else written)

    def settle(self, partitions: Set[int]) -> None:
        """The group has settled, and these are this worker's; to be called each time.

        Rows of a partition that stays are kept, and only what was written since, here or by
        somebody who had it meanwhile, is read.
        """
        for partition in self._assigned ^ partitions:
            self._discard(partition)
        self._assigned = frozenset(partitions)
        self._unread = set(partitions)
        self._settled_at = self._table.app.rebalancing_count

    @property
    def is_complete(self) -> bool:
        """Whether all rows of this worker's partitions have been read."""
        return not self._unread

    async def recover(self) -> bool:
        """Read what is still unread of this worker's partitions; before anything else is done.

        Returns:
            Whether they are whole; not if another rebalance has begun, which waits for this.

        Raises:
            KafkaError, OSError: If the brokers do not tell; what was read so far is kept.
        """
        if self.is_complete:
            return True
        topic = self._changelog()
        starts = {TopicPartition(topic, one): self._next.get(one, 0) for one in self._unread}
        rows = self._table.data.data
        async with aclosing(self._read_to_end(starts)) as batches:
            async for partition, records, reached in batches:
                if self._is_rebalancing:
                    return False
                for record in records:
                    if record.value is None:
                        rows.pop(record.key, None)
                    else:
                        rows[record.key] = record.value
                self._next[partition] = reached
                self.rows_recovered += len(records)
        if self._is_rebalancing:
            return False
        self._unread.clear()
        return True

    @property
    def _is_rebalancing(self) -> bool:
        count: int = self._table.app.rebalancing_count
        return count != self._settled_at

    def _discard(self, partition: int) -> None:
        """Have the partition read from its first row, should it be this worker's.

        Faust's memory store keeps what was written locally, also once the partition is lost;
        after its return those rows would hide deletions made elsewhere.
        """
        local = self._table.data.data
        for key in [key for key in local if _partition_of(key) == partition]:
            del local[key]
        self._changelog_writer.drop(partition)
        self._next.pop(partition, None)

    def _write(self, row: bytes, value: bytes | None) -> None:
        owner = _partition_of(row)
        if owner is None:
            msg = f"the key {row!r} names no partition"
            raise ValueError(msg)
        self._changelog_writer.add(owner, row, value)

    def _current_value(self, row: bytes) -> bytes | None:
        # Not through the table itself, which asks its sensors around every look-up.
        value: bytes | None = self._table.data.data.get(row)
        return value

    def _changelog(self) -> str:
        name: str = self._table.changelog_topic.get_topic_name()
        return name


def _partition_of(key: bytes) -> int | None:
    """The partition in a row's key; None for one that no version of this code has written."""
    head = key.partition(b"/")[0]
    return int(head) if head.isdigit() and key.count(b"/") > 1 else None
