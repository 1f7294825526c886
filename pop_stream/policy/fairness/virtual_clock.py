"""The virtual time of start-time fair queueing, one for each level of urgency.

Without strict priorities there is one level, 1, and virtual time is the start tag of the
agenda emitted last. With them, customers take turns only with those of their own urgency, so
each level has a time of its own: the greatest start tag that was picked at it or at a less
urgent one. So time never falls from a level to a more urgent one, and whoever moves up comes
among tags within one charge of its own, however long the others were served without it.
"""

from collections.abc import Sequence
from typing import Final

TOP_LEVEL: Final = 1
"""The most urgent level, and the only one without strict priorities."""


class VirtualClock:
    """Start tags, in worker-seconds per unit of weight, by level from `TOP_LEVEL` on.

    Args:
        levels: How many.
        times: To go on from, most urgent first; levels beyond them begin at the first.
    """

    __slots__ = ("_times",)

    def __init__(self, levels: int, times: Sequence[float] = (0.0,)) -> None:
        missing = [times[0]] * (levels - len(times))
        self._times: list[float] = [*times[:levels], *missing]

    @property
    def times(self) -> tuple[float, ...]:
        """By level, most urgent first; never rising."""
        return tuple(self._times)

    def at(self, level: int) -> float:
        """The present of a level, at which customers join it."""
        return self._times[level - TOP_LEVEL]

    def advance(self, level: int, tag: float) -> None:
        """An agenda of this start tag is emitted at this level."""
        times = self._times
        for index in range(level):
            times[index] = max(times[index], tag)

    def pull_back(self, level: int, tag: float) -> None:
        """A correction put a backlogged customer of this level back to this tag."""
        times = self._times
        for index in range(level - TOP_LEVEL, len(times)):
            times[index] = min(times[index], tag)

    def jump_to(self, tag: float) -> None:
        """Nothing waits and nothing runs: all levels go on from this tag at least."""
        self._times = [max(tag, self._times[0])] * len(self._times)
