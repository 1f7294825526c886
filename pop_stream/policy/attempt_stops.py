"""Which attempts are to stop, of those that `pop.controls` named last; no IO, no clock."""

from collections import OrderedDict
from datetime import datetime
from typing import Final

from pop_stream.model.events.scheduling import AttemptStop

MAX_STOPS: Final = 20_000
"""Agendas whose stop is remembered; the one named longest ago is forgotten first."""


class StopRegistry:
    """The furthest stop of each of the agendas that were named last.

    Args:
        size: How many agendas are remembered, at least 1.
    """

    def __init__(self, size: int = MAX_STOPS) -> None:
        if size < 1:
            msg = f"size must be at least 1, got {size}"
            raise ValueError(msg)
        self._size = size
        self._by_agenda: OrderedDict[str, AttemptStop] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_agenda)

    def remember(self, stop: AttemptStop) -> None:
        """Add a stop; one of an older attempt, or older agenda of its id, changes nothing."""
        known = self._by_agenda.get(stop.agenda_id)
        if known is not None and _order_key(known, stop) > _order_key(stop, known):
            return
        self._by_agenda.pop(stop.agenda_id, None)  # to the end: named last
        self._by_agenda[stop.agenda_id] = stop
        if len(self._by_agenda) > self._size:
            self._by_agenda.popitem(last=False)

    def of(
        self, agenda_id: str, attempt: int, accepted_at: datetime | None = None
    ) -> AttemptStop | None:
        """The stop that this attempt is to heed, if there is one; see `covers`."""
        stop = self._by_agenda.get(agenda_id)
        return stop if stop is not None and covers(stop, attempt, accepted_at) else None


def covers(stop: AttemptStop, attempt: int, accepted_at: datetime | None) -> bool:
    """Whether an attempt of its agenda is to heed the stop.

    Where the id was used anew since, what was accepted later is not meant; None if it is
    not known when it was.
    """
    if accepted_at is not None and stop.accepted_at is not None:
        return attempt <= stop.attempt and accepted_at <= stop.accepted_at
    return attempt <= stop.attempt


def _order_key(one: AttemptStop, other: AttemptStop) -> tuple[float, int]:
    """In the order of agendas under one id, if both have it, and of their attempts."""
    if one.accepted_at is None or other.accepted_at is None:
        return 0.0, one.attempt
    return one.accepted_at.timestamp(), one.attempt
