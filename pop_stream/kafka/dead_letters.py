"""Records that no part could use, written with their coordinates and the reason.

Dead letters of what every process reads by itself: one group reads it too, for all of them.

Definitions, stops, counts, handouts and answers are read without a group, again at every start,
by each process that needs them; if each of them buried what it cannot read, every start would
bury it again. A group remembers how far it has come, and one of its members judges each record.
"""

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import structlog

from pop_stream.kafka import clients
from pop_stream.kafka.batch_consumer import BatchPacer, handle_batches
from pop_stream.kafka.publisher import publish_until_acknowledged
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Insight, decode_api_key, decode_definition, is_api_key
from pop_stream.model.errors import Issue, UnreadableRecordError
from pop_stream.model.events.base import RefusedIssue
from pop_stream.model.events.codec import (
    checked_value,
    decode_delivery,
    decode_poll_demand,
    decode_query_reply,
    decode_stop,
    decode_usage,
    encode,
)
from pop_stream.model.events.scheduling import RecordRefused
from pop_stream.policy.backlog.outbox import FailedAgenda
from pop_stream.ports.clock import Clock
from pop_stream.ports.publisher import Publisher, Record
from pop_stream.ports.records import ConsumedRecord
from pop_stream.settings import Settings

_MAX_VALUE_BYTES: Final = 512 * 1024
_MAX_KEY_BYTES: Final = 1024


def dead_letter(
    topics: Topics,
    record: ConsumedRecord,
    *,
    part: str,
    at: datetime,
    error: tuple[str, str],
    issues: Sequence[Issue] = (),
) -> Record:
    """The record for `pop.dead-letters`.

    Args:
        topics: Names of topics.
        record: What could not be used; of its value half a mebibyte is kept, and a
            kibibyte of its key, so that the letter always fits a record.
        part: Who refused it, such as `ingest`.
        at: The present instant.
        error: Stable code and a reason for people.
        issues: What exactly was wrong, if it was a submission.
    """
    code, reason = error
    value = record.value or b""
    refused = RecordRefused(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        at=at,
        part=part,
        code=code,
        reason=reason,
        value_base64=base64.b64encode(value[:_MAX_VALUE_BYTES]).decode(),
        truncated=len(value) > _MAX_VALUE_BYTES,
        issues=to_wire_issues(issues),
    )
    key = record.key[:_MAX_KEY_BYTES] if record.key else record.key
    return Record(topics.dead_letters, key, encode(refused))


def agenda_dead_letter(
    topics: Topics,
    failed: FailedAgenda,
    insight: Insight,
    *,
    agenda: bytes,
    part: str,
    at: datetime,
) -> Record:
    """The record for `pop.dead-letters` of an agenda that failed for good.

    Args:
        topics: Names of topics.
        failed: Which one, and why.
        insight: Where it ran.
        agenda: Itself, JSON; what is too long for a record is cut off.
        part: Who gave it up.
        at: The present instant.
    """
    refused = RecordRefused(
        topic=topics.insight(insight.id, insight.group_type),
        partition=-1,
        offset=-1,
        at=at,
        part=part,
        code=failed.code,
        reason=f"attempt {failed.attempt}: {failed.message}",
        value_base64=base64.b64encode(agenda[:_MAX_VALUE_BYTES]).decode(),
        truncated=len(agenda) > _MAX_VALUE_BYTES,
    )
    return Record(topics.dead_letters, failed.agenda_id.encode(), encode(refused))


def to_wire_issues(issues: Sequence[Issue]) -> tuple[RefusedIssue, ...]:
    """Issues in their wire shape."""
    return tuple(RefusedIssue(field=i.field, value=i.value, message=i.message) for i in issues)


def row_dead_letter(
    topics: Topics, partition: int, row: tuple[str, bytes], *, at: datetime, reason: str
) -> Record:
    """The dead letter of a row of the ReadyAgenda table; its place in the topic is not known.

    Args:
        topics: Names of topics.
        partition: Of the table.
        row: Key and value.
        at: The present instant.
        reason: For people.
    """
    key, value = row
    refused = RecordRefused(
        topic=f"{topics.prefix}scheduler-ready-changelog",
        partition=partition,
        offset=-1,
        at=at,
        part="scheduler",
        code=UnreadableRecordError.code,
        reason=f"row {key}: {reason}",
        value_base64=base64.b64encode(value[:_MAX_VALUE_BYTES]).decode(),
        truncated=len(value) > _MAX_VALUE_BYTES,
    )
    return Record(topics.dead_letters, key.encode()[:_MAX_KEY_BYTES], encode(refused))


PART: Final = "burial"

_AT_ONCE: Final = 500
_APART_S: Final = 0.5
"""Nobody waits for a letter, so records gather."""

_log = structlog.get_logger()

Judge = Callable[[ConsumedRecord], object]
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

    async def handle(self, records: Sequence[ConsumedRecord]) -> None:
        """Bury those of a batch that cannot be read; a batch again is buried again."""
        letters = [letter for record in records if (letter := self._letter(record))]
        if letters:
            await publish_until_acknowledged(self._publisher, letters)

    def _letter(self, record: ConsumedRecord) -> Record | None:
        try:
            self._judges[record.topic](record)
        except UnreadableRecordError as error:
            _log.warning("record.dead_lettered", topic=record.topic, offset=record.offset)
            at, told = self._clock.now(), (error.code, str(error))
            return dead_letter(self._topics, record, part=PART, at=at, error=told)
        return None


def judges(topics: Topics) -> Mapping[str, Judge]:
    """The topics that are read without a group, and `pop.poll-demand`; each with who reads it."""
    return {
        topics.definitions: _definition,
        topics.controls: lambda record: decode_stop(checked_value(record)),
        topics.quota_usage: lambda record: decode_usage(checked_value(record)),
        topics.deliveries: lambda record: decode_delivery(checked_value(record)),
        topics.query_replies: lambda record: decode_query_reply(checked_value(record)),
        topics.poll_demand: lambda record: decode_poll_demand(checked_value(record)),
    }


def _definition(record: ConsumedRecord) -> object:
    key = (record.key or b"").decode(errors="replace")
    decode = decode_api_key if is_api_key(key) else decode_definition
    return decode(key, record.value)
