"""Writing to Kafka."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Record(NamedTuple):
    """A record to publish.

    Attributes:
        partition: Where it goes; None lets the key decide.
        own_batch: Whether it must be a batch of its own: a share group hands out whole batches.
            All records of a topic must agree.
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


class Publisher(Protocol):
    """Writes records that must not be lost."""

    async def publish(self, records: Sequence[Record]) -> Sequence[RecordMetadata]:
        """Write all records and return once every one is acknowledged by acks=all.

        Records for one partition are written in the order given. A call repeated after an
        error may write some of them twice.

        Returns:
            Where each was written, in the order given.

        Raises:
            UnavailableError: If the broker did not acknowledge in time.
        """
        ...

    async def partitions(self, topic: str) -> int:
        """How many partitions the topic has."""
        ...

    async def ping(self) -> None:
        """Have a broker answer.

        Raises:
            UnavailableError: If none does.
        """
        ...
