"""Records that no part could use, written with their coordinates and the reason."""

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from aiokafka import ConsumerRecord

from pop_stream.bus.topics import Topics
from pop_stream.core.backlog.outbox import FailedAgenda
from pop_stream.core.definitions.definitions import Insight
from pop_stream.core.errors import Issue, UnreadableRecordError
from pop_stream.core.events import RecordRefused, RefusedIssue, encode
from pop_stream.ports.wire import Record

_MAX_VALUE_BYTES: Final = 512 * 1024
_MAX_KEY_BYTES: Final = 1024


def dead_letter(
    topics: Topics,
    record: ConsumerRecord,
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
        part: Who refused it, such as `intake`.
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
