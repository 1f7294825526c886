"""Processes the records of a partition one by one, whatever Faust and the brokers do.

Four things stand between the agent's loop and `ReadyEventHandler.handle`:

- The table is read before the first record of an assignment is handled.
- Records that Faust skipped are read again beside it and handled first. Faust may skip records
  at a rebalance and after a crash, so its offsets are not relied on: the table's rows say up to
  which offset records were handled, and each record's offset is compared with that.
- While brokers are away a record is tried again until it succeeds or the partition is lost.
- A record that cannot be handled is split until only its unusable parts are left, and those are
  dead-lettered. No exception leaves `process`: Faust would acknowledge the record.

Records written before the partition was gained are read before anything is chosen, for two
seconds at most: they may hold or cancel what precedes them, or bring what is more urgent.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from time import monotonic
from typing import Final, TypeVar

import structlog

from pop_stream.kafka.dead_letters import dead_letter
from pop_stream.kafka.errors import KafkaError
from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import PopStreamError, UnavailableError, UnreadableRecordError
from pop_stream.model.events.record_splitting import split_record
from pop_stream.model.events.schema_version import checked_value
from pop_stream.ports.clock import Clock
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.records import ConsumedRecord, PlainRecord
from pop_stream.scheduler.event_handler import NotAnEventError, ReadyEventHandler
from pop_stream.scheduler.insight_registry import PartitionOwnership
from pop_stream.scheduler.round_writer import PART, RecordPosition
from pop_stream.scheduler.ticker import Ticker

MAX_SPLIT_FAILURES: Final = 64
"""Most failures while one record is split; what is left then is not split further. Each may
cost that the partition is loaded again. Three unusable parts among 500 are found with fewer."""

REREAD_RECORDS: Final = 1_000
"""Records that are read again if no row says up to which offset records were handled."""

MAX_CATCH_UP_S: Final = 2.0
"""For so long no choice is made while records from before the assignment remain. Beyond it idle
pullers cost more than the order is worth."""

_RETRIABLE: Final = (KafkaError, OSError)

T = TypeVar("T")

_log = structlog.get_logger()


async def split_poison(
    value: bytes | None, handle: Callable[[bytes | None], Awaitable[None]]
) -> list[tuple[bytes | None, Exception]]:
    """Handle a record by halves, quarters and so on, in its order.

    Args:
        value: Of the record.
        handle: Handles a part, or raises and leaves nothing half done.

    Returns:
        The parts that cannot be handled, each with the error; empty if all were handled.
    """
    found: list[tuple[bytes | None, Exception]] = []
    waiting, failures = [value], 0
    while waiting:
        part = waiting.pop()
        try:
            await handle(part)
        except Exception as error:  # whatever it is, it is returned with the part
            failures += 1
            halves = split_record(part) if failures <= MAX_SPLIT_FAILURES else None
            if halves is None:
                found.append((part, error))
            else:
                waiting += reversed(halves)
    return found


class PartitionProcessor:
    """Processes the records of all assigned partitions; one record at a time.

    Args:
        handler: Handles each record.
        ticker: Wakes partitions that have to be loaded again.
        ownership: Which partitions are this process's.
        publisher: Of dead letters.
        clock: For the instants in dead letters.
        topics: Names of topics.
        read_skipped: Reads a partition of `pop.ready` beside Faust: partition, first offset,
            and the offset before which to stop.
        recover: Reads the table; see `FaustReadyTable.recover`.
        end_offset: The offset after a partition's last record as Faust knows it; None if it
            does not.
        now: A monotonic clock, in seconds.

    Attributes:
        postponed: Partitions with a record that waits for Kafka.
    """

    def __init__(  # noqa: PLR0913  # every port it needs, named once
        self,
        handler: ReadyEventHandler,
        ticker: Ticker,
        ownership: PartitionOwnership,
        *,
        publisher: Publisher,
        clock: Clock,
        topics: Topics,
        read_skipped: Callable[[int, int, int], AsyncIterator[ConsumedRecord]],
        recover: Callable[[], Awaitable[bool]],
        end_offset: Callable[[int], int | None],
        now: Callable[[], float] = monotonic,
    ) -> None:
        self.postponed: set[int] = set()
        self._handler = handler
        self._ticker = ticker
        self._ownership = ownership
        self._publisher = publisher
        self._clock = clock
        self._topics = topics
        self._read_skipped = read_skipped
        self._recover = recover
        self._end_offset = end_offset
        self._now = now
        self._catch_up_until: dict[int, tuple[int, float]] = {}
        self._next: dict[int, int] = {}

    async def process(self, message: ConsumedRecord, *, has_next: bool) -> None:
        """Process a record, and before it those that Faust skipped; raises nothing.

        Returns when the record is handled or dead-lettered, or the partition is lost: then it
        is for the next owner.

        Args:
            message: Faust's.
            has_next: Whether the next record of the partition is at hand.
        """
        if await self._has_recovered(message.partition):
            await self._catch_up(message.partition, message.offset)
            await self._process(message, has_next=has_next)

    def _is_catching_up(self, partition: int, offset: int) -> bool:
        """Whether records follow that were written before the partition was assigned."""
        if partition not in self._catch_up_until:
            self._catch_up_until[partition] = (
                self._end_offset(partition) or 0,
                self._now() + MAX_CATCH_UP_S,
            )
        end, until = self._catch_up_until[partition]
        return offset + 1 < end and self._now() < until

    def assign(self, partitions: Set[int]) -> None:
        """Called when these are assigned: their next offsets are to be read from the table."""
        for partition in partitions:
            self._next.pop(partition, None)
            self._catch_up_until.pop(partition, None)

    def revoke(self, partitions: Set[int]) -> None:
        """Called when these are revoked."""
        self.postponed -= partitions
        for partition in partitions:
            self._handler.unload(partition)

    async def _has_recovered(self, partition: int) -> bool:
        """Whether the table is in memory; if not, the record is for the next owner."""
        return bool(await self._retry_while_owned("table.postponed", partition, self._recover))

    async def _catch_up(self, partition: int, offset: int) -> None:
        """Process the records before this one that Faust skipped and nobody handled.

        Faust skips those that it had begun to hand on when a rebalance came, and those whose
        commit overtook the rows they led to. To seek to them would not do: Faust notes a record
        as read after it was handed on, and so undoes a seek made meanwhile.
        """

        async def attempt() -> None:
            if (start := self._first_unhandled(partition, offset)) >= offset:
                return
            async for record in self._read_skipped(partition, start, offset):
                await self._process(record, has_next=True)
            _log.info("partition.reread", partition=partition, start=start, end=offset)

        await self._retry_while_owned("partition.reread_postponed", partition, attempt)

    def _first_unhandled(self, partition: int, offset: int) -> int:
        """The first offset that is not handled; `offset` or more if none before it is left."""
        if partition not in self._next:
            try:
                handled = self._handler.handled_until(partition)
            except Exception:
                _log.exception("rows.unreadable", partition=partition)
                return offset  # handling the record fails alike, and is reported there
            if handled is None:
                handled = max(0, offset - REREAD_RECORDS)
            self._next[partition] = handled
        return self._next[partition]

    async def _process(self, message: ConsumedRecord, *, has_next: bool) -> None:
        """Process a record that Faust handed on or that was read beside it; raises nothing."""
        record_position = RecordPosition(message.partition, message.offset)
        is_catching_up = self._is_catching_up(*record_position)
        try:
            await self._handle(
                record_position,
                checked_value(message),
                has_next=has_next or is_catching_up,
                is_catching_up=is_catching_up,
            )
        except Exception as error:  # Faust would acknowledge the record and restart the agent
            for value, why in await self._split_poison(message, error):
                await self._dead_letter(message, value, why)
        self._next[message.partition] = max(
            self._next.get(message.partition, 0), message.offset + 1
        )

    async def _split_poison(
        self,
        message: ConsumedRecord,
        error: Exception,
    ) -> list[tuple[bytes | None, Exception]]:
        """Handle what can be handled of a record; returns the other parts with their errors.

        No choice is made; the ticker wakes the partition for it. If it was the choice that
        failed, every part can be handled, and the whole record is dead-lettered to be seen.
        """
        try:
            value = checked_value(message)
        except UnreadableRecordError:
            _log.warning("record.dead_lettered", partition=message.partition, reason=str(error))
            return [(message.value, error)]
        # The rows of a part must not say that the record is handled while others are not.
        before = RecordPosition(message.partition, message.offset - 1)

        async def handle(part: bytes | None) -> None:
            try:
                await self._handle(before, part, has_next=True, is_catching_up=True)
            except NotAnEventError:
                raise
            except Exception:
                self._reload(message.partition)
                raise

        if isinstance(error, NotAnEventError):
            _log.warning("record.dead_lettered", partition=message.partition, reason=str(error))
        else:
            _log.error("round.failed", partition=message.partition, exc_info=error)
            self._reload(message.partition)
        found = await split_poison(value, handle)
        if not found:
            self._reload(message.partition)
        return found or [(value, error)]

    def _reload(self, partition: int) -> None:
        """Have the partition loaded again: what is in memory may be half changed."""
        self._ownership.invalidate()
        self._handler.unload(partition)
        self._ticker.assign({partition})

    async def _handle(
        self,
        record_position: RecordPosition,
        value: bytes | None,
        *,
        has_next: bool = False,
        is_catching_up: bool = False,
    ) -> None:
        """Handle a record, again and again while brokers or the ownership are in doubt.

        Each time what is in memory of the partition is dropped first, as it is ahead of the
        table.
        """

        async def attempt() -> None:
            try:
                await self._handler.handle(
                    record_position, value, has_next=has_next, is_catching_up=is_catching_up
                )
            except UnavailableError:
                self._ownership.invalidate()
                self._handler.unload(record_position.partition)
                raise

        await self._retry_while_owned(
            "round.postponed", record_position.partition, attempt, (UnavailableError,)
        )

    async def _retry_while_owned(
        self,
        what: str,
        partition: int,
        attempt: Callable[[], Awaitable[T]],
        errors: tuple[type[Exception], ...] = _RETRIABLE,
    ) -> T | None:
        """What `attempt` returns, tried again after these errors; None if not owned any more.

        The pause between two attempts doubles from 0.1 s to 5 s.
        """
        pause_s = 0.1
        while partition in self._ownership.partitions:
            try:
                found = await attempt()
            except errors as error:
                self._log_postponed(what, partition, error)
            else:
                self.postponed.discard(partition)
                return found
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 5.0)
        return None

    def _log_postponed(self, what: str, partition: int, error: Exception) -> None:
        """Log the first failure of a partition that was not postponed yet."""
        if partition not in self.postponed:
            reason = str(error) if isinstance(error, UnavailableError) else repr(error)
            _log.warning(what, partition=partition, reason=reason)
        self.postponed.add(partition)

    async def _dead_letter(
        self,
        message: ConsumedRecord,
        value: bytes | None,
        error: Exception,
    ) -> None:
        """Publish a dead letter of a part of a record, or of the whole."""
        is_unreadable = isinstance(error, UnreadableRecordError)
        reason = str(error) if is_unreadable else repr(error)
        code = error.code if isinstance(error, PopStreamError) else PopStreamError.code
        record = PlainRecord(
            message.topic, message.partition, message.offset, message.key, value
        )
        letter = dead_letter(
            self._topics, record, part=PART, at=self._clock.now(), error=(code, reason)
        )
        await publish_until_acknowledged(self._publisher, [letter])
