"""Of which attempts a summary was there when it was last asked; bounded memory, no clock."""

from datetime import datetime
from typing import Final

MAX_SUMMARIZED: Final = 20_000
"""Agendas of which that is remembered; the one seen longest ago is forgotten first."""


class SummarizedAttempts:
    """The attempt of each agenda that was seen last, by the instant of its emission.

    Attempts have the same numbers again where an id is used anew; instants they have not.

    Args:
        size: How many agendas are remembered.
    """

    def __init__(self, size: int = MAX_SUMMARIZED) -> None:
        self._size = size
        self._by_agenda: dict[str, datetime] = {}

    def remember(self, agenda_id: str, emitted_at: datetime) -> None:
        """A summary is there of the agenda, an attempt of which was emitted then."""
        self._by_agenda.pop(agenda_id, None)  # to the end: seen last
        self._by_agenda[agenda_id] = emitted_at
        if len(self._by_agenda) > self._size:
            del self._by_agenda[next(iter(self._by_agenda))]

    def was(self, agenda_id: str, emitted_at: datetime) -> bool:
        """Whether that attempt is the one that was seen last of the agenda."""
        return self._by_agenda.get(agenda_id) == emitted_at
