"""Which partitions are surely this worker's: what is asked before anything is written."""

from collections.abc import Callable, Set
from datetime import timedelta
from math import inf
from time import monotonic


class PartitionOwnership:
    """A partition is held from its assignment on, for as long as the group surely knows us.

    The group gives partitions away once a session has passed without a heartbeat. A process
    that was frozen or starved for longer wakes up believing in them, and hears otherwise
    only from its next heartbeat; until then it must write nothing.

    Args:
        session: Of the group.
        now: Seconds that also pass while the process is frozen.
    """

    def __init__(self, session: timedelta, now: Callable[[], float] = monotonic) -> None:
        self._session_s = session.total_seconds()
        self._now = now
        self._partitions: frozenset[int] = frozenset()
        self._acknowledged_at = now()
        self._invalidated_at = -inf

    @property
    def partitions(self) -> Set[int]:
        """What was assigned and not revoked, surely held or not."""
        return self._partitions

    def assign(self, partitions: Set[int]) -> None:
        """The group has just given these."""
        self._partitions |= partitions
        self.heartbeat_acknowledged(self._now())

    def revoke(self, partitions: Set[int]) -> None:
        """The group takes these back."""
        if self._partitions & partitions:
            self._invalidated_at = self._now()
        self._partitions -= partitions

    def expelled(self) -> None:
        """The group has expelled us: all is lost, before it is revoked; any thread's."""
        self._partitions = frozenset()
        self._invalidated_at = self._now()

    def heartbeat_acknowledged(self, asked_at: float) -> None:
        """The group knew us when it answered what was asked at that moment; any thread's."""
        self._acknowledged_at = max(self._acknowledged_at, asked_at)

    def owns(self, partition: int) -> bool:
        """Whether nobody else can have been given the partition by now."""
        return self._has_live_session and partition in self._partitions

    def invalidate(self) -> None:
        """What was begun is forgotten and decided anew, so nothing of it may be written."""
        self._invalidated_at = self._now()

    def held_since(self, since: float) -> bool | None:
        """Whether nothing was lost or given up since a moment; None until the group tells."""
        if self._invalidated_at >= since:
            return False
        return self._has_live_session or None

    @property
    def _has_live_session(self) -> bool:
        return self._now() - self._acknowledged_at < self._session_s
