"""The window that tells repeated and outdated attempts from new ones; no IO, no clock."""

from typing import Final

REMEMBERED: Final = 100_000
"""Agendas a puller remembers; a repeat further apart than this is not recognised."""


class AttemptWindow:
    """The newest attempt of the agendas seen last.

    Args:
        size: How many agendas are remembered, at least 1.
    """

    def __init__(self, size: int = REMEMBERED) -> None:
        if size < 1:
            msg = f"size must be at least 1, got {size}"
            raise ValueError(msg)
        self._size = size
        self._newest: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def admit(self, agenda_id: str, attempt: int) -> bool:
        """Whether this attempt is newer than any seen of its agenda; if so, remember it."""
        newest = self._newest
        if newest.get(agenda_id, 0) >= attempt:
            return False
        newest.pop(agenda_id, None)  # to its end: what is seen last is forgotten last
        newest[agenda_id] = attempt
        if len(newest) > self._size:
            del newest[next(iter(newest))]
        return True

    def forget(self, agenda_id: str, attempt: int) -> None:
        """Admit this attempt again, but still none older; for one that was not started."""
        if self._newest.get(agenda_id) == attempt:
            self._newest[agenda_id] = attempt - 1
