"""Whether a reader stands still: its input waits, and nothing of it is committed."""

from collections.abc import Mapping


class StallDetector:
    """Remembers how long each partition has waited; instants are in seconds.

    Args:
        stalled_after_s: How long input may wait without a commit.
        max_gap_s: Longest pause between two observations. After a longer one the detector
            starts again: in that time nobody could observe, so nothing is known to have stood
            still.
    """

    def __init__(self, *, stalled_after_s: float, max_gap_s: float) -> None:
        self._stalled_after_s = stalled_after_s
        self._max_gap_s = max_gap_s
        self._observed_at: float | None = None
        self._first: dict[int, int] = {}
        self._since: dict[int, tuple[int, float]] = {}

    def reset(self) -> None:
        """Forget the time up to now."""
        self._since = {}

    def observe(
        self, now: float, *, ends: Mapping[int, int], committed: Mapping[int, int]
    ) -> list[int]:
        """Observe once; returns the partitions that have stood still for too long.

        Args:
            now: The present instant.
            ends: By partition of this reader, the offset after its last record.
            committed: By partition, the offset that was committed; one without any counts
                from where its input ended when it was first seen.
        """
        if self._observed_at is not None and now - self._observed_at > self._max_gap_s:
            self.reset()
        self._observed_at = now
        before, self._since = self._since, {}
        for partition, end in ends.items():
            reached = committed.get(partition, self._first.setdefault(partition, end))
            if reached < end:
                known, since = before.get(partition, (reached, now))
                self._since[partition] = (reached, since if known == reached else now)
        return [
            partition
            for partition, (_, since) in sorted(self._since.items())
            if now - since >= self._stalled_after_s
        ]


def stalled_lag(
    ends: Mapping[int, int], before: Mapping[int, int], after: Mapping[int, int]
) -> Mapping[int, int]:
    """How many records wait in each partition of which nothing was committed in between.

    Args:
        ends: By partition, the offset after its last record at the first observation.
        before: By partition, what was committed then; none counts as 0.
        after: The same at the second observation.
    """
    return {
        partition: end - before.get(partition, 0)
        for partition, end in ends.items()
        if before.get(partition, 0) < end
        and before.get(partition, 0) == after.get(partition, 0)
    }
