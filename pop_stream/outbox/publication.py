"""Carries committed changes of definitions from the outbox to `pop.definitions`.

Every API process runs one; they take turns, so that records are written in the order of
commits. A crash after writing and before the turn ends writes the same records again, in the
same order; followers tell the repeats by their versions.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

import structlog

from pop_stream.bus.definitions import definition_record
from pop_stream.bus.topics import Topics
from pop_stream.clock import is_set_within
from pop_stream.core.errors import UnavailableError
from pop_stream.faults import reach
from pop_stream.ports.definitions import Outbox, OutboxRow
from pop_stream.ports.wire import Publisher

MOST_AT_ONCE: Final = 500

LOOK_EVERY: Final = timedelta(seconds=1)
"""For what another process committed and died before publishing."""

COMPARE_EVERY: Final = timedelta(minutes=5)
"""The topic with the truth: it may have been lost, or an outdated record written late."""

_log = structlog.get_logger()


class Publication:
    """Publishes the outbox; `wake` it after a commit of one's own."""

    def __init__(self, outbox: Outbox, publisher: Publisher, topics: Topics) -> None:
        self._outbox = outbox
        self._publisher = publisher
        self._topics = topics
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look at once."""
        self._woken.set()

    async def run(
        self, heard: Callable[[], Mapping[str, int]], *, look_every: timedelta = LOOK_EVERY
    ) -> None:
        """Publish until cancelled; while Kafka or Postgres is away, try on.

        Args:
            heard: The version of each key's last record on the topic.
            look_every: Longest time between two looks.
        """
        now = asyncio.get_running_loop().time
        compare_at = now()
        is_away = False
        while True:
            self._woken.clear()
            try:
                await self.drain()
                if now() >= compare_at:
                    await self.repair(heard())
                    compare_at = now() + COMPARE_EVERY.total_seconds()
                is_away = False
            except UnavailableError as error:
                if not is_away:
                    _log.warning("outbox.waits", reason=str(error))
                is_away = True
            await is_set_within(self._woken, look_every.total_seconds())

    async def drain(self) -> list[str]:
        """Publish what is in the outbox; returns the keys, in order.

        Raises:
            UnavailableError: If Kafka or Postgres is away; what was not published stays.
        """
        published: list[str] = []
        while True:
            async with self._outbox.turn(MOST_AT_ONCE) as rows:
                await self._publish(rows)
            if not rows:
                return published
            published += [row.key for row in rows]
            _log.info("definitions.published", keys=[row.key for row in rows][:20])

    async def repair(self, heard: Mapping[str, int]) -> list[str]:
        """Publish again what the topic lacks or has in an older version; returns the keys.

        What only the topic knows is left alone: somebody wrote it there by hand.
        """
        async with self._outbox.turn(MOST_AT_ONCE) as rows:
            await self._publish(rows)
            if len(rows) == MOST_AT_ONCE:
                return []  # older versions would follow newer ones; there is a next time
            newest = await self._outbox.newest()
            lacking = [row for row in newest if _is_lacking(row, heard)]
            await self._publish(lacking)
        if lacking:
            _log.warning("definitions.repaired", keys=[row.key for row in lacking][:20])
        return [row.key for row in lacking]

    async def _publish(self, rows: Sequence[OutboxRow]) -> None:
        if rows:
            await self._publisher.publish(
                [
                    definition_record(self._topics, row.key, row.body, version=row.version)
                    for row in rows
                ]
            )
            reach("outbox.published")


def _is_lacking(row: OutboxRow, heard: Mapping[str, int]) -> bool:
    if row.body is None and row.key not in heard:
        return False  # the tombstone itself is long compacted away
    return heard.get(row.key, 0) < row.version
