"""The port `Publisher`: acks=all, idempotent, in batches; and one that reconnects by itself."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple, Self, cast

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError

from pop_stream.kafka.unreadable_records import skip_unwritable
from pop_stream.model.errors import RecordTooLargeError, UnavailableError
from pop_stream.model.events.schema_version import with_schema_version
from pop_stream.model.partitioning import partition_of
from pop_stream.ports.publisher import MAX_RECORD_BYTES, Publisher, Record, RecordMetadata

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""About as much is sent before waiting for its acknowledgements."""

_BATCH_FROM: Final = 8
"""So many records of one partition, or more, are put into a batch directly."""

_SINGLE_SEND_BYTES: Final = 64 * 1024
"""A larger record is sent singly, so that the client can reject it if it is too large."""


_START_S: Final = 15.0
_STOP_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0

_log = structlog.get_logger()


class _RecordPosition(NamedTuple):
    """The position at which a record of a batch was written."""

    partition: int
    offset: int


class _PendingAck(NamedTuple):
    """One acknowledgement to wait for, and the numbers of its records: several in a batch."""

    acknowledged: asyncio.Future[RecordMetadata]
    numbers: Sequence[int]


_TOO_LARGE: Final = (MessageSizeTooLargeError, RecordListTooLargeError)


def check_sizes(records: Sequence[Record]) -> None:
    """Check that each record is one that any broker takes, before any of them is sent.

    Raises:
        RecordTooLargeError: If one is larger than `MAX_RECORD_BYTES`.
    """
    for one in records:
        if (size := one.size) > MAX_RECORD_BYTES:
            what = f"a record of {one.topic}"
            raise RecordTooLargeError(what, size, MAX_RECORD_BYTES)


def _refused_by_broker(records: Sequence[Record]) -> RecordTooLargeError:
    """The error for a batch that is larger than its topic allows, though no record of it is."""
    largest = max(records, key=lambda one: one.size)
    what = f"a batch for {largest.topic}, whose max.message.bytes is lower than it must be,"
    return RecordTooLargeError(what, largest.size, 0)


