"""Claimed agendas of a dispatcher that is none any more; no clock, instants are given."""

from collections.abc import Iterable
from typing import Final

from pop_stream.core.events import DeliveryReturned
from pop_stream.core.pulls.demand import ReturnedDelivery

REBALANCE_GRACE_S: Final = 2.0
"""So long after a group has settled, all of its members hear what is written."""


class OrphanedDeliveries:
    """Keeps them until whoever is dispatcher now can hear of them."""

    def __init__(self) -> None:
        self._waiting: list[ReturnedDelivery] = []
        self._resumed_s: float | None = None

    def add(self, some: Iterable[ReturnedDelivery]) -> None:
        """Nobody will want these of their counter any more."""
        self._waiting += some

    @property
    def has_any(self) -> bool:
        """Whether any waits for that."""
        return bool(self._waiting)

    def rebalance_started(self) -> None:
        """The dispatchers' group has begun to settle anew, or is left."""
        self._resumed_s = None

    def settle(self, now_s: float) -> None:
        """The group has settled."""
        self._resumed_s = now_s

    def pop_due(self, now_s: float) -> list[DeliveryReturned]:
        """What to tell the dispatcher; what is not worth handing out any more is dropped."""
        if self._resumed_s is None or now_s - self._resumed_s < REBALANCE_GRACE_S:
            return []
        waiting, self._waiting = self._waiting, []
        return [
            DeliveryReturned(insight_id=one.emitted.insight_id, emitted=one.emitted)
            for one in waiting
            if one.until_s > now_s
        ]
