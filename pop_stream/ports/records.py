"""Records as they are read from Kafka, and the partitions they are read from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class TopicPartition(NamedTuple):
    """A partition of a topic; equal to any other pair of the same topic and number."""

    topic: str
    partition: int


class ConsumedRecord(Protocol):
    """A record that was read; the client's own objects fit, and are never copied."""

    @property
    def topic(self) -> str:
        """Where it was read."""
        ...

    @property
    def partition(self) -> int:
        """Of the topic."""
        ...

    @property
    def offset(self) -> int:
        """In the partition."""
        ...

    @property
    def timestamp(self) -> int:
        """When the broker wrote it, in milliseconds since 1970."""
        ...

    @property
    def key(self) -> bytes | None:
        """None for a record without one."""
        ...

    @property
    def value(self) -> bytes | None:
        """None deletes the key in a compacted topic."""
        ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Names and values, in the order written; a name may occur again."""
        ...


@dataclass(frozen=True, slots=True)
class PlainRecord:
    """A `ConsumedRecord` that no client made: a part of one, or another client's."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()


def with_value(record: ConsumedRecord, value: bytes | None) -> PlainRecord:
    """The record with another value, such as the one event of a frame that is refused."""
    return PlainRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=value,
        timestamp=record.timestamp,
        headers=record.headers,
    )
