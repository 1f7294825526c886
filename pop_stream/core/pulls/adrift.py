"""Claimed agendas of a dispatcher that is none any more; no clock, instants are given."""

from collections.abc import Iterable
from typing import Final

from pop_stream.core.events import PullReturned
from pop_stream.core.pulls.demand import Returned

SETTLED_S: Final = 2.0
"""So long after a group has settled, all of its members hear what is written."""


class Adrift:
    """Keeps them until whoever is dispatcher now can hear of them."""

    def __init__(self) -> None:
        self._waiting: list[Returned] = []
        self._settled_s: float | None = None

    def add(self, some: Iterable[Returned]) -> None:
        """Nobody will want these of their counter any more."""
        self._waiting += some

    @property
    def has_some(self) -> bool:
        """Whether any waits for that."""
        return bool(self._waiting)

    def unsettle(self) -> None:
        """The dispatchers' group has begun to settle anew, or is left."""
        self._settled_s = None

    def settle(self, now_s: float) -> None:
        """The group has settled."""
        self._settled_s = now_s

    def take_due(self, now_s: float) -> list[PullReturned]:
        """What to tell the dispatcher; what is not worth handing out any more is dropped."""
        if self._settled_s is None or now_s - self._settled_s < SETTLED_S:
            return []
        waiting, self._waiting = self._waiting, []
        return [
            PullReturned(insight_id=one.emitted.insight_id, emitted=one.emitted)
            for one in waiting
            if one.until_s > now_s
        ]
