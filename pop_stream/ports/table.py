"""Where the scheduler keeps its backlogs."""

from collections.abc import Iterator
from typing import Protocol


class ReadyTable(Protocol):
    """The rows of the ReadyAgenda table, durable before their source event is committed."""

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

    async def kept(self) -> None:
        """Wait until all that was written so far outlives this process."""
        ...
