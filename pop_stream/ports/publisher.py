"""Publishes records to Kafka."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

MAX_RECORD_BYTES: Final = 1_000_000
"""The most that a record may hold, before compression: key, value and headers.

Brokers and topics must take batches of somewhat more, as they do unless configured otherwise;
`pop-stream doctor` says if one does not.
"""


class Record(NamedTuple):
    """A record to publish.

    Attributes:
        partition: Of the topic; None lets the key decide.
        own_batch: Whether it must be a batch of its own, as share groups deliver whole batches.
            It must be the same for all records of a topic.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    own_batch: bool = False

    @property
    def size(self) -> int:
        """Its bytes before compression, as `MAX_RECORD_BYTES` counts them."""
        # Kafka allows a header without a value, as anyone may have written one
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


class RecordMetadata(Protocol):
    """Where a record was written."""

    @property
    def partition(self) -> int:
        """Of its topic."""
        ...

    @property
    def offset(self) -> int:
        """In the partition."""
        ...


class Publisher(Protocol):
    """Publishes records that must not be lost."""

    async def publish(self, records: Sequence[Record]) -> Sequence[RecordMetadata]:
        """Publish all records; returns once every one is acknowledged by acks=all.

        Records for one partition are written in the order given. A call repeated after an
        error may write some of them twice.

        Returns:
            Where each was written, in the order given.

        Raises:
            UnavailableError: If the broker did not acknowledge in time; any of the records may
                have been written.
            RecordTooLargeError: If a record is larger than `MAX_RECORD_BYTES`: then none was
                written. Or if the broker takes less: then others may have been written.
        """
        ...

    async def partitions(self, topic: str) -> int:
        """How many partitions the topic has."""
        ...

    async def ping(self) -> None:
        """Wait for an answer of any broker.

        Raises:
            UnavailableError: If none answers.
        """
        ...
