"""How fast an insight's backlog is worked off: what an agenda's wait is reckoned with."""

from datetime import datetime
from typing import Final

_MIN_CLAIMS_FOR_RATE: Final = 64
_ENOUGH_S: Final = 5.0
_MAX_S: Final = 120.0
_MIN_S: Final = 0.1


class DrainRate:
    """Claims per second of the time in which something waited that might go.

    Runners that are all busy, a cap and a full pool are part of it: the topic may lie empty
    meanwhile, and still that is how fast agendas leave. Time in which nothing waited, or
    nothing that may go, says nothing. What is known counts half once there is enough: 64
    claims and 5 s, or two minutes.
    """

    def __init__(self) -> None:
        self._claims = self._seconds = 0.0
        self._was_at: float | None = None
        self._was_claimed = 0
        self._waited = False

    @property
    def per_s(self) -> float:
        """0 while nothing was claimed since something waits, or for less than 0.1 s."""
        return self._claims / self._seconds if self._seconds >= _MIN_S else 0.0

    def observe(self, claimed: int, *, waits: bool, now: datetime) -> None:
        """Take note of the present; call it at every event.

        Args:
            claimed: Agendas ever, as far as heard; never falls.
            waits: Whether an agenda waits for emission that might be chosen.
            now: The present instant; one set back ends a time that is counted.
        """
        at = now.timestamp()
        if self._was_at is not None and self._waited and at >= self._was_at:
            self._claims += claimed - self._was_claimed
            self._seconds += at - self._was_at
            is_enough = self._claims >= _MIN_CLAIMS_FOR_RATE and self._seconds >= _ENOUGH_S
            if is_enough or self._seconds >= _MAX_S:
                self._claims, self._seconds = self._claims / 2, self._seconds / 2
        self._was_at, self._was_claimed, self._waited = at, claimed, waits