class KafkaPublisher:
    """The port `Publisher` on one idempotent producer, which works while entered.

    Calls may overlap.

    Args:
        producer: Not yet started; entered and left with this object.
        acknowledge_timeout: How long one `publish` may take.
    """

    def __init__(self, producer: AIOKafkaProducer, *, acknowledge_timeout: timedelta) -> None:
        self._producer = producer
        self._timeout_s = acknowledge_timeout.total_seconds()

    async def __aenter__(self) -> Self:
        await self._producer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.stop()

    async def publish(self, records: Sequence[Record]) -> Sequence[RecordMetadata]:
        """See the port."""
        check_sizes(records)
        try:
            async with asyncio.timeout(self._timeout_s):
                sent = await self._enqueue(records)
                waiting = [one.acknowledged for one in sent]
                # Gathered to the end, so that no failed send is left unobserved.
                results = await asyncio.gather(*waiting, return_exceptions=True)
        except TimeoutError:
            msg = f"Kafka did not acknowledge within {self._timeout_s:g} s"
            raise UnavailableError(msg) from None
        except _TOO_LARGE as error:
            raise _refused_by_broker(records) from error
        except KafkaError as error:
            raise UnavailableError(str(error)) from error
        for result in results:
            if isinstance(result, _TOO_LARGE):
                raise _refused_by_broker(records) from result
            if isinstance(result, BaseException):
                raise UnavailableError(repr(result)) from result
        return _positions(sent, cast("list[RecordMetadata]", results), len(records))

    async def ping(self) -> None:
        """See the port."""
        if not await self._producer.client.force_metadata_update():
            msg = "no broker answers"
            raise UnavailableError(msg)

    async def partitions(self, topic: str) -> int:
        """See the port; cached by the client."""
        try:
            return len(await self._producer.partitions_for(topic))
        except KafkaError as error:
            raise UnavailableError(repr(error)) from error

    async def _enqueue(self, records: Sequence[Record]) -> list[_PendingAck]:
        sent = [
            await self._send_own_batch(record, n)
            for n, record in enumerate(records)
            if record.own_batch
        ]
        others = [(n, record) for n, record in enumerate(records) if not record.own_batch]
        if len(others) < _BATCH_FROM:
            return sent + [await self._send(record, n) for n, record in others]
        records_by_partition: dict[tuple[str, int | None], list[tuple[int, Record]]] = {}
        for number, record in others:
            partition = record.partition
            if partition is None:
                partition = await self._partition(record)
            records_by_partition.setdefault((record.topic, partition), []).append(
                (number, record)
            )
        for (topic, partition), lane in records_by_partition.items():
            if partition is None or len(lane) < _BATCH_FROM:
                # Sent singly, they may still join a batch that waits for the broker.
                sent += [await self._send(record, number) for number, record in lane]
            else:
                sent += await self._send_batch(topic, partition, lane)
        return sent

    async def _partition(self, record: Record) -> int | None:
        if record.partition is not None or record.key is None:
            return record.partition
        return partition_of(record.key, await self.partitions(record.topic))

    async def _send_batch(
        self, topic: str, partition: int, lane: Sequence[tuple[int, Record]]
    ) -> list[_PendingAck]:
        """Send records of one partition in order, in as few batches as possible.

        A record in a batch costs a fraction of one that is sent singly.
        """
        producer, sent = self._producer, list[_PendingAck]()
        batch, numbers = producer.create_batch(), list[int]()

        async def close() -> None:
            nonlocal batch, numbers
            if numbers:
                batch.close()
                future = await producer.send_batch(batch, topic, partition=partition)
                sent.append(_PendingAck(future, numbers))
            batch, numbers = producer.create_batch(), []

        for number, record in lane:
            if len(record.value or b"") > _SINGLE_SEND_BYTES:
                await close()
                sent.append(await self._send(record, number))
                continue
            if not _append(batch, record):
                await close()
                _append(batch, record)
            numbers.append(number)
        await close()
        return sent

    async def _send_own_batch(self, record: Record, number: int) -> _PendingAck:
        """Send a batch of one record."""
        partition = await self._partition(record)
        if partition is None:
            msg = (
                f"a record for {record.topic} needs a key or a partition for a batch of its own"
            )
            raise ValueError(msg)
        batch = self._producer.create_batch()
        _append(batch, record)
        batch.close()
        future = await self._producer.send_batch(batch, record.topic, partition=partition)
        return _PendingAck(future, (number,))

    async def _send(self, record: Record, number: int) -> _PendingAck:
        future = await self._producer.send(
            record.topic,
            value=record.value,
            key=record.key,
            partition=record.partition,
            headers=with_schema_version(record.headers),
        )
        return _PendingAck(future, (number,))


def _positions(
    sent: Sequence[_PendingAck], acknowledged: Sequence[RecordMetadata], count: int
) -> Sequence[RecordMetadata]:
    """The positions of all records, in the order of their numbers."""
    positions: dict[int, RecordMetadata] = {}
    for one, first in zip(sent, acknowledged, strict=True):
        for index, number in enumerate(one.numbers):
            positions[number] = _RecordPosition(first.partition, first.offset + index)
    return [positions[number] for number in range(count)]


def _append(batch: Any, record: Record) -> bool:  # noqa: ANN401  # aiokafka is untyped here
    """Append a record; False if the batch has no room for it."""
    headers = with_schema_version(record.headers)
    added = batch.append(key=record.key, value=record.value, timestamp=None, headers=headers)
    return added is not None


async def publish_until_acknowledged(
    publisher: Publisher,
    records: Sequence[Record],
    *,
    before_retry: Callable[[], None] = lambda: None,
) -> None:
    """Publish records, and try again for as long as the brokers are down.

    For parts that may neither drop the records nor go on without them. Records may be written
    twice, so readers must recognise repeats. They are sent in chunks that a slow broker
    acknowledges in time too: a larger one would time out, and be repeated for ever.

    A record that is too large is left out; see `publish_writable`.

    Args:
        publisher: Of the process.
        records: At most some thousands; in order within each partition.
        before_retry: Called before each further try; an error that it raises ends the tries.
    """
    for chunk in _chunks(records):
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                await publish_writable(publisher, chunk)
            except UnavailableError:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                before_retry()
            else:
                break


