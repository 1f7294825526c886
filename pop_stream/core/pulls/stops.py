"""Which attempts are to stop, as far as `pop.controls` told; bounded memory, no clock."""

from typing import Final

from pop_stream.core.events import AttemptStop

REMEMBERED: Final = 20_000
"""Agendas whose stop is remembered; the one heard of longest ago is forgotten first."""


class Stops:
    """The furthest stop of each agenda heard of last.

    Args:
        size: How many agendas are remembered, at least 1.
    """

    def __init__(self, size: int = REMEMBERED) -> None:
        if size < 1:
            msg = f"size must be at least 1, got {size}"
            raise ValueError(msg)
        self._size = size
        self._by_agenda: dict[str, AttemptStop] = {}

    def __len__(self) -> int:
        return len(self._by_agenda)

    def remember(self, stop: AttemptStop) -> None:
        """Take in a stop; one of an older attempt than is known changes nothing."""
        known = self._by_agenda.get(stop.agenda_id)
        if known is not None and known.attempt > stop.attempt:
            return
        self._by_agenda.pop(stop.agenda_id, None)  # to the end: heard of last
        self._by_agenda[stop.agenda_id] = stop
        if len(self._by_agenda) > self._size:
            del self._by_agenda[next(iter(self._by_agenda))]

    def of(self, agenda_id: str, attempt: int) -> AttemptStop | None:
        """The stop that this attempt is to heed, if there is one."""
        stop = self._by_agenda.get(agenda_id)
        return stop if stop is not None and stop.attempt >= attempt else None
