"""Records as ingest reads them."""

from collections.abc import Sequence
from typing import Any

from aiokafka import ConsumerRecord


def record(  # noqa: PLR0913  # as many as a record has
    value: bytes | None,
    *,
    key: bytes | None = None,
    offset: int = 0,
    partition: int = 0,
    timestamp: int = 0,
    topic: str = "t.submissions",
    headers: Sequence[tuple[str, bytes]] = (),
) -> ConsumerRecord[Any, Any]:
    """A record with the fields that our parts look at."""
    return ConsumerRecord(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp=timestamp,
        timestamp_type=0,
        key=key,
        value=value,
        checksum=None,
        serialized_key_size=len(key or b""),
        serialized_value_size=len(value or b""),
        headers=headers,
    )
