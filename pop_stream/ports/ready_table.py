"""The scheduler's durable table of backlog rows."""

from collections.abc import Iterator
from typing import Protocol


class BacklogTable(Protocol):
    """The rows of the ReadyAgenda table: read at once, durable after `wait_durable`."""

    def get(self, key: str) -> bytes | None:
        """The row's value, or None."""
        ...

    def put(self, key: str, value: bytes) -> None:
        """Write a row; only while an event is being handled."""
        ...

    def delete(self, key: str) -> None:
        """Delete a row, if there is one; only while an event is being handled."""
        ...

    def rows(self, partition: int) -> Iterator[tuple[str, bytes]]:
        """All rows of one partition of `pop.ready` that this process owns."""
        ...

    @property
    def written(self) -> int:
        """How many rows were written or deleted so far; a number for `wait_durable`."""
        ...

    def send_now(self) -> None:
        """Send what was written so far now; without it, rows may wait a little for more."""
        ...

    async def wait_durable(self, written: int | None = None) -> None:
        """Wait until the first so many rows written outlive this process; all by default."""
        ...
