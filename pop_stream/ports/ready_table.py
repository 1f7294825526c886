"""Where the scheduler keeps its backlogs."""

from collections.abc import Iterator
from typing import Protocol


class BacklogTable(Protocol):
    """The rows of the ReadyAgenda table, to be read at once, and durable once `wait_durable`."""

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
        """How many rows were written or deleted so far."""
        ...

    def send_now(self) -> None:
        """Have what was written so far sent now; else it may wait a little for more."""
        ...

    async def wait_durable(self, written: int | None = None) -> None:
        """Wait until the first so many rows written outlive this process; all if not given."""
        ...
