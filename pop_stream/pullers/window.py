"""The window that tells repeated and outdated attempts from new ones; no IO, no clock."""

from datetime import datetime
from typing import Final

WINDOW_SIZE: Final = 100_000
"""Agendas a puller remembers; a repeat further apart than this is not recognised."""


class AttemptWindow:
    """The newest attempt of the agendas seen last.

    Args:
        size: How many agendas are remembered, at least 1.
    """

    def __init__(self, size: int = WINDOW_SIZE) -> None:
        if size < 1:
            msg = f"size must be at least 1, got {size}"
            raise ValueError(msg)
        self._size = size
        self._newest: dict[str, tuple[int, datetime]] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def admit(self, agenda_id: str, attempt: int, accepted_at: datetime) -> bool:
        """Whether this attempt is newer than any seen of its agenda; if so, remember it.

        An id whose agenda was removed may be used anew, with attempts from 1 on: what was
        accepted later is another agenda.
        """
        newest = self._newest
        seen, of = newest.get(agenda_id, (0, accepted_at))
        if seen >= attempt and of >= accepted_at:
            return False
        newest.pop(agenda_id, None)  # to its end: what is seen last is forgotten last
        newest[agenda_id] = (attempt, max(of, accepted_at))
        if len(newest) > self._size:
            del newest[next(iter(newest))]
        return True

    def forget(self, agenda_id: str, attempt: int) -> None:
        """Admit this attempt again, but still none older; for one that was not started."""
        seen, of = self._newest.get(agenda_id, (0, None))
        if of is not None and seen == attempt:
            self._newest[agenda_id] = (attempt - 1, of)
