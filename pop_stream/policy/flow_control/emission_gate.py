"""How many agendas a round may emit now, and to which partitions of the topic they go.

The gate keeps the topic short: order is decided as late as possible.

Each agenda goes to the partition where the fewest wait. A partition has one puller. By key
alone it gets its part of the records whatever that puller is busy with: one that runs long
agendas is sent as much as the others, what it cannot take fills the insight's depth, and the
others' runners stand idle. Joining the shortest queue keeps them busy: Winston, "Optimality of
the Shortest Line Discipline", Journal of Applied Probability 1977.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Final

from pop_stream.model.definitions import Insight
from pop_stream.policy.backlog.health import HEALTHY, HealthCoefficient, scaled_cap
from pop_stream.policy.flow_control.target_depth import TargetDepth

INITIAL_TARGET: Final = 8
"""The automatic target until enough claims were reported."""

MAX_TARGET: Final = 5_000
"""An automatic target never grows above it."""

_SECOND_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class CurrentDepth:
    """What is in flight already.

    Attributes:
        unclaimed: Records on the topic that no puller has claimed, at most.
        in_flight: Agendas emitted and not settled.
    """

    unclaimed: int
    in_flight: int


def target(insight: Insight, target_depth: TargetDepth) -> int:
    """Unclaimed agendas to aim at.

    An automatic target is never below the number of idle runners: each starts what it gets at
    once, so no order is settled too early by it.
    """
    if insight.target != "auto":
        return insight.target
    wanted = target_depth.target(insight.wanted_wait_ms / _SECOND_MS)
    return min(MAX_TARGET, max(target_depth.idle, INITIAL_TARGET if wanted is None else wanted))


def is_half_full(insight: Insight, depth: CurrentDepth, target_depth: TargetDepth) -> bool:
    """Whether more than half of the target, or of the cap, is taken.

    Then reports of claims and ends should come at once, before agendas come that have no room.
    """
    if 2 * depth.unclaimed > target(insight, target_depth):
        return True
    return insight.max_in_flight is not None and 2 * depth.in_flight > insight.max_in_flight


def budget(
    insight: Insight,
    depth: CurrentDepth,
    target_depth: TargetDepth,
    *,
    idle_returners: Callable[[], int],
    cap: int | None = None,
) -> int:
    """How many agendas a round may emit; 0 while the topic is not yet low, or in a pause.

    Low is below the low-water mark, by default three quarters of the target: agendas wait until
    then so that rounds are fewer and larger. Customers that are back from idleness are next in
    turn and should not wait for that, so until the target is reached each of them has a slot.

    Args:
        insight: Its target, low water and cap, and whether it is paused.
        depth: What is in flight already.
        target_depth: For an automatic target.
        idle_returners: How many customers are back from idleness, and next; asked only where it
            matters.
        cap: Another cap, see `in_flight_cap`; None for none.
    """
    if insight.paused:
        return 0
    aim = target(insight, target_depth)
    room = aim - depth.unclaimed
    for most in (insight.max_in_flight, cap):
        if most is not None:
            room = min(room, most - depth.in_flight)
    if room > 0 and depth.unclaimed >= (insight.low_water or aim - aim // 4):
        room = min(room, idle_returners())
    return max(0, room)


def in_flight_cap(insight: Insight, health: HealthCoefficient, *, usual: int) -> int | None:
    """Most that may be in flight: the cap times the health coefficient; None for no cap.

    Args:
        insight: Its cap, and whether it is paused.
        health: Of the insight.
        usual: Stands in for the cap of an insight that has none: what it had in flight when
            it was well.
    """
    if insight.paused:
        return 0
    if health.coefficient >= HEALTHY.coefficient:
        return insight.max_in_flight
    cap = insight.max_in_flight
    return scaled_cap(max(1, usual) if cap is None else cap, health)


def spread(keyed_partitions: Iterable[int], waiting: Sequence[int]) -> list[int]:
    """Partitions for agendas, in order: the home of each, unless fewer wait elsewhere.

    Costs O(log partitions) an agenda.

    Args:
        keyed_partitions: Of each agenda, the partition by its key. It goes there if no other
            has fewer, so that few agendas are spread evenly.
        waiting: By partition, how many are unclaimed there before the round; not empty.
    """
    counts = [*waiting]
    shortest = [(count, partition) for partition, count in enumerate(counts)]
    heapify(shortest)
    chosen: list[int] = []
    for home in keyed_partitions:
        while shortest[0][0] != counts[shortest[0][1]]:  # one that has grown since
            _, grown = shortest[0]
            heapreplace(shortest, (counts[grown], grown))
        least, partition = shortest[0]
        chosen.append(home if counts[home] == least else partition)
        counts[chosen[-1]] += 1
    return chosen
