"""The port `BacklogTable` on a Faust table of raw bytes.

Faust keeps the rows in memory and would write and read their changelog a record at a time,
through two threads. Both are done beside it here, in batches.
"""

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence, Set
from contextlib import aclosing
from typing import Any, NoReturn

from pop_stream.ports.publisher import Publisher
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.scheduler.state.changelog import ChangelogWriter

ReadToEnd = Callable[
    [Mapping[TopicPartition, int]],
    AsyncGenerator[tuple[int, Sequence[ConsumedRecord], int], None],
]
"""Reads partitions from offsets to their ends: yields a partition's number, some of its
records, and the offset after them. See `pop_stream.kafka.topic_reader.read_to_end`."""


class FaustReadyTable:
    """Rows whose keys begin with the partition they belong to, and a slash.

    After each rebalance `assign` is called first and `recover` until it returns True; only then
    are the rows read or written. All methods are called from the event loop of the agent.

    Args:
        table: A Faust table with raw keys and values, kept in memory.
        publisher: Writes the changelog.
        read_to_end: Reads the changelog.
        owns: Whether a partition is certainly this process's at the moment. Until it is, its
            rows wait: a process that was frozen must write nothing of what it had gathered.

    Attributes:
        rows_recovered: Records of the changelog read since the start, deletions included.
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
        self._assigned_at = 0
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

    async def wait_failed(self) -> NoReturn:
        """Wait until rows cannot be sent any more, and raise why; the process must end then."""
        await self._changelog_writer.wait_failed()

    async def close(self) -> None:
        """Send no more rows; called once, when the agent has ended."""
        await self._changelog_writer.close()

    def assign(self, partitions: Set[int]) -> None:
        """Called after each rebalance with all partitions that are this process's now.

        Rows of a partition that stays are kept; only what was written since, here or by another
        process that had it meanwhile, will be read. Rows of all others are dropped.
        """
        for partition in self._assigned ^ partitions:
            self._discard(partition)
        self._assigned = frozenset(partitions)
        self._unread = set(partitions)
        self._assigned_at = self._table.app.rebalancing_count

    @property
    def is_recovered(self) -> bool:
        """Whether all rows of the assigned partitions have been read."""
        return not self._unread

    async def recover(self) -> bool:
        """Read the rows of the assigned partitions that are not in memory yet.

        Returns at once if there are none.

        Returns:
            Whether all are in memory. False if another rebalance has begun, which waits for
            this call to return.

        Raises:
            KafkaError, OSError: If the brokers do not answer. What was read is kept, and the
                next call continues after it.
        """
        if self.is_recovered:
            return True
        topic = self._changelog()
        starts = {TopicPartition(topic, one): self._next.get(one, 0) for one in self._unread}
        async with aclosing(self._read_to_end(starts)) as batches:
            async for partition, records, end in batches:
                if self._is_rebalancing:
                    return False
                self._apply(records)
                self._next[partition] = end
        if self._is_rebalancing:
            return False
        self._unread.clear()
        return True

    def _apply(self, records: Sequence[ConsumedRecord]) -> None:
        rows = self._table.data.data
        for record in records:
            if record.value is None:
                rows.pop(record.key, None)
            else:
                rows[record.key] = record.value
        self.rows_recovered += len(records)

    @property
    def _is_rebalancing(self) -> bool:
        count: int = self._table.app.rebalancing_count
        return count != self._assigned_at

    def _discard(self, partition: int) -> None:
        """Drop the partition's rows, so that it is read from its first row if it comes back.

        Faust's memory store keeps locally written rows of a lost partition. When it comes back
        they would hide deletions made by another process.
        """
        local = self._table.data.data
        for key in [key for key in local if _partition_of(key) == partition]:
            del local[key]
        self._changelog_writer.drop(partition)
        self._next.pop(partition, None)

    def _write(self, row: bytes, value: bytes | None) -> None:
        partition = _partition_of(row)
        if partition is None:
            msg = f"the key {row!r} names no partition"
            raise ValueError(msg)
        self._changelog_writer.add(partition, row, value)

    def _current_value(self, row: bytes) -> bytes | None:
        # Not through the table itself, which calls its sensors around every look-up.
        value: bytes | None = self._table.data.data.get(row)
        return value

    def _changelog(self) -> str:
        name: str = self._table.changelog_topic.get_topic_name()
        return name


def _partition_of(key: bytes) -> int | None:
    """The partition that a row's key begins with; None if the key has another form."""
    head = key.partition(b"/")[0]
    return int(head) if head.isdigit() and key.count(b"/") > 1 else None
