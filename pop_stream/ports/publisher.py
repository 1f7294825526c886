"""Publishes records to Kafka."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


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


class RecordTooLargeError(Exception):
    """A record is larger than the broker accepts; sending it again cannot help."""


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
            RecordTooLargeError: If a record is larger than the broker accepts; the others of
                the call may have been written.
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
