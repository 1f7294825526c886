"""Brings dead letters into the database, where people find them and have them redriven.

It reads `pop.dead-letters` and `pop.dead-webhooks` as a group of its own, beside the rollup. A
letter is stored before its offset is committed; one that is read again changes nothing, for its
id is made of what it is about. While the database is away it pauses and stays in its group. A
record that is no letter is logged, counted and passed: there are no letters about letters.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Final

import structlog

from pop_stream.clock import wait_until_set
from pop_stream.kafka import clients
from pop_stream.kafka.batch_consumer import OffsetCommitter
from pop_stream.kafka.clients import KafkaConsumer
from pop_stream.kafka.topics import Topics
from pop_stream.kafka.unreadable_records import skip_unreadable
from pop_stream.model.errors import UnavailableError, UnreadableRecordError, UnstorableError
from pop_stream.model.events.schema_version import checked_value
from pop_stream.policy.lifecycle.dead_letters import (
    DeadLetter,
    letter_of_record,
    letter_of_webhook,
)
from pop_stream.ports.dead_letters import DeadLetterStore
from pop_stream.ports.records import ConsumedRecord, TopicPartition
from pop_stream.settings import Settings

PART: Final = "dead-letters"

BATCH_RECORDS: Final = 100
"""Letters of one transaction; each may hold half a mebibyte."""

_POLL_MS: Final = 1_000
_FETCH_BYTES: Final = 4 * 1024 * 1024
_PAUSE: Final = timedelta(seconds=2)

_log = structlog.get_logger()


async def store_dead_letters(
    settings: Settings, *, store: DeadLetterStore, stop: asyncio.Event
) -> None:
    """Store what is written to both topics, until `stop`; any number of processes may."""
    topics = Topics(settings.topic_prefix)
    consumer = clients.consumer(
        settings,
        client_id=PART,
        group_id=topics.group(PART),
        max_partition_fetch_bytes=_FETCH_BYTES,
    )
    consumer.subscribe([topics.dead_letters, topics.dead_webhooks])
    async with consumer:
        await _Storing(topics, consumer, store).run(stop)


class _Storing:
    """One member of the group."""

    def __init__(self, topics: Topics, consumer: KafkaConsumer, store: DeadLetterStore) -> None:
        self._topics = topics
        self._consumer = consumer
        self._store = store
        self._commits = OffsetCommitter(consumer)

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            fetched = await self._consumer.getmany(
                timeout_ms=_POLL_MS, max_records=BATCH_RECORDS
            )
            if not fetched:
                await self._commits.flush()
                continue
            letters = [*read_letters(self._topics, _all(fetched.values()))]
            if not await self._until_stored(letters, stop):
                return  # nothing of it is committed: it is read again
            await self._commits.mark_processed(
                {TopicPartition(*tp): many[-1].offset + 1 for tp, many in fetched.items()}
            )
        await self._commits.flush()

    async def _until_stored(self, letters: Sequence[DeadLetter], stop: asyncio.Event) -> bool:
        """Store a batch, however long the database is away; False if the stop came first."""
        while True:
            try:
                await self._add(letters)
            except UnavailableError as error:
                _log.info("dead_letters.postponed", reason=str(error))
            else:
                return True
            # The group expels a member that never asks for records, so ask for those of none.
            self._consumer.pause(*self._consumer.assignment())
            await self._consumer.getmany(timeout_ms=0)
            if await wait_until_set(stop, _PAUSE.total_seconds()):
                return False
            self._consumer.resume(*self._consumer.assignment())

    async def _add(self, letters: Sequence[DeadLetter]) -> None:
        """Store a batch, or one by one around a letter that no row can hold."""
        try:
            await self._store.add(letters)
        except UnstorableError as error:
            if len(letters) == 1:
                _log.warning(
                    "dead_letter.unstorable", id=letters[0].letter_id, reason=str(error)
                )
                return
            for one in letters:
                await self._add([one])


def read_letters(topics: Topics, records: Iterable[ConsumedRecord]) -> Iterator[DeadLetter]:
    """The letters that records are; others are logged, counted and left out."""
    for record in records:
        try:
            value = checked_value(record)
            if record.topic == topics.dead_webhooks:
                yield letter_of_webhook(value)
            else:
                yield letter_of_record(value, key=record.key, insight_of=topics.insight_of)
        except UnreadableRecordError as error:
            skip_unreadable(record, error)


def _all(batches: Iterable[Sequence[ConsumedRecord]]) -> Iterator[ConsumedRecord]:
    for batch in batches:
        yield from batch
