"""How many agendas may be emitted now: the gate that keeps an insight's topic short."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pop_stream.core.definitions import Insight

LEAST_TARGET: Final = 8
"""An automatic target never falls below it, so that a first rate can be measured."""

MOST_TARGET: Final = 5_000
"""An automatic target never grows above it."""

_SMOOTHING_S: Final = 0.5
_LEAST_SPAN_S: Final = 0.02
_STARVED_GAIN: Final = 1.5
_FED_DECAY: Final = 0.98
_MOST_STRETCH: Final = 64.0


@dataclass(frozen=True, slots=True)
class Depth:
    """What is out already.

    Attributes:
        unclaimed: Records on the topic that no puller has claimed, at most.
        in_flight: Agendas emitted and not settled.
    """

    unclaimed: int
    in_flight: int


class Pace:
    """How fast pullers claim, and how far ahead of them the topic must be filled.

    The rate is smoothed over half a second and holds while nothing waits to be claimed: an
    empty topic says nothing about speed. `stretch` grows while pullers find the topic empty
    although agendas wait, because then the way round (claim, relay, emission) takes longer
    than the wait that was wanted; it falls back slowly to 1 once they do not.
    """

    def __init__(self) -> None:
        self.rate_per_s = 0.0
        self.stretch = 1.0
        self._claimed = 0
        self._since: datetime | None = None

    def observe(self, claimed: int, depth: Depth, *, ready: int, now: datetime) -> None:
        """Take note of the present; call it before every round.

        Args:
            claimed: Agendas ever claimed, so that it never falls.
            depth: What is out before the round.
            ready: Agendas that wait for emission.
            now: The present instant.
        """
        if self._since is None or (claimed == self._claimed and not depth.unclaimed):
            self._claimed, self._since = claimed, now
            return
        seconds = (now - self._since).total_seconds()
        if seconds < _LEAST_SPAN_S:
            return
        sample = (claimed - self._claimed) / seconds
        self.rate_per_s += min(1.0, seconds / _SMOOTHING_S) * (sample - self.rate_per_s)
        self._claimed, self._since = claimed, now
        starved = ready > 0 and not depth.unclaimed
        factor = _STARVED_GAIN if starved else _FED_DECAY
        self.stretch = min(_MOST_STRETCH, max(1.0, self.stretch * factor))


def target(insight: Insight, pace: Pace) -> int:
    """Unclaimed agendas to aim at.

    Source: Little's law: what waits is the rate times the wait that is wanted.
    """
    if insight.target != "auto":
        return insight.target
    wanted = pace.rate_per_s * pace.stretch * insight.wanted_wait_ms / 1000
    return min(MOST_TARGET, max(LEAST_TARGET, round(wanted)))


def slots(insight: Insight, depth: Depth, pace: Pace) -> int:
    """How many agendas a round may emit; 0 while the topic is not yet low.

    Args:
        insight: Its target, low water and cap.
        depth: What is out already.
        pace: For an automatic target.
    """
    aim = target(insight, pace)
    low_water = min(insight.low_water or max(1, aim // 2), aim)
    if depth.unclaimed >= low_water:
        return 0
    room = aim - depth.unclaimed
    if insight.max_in_flight is not None:
        room = min(room, insight.max_in_flight - depth.in_flight)
    return max(0, room)
