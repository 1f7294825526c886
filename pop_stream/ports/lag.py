"""How far those who read have come."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pop_stream.model.definitions import GroupType
from pop_stream.model.ids import InsightId


@dataclass(frozen=True, slots=True)
class LagSnapshot:
    """How far those who read have come.

    Attributes:
        lags: Records past the pullers' commit that are still there, by insight and partition
            of its topic; an insight is absent when that is unknown.
        end_offsets: By partition of the lifecycle's topic, the offset after its last record; None
            if it was not asked for or is unknown.
        relay_offsets: By the same partition, the offset that the relay has committed.
    """

    lags: Mapping[InsightId, Sequence[int]] = field(default_factory=dict)
    end_offsets: Mapping[int, int] | None = None
    relay_offsets: Mapping[int, int] = field(default_factory=dict)


class GroupOffsets(NamedTuple):
    """How far a group has come with a topic.

    Attributes:
        ends: By partition, the offset after its last record.
        committed: By partition, the offset that the group has committed, if any.
    """

    ends: Mapping[int, int]
    committed: Mapping[int, int]


class LagProbe(Protocol):
    """Reads how far pullers and the relay are behind."""

    async def fetch_lag(
        self,
        insights: Sequence[InsightId],
        *,
        shared: Sequence[InsightId] = (),
        relay: bool = False,
    ) -> LagSnapshot:
        """Ask for the lag of insights and, if `relay`, for what the relay has read.

        Args:
            insights: Those whose pullers are a consumer group.
            shared: Those whose pullers are a share group. Of their records some that lie
                past the first one that is not done with may be done with, and count.
            relay: Whether to ask for `end_offsets` and `relay_offsets`.
        """
        ...

    async def fetch_member_count(self, group: str) -> int | None:
        """How many members a group has; None if that is unknown."""
        ...

    async def fetch_group_offsets(
        self, group: str, topic: str, group_type: GroupType = "consumer"
    ) -> GroupOffsets | None:
        """How far a group has come with a topic; None if that is unknown.

        What a share group has come to is the first record that is not done with.
        """
        ...
