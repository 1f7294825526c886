"""How long ended agendas are kept; what has not ended is kept for ever."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType

from pop_stream.policy.lifecycle.states import TERMINAL, State


@dataclass(frozen=True, slots=True)
class Retention:
    """Spans from an agenda's end on, by its state.

    Attributes:
        failed: Also of webhooks whose tries are exhausted.
        stopped: Cancelled and expired.
        dead_letters: Of dead letters in the database, from when they were written.
        stats: Of what was counted by hour.
    """

    succeeded: timedelta
    failed: timedelta
    stopped: timedelta
    refused: timedelta
    dead_letters: timedelta = timedelta(days=30)
    stats: timedelta = timedelta(days=400)

    def before(self, now: datetime) -> Mapping[State, datetime]:
        """By state, the instant before which an agenda must have ended to be removed.

        Only states that are an end have one, so nothing else can ever be aged.
        """
        spans = {
            State.SUCCEEDED: self.succeeded,
            State.FAILED: self.failed,
            State.CANCELLED: self.stopped,
            State.EXPIRED: self.stopped,
            State.REFUSED: self.refused,
        }
        return MappingProxyType({state: now - spans[state] for state in TERMINAL})

    @property
    def shortest(self) -> timedelta:
        """Of the spans for agendas that were accepted."""
        return min(self.succeeded, self.failed, self.stopped)
