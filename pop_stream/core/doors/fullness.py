"""When a scheduler has as much in memory as it may, and whose insights are to wait then."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pop_stream.core.events import CapacityLimit

_NEAR: Final = 0.9


@dataclass(frozen=True, slots=True)
class MemoryLoad:
    """What is in memory, or may be.

    Attributes:
        agendas: That have not ended.
        size: Bytes of their pages.
    """

    agendas: int
    size: int


def fullness(loads: Mapping[str, MemoryLoad], limit: MemoryLoad) -> Mapping[str, CapacityLimit]:
    """Which insights a scheduler is nearly or fully out of room for.

    Those that have an equal part of the room or more, so that a large backlog does not shut
    the door on small ones. As small ones grow to their part at most, the whole stays below
    twice the limit.

    Args:
        loads: By insight, of one scheduler.
        limit: Of all of them together.
    """
    found: dict[str, CapacityLimit] = {}
    busy = max(1, sum(load.agendas > 0 for load in loads.values()))
    agendas = sum(load.agendas for load in loads.values())
    size = sum(load.size for load in loads.values())
    if size >= _NEAR * limit.size:
        told = CapacityLimit(what="bytes", limit=limit.size, present=size)
        part = _NEAR * limit.size / busy
        found |= {one: told for one, load in loads.items() if load.size >= part}
    if agendas >= _NEAR * limit.agendas:
        told = CapacityLimit(what="agendas", limit=limit.agendas, present=agendas)
        for one, load in loads.items():
            known = found.get(one)
            is_large = load.agendas >= _NEAR * limit.agendas / busy
            if is_large and not (known is not None and known.is_full):
                found[one] = told
    return found
