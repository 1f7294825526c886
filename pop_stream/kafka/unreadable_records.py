"""Records of internal topics that cannot be read: skipped, logged and counted.

Nobody but our own parts writes to these topics, so such a record is a fault of ours, or was
written by a version too far away. There is nothing that a person could correct and send again,
unlike with a public topic, whose unreadable records become dead letters. Every process that
reads such a topic skips the record by itself, so its count is one per process, and that of a
topic that is read from its beginning grows anew with each start.
"""

from typing import Final

import structlog
from prometheus_client import Counter

from pop_stream.model.errors import UnreadableRecordError
from pop_stream.ports.records import ConsumedRecord

UNREADABLE_RECORDS: Final = Counter(
    "pop_unreadable_records",
    "Records of internal topics that this process skipped, as it could not read them.",
    ["topic"],
    registry=None,
)
"""Of this process; each part that serves metrics registers it with its own."""

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
