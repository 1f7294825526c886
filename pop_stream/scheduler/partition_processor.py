"""What the agent does with a record of `pop.ready`, and with those that Faust passed over.

What was written while nobody had the partition is read before anything is chosen: it may hold
or cancel what is placed in it, or place what is more urgent.

What can be used of a record that cannot be handled as a whole.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from time import monotonic
from typing import Any, Final, TypeVar

import structlog

from pop_stream.kafka.dead_letters import dead_letter
from pop_stream.kafka.errors import KafkaError
from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import PopStreamError, UnavailableError, UnreadableRecordError
from pop_stream.model.events.codec import checked_value, split_record
from pop_stream.ports.clock import Clock
from pop_stream.ports.publisher import Publisher
from pop_stream.ports.records import ConsumedRecord, PlainRecord
from pop_stream.scheduler.event_handler import NotAnEventError, ReadyEventHandler
from pop_stream.scheduler.ownership import PartitionOwnership
from pop_stream.scheduler.record_builders import PART
from pop_stream.scheduler.round_writer import RecordPosition
from pop_stream.scheduler.ticker import Ticker

MAX_SPLIT_FAILURES: Final = 64
"""Of one record: what is left then is not parted any more. Each may cost that the table is read
anew; three culprits among 500 are found with fewer."""


async def split_poison(
    value: bytes | None, handle: Callable[[bytes | None], Awaitable[None]]
) -> list[tuple[bytes | None, Exception]]:
    """Handle a record by parts, in its order; those that cannot be, with why.

    None if it can be handled as a whole now.

    Args:
        value: Of the record.
        handle: Handles a part, or raises and leaves nothing half done.
    """
    found: list[tuple[bytes | None, Exception]] = []
    waiting, failures = [value], 0
    while waiting:
        part = waiting.pop()
        try:
            await handle(part)
        except Exception as error:  # whatever it is, it is told with the part
            failures += 1
            both = split_record(part) if failures <= MAX_SPLIT_FAILURES else None
            if both is None:
                found.append((part, error))
            else:
                waiting += reversed(both)
    return found


REREAD_RECORDS: Final = 1_000
"""Records that are read again where the table does not tell what was handled."""

MAX_CATCH_UP_S: Final = 2.0
"""For so long nothing is chosen for what was written before a partition was gained: longer, and
pullers stand idle for the sake of order."""

_RETRIABLE: Final = (KafkaError, OSError)

T = TypeVar("T")

_log = structlog.get_logger()


class PartitionProcessor:
    """Deals with records one by one, so that nothing of them leaves the agent's loop.

    Args:
        handler: To hand them to.
        ticker: To be told of partitions that are read anew.
        ownership: Of the partitions that are this worker's.
        publisher: Of dead letters.
        clock: For their instants.
        topics: Names of topics.
        read_skipped: Reads a partition of `pop.ready` beside Faust, from an offset to another.
        recover: Reads the table; see `FaustReadyTable.recover`.
        end_offset: The offset after a partition's last record as Faust knows it; None if it
            does not.
        now: A monotonic clock, in seconds.

    Attributes:
        postponed: Partitions with a record that waits for Kafka.
    """

    def __init__(  # noqa: PLR0913  # every port that dealing needs, named once
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

    async def process(self, message: Any, *, has_next: bool) -> None:  # noqa: ANN401
        """Deal with one of Faust's records, and before it with those that it passed over.

        Args:
            message: Faust's.
            has_next: Whether the next record of the partition is at hand.
        """
        if await self._has_recovered(message.partition):
            await self._catch_up(message.partition, message.offset)
            await self._process(message, has_next=has_next)

    def _is_catching_up(self, partition: int, offset: int) -> bool:
        """Whether others follow that were written before the partition was gained."""
        if partition not in self._catch_up_until:
            self._catch_up_until[partition] = (
                self._end_offset(partition) or 0,
                self._now() + MAX_CATCH_UP_S,
            )
        end, until = self._catch_up_until[partition]
        return offset + 1 < end and self._now() < until

    def assign(self, partitions: Set[int]) -> None:
        """How far these were handled is to be read in the table."""
        for partition in partitions:
            self._next.pop(partition, None)
            self._catch_up_until.pop(partition, None)

    def revoke(self, partitions: Set[int]) -> None:
        """These are for somebody else."""
        self.postponed -= partitions
        for partition in partitions:
            self._handler.unload(partition)

    async def _has_recovered(self, partition: int) -> bool:
        """Whether the table is whole; if not, the record is for the partition's next owner."""
        return bool(await self._retry_while_owned("table.postponed", partition, self._recover))

    async def _catch_up(self, partition: int, offset: int) -> None:
        """Deal with records before this one that Faust took for handled, and were not.

        A rebalance or a crash may make it pass over records: those it had begun to hand on,
        and those whose acknowledgement overtook the rows they led to. The table tells how
        far records were handled, so what lies between is read again, beside Faust.
        """

        async def attempt() -> None:
            if (start := self._first_unhandled(partition, offset)) >= offset:
                return
            async for record in self._read_skipped(partition, start, offset):
                await self._process(record, has_next=True)
            _log.info("partition.reread", partition=partition, start=start, end=offset)

        await self._retry_while_owned("partition.reread_postponed", partition, attempt)

    def _first_unhandled(self, partition: int, offset: int) -> int:
        """From where a record's predecessors are still to be dealt with."""
        if partition not in self._next:
            try:
                kept = self._handler.handled_until(partition)
            except Exception:
                _log.exception("rows.unreadable", partition=partition)
                return offset  # whoever handles the record meets the same, and tells
            self._next[partition] = max(0, offset - REREAD_RECORDS) if kept is None else kept
        return self._next[partition]

    async def _process(self, message: Any, *, has_next: bool) -> None:  # noqa: ANN401
        """Handle a record of Faust's or of ours; nothing may leave the agent's loop."""
        record_position = RecordPosition(message.partition, message.offset)
        is_catching_up = self._is_catching_up(*record_position)
        try:
            await self._handle(
                record_position,
                checked_value(message),
                has_next=has_next or is_catching_up,
                is_catching_up=is_catching_up,
            )
        except Exception as error:
            for value, why in await self._split_poison(message, error):
                await self._dead_letter(message, value, why)
        self._next[message.partition] = max(
            self._next.get(message.partition, 0), message.offset + 1
        )

    async def _split_poison(
        self,
        message: Any,  # noqa: ANN401
        error: Exception,
    ) -> list[tuple[bytes | None, Exception]]:
        """Keep what can be used of a record; what is to be buried, with why.

        The choice is left to the ticker. If it was the choice that failed, all is kept, and
        the record is buried for others to see.
        """
        try:
            value = checked_value(message)
        except UnreadableRecordError:
            _log.warning("record.dead_lettered", partition=message.partition, reason=str(error))
            return [(message.value, error)]
        # No row is to tell that the record is handled while a part of it is not.
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
        """The index may be half changed: the table is what counts."""
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
        """Handle a record, as often as a broker that is away makes it necessary.

        One of a partition that is lost meanwhile is for its next owner to read.
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
        """What `attempt` gives, tried again after these errors, for as long as it takes.

        None if the partition is lost meanwhile.
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
        """Tell it once, however often it is tried again."""
        if partition not in self.postponed:
            reason = str(error) if isinstance(error, UnavailableError) else repr(error)
            _log.warning(what, partition=partition, reason=reason)
        self.postponed.add(partition)

    async def _dead_letter(
        self,
        message: Any,  # noqa: ANN401
        value: bytes | None,
        error: Exception,
    ) -> None:
        """Write a dead letter of this part of a record, or of the whole."""
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
