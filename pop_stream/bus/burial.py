"""Dead letters of what every process reads by itself: one group reads it too, for all of them.

Definitions, stops, counts, handouts and answers are read without a group, again at every start,
by each process that needs them; if each of them buried what it cannot read, every start would
bury it again. A group remembers how far it has come, and one of its members judges each record.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog
from aiokafka import ConsumerRecord

from pop_stream.bus import clients
from pop_stream.bus.batches import BatchPacer, handle_batches
from pop_stream.bus.dead_letters import dead_letter
from pop_stream.bus.publisher import publish_until_acknowledged
from pop_stream.bus.topics import Topics
from pop_stream.core.definitions.definition_records import (
    decode_api_key,
    decode_definition,
    is_api_key,
)
from pop_stream.core.errors import UnreadableRecordError
from pop_stream.core.events import (
    decode_query_reply,
    decode_usage,
    decode_delivery,
    decode_poll_demand,
    decode_stop,
    checked_value,
)
from pop_stream.ports.clock import Clock
from pop_stream.ports.wire import Publisher, Record
from pop_stream.settings import Settings

PART: Final = "burial"

_AT_ONCE: Final = 500
_APART_S: Final = 0.5
"""Nobody waits for a letter, so records gather."""

_log = structlog.get_logger()

Judge = Callable[[ConsumerRecord], object]
"""Raises UnreadableRecordError where those who want the record cannot read it."""


class Burial:
    """Reads the topics that are read without a group, and buries what nobody can read there.

    Args:
        settings: Where the cluster is.
        publisher: Of the letters.
        clock: For their instants.
    """

    def __init__(self, settings: Settings, publisher: Publisher, clock: Clock) -> None:
        self._settings = settings
        self._topics = Topics(settings.topic_prefix)
        self._publisher = publisher
        self._clock = clock
        self._judges = judges(self._topics)

    async def run(self, stop: asyncio.Event) -> None:
        """Read until `stop`, from where the group has come to."""
        consumer = clients.consumer(
            self._settings,
            *self._judges,
            client_id=PART,
            group_id=self._topics.group(PART),
            fetch_max_wait_ms=clients.LONG_FETCH_WAIT_MS,
        )
        async with consumer:
            await handle_batches(
                consumer,
                self.handle,
                max_records=_AT_ONCE,
                stop=stop,
                pacer=BatchPacer(_APART_S),
            )

    async def handle(self, records: Sequence[ConsumerRecord]) -> None:
        """Bury those of a batch that cannot be read; a batch again is buried again."""
        letters = [letter for record in records if (letter := self._letter(record))]
        if letters:
            await publish_until_acknowledged(self._publisher, letters)

    def _letter(self, record: ConsumerRecord) -> Record | None:
        try:
            self._judges[record.topic](record)
        except UnreadableRecordError as error:
            _log.warning("record.refused", topic=record.topic, offset=record.offset)
            at, told = self._clock.now(), (error.code, str(error))
            return dead_letter(self._topics, record, part=PART, at=at, error=told)
        return None


def judges(topics: Topics) -> Mapping[str, Judge]:
    """The topics that are read without a group, and `pop.pulls`; each with who reads it."""
    return {
        topics.definitions: _definition,
        topics.controls: lambda record: decode_stop(checked_value(record)),
        topics.quota_usage: lambda record: decode_usage(checked_value(record)),
        topics.deliveries: lambda record: decode_delivery(checked_value(record)),
        topics.query_replies: lambda record: decode_query_reply(checked_value(record)),
        topics.poll_demand: lambda record: decode_poll_demand(checked_value(record)),
    }


def _definition(record: ConsumerRecord) -> object:
    key = (record.key or b"").decode(errors="replace")
    decode = decode_api_key if is_api_key(key) else decode_definition
    return decode(key, record.value)
