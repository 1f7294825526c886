"""Rows on their way to the table's changelog, in the order in which they were written."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog

from pop_stream.kafka.errors import KafkaError
from pop_stream.kafka.publisher import CHUNK_BYTES
from pop_stream.model.errors import UnavailableError
from pop_stream.ports.publisher import Publisher, Record

_LINGER_S: Final = 0.05
"""So long rows wait for others, but those of rounds, for which the next round waits: a request
costs much the same whatever it carries. A crash repeats the records that led to them."""

_RETRY_S: Final = 0.1
_LONGEST_RETRY_S: Final = 5.0

_log = structlog.get_logger()


class _PendingRow(NamedTuple):
    """One that is not acknowledged; `number` counts all rows written by this process."""

    number: int
    partition: int
    key: bytes
    value: bytes | None


class ChangelogWriter:
    """One lot after the other: no row is sent before all before it are acknowledged.

    Rows go by the publisher that rounds go by: what is handed over at the same time, a round
    and its rows, is one request to a broker.

    Args:
        publisher: Of the rounds.
        topic: The name of the changelog, asked for with each lot.
        current_value: What a row is by now: so it is sent again, should it have failed.
        is_assigned: Whether a partition is this worker's, as far as it knows.
        owns: Whether it surely is at the moment; until then its rows wait.
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

    def add(self, partition: int, key: bytes, value: bytes | None) -> None:
        """Take a row of a partition, which is sent within a moment; None deletes it."""
        self.written += 1
        self._unsent.append(_PendingRow(self.written, partition, key, value))
        if self._linger_timer is None:
            loop = asyncio.get_running_loop()
            self._linger_timer = loop.call_later(_LINGER_S, self.send_now)

    def send_now(self) -> None:
        """Have what was taken so far sent now, after what is under way."""
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None
        self._due = self.written
        if self._unsent and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._send_due())

    async def wait_durable(self, last: int) -> None:
        """Wait until the first so many rows are acknowledged, or dropped."""
        while any(rows and rows[0].number <= last for rows in (self._in_flight, self._unsent)):
            self.send_now()
            self._progress.clear()
            await self._progress.wait()

    def drop(self, partition: int) -> None:
        """What of a partition was not sent is for nobody any more."""
        self._unsent = [one for one in self._unsent if one.partition != partition]
        self._progress.set()

    async def _send_due(self) -> None:
        while self._unsent and self._unsent[0].number <= self._due:
            self._in_flight = self._next_batch()
            if self._in_flight:
                await self._publish()
                self._progress.set()
            else:
                await asyncio.sleep(_LINGER_S)

    def _next_batch(self) -> Sequence[_PendingRow]:
        """What is to be sent next, taken from what is unsent; in order for each partition."""
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
        """Publish what is under way, as often as it takes."""
        pause_s, topic = _RETRY_S, self._topic()
        while self._in_flight:
            records = [
                Record(topic, one.key, one.value, one.partition) for one in self._in_flight
            ]
            try:
                await self._publisher.publish(records)
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
