"""Carries committed changes of definitions from the outbox to `pop.definitions`.

Every API process runs one; they take turns, so that records are written in the order of
commits. A crash after writing and before the turn ends writes the same records again, in the
same order; followers recognise repeats by their versions.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

import structlog

from pop_stream.clock import WallClock, wait_until_set
from pop_stream.kafka.definitions import definition_record
from pop_stream.kafka.publisher import publish_writable
from pop_stream.kafka.topics import Topics
from pop_stream.model.errors import UnavailableError
from pop_stream.ports.definitions import DefinitionOutbox, OutboxRow
from pop_stream.ports.publisher import MAX_RECORD_BYTES, Publisher, Record
from pop_stream.telemetry.process import OUTBOX_AGES

MAX_BATCH: Final = 500

POLL_EVERY: Final = timedelta(seconds=1)
"""For what another process committed and died before publishing."""

COMPARE_EVERY: Final = timedelta(minutes=5)
"""The topic with the truth: it may have been lost, or an outdated record written late."""

_log = structlog.get_logger()


class DefinitionsOutboxRelay:
    """Publishes the outbox; `wake` it after a commit of one's own."""

    def __init__(self, outbox: DefinitionOutbox, publisher: Publisher, topics: Topics) -> None:
        self._outbox = outbox
        self._publisher = publisher
        self._topics = topics
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Publish what is in the outbox without waiting for the next interval."""
        self._woken.set()

    async def run(
        self,
        published_versions: Callable[[], Mapping[str, int]],
        *,
        poll_every: timedelta = POLL_EVERY,
    ) -> None:
        """Publish until cancelled; retries while Kafka or Postgres is away.

        Args:
            published_versions: The version of each key's last record on the topic.
            poll_every: Longest time between two looks.
        """
        now = asyncio.get_running_loop().time
        compare_at = now()
        is_away = False
        OUTBOX_AGES.set("definitions", None)
        while True:
            self._woken.clear()
            try:
                await self.drain()
                if now() >= compare_at:
                    await self.repair(published_versions())
                    compare_at = now() + COMPARE_EVERY.total_seconds()
                is_away = False
                OUTBOX_AGES.set("definitions", None)
            except UnavailableError as error:
                if not is_away:
                    OUTBOX_AGES.set("definitions", WallClock().now())
                    _log.warning("outbox.postponed", reason=str(error))
                is_away = True
            await wait_until_set(self._woken, poll_every.total_seconds())

    async def drain(self) -> list[str]:
        """Publish what is in the outbox; returns the keys, in order.

        Raises:
            UnavailableError: If Kafka or Postgres is away; what was not published stays.
        """
        published: list[str] = []
        while True:
            async with self._outbox.claim_batch(MAX_BATCH) as rows:
                await self._publish(rows)
            if not rows:
                return published
            published += [row.key for row in rows]
            _log.info("definitions.published", keys=[row.key for row in rows][:20])

    async def repair(self, published_versions: Mapping[str, int]) -> list[str]:
        """Publish again what the topic lacks or has in an older version; returns the keys.

        What only the topic knows is left alone: somebody wrote it there by hand.
        """
        async with self._outbox.claim_batch(MAX_BATCH) as rows:
            await self._publish(rows)
            if len(rows) == MAX_BATCH:
                return []  # older versions would follow newer ones; there is a next time
            newest = await self._outbox.latest_versions()
            stale = [
                row
                for row in newest
                if _is_stale(row, published_versions)
                and self._record(row).size <= MAX_RECORD_BYTES
            ]
            await self._publish(stale)
        if stale:
            _log.warning("definitions.repaired", keys=[row.key for row in stale][:20])
        return [row.key for row in stale]

    async def _publish(self, rows: Sequence[OutboxRow]) -> None:
        """Publish rows; what no record can hold is left out, and keeps no other back."""
        await publish_writable(self._publisher, [self._record(row) for row in rows])

    def _record(self, row: OutboxRow) -> Record:
        return definition_record(self._topics, row.key, row.body, version=row.version)


def _is_stale(row: OutboxRow, published_versions: Mapping[str, int]) -> bool:
    if row.body is None and row.key not in published_versions:
        return False  # the tombstone itself is long compacted away
    return published_versions.get(row.key, 0) < row.version
