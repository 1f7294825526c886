"""Consumes topics in batches for a group: read, handle, commit, at a pace fit for the load."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from typing import Final

import structlog

from pop_stream.kafka.clients import KafkaConsumer
from pop_stream.kafka.errors import COMMIT_SUPERSEDED, KafkaError
from pop_stream.kafka.hardening.fetcher import defer_fetches
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.telemetry.progress import ConsumerProgress

COMMIT_EVERY_S: Final = 0.25
"""Under load; so much is handled again after a crash."""

_POLL_MS: Final = 250
_IDLE_POLL_MS: Final = 5_000

_FEW_RECORDS: Final = 2
_SMOOTHING: Final = 0.3
"""The weight of the last batch in the mean of how long batches took."""

_log = structlog.get_logger()

Handle = Callable[[Sequence[ConsumedRecord]], Awaitable[None]]


async def handle_batches(
    consumer: KafkaConsumer,
    handle: Handle,
    *,
    max_records: int,
    stop: asyncio.Event,
    group: str,
    pacer: "BatchPacer | None" = None,
) -> None:
    """Hand batches to `handle` until `stop`, and commit those that it returned from.

    A lone record is handed over at once; under load a batch is all that was fetched, up to
    `max_records`, in order within each partition. If `handle` raises, nothing of its batch is
    committed and the error leaves this loop: the process should end, and the next owner of the
    partitions repeats the batch, and what was handled up to `COMMIT_EVERY_S` before it.

    Args:
        consumer: Started and subscribed.
        handle: Given each batch at least once, so a repeated batch must change nothing.
        max_records: Of one batch.
        stop: Checked between two batches; one that waits for records ends its wait.
        group: Of the consumer; its lag and age are shown under this name.
        pacer: Keeps batches apart, so that more records gather for each; None does not wait.
    """
    commits, pacer = OffsetCommitter(consumer), pacer or BatchPacer(0.0)
    with progress_of(consumer, group) as progress:
        while not stop.is_set():
            await pacer.wait()
            if commits.has_pending:
                fetched = await consumer.getmany(timeout_ms=_POLL_MS, max_records=max_records)
            else:  # nothing but a record or the stop needs to wake this loop
                fetched = await _next_batch(consumer, stop, max_records=max_records)
            if not fetched:
                await commits.flush()
                continue
            pacer.begin(bytes_of(fetched), sum(map(len, fetched.values())))
            progress.mark_read(fetched)
            await handle([record for records in fetched.values() for record in records])
            pacer.end()
            handled = {tp: records[-1].offset + 1 for tp, records in fetched.items()}
            progress.mark_handled(handled)
            await commits.mark_processed(handled)
        await commits.flush()


async def _next_batch(
    consumer: KafkaConsumer, stop: asyncio.Event, *, max_records: int
) -> Mapping[TopicPartition, Sequence[ConsumedRecord]]:
    """The next records; none if `stop` is set first, or seconds pass without either."""
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


def progress_of(consumer: KafkaConsumer, group: str) -> ConsumerProgress:
    """Shows the lag and age of a started consumer, under its group's name."""
    return ConsumerProgress(group, consumer.assignment, consumer.highwater)


class BatchPacer:
    """Keeps batches apart: the first after a pause is not delayed, the others gather records.

    Args:
        min_interval_s: From the begin of one batch to the begin of the next; 0 does not wait.
        max_interval_s: The same after a batch of `full_bytes` or more; after smaller batches it
            is in between. So under a flood each event costs less, and lone ones wait less.
        full_bytes: At least 1.
        adaptive_factor: The interval is at least so many times the mean duration of batches, up
            to `max_interval_s`: where batches take long, processors or brokers are busy, and
            fewer, larger batches need less of them. It does not apply after a batch of one or
            two records, as where few come, waiting gathers no more.
        relaxed_interval_s: The least interval for batches that nobody asked to `expedite`.
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
        """Whether the next batch may begin."""
        return self.pause_s <= 0

    def begin(self, size: int = 0, records: int = 1) -> None:
        """Record that a batch of so many bytes and records begins now."""
        self._last_begin_s = self._now()
        interval_s = self._min_interval_s + self._interval_range_s * min(
            1.0, size / self._full_bytes
        )
        adaptive_factor = self._adaptive_factor if records > _FEW_RECORDS else 0.0
        self._interval_s = max(
            interval_s, min(self._max_interval_s, adaptive_factor * self._mean_duration_s)
        )

    def end(self) -> None:
        """Record that the batch has ended; without this call nothing adapts to its duration."""
        took_s = min(self._max_interval_s, self._now() - self._last_begin_s)
        self._mean_duration_s += _SMOOTHING * (took_s - self._mean_duration_s)

    def expedite(self, seconds: float) -> None:
        """For so many seconds ignore the relaxed interval: somebody waits for the results."""
        self._expedited_until_s = self._now() + seconds
        if self._on_expedite is not None:
            self._on_expedite()

    def pace_fetches(self, consumer: KafkaConsumer) -> None:
        """Have a started consumer fetch only when a batch is due; see `defer_fetches`."""
        self._on_expedite = defer_fetches(consumer, lambda: self.pause_s)

    async def wait(self) -> None:
        """Wait until the next batch may begin."""
        if (pause_s := self.pause_s) > 0:
            await asyncio.sleep(pause_s)

    @property
    def pause_s(self) -> float:
        """How long until the next batch may begin; 0 or less if it may now."""
        is_expedited = self._last_begin_s < self._expedited_until_s
        interval_s = (
            self._interval_s
            if is_expedited
            else max(self._interval_s, self._relaxed_interval_s)
        )
        return self._last_begin_s + interval_s - self._now()


def bytes_of(fetched: Mapping[TopicPartition, Sequence[ConsumedRecord]]) -> int:
    """The bytes of all records' values."""
    return sum(len(one.value or b"") for records in fetched.values() for one in records)


class OffsetCommitter:
    """Commits at once after a pause, and every `COMMIT_EVERY_S` under load.

    Offsets of partitions that were revoked meanwhile are dropped.

    Args:
        consumer: Started, a member of a group.
    """

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer
        self._pending: dict[TopicPartition, int] = {}
        self._pacer = BatchPacer(COMMIT_EVERY_S)

    @property
    def has_pending(self) -> bool:
        """Whether `flush` would commit."""
        return bool(self._pending)

    async def mark_processed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Record that everything before these offsets is handled; commits if it is time."""
        self._pending.update(offsets)
        if self._pacer.is_due:
            self._pacer.begin()
            await self._commit()

    async def flush(self) -> None:
        """Commit what is pending; called when there is nothing to handle, and at the end."""
        await self._commit()

    async def _commit(self) -> None:
        mine = self._consumer.assignment()
        offsets = {tp: offset for tp, offset in self._pending.items() if tp in mine}
        self._pending.clear()
        if offsets:
            await commit(self._consumer, offsets)


async def commit(consumer: KafkaConsumer, offsets: dict[TopicPartition, int]) -> None:
    """Commit offsets; a failure is logged, and repaired by the next commit or by a repeat.

    If partitions have moved to another member, that one repeats the batch.
    """
    try:
        await consumer.commit(offsets)
    except COMMIT_SUPERSEDED:
        _log.info("commit.superseded", partitions=[str(tp) for tp in offsets])
    except KafkaError as error:
        # The next batch commits past this one; a crash before repeats it.
        _log.warning("commit.failed", error=repr(error))
