"""Where signals are kept, and what waits for them is found."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from pop_stream.model.signal import AnsweredOperation, DecidedWait, Signal


class SignalStore(Protocol):
    """Signals; every method raises UnavailableError while they are away."""

    async def give(self, signal: Signal) -> None:
        """Keep a signal; one that was given before under its name is replaced.

        Raises:
            RateLimitError: If the customer has as many as are kept of one.
        """
        ...

    async def kept_of(
        self, customer_id: str | None, now: datetime, limit: int
    ) -> Sequence[Signal]:
        """Those that are kept, by name; of every customer if none is named."""
        ...


class WaitStore(Protocol):
    """What waits, and whether it has come; raises UnavailableError while it is away."""

    async def answered(self, now: datetime, limit: int) -> Sequence[AnsweredOperation]:
        """Operations whose signal is kept or whose hand-over has ended; so many of each.

        A hand-over whose time is over is decided to have timed out with this look.
        """
        ...

    async def remove_expired(self, now: datetime) -> None:
        """Remove signals that are kept no more."""
        ...


class ConditionStore(Protocol):
    """What agendas wait for; raises UnavailableError while it is away."""

    async def decided(self, now: datetime, limit: int) -> Sequence[DecidedWait]:
        """Agendas whose wait is over, met or not; those commanded lately are left out."""
        ...

    async def mark_commanded(self, agenda_ids: Sequence[str], now: datetime) -> None:
        """Leave them out for a few seconds."""
        ...
