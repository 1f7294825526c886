"""Whether who pulls over HTTP can be heard: only through the API."""

from typing import Final

from pop_stream.ports.lag import LagProbe

_MAX_ABSENCE_S: Final = 3_600.0
"""An API that is away for longer keeps no agenda from others any more."""


class ApiPresence:
    """Is asked about while workers hold attempts over HTTP.

    Args:
        probe: Tells how many processes the API has.
        group: Whose members these are.
    """

    def __init__(self, probe: LagProbe, group: str) -> None:
        self._probe = probe
        self._group = group
        self._away_since: float | None = None
        self._back_at: float | None = None

    async def look(self, now: float) -> None:
        """Ask once; what cannot be asked leaves all as it was."""
        fetch_member_count = await self._probe.fetch_member_count(self._group)
        if fetch_member_count == 0 and self._away_since is None:
            self._away_since = now
        elif fetch_member_count and self._away_since is not None:
            self._away_since, self._back_at = None, now

    def excuses_silence(self, now: float, lease_s: float) -> bool:
        """Whether a worker may be silent for no fault of its own.

        So it may while the API is away, and once it is back for as long as a lease: workers
        have yet to find that out, and speak as often as their leases ask them to.
        """
        if self._away_since is not None:
            return now - self._away_since < _MAX_ABSENCE_S
        return self._back_at is not None and now - self._back_at < lease_s
