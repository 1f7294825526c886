"""The loop of a part that works on whole batches: read, handle, commit."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from pop_stream.kafka.hardening.fetcher import defer_fetches
from pop_stream.ports.records import ConsumedRecord, TopicPartition

COMMIT_EVERY_S: Final = 0.25
"""Under load; what lies so far back may be handled again after a crash."""

_POLL_MS: Final = 250
_IDLE_POLL_MS: Final = 5_000

_FEW_RECORDS: Final = 2
_SMOOTHING: Final = 0.3
"""Of how long batches took of late, the part that the last one has."""

_log = structlog.get_logger()

Handle = Callable[[Sequence[ConsumedRecord]], Awaitable[None]]


async def handle_batches(
    consumer: AIOKafkaConsumer,
    handle: Handle,
    *,
    max_records: int,
    stop: asyncio.Event,
    pacer: "BatchPacer | None" = None,
) -> None:
    """Hand whole batches to `handle` until `stop`, and commit what it returned from.

    A lone record is handed over at once; under load a batch holds all that was fetched, up
    to `max_records`, ordered within each partition. When `handle` raises, nothing of its
    batch is committed and the error leaves this loop: the process should end, and the next
    owner of the partitions repeats the batch, and what came up to `COMMIT_EVERY_S` before.

    Args:
        consumer: Started, with a subscription.
        handle: Must bear to be given a batch again.
        max_records: Of one batch.
        stop: Seen between two batches.
        pacer: Keeps batches apart, so that more gathers for each; None does not wait.
    """
    commits, pacer = OffsetCommitter(consumer), pacer or BatchPacer(0.0)
    while not stop.is_set():
        await pacer.wait()
        if commits.has_pending:
            fetched = await consumer.getmany(timeout_ms=_POLL_MS, max_records=max_records)
        else:  # nothing but a record or the stop need wake this loop
            fetched = await _next_batch(consumer, stop, max_records=max_records)
        if not fetched:
            await commits.flush()
            continue
        pacer.begin(bytes_of(fetched), sum(map(len, fetched.values())))
        await handle([record for records in fetched.values() for record in records])
        pacer.end()
        await commits.mark_processed(
            {tp: records[-1].offset + 1 for tp, records in fetched.items()}
        )
    await commits.flush()


async def _next_batch(
    consumer: AIOKafkaConsumer, stop: asyncio.Event, *, max_records: int
) -> Mapping[TopicPartition, Sequence[ConsumedRecord]]:
    """The records that come next; none if `stop` comes before, or neither within seconds."""
    reading = asyncio.ensure_future(
        consumer.getmany(timeout_ms=_IDLE_POLL_MS, max_records=max_records)
    )
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return reading.result() if reading.done() else {}
    finally:
        reading.cancel()
        stopping.cancel()
        await asyncio.gather(reading, stopping, return_exceptions=True)


class BatchPacer:
    """Keeps batches apart: the first after a rest is not delayed, the others gather.

    Args:
        min_interval_s: From the begin of one to the begin of the next; 0 does not wait.
        max_interval_s: The same after one of `full_bytes` or more; in between after one that is
            smaller. So a flood pays less for each event, and a trickle waits for less.
        full_bytes: At least 1.
        adaptive_factor: Batches are so many times further apart than they took of late, but no further
            than `max_interval_s`. Where one takes long, processors or brokers are wanted by others, and
            with fewer batches all that follows each of them is wanted less often. Not after one
            of one or two records: where few come, waiting brings no company.
        relaxed_interval_s: Batches are at least so far apart while nobody is in a `expedite`.
        now: The clock, in seconds; the event loop's if not given.
    """

    def __init__(
        self,
        min_interval_s: float,
        max_interval_s: float = 0.0,
        full_bytes: int = 1,
        *,
        adaptive_factor: float = 0.0,
        relaxed_interval_s: float = 0.0,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._min_interval_s, self._max_interval_s = min_interval_s, max_interval_s
        self._interval_range_s = max(0.0, max_interval_s - min_interval_s)
        self._full_bytes = full_bytes
        self._now = now or asyncio.get_running_loop().time
        self._adaptive_factor, self._mean_duration_s = adaptive_factor, 0.0
        self._relaxed_interval_s = relaxed_interval_s
        self._last_begin_s = self._expedited_until_s = -inf
        self._interval_s = 0.0
        self._on_expedite: Callable[[], None] | None = None

    @property
    def is_due(self) -> bool:
        """Whether the next may begin."""
        return self.pause_s <= 0

    def begin(self, size: int = 0, records: int = 1) -> None:
        """One of so many bytes and records begins now."""
        self._last_begin_s = self._now()
        interval_s = self._min_interval_s + self._interval_range_s * min(
            1.0, size / self._full_bytes
        )
        adaptive_factor = self._adaptive_factor if records > _FEW_RECORDS else 0.0
        self._interval_s = max(
            interval_s, min(self._max_interval_s, adaptive_factor * self._mean_duration_s)
        )

    def end(self) -> None:
        """What began last is done; to be called by who is to be eased."""
        took_s = min(self._max_interval_s, self._now() - self._last_begin_s)
        self._mean_duration_s += _SMOOTHING * (took_s - self._mean_duration_s)

    def expedite(self, seconds: float) -> None:
        """What comes of batches is wanted soon, of those that begin within so many seconds."""
        self._expedited_until_s = self._now() + seconds
        if self._on_expedite is not None:
            self._on_expedite()

    def pace_fetches(self, consumer: AIOKafkaConsumer) -> None:
        """Have a started consumer fetch for each batch what gathered until it is due."""
        self._on_expedite = defer_fetches(consumer, lambda: self.pause_s)

    async def wait(self) -> None:
        """Wait until the next may begin."""
        if (pause_s := self.pause_s) > 0:
            await asyncio.sleep(pause_s)

    @property
    def pause_s(self) -> float:
        """How long until the next may begin; not above 0 if it may."""
        is_expedited = self._last_begin_s < self._expedited_until_s
        interval_s = (
            self._interval_s
            if is_expedited
            else max(self._interval_s, self._relaxed_interval_s)
        )
        return self._last_begin_s + interval_s - self._now()


def bytes_of(fetched: Mapping[TopicPartition, Sequence[ConsumedRecord]]) -> int:
    """How large the values of all records are."""
    return sum(len(one.value or b"") for records in fetched.values() for one in records)


class OffsetCommitter:
    """Commits at once after a rest, and every `COMMIT_EVERY_S` under load.

    Args:
        consumer: Whose offsets.
    """

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self._pending: dict[TopicPartition, int] = {}
        self._pacer = BatchPacer(COMMIT_EVERY_S)

    @property
    def has_pending(self) -> bool:
        """Whether `flush` would commit."""
        return bool(self._pending)

    async def mark_processed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """All before these offsets is handled."""
        self._pending.update(offsets)
        if self._pacer.is_due:
            self._pacer.begin()
            await self._commit()

    async def flush(self) -> None:
        """Commit what is pending; to be called whenever there is nothing to handle."""
        await self._commit()

    async def _commit(self) -> None:
        mine = self._consumer.assignment()
        offsets = {tp: offset for tp, offset in self._pending.items() if tp in mine}
        self._pending.clear()
        if offsets:
            await commit(self._consumer, offsets)


async def commit(consumer: AIOKafkaConsumer, offsets: dict[TopicPartition, int]) -> None:
    """Commit, except partitions that were moved to another member meanwhile.

    Their batch is repeated there, which every handler must bear.
    """
    try:
        await consumer.commit(offsets)
    except (CommitFailedError, IllegalStateError):
        _log.info("commit.superseded", partitions=[str(tp) for tp in offsets])
    except KafkaError as error:
        # The next batch commits past this one; a crash before repeats it.
        _log.warning("commit.failed", error=repr(error))
