"""Records that cannot be read, of internal topics, or written: skipped, logged and counted.

Nobody but our own parts writes to these topics, so such a record is a fault of ours, or was
written by a version too far away. There is nothing that a person could correct and send again,
unlike with a public topic, whose unreadable records become dead letters. Every process that
reads such a topic skips the record by itself, so its count is one per process, and that of a
topic that is read from its beginning grows anew with each start.

A record that is too large to be written is left out likewise: it would be as large the next
time. Entry points refuse what would lead to one.
"""

from typing import Final

import structlog

from pop_stream.model.errors import RecordTooLargeError, UnreadableRecordError
from pop_stream.ports.publisher import Record
from pop_stream.ports.records import ConsumedRecord
from pop_stream.telemetry.process import UNREADABLE_RECORDS, UNWRITABLE_RECORDS

_MAX_KEY_SHOWN: Final = 200

_log = structlog.get_logger()


def skip_unreadable(record: ConsumedRecord, error: UnreadableRecordError) -> None:
    """Log and count a record that its reader skips; called once by each reader.

    Args:
        record: Of an internal topic.
        error: Why it cannot be read.
    """
    UNREADABLE_RECORDS.labels(record.topic).inc()
    _log.warning(
        "record.unreadable",
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        reason=str(error),
    )


def skip_unwritable(record: Record, error: RecordTooLargeError) -> None:
    """Log and count a record that its writer leaves out."""
    UNWRITABLE_RECORDS.labels(record.topic).inc()
    key = (record.key or b"").decode(errors="replace")[:_MAX_KEY_SHOWN]
    _log.error("record.unwritable", topic=record.topic, key=key, reason=str(error))
