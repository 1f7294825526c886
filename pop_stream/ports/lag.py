"""Lag, committed offsets and member counts of groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pop_stream.model.definitions import GroupType
from pop_stream.model.ids import InsightId


@dataclass(frozen=True, slots=True)
class LagSnapshot:
    """The lag of insights, and how far the relay has come, as of one call.

    Attributes:
        lags: By insight and partition of its topic, the records past its pullers' commit
            that are still there; an insight is absent if that is unknown.
        end_offsets: By partition of the lifecycle's topic, the offset after its last record;
            None if it was not asked for or is unknown.
        relay_offsets: By the same partition, the offset that the relay has committed.
    """

    lags: Mapping[InsightId, Sequence[int]] = field(default_factory=dict)
    end_offsets: Mapping[int, int] | None = None
    relay_offsets: Mapping[int, int] = field(default_factory=dict)


class GroupOffsets(NamedTuple):
    """The offsets of a group in a topic.

    Attributes:
        ends: By partition, the offset after its last record.
        committed: By partition, the offset that the group has committed, if any.
    """

    ends: Mapping[int, int]
    committed: Mapping[int, int]


class LagProbe(Protocol):
    """Asks the brokers how far groups have come; nothing raises, what fails is unknown."""

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
            shared: Those whose pullers are a share group. Their lag counts from the first
                record that is not done with, also later ones that are.
            relay: Whether to ask for `end_offsets` and `relay_offsets`.
        """
        ...

    async def fetch_member_count(self, group: str) -> int | None:
        """How many members a group has, 0 if it does not exist; None if that is unknown."""
        ...

    async def fetch_group_offsets(
        self, group: str, topic: str, group_type: GroupType = "consumer"
    ) -> GroupOffsets | None:
        """The offsets of a group in a topic; None if they are unknown.

        The committed offset of a share group is the first record that is not done with.
        """
        ...
