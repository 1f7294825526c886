"""Lag and age of what a consumer handles, from what it knows without asking anybody.

A consumer learns with each fetch where its partitions end. So the lag of a part that reads is
known to the record, and that of one that hangs is known as of its last fetch; its age goes on
growing. A group whose members are all gone shows nothing: that is seen by the missing scrape.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import inf
from typing import Final, Self

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pop_stream.clock import WallClock
from pop_stream.ports.records import ConsumedRecord, TopicPartition

_MS: Final = 1000.0
_WALL: Final = WallClock()


@dataclass(slots=True)
class _PartitionProgress:
    """Of one partition: the next record to handle, and the batches in hand, oldest first.

    Attributes:
        in_hand: Of each batch, the offset after it and the timestamp of its first record.
        handled_ms: That timestamp of the last batch that was handled.
    """

    next_offset: int
    read_up_to: int
    in_hand: deque[tuple[int, float]] = field(default_factory=deque)
    handled_ms: float = inf

    @property
    def oldest_ms(self) -> float:
        """When the oldest record that is not handled was written, at the earliest."""
        return self.in_hand[0][1] if self.in_hand else self.handled_ms


class ConsumerProgress:
    """How far one consumer has come; shown while it is entered.

    Args:
        group: Its group, which is the label.
        assigned: The partitions that it has now.
        end_offset: Where a partition of these ended at the last fetch; None before any.
        now: Seconds since the epoch.
    """

    def __init__(
        self,
        group: str,
        assigned: Callable[[], Set[TopicPartition]],
        end_offset: Callable[[TopicPartition], int | None],
        *,
        now: Callable[[], float] = lambda: _WALL.now().timestamp(),
    ) -> None:
        self.group = group
        self._assigned, self._end_offset, self._now = assigned, end_offset, now
        self._partitions: dict[TopicPartition, _PartitionProgress] = {}

    def __enter__(self) -> Self:
        _SHOWN.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        _SHOWN.discard(self)

    def mark_read(self, fetched: Mapping[TopicPartition, Sequence[ConsumedRecord]]) -> None:
        """Records are in hand from now on; what is read again replaces what was read before."""
        for tp, records in fetched.items():
            first, end = records[0], records[-1].offset + 1
            known = self._partitions.get(tp)
            if known is None or first.offset < known.read_up_to:
                known = self._partitions[tp] = _PartitionProgress(first.offset, end)
            known.read_up_to = end
            known.in_hand.append((end, float(first.timestamp)))

    def mark_handled(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Everything before these offsets is handled."""
        for tp, offset in offsets.items():
            if (known := self._partitions.get(tp)) is None:
                continue
            known.next_offset = offset
            while known.in_hand and known.in_hand[0][0] <= offset:
                known.handled_ms = known.in_hand.popleft()[1]

    @property
    def lag(self) -> int:
        """Records not handled yet, of the partitions that it has and has read from."""
        return sum(lag for _, lag in self._lags())

    @property
    def age_s(self) -> float:
        """For how long the oldest of these has been written, at most; 0 without any."""
        oldest_ms = min((one.oldest_ms for one, lag in self._lags() if lag), default=inf)
        return max(0.0, self._now() - oldest_ms / _MS) if oldest_ms < inf else 0.0

    def _lags(self) -> Sequence[tuple[_PartitionProgress, int]]:
        for tp in self._partitions.keys() - self._assigned():
            del self._partitions[tp]  # its next owner goes on from there
        return [
            (one, max(0, max(self._end_offset(tp) or 0, one.read_up_to) - one.next_offset))
            for tp, one in self._partitions.items()
        ]


_SHOWN: Final[set[ConsumerProgress]] = set()


class ConsumerProgressCollector(Collector):
    """Lag and age by group, of all consumers of this process."""

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Both families; groups without a consumer here are absent."""
        lag = GaugeMetricFamily(
            "pop_consumer_lag", "Records that are not handled yet.", labels=["group"]
        )
        age = GaugeMetricFamily(
            "pop_consumer_age_seconds",
            "Since the oldest record was written that is not handled yet.",
            labels=["group"],
        )
        lags: dict[str, int] = {}
        ages: dict[str, float] = {}
        for one in _SHOWN:
            lags[one.group] = lags.get(one.group, 0) + one.lag
            ages[one.group] = max(ages.get(one.group, 0.0), one.age_s)
        for group in sorted(lags):
            lag.add_metric([group], lags[group])
            age.add_metric([group], ages[group])
        yield lag
        yield age