async def publish_writable(publisher: Publisher, records: Sequence[Record]) -> None:
    """Publish records but those that are too large: they are left out, logged and counted.

    They would be as large the next time (`pop_unwritable_records`). Entry points refuse what
    would lead to one, so it is a fault of ours, or a topic takes less than it must.

    Raises:
        UnavailableError: As `Publisher.publish`.
    """
    waiting = deque(_chunks(records))
    while waiting:
        try:
            await publisher.publish(waiting[0])
        except RecordTooLargeError as error:
            waiting.extendleft(reversed(_isolated(waiting.popleft(), error)))
        else:
            waiting.popleft()


def _isolated(
    records: Sequence[Record], error: RecordTooLargeError
) -> Sequence[Sequence[Record]]:
    """The halves of what could not be written; nothing of a lone record, which is left out."""
    if len(records) > 1:
        middle = len(records) // 2
        return (records[:middle], records[middle:])
    (record,) = records
    skip_unwritable(record, error)
    return ()


def _chunks(records: Sequence[Record]) -> Iterable[Sequence[Record]]:
    held: list[Record] = []
    size = 0
    for record in records:
        if held and size > CHUNK_BYTES:
            yield held
            held, size = [], 0
        held.append(record)
        size += len(record.value or b"") + len(record.key or b"")
        if record.own_batch:  # a request of its own, which takes as long as a large record
            size += _SINGLE_SEND_BYTES
    if held:
        yield held


class ReconnectingPublisher:
    """The port `Publisher`, on a producer that starts on first use and is replaced if need be.

    It may be made before the brokers are up. An idempotent producer numbers its records: once a
    numbered record was given up, the broker refuses everything after it on its partition, for
    good. After such an error the producer is replaced; while brokers are merely down, it stays.

    Args:
        make: Makes a publisher that is not started.
    """

    def __init__(self, make: Callable[[], KafkaPublisher]) -> None:
        self._make = make
        self._current: KafkaPublisher | None = None
        self._starting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def publish(self, records: Sequence[Record]) -> Sequence[RecordMetadata]:
        """See the port."""
        publisher = await self._started()
        try:
            return await publisher.publish(records)
        except (UnavailableError, RecordTooLargeError) as error:
            cause = error.__cause__
            if isinstance(cause, KafkaError) and not cause.retriable:
                await self._replace(publisher, cause)
            raise

    async def partitions(self, topic: str) -> int:
        """See the port."""
        return await (await self._started()).partitions(topic)

    async def ping(self) -> None:
        """See the port."""
        await (await self._started()).ping()

    async def close(self) -> None:
        """Stop; records that are not acknowledged within seconds are given up."""
        publisher, self._current = self._current, None
        if publisher is not None:
            await _stop(publisher)

    async def _started(self) -> KafkaPublisher:
        if self._current is not None:
            return self._current
        async with self._starting:
            if self._current is None:
                self._current = await self._start()
            return self._current

    async def _start(self) -> KafkaPublisher:
        publisher = self._make()
        try:
            async with asyncio.timeout(_START_S):
                return await publisher.__aenter__()
        except (KafkaError, TimeoutError, OSError) as error:
            await _stop(publisher)
            msg = f"Kafka cannot be reached: {error!r}"
            raise UnavailableError(msg) from error
        except BaseException:
            await _stop(publisher)
            raise

    async def _replace(self, publisher: KafkaPublisher, cause: KafkaError) -> None:
        if self._current is publisher:
            self._current = None
            _log.warning("producer.replaced", error=repr(cause))
            await _stop(publisher)


async def _stop(publisher: KafkaPublisher) -> None:
    # The client would wait until brokers take what is buffered, however long they are down.
    try:
        async with asyncio.timeout(_STOP_S):
            await publisher.__aexit__()
    except (KafkaError, TimeoutError, OSError) as error:
        _log.warning("producer.abandoned", error=repr(error))
