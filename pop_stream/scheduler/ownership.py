"""Which partitions this process certainly owns; asked before anything is written."""

from collections.abc import Callable, Set
from datetime import timedelta
from math import inf
from time import monotonic


class PartitionOwnership:
    """Tracks assigned partitions, and whether the group still knows their owner.

    A partition is owned from its assignment until it is revoked, and only while the last
    acknowledged heartbeat is less than a session old: after that the group may have given it
    to another process. A process that was frozen for longer still has its partitions in memory,
    and learns otherwise from its next heartbeat only. Until then it must write nothing.

    Methods that Faust's consumer calls may be called from its thread; each is one assignment.

    Args:
        session: The session timeout of the group.
        now: A clock in seconds that goes on while the process is frozen.
    """

    def __init__(self, session: timedelta, now: Callable[[], float] = monotonic) -> None:
        self._session_s = session.total_seconds()
        self._now = now
        self._partitions: frozenset[int] = frozenset()
        self._acknowledged_at = now()
        self._invalidated_at = -inf

    @property
    def partitions(self) -> Set[int]:
        """What was assigned and not revoked, certainly owned or not."""
        return self._partitions

    def assign(self, partitions: Set[int]) -> None:
        """Called when the group has assigned these; counts as an acknowledged heartbeat."""
        self._partitions |= partitions
        self.heartbeat_acknowledged(self._now())

    def revoke(self, partitions: Set[int]) -> None:
        """Called when the group revokes these; those that were not assigned are ignored."""
        if self._partitions & partitions:
            self._invalidated_at = self._now()
        self._partitions -= partitions

    def expelled(self) -> None:
        """Called from any thread when the group has expelled this member: nothing is owned."""
        self._partitions = frozenset()
        self._invalidated_at = self._now()

    def heartbeat_acknowledged(self, asked_at: float) -> None:
        """Called from any thread when the group acknowledged a heartbeat sent at `asked_at`."""
        self._acknowledged_at = max(self._acknowledged_at, asked_at)

    def owns(self, partition: int) -> bool:
        """Whether no other process can have been assigned the partition by now."""
        return self._has_live_session and partition in self._partitions

    def invalidate(self) -> None:
        """Called when a record is to be handled anew: nothing begun before may be written."""
        self._invalidated_at = self._now()

    def held_since(self, since: float) -> bool | None:
        """Whether nothing was lost or invalidated since then; None while that is unknown."""
        if self._invalidated_at >= since:
            return False
        return self._has_live_session or None

    @property
    def _has_live_session(self) -> bool:
        return self._now() - self._acknowledged_at < self._session_s
