"""To which partition of its topic each agenda of a round goes: where the fewest wait.

A partition has one puller. By key alone it gets its part of the records whatever that puller is
busy with: one that runs long agendas is sent as much as the others, what it cannot take fills
the insight's depth, and the others' runners stand idle. Joining the shortest queue keeps
them busy: Winston, "Optimality of the Shortest Line Discipline", Journal of Applied
Probability 1977.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heapreplace


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
