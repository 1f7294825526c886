"""Writes rows to the table's changelog in batches, in the order in which they were put.

One request is in flight at a time, retried until it is acknowledged or its partition is
revoked. So a crash leaves a prefix of the rows in the changelog.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, NoReturn

import structlog

from pop_stream.background import BackgroundTaskError
from pop_stream.kafka.errors import KafkaError
from pop_stream.kafka.publisher import CHUNK_BYTES, publish_writable
from pop_stream.model.errors import UnavailableError
from pop_stream.ports.publisher import Publisher, Record

_LINGER_S: Final = 0.05
"""For so long rows wait for others, unless `send_now` is called, as for a round's rows: a
request costs much the same whatever it carries. After a crash the records that led to them are
read again."""

_RETRY_S: Final = 0.1
_LONGEST_RETRY_S: Final = 5.0

_log = structlog.get_logger()


class _PendingRow(NamedTuple):
    """A row that is not acknowledged; `number` counts all rows put by this process."""

    number: int
    partition: int
    key: bytes
    value: bytes | None


class ChangelogWriter:
    """Sends a batch only when all rows before it are acknowledged.

    It uses the publisher of the rounds: a round and its rows, handed over at the same time, are
    one request to a broker.

    Args:
        publisher: Of the rounds.
        topic: The name of the changelog; called for each batch, as Faust knows it only once it
            has started.
        current_value: A row's present value, which a retry sends.
        is_assigned: Whether a partition is assigned to this process; rows of others are
            dropped.
        owns: Whether it is certainly this process's at the moment; until it is, its rows wait.

    Attributes:
        written: Rows put so far.
    """

    def __init__(
        self,
        publisher: Publisher,
        topic: Callable[[], str],
        *,
        current_value: Callable[[bytes], bytes | None],
        is_assigned: Callable[[int], bool],
        owns: Callable[[int], bool],
    ) -> None:
        self.written = 0
        self._publisher = publisher
        self._topic = topic
        self._current_value = current_value
        self._is_assigned = is_assigned
        self._owns = owns
        self._unsent: list[_PendingRow] = []
        self._in_flight: Sequence[_PendingRow] = ()
        self._due = 0
        self._linger_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._progress = asyncio.Event()
        self._failed = asyncio.Event()
        self._failure: BaseException | None = None

    def add(self, partition: int, key: bytes, value: bytes | None) -> None:
        """Put a row of a partition, to be sent within the linger; None deletes it."""
        self.written += 1
        self._unsent.append(_PendingRow(self.written, partition, key, value))
        if self._linger_timer is None:
            loop = asyncio.get_running_loop()
            self._linger_timer = loop.call_later(_LINGER_S, self.send_now)

    def send_now(self) -> None:
        """Send what was put so far without lingering, after what is in flight."""
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None
        self._due = self.written
        is_idle = self._failure is None and (self._task is None or self._task.done())
        if self._unsent and is_idle:
            self._task = asyncio.create_task(self._send_due())
            self._task.add_done_callback(self._end)

    async def wait_failed(self) -> NoReturn:
        """Wait until sending has failed, other than that Kafka is away, and raise why.

        Nothing is sent any more then, and nothing becomes durable: the process must end.
        """
        await self._failed.wait()
        name = "the writer of the changelog"
        raise BackgroundTaskError(name, repr(self._failure)) from self._failure

    async def wait_durable(self, last: int) -> None:
        """Wait until the first `last` rows are acknowledged or dropped; sends them now."""
        while any(rows and rows[0].number <= last for rows in (self._in_flight, self._unsent)):
            self.send_now()
            self._progress.clear()
            await self._progress.wait()

    async def close(self) -> None:
        """Send nothing more; the next owner makes again what was not acknowledged.

        Called once, when no row is put any more. Rows of partitions that are not this
        process's wait to be sent, and would wait for ever.
        """
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def drop(self, partition: int) -> None:
        """Drop the unsent rows of a partition that was revoked."""
        self._unsent = [one for one in self._unsent if one.partition != partition]
        self._progress.set()

    def _end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()):
            self._failure = failure
            self._failed.set()

    async def _send_due(self) -> None:
        while self._unsent and self._unsent[0].number <= self._due:
            self._in_flight = self._next_batch()
            if self._in_flight:
                await self._publish()
                self._progress.set()
            else:
                await asyncio.sleep(_LINGER_S)

    def _next_batch(self) -> Sequence[_PendingRow]:
        """Take the rows to send next; rows of a partition stay in order."""
        batch: list[_PendingRow] = []
        left: list[_PendingRow] = []
        size = 0
        for row in self._unsent:
            may_go = row.number <= self._due and size < CHUNK_BYTES
            if may_go and self._owns(row.partition):
                batch.append(row)
                size += len(row.key) + len(row.value or b"")
            else:
                left.append(row)
        self._unsent = left
        return batch

    async def _publish(self) -> None:
        """Publish the batch in flight until it is acknowledged or its partitions are lost."""
        pause_s, topic = _RETRY_S, self._topic()
        while self._in_flight:
            records = [
                Record(topic, one.key, one.value, one.partition) for one in self._in_flight
            ]
            try:
                await publish_writable(self._publisher, records)
            except (UnavailableError, KafkaError) as error:
                _log.warning("changelog.postponed", rows=len(records), reason=repr(error))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_RETRY_S)
                self._in_flight = [
                    one._replace(value=self._current_value(one.key))
                    for one in self._in_flight
                    if self._is_assigned(one.partition)
                ]
            else:
                self._in_flight = ()
