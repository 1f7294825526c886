"""Brings dead letters into the database, where people find them and have them redriven.

It reads `pop.dead-letters` and `pop.dead-webhooks`. A letter that is read again changes
nothing, for its id is made of what it is about. A record that is no letter is logged, counted
and passed: there are no letters about letters.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import structlog

from pop_stream.kafka.topics import Topics
from pop_stream.kafka.unreadable_records import skip_unreadable
from pop_stream.model.errors import UnreadableRecordError, UnstorableError
from pop_stream.model.events.schema_version import checked_value
from pop_stream.policy.lifecycle.dead_letters import (
    DeadLetter,
    letter_of_record,
    letter_of_webhook,
)
from pop_stream.ports.dead_letters import DeadLetterStore
from pop_stream.ports.records import ConsumedRecord
from pop_stream.rollup.storing import store_topics
from pop_stream.settings import Settings

PART: Final = "dead-letters"

BATCH_RECORDS: Final = 100
"""Letters of one transaction; each may hold half a mebibyte."""

_log = structlog.get_logger()


async def store_dead_letters(
    settings: Settings, *, store: DeadLetterStore, stop: asyncio.Event
) -> None:
    """Store what is written to both topics, until `stop`; any number of processes may."""
    topics = Topics(settings.topic_prefix)

    async def add(records: Sequence[ConsumedRecord]) -> None:
        await _add(store, [*read_letters(topics, records)])

    names = [topics.dead_letters, topics.dead_webhooks]
    await store_topics(settings, names, add, stop, part=PART, batch_records=BATCH_RECORDS)


async def _add(store: DeadLetterStore, letters: Sequence[DeadLetter]) -> None:
    """Store a batch, or one by one around a letter that no row can hold."""
    try:
        await store.add(letters)
    except UnstorableError as error:
        if len(letters) == 1:
            letter_id = letters[0].letter_id
            _log.warning("dead_letter.unstorable", id=letter_id, reason=str(error))
            return
        for one in letters:
            await _add(store, [one])


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
