"""Rows on their way to the table's changelog, in the order in which they were written."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog
from aiokafka.errors import KafkaError

from pop_stream.bus.publisher import PORTION_BYTES
from pop_stream.core.errors import UnavailableError
from pop_stream.ports.wire import Publisher, Record

_GATHER_S: Final = 0.05
"""So long rows wait for others, but those of rounds, for which the next round waits: a request
costs much the same whatever it carries. A crash repeats the records that led to them."""

_RETRY_S: Final = 0.1
_LONGEST_RETRY_S: Final = 5.0

_log = structlog.get_logger()


class _Row(NamedTuple):
    """One that is not acknowledged; `number` counts all rows written by this process."""

    number: int
    owner: int
    key: bytes
    value: bytes | None


class Outgoing:
    """One lot after the other: no row is sent before all before it are acknowledged.

    Rows go by the publisher that rounds go by: what is handed over at the same time, a round
    and its rows, is one request to a broker.

    Args:
        publisher: Of the rounds.
        topic: The name of the changelog, asked for with each lot.
        present: What a row is by now: so it is sent again, should it have failed.
        is_held: Whether a partition is this worker's, as far as it knows.
        is_sure_of: Whether it surely is at the moment; until then its rows wait.
    """

    def __init__(
        self,
        publisher: Publisher,
        topic: Callable[[], str],
        *,
        present: Callable[[bytes], bytes | None],
        is_held: Callable[[int], bool],
        is_sure_of: Callable[[int], bool],
    ) -> None:
        self.written = 0
        self._publisher = publisher
        self._topic = topic
        self._present = present
        self._is_held = is_held
        self._is_sure_of = is_sure_of
        self._unsent: list[_Row] = []
        self._under_way: Sequence[_Row] = ()
        self._due = 0
        self._sending: asyncio.TimerHandle | None = None
        self._work: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    def add(self, owner: int, key: bytes, value: bytes | None) -> None:
        """Take a row of a partition, which is sent within a moment; None deletes it."""
        self.written += 1
        self._unsent.append(_Row(self.written, owner, key, value))
        if self._sending is None:
            loop = asyncio.get_running_loop()
            self._sending = loop.call_later(_GATHER_S, self.send)

    def send(self) -> None:
        """Have what was taken so far sent now, after what is under way."""
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        self._due = self.written
        if self._unsent and (self._work is None or self._work.done()):
            self._work = asyncio.create_task(self._send_due())

    async def kept(self, last: int) -> None:
        """Wait until the first so many rows are acknowledged, or dropped."""
        while any(rows and rows[0].number <= last for rows in (self._under_way, self._unsent)):
            self.send()
            self._news.clear()
            await self._news.wait()

    def drop(self, owner: int) -> None:
        """What of a partition was not sent is for nobody any more."""
        self._unsent = [one for one in self._unsent if one.owner != owner]
        self._news.set()

    async def _send_due(self) -> None:
        while self._unsent and self._unsent[0].number <= self._due:
            self._under_way = self._lot()
            if self._under_way:
                await self._publish()
                self._news.set()
            else:
                await asyncio.sleep(_GATHER_S)

    def _lot(self) -> Sequence[_Row]:
        """What is to be sent next, taken from what is unsent; in order for each partition."""
        lot: list[_Row] = []
        left: list[_Row] = []
        size = 0
        for row in self._unsent:
            may_go = row.number <= self._due and size < PORTION_BYTES
            if may_go and self._is_sure_of(row.owner):
                lot.append(row)
                size += len(row.key) + len(row.value or b"")
            else:
                left.append(row)
        self._unsent = left
        return lot

    async def _publish(self) -> None:
        """Publish what is under way, as often as it takes."""
        pause_s, topic = _RETRY_S, self._topic()
        while self._under_way:
            records = [Record(topic, one.key, one.value, one.owner) for one in self._under_way]
            try:
                await self._publisher.publish(records)
            except (UnavailableError, KafkaError) as error:
                _log.warning("rows.postponed", rows=len(records), reason=repr(error))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_RETRY_S)
                self._under_way = [
                    one._replace(value=self._present(one.key))
                    for one in self._under_way
                    if self._is_held(one.owner)
                ]
            else:
                self._under_way = ()
