"""Several insights of one resource pool in virtual time, side by side."""

from collections.abc import Callable, Iterable, Mapping
from math import inf

from pop_stream.core.gate.pools import pool_limits
from pop_stream.core.simulation.simulation import Simulation
from pop_stream.core.simulation.workload import Arrival, SimulationRun, SimulationConfig


def simulate_pool(
    works: Mapping[str, tuple[Iterable[Arrival], SimulationConfig]], capacity: int
) -> Mapping[str, SimulationRun]:
    """Run the work of all insights of a pool to its end.

    What has happened by an instant is heard by all before any of them emits, so the order of
    the insights makes no difference to who is given room.

    Args:
        works: By insight, arrivals and setting as for `simulate`; weight and minimum in the
            pool are those of the setting's insight.
        capacity: Agendas that all of them may have in flight together.

    Raises:
        ValueError: As `simulate`.
    """
    abreast: dict[str, Simulation] = {}

    def room_of(name: str) -> Callable[[float], int]:
        def room(now: float) -> int:
            found = pool_limits(
                capacity, [one.scheduler.pool_demand(now) for one in abreast.values()]
            )
            scheduler = abreast[name].scheduler
            return found[scheduler.backlog.insight.id] - scheduler.backlog.in_flight

        return room

    for name, (arrivals, config) in works.items():
        abreast[name] = Simulation(arrivals, config, room_of(name))
    while (at := min(one.next_instant() for one in abreast.values())) < inf:
        due = [one for one in abreast.values() if one.next_instant() <= at]
        have_heard = [one.advance_to(at) for one in due]
        if any(have_heard):
            for one in abreast.values():
                one.refill(at)
    return {name: one.result for name, one in abreast.items()}
