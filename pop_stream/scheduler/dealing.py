"""What the agent does with a record of `pop.ready`, and with those that Faust passed over.

What was written while nobody had the partition is read before anything is chosen: it may hold
or cancel what is placed in it, or place what is more urgent.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from time import monotonic
from typing import Any, Final, TypeVar

import structlog
from aiokafka import ConsumerRecord
from aiokafka.errors import KafkaError

from pop_stream.bus.dead_letters import dead_letter
from pop_stream.bus.publisher import publish_until_acknowledged
from pop_stream.bus.topics import Topics
from pop_stream.core.errors import PopStreamError, UnavailableError, UnreadableRecordError
from pop_stream.core.events import value_of
from pop_stream.ports.clock import Clock
from pop_stream.ports.wire import Publisher
from pop_stream.scheduler.emission import Source
from pop_stream.scheduler.hold import Hold
from pop_stream.scheduler.rounds import NoEventError, Rounds
from pop_stream.scheduler.salvage import salvage
from pop_stream.scheduler.telling import PART
from pop_stream.scheduler.ticks import Ticker

LOOK_BACK: Final = 1_000
"""Records that are read again where the table does not tell what was handled."""

CATCH_UP_S: Final = 2.0
"""For so long nothing is chosen for what was written before a partition was gained: longer, and
pullers stand idle for the sake of order."""

_FAULTS: Final = (KafkaError, OSError)

T = TypeVar("T")

_log = structlog.get_logger()


class Dealing:
    """Deals with records one by one, so that nothing of them leaves the agent's loop.

    Args:
        rounds: To hand them to.
        ticker: To be told of partitions that are read anew.
        hold: Of the partitions that are this worker's.
        publisher: Of dead letters.
        clock: For their instants.
        topics: Names of topics.
        reread: Reads a partition of `pop.ready` beside Faust, from an offset to another.
        recover: Reads the table; see `FaustReadyTable.recover`.
        end_of: The offset after a partition's last record, as far as Faust knows; None if it
            does not.
        now: A monotonic clock, in seconds.

    Attributes:
        postponed: Partitions with a record that waits for Kafka.
    """

    def __init__(  # noqa: PLR0913  # every port that dealing needs, named once
        self,
        rounds: Rounds,
        ticker: Ticker,
        hold: Hold,
        *,
        publisher: Publisher,
        clock: Clock,
        topics: Topics,
        reread: Callable[[int, int, int], AsyncIterator[ConsumerRecord]],
        recover: Callable[[], Awaitable[bool]],
        end_of: Callable[[int], int | None],
        now: Callable[[], float] = monotonic,
    ) -> None:
        self.postponed: set[int] = set()
        self._rounds = rounds
        self._ticker = ticker
        self._hold = hold
        self._publisher = publisher
        self._clock = clock
        self._topics = topics
        self._reread = reread
        self._recover = recover
        self._end_of = end_of
        self._now = now
        self._behind: dict[int, tuple[int, float]] = {}
        self._next: dict[int, int] = {}

    async def deal(self, message: Any, *, next_waits: bool) -> None:  # noqa: ANN401
        """Deal with one of Faust's records, and before it with those that it passed over.

        Args:
            message: Faust's.
            next_waits: Whether the next record of the partition is at hand.
        """
        if await self._has_recovered(message.partition):
            await self._catch_up(message.partition, message.offset)
            await self._deal(message, next_waits=next_waits)

    def _catches_up(self, partition: int, offset: int) -> bool:
        """Whether others follow that were written before the partition was gained."""
        if partition not in self._behind:
            self._behind[partition] = (self._end_of(partition) or 0, self._now() + CATCH_UP_S)
        end, until = self._behind[partition]
        return offset + 1 < end and self._now() < until

    def gain(self, partitions: Set[int]) -> None:
        """How far these were handled is to be read in the table."""
        for partition in partitions:
            self._next.pop(partition, None)
            self._behind.pop(partition, None)

    def lose(self, partitions: Set[int]) -> None:
        """These are for somebody else."""
        self.postponed -= partitions
        for partition in partitions:
            self._rounds.unload(partition)

    async def _has_recovered(self, partition: int) -> bool:
        """Whether the table is whole; if not, the record is for the partition's next owner."""
        return bool(await self._insist("table.postponed", partition, self._recover))

    async def _catch_up(self, partition: int, offset: int) -> None:
        """Deal with records before this one that Faust took for handled, and were not.

        A rebalance or a crash may make it pass over records: those it had begun to hand on,
        and those whose acknowledgement overtook the rows they led to. The table tells how
        far records were handled, so what lies between is read again, beside Faust.
        """

        async def once() -> None:
            if (start := self._start(partition, offset)) >= offset:
                return
            async for record in self._reread(partition, start, offset):
                await self._deal(record, next_waits=True)
            _log.info("span.read_again", partition=partition, start=start, end=offset)

        await self._insist("span.postponed", partition, once)

    def _start(self, partition: int, offset: int) -> int:
        """From where a record's predecessors are still to be dealt with."""
        if partition not in self._next:
            try:
                kept = self._rounds.kept_until(partition)
            except Exception:
                _log.exception("rows.unreadable", partition=partition)
                return offset  # whoever handles the record meets the same, and tells
            self._next[partition] = max(0, offset - LOOK_BACK) if kept is None else kept
        return self._next[partition]

    async def _deal(self, message: Any, *, next_waits: bool) -> None:  # noqa: ANN401
        """Handle a record of Faust's or of ours; nothing may leave the agent's loop."""
        source = Source(message.partition, message.offset)
        catches_up = self._catches_up(*source)
        try:
            await self._handle(
                source,
                value_of(message),
                next_waits=next_waits or catches_up,
                catches_up=catches_up,
            )
        except Exception as error:
            for value, why in await self._salvage(message, error):
                await self._bury(message, value, why)
        self._next[message.partition] = max(
            self._next.get(message.partition, 0), message.offset + 1
        )

    async def _salvage(
        self,
        message: Any,  # noqa: ANN401
        error: Exception,
    ) -> list[tuple[bytes | None, Exception]]:
        """Keep what can be used of a record; what is to be buried, with why.

        The choice is left to the ticker. If it was the choice that failed, all is kept, and
        the record is buried for others to see.
        """
        try:
            value = value_of(message)
        except UnreadableRecordError:
            _log.warning("record.refused", partition=message.partition, reason=str(error))
            return [(message.value, error)]
        # No row is to tell that the record is handled while a part of it is not.
        before = Source(message.partition, message.offset - 1)

        async def handle(part: bytes | None) -> None:
            try:
                await self._handle(before, part, next_waits=True, catches_up=True)
            except NoEventError:
                raise
            except Exception:
                self._read_anew(message.partition)
                raise

        if isinstance(error, NoEventError):
            _log.warning("record.refused", partition=message.partition, reason=str(error))
        else:
            _log.error("round.failed", partition=message.partition, exc_info=error)
            self._read_anew(message.partition)
        found = await salvage(value, handle)
        if not found:
            self._read_anew(message.partition)
        return found or [(value, error)]

    def _read_anew(self, partition: int) -> None:
        """The index may be half changed: the table is what counts."""
        self._hold.give_up()
        self._rounds.unload(partition)
        self._ticker.gain({partition})

    async def _handle(
        self,
        source: Source,
        value: bytes | None,
        *,
        next_waits: bool = False,
        catches_up: bool = False,
    ) -> None:
        """Handle a record, as often as a broker that is away makes it necessary.

        One of a partition that is lost meanwhile is for its next owner to read.
        """

        async def once() -> None:
            try:
                await self._rounds.handle(
                    source, value, next_waits=next_waits, catches_up=catches_up
                )
            except UnavailableError:
                self._hold.give_up()
                self._rounds.unload(source.partition)
                raise

        await self._insist("round.postponed", source.partition, once, (UnavailableError,))

    async def _insist(
        self,
        what: str,
        partition: int,
        once: Callable[[], Awaitable[T]],
        errors: tuple[type[Exception], ...] = _FAULTS,
    ) -> T | None:
        """What `once` gives, tried again after these errors, for as long as it takes.

        None if the partition is lost meanwhile.
        """
        pause_s = 0.1
        while partition in self._hold.partitions:
            try:
                found = await once()
            except errors as error:
                self._note_postponed(what, partition, error)
            else:
                self.postponed.discard(partition)
                return found
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 5.0)
        return None

    def _note_postponed(self, what: str, partition: int, error: Exception) -> None:
        """Tell it once, however often it is tried again."""
        if partition not in self.postponed:
            reason = str(error) if isinstance(error, UnavailableError) else repr(error)
            _log.warning(what, partition=partition, reason=reason)
        self.postponed.add(partition)

    async def _bury(
        self,
        message: Any,  # noqa: ANN401
        value: bytes | None,
        error: Exception,
    ) -> None:
        """Write a dead letter of this part of a record, or of the whole."""
        is_unreadable = isinstance(error, UnreadableRecordError)
        reason = str(error) if is_unreadable else repr(error)
        code = error.code if isinstance(error, PopStreamError) else PopStreamError.code
        record = ConsumerRecord(
            topic=message.topic,
            partition=message.partition,
            offset=message.offset,
            timestamp=0,
            timestamp_type=0,
            key=message.key,
            value=value,
            checksum=None,
            serialized_key_size=0,
            serialized_value_size=0,
            headers=(),
        )
        letter = dead_letter(
            self._topics, record, part=PART, at=self._clock.now(), error=(code, reason)
        )
        await publish_until_acknowledged(self._publisher, [letter])
