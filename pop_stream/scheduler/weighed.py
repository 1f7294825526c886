"""A queue of Faust's that is full by its records or by their bytes, whichever comes first."""

from typing import Any, Final

import faust
from mode.utils.queues import ThrowableQueue

MAX_QUEUED_BYTES: Final = 64 * 1024 * 1024
"""Of values that were read and wait for the agent. Faust counts records, and one of ours may be
of 100 bytes or of nearly a megabyte: as many as it takes of the small ones would be 4 GB."""


class ByteBoundedQueue(ThrowableQueue):  # type: ignore[misc]  # Faust is untyped
    """Its size is in records; larger ones count as several.

    Faust stops to fetch for a partition at four fifths of the size, and begins again at two.
    """

    queued_bytes: int = 0

    def qsize(self) -> int:
        """Called by Faust, which compares it with `maxsize`."""
        of_one: int = max(1, MAX_QUEUED_BYTES // self.maxsize)
        return max(len(self._queue), self.queued_bytes // of_one)

    def clear(self) -> None:
        """Called by Faust when partitions are revoked."""
        super().clear()
        self.queued_bytes = 0

    def _put(self, item: Any) -> None:  # noqa: ANN401  # Faust is untyped
        self.queued_bytes += _size(item)
        super()._put(item)

    def _get(self) -> Any:  # noqa: ANN401
        item = super()._get()
        self.queued_bytes -= _size(item)
        return item


class ByteBoundedApp(faust.App):  # type: ignore[misc]  # Faust is untyped
    """An application whose streams wait in such queues."""

    def FlowControlQueue(  # noqa: N802  # the name is Faust's
        self, maxsize: int | None = None, *, clear_on_resume: bool = False
    ) -> ByteBoundedQueue:
        """Called by Faust for every stream."""
        return ByteBoundedQueue(
            maxsize=maxsize, flow_control=self.flow_control, clear_on_resume=clear_on_resume
        )


def _size(event: Any) -> int:  # noqa: ANN401  # Faust is untyped
    return len(event.message.value or b"")
