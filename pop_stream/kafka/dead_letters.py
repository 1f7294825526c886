"""Dead letters: what no part can use of public topics, with its coordinates and the reason.

A dead letter is for a person, who corrects what was submitted or finds out who wrote it. It is
written before the offset of its record is committed: a crash between the two repeats it.
Each is counted where it is made. Unreadable records of internal topics are only logged and
counted; see `unreadable_records`.
"""

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import UNSET

from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Insight
from pop_stream.model.errors import Issue, UnreadableRecordError
from pop_stream.model.events.base import RefusedIssue
from pop_stream.model.events.codec import encode
from pop_stream.model.events.scheduling import RecordRefused
from pop_stream.policy.backlog.outbox import FailedAgenda
from pop_stream.ports.publisher import Record
from pop_stream.ports.records import ConsumedRecord
from pop_stream.telemetry.process import DEAD_LETTERS

_MAX_VALUE_BYTES: Final = 512 * 1024
_MAX_KEY_BYTES: Final = 1024


def dead_letter(  # noqa: PLR0913  # what a letter says
    topics: Topics,
    record: ConsumedRecord,
    *,
    part: str,
    at: datetime,
    error: tuple[str, str],
    issues: Sequence[Issue] = (),
    sender_customer_id: str | None = None,
    rule_id: str | None = None,
) -> Record:
    """The record for `pop.dead-letters`.

    Args:
        topics: Names of topics.
        record: The unusable record. Half a mebibyte of its value is kept and a kibibyte of
            its key, so that the dead letter always fits a record.
        part: The part that rejected it, such as `ingest`.
        at: The present instant.
        error: Stable code and a reason for people.
        issues: What exactly was wrong, if it was a submission.
        sender_customer_id: The customer who submitted it, if its record said so.
        rule_id: The rule that reads its topic, if one does.
    """
    DEAD_LETTERS.labels(part).inc()
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
        sender_customer_id=UNSET if sender_customer_id is None else sender_customer_id,
        rule_id=UNSET if rule_id is None else rule_id,
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
        failed: The agenda's id, and the reason.
        insight: Where it ran.
        agenda: Its JSON; what is too long for a record is cut off.
        part: The part that gave it up.
        at: The present instant.
    """
    DEAD_LETTERS.labels(part).inc()
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
    """The dead letter of a row of the ReadyAgenda table; its offset is not known.

    Args:
        topics: Names of topics.
        partition: Of the table.
        row: Key and value.
        at: The present instant.
        reason: For people.
    """
    DEAD_LETTERS.labels("scheduler").inc()
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
