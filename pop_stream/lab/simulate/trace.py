"""The agendas of a trace, in columns so that millions of them fit in memory."""

import math
from array import array
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple

from pop_stream.lab.simulator.workload import Arrival
from pop_stream.model.ids import CustomerId

_NOT_DECLARED: Final = math.nan


class WeightChange(NamedTuple):
    """A customer's weight from an instant on, in every insight."""

    at: float
    customer_id: CustomerId
    weight: float


class TraceRow(NamedTuple):
    """One agenda of a trace.

    Attributes:
        submit_s: On any clock.
        runtime_s: Of each of its `copies`, which are alike.
        cost: Declared worker-seconds; None to have them learned.
        weight: Of its customer from this instant on; None leaves it as it is.
    """

    submit_s: float
    customer: str
    insight: str
    runtime_s: float
    cost: float | None
    priority: int
    weight: float | None
    fairness_key: str
    operation_type: str
    copies: int = 1

    @property
    def weight_changes(self) -> Sequence[WeightChange]:
        """Its customer's weight from then on, if the row has one."""
        if self.weight is None:
            return ()
        return (WeightChange(self.submit_s, CustomerId(self.customer), self.weight),)


class AgendaTrace:
    """The agendas of one insight; iterate as often as you like, once they are sorted.

    One takes 37 bytes, and each different name its own size once.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._ats = array("d")
        self._runtimes = array("d")
        self._costs = array("d")
        self._priorities = bytearray()
        self._customers = array("I")
        self._keys = array("I")
        self._types = array("I")

    def __len__(self) -> int:
        return len(self._ats)

    def __iter__(self) -> Iterator[Arrival]:
        names = self._names
        for at, customer, runtime, cost, kind, priority, key in zip(
            self._ats,
            self._customers,
            self._runtimes,
            self._costs,
            self._types,
            self._priorities,
            self._keys,
            strict=True,
        ):
            declared = None if math.isnan(cost) else cost
            owner = CustomerId(names[customer])
            yield Arrival(at, owner, runtime, declared, names[kind], priority, names[key])

    @property
    def begins_at(self) -> float:
        """The first instant; infinite if there is none."""
        return min(self._ats, default=math.inf)

    def add(self, row: TraceRow) -> None:
        """Add an agenda, or its copies, in any order."""
        declared = _NOT_DECLARED if row.cost is None else row.cost
        values = (
            row.submit_s,
            row.runtime_s,
            declared,
            row.priority,
            self._number(row.customer),
            self._number(row.fairness_key),
            self._number(row.operation_type or row.insight),
        )
        for column, value in zip(self._columns(), values, strict=True):
            for _ in range(row.copies):
                column.append(value)

    def _number(self, name: str) -> int:
        """Of a name; names recur in a trace."""
        found = self._numbers.setdefault(name, len(self._names))
        if found == len(self._names):
            self._names.append(name)
        return found

    def sort(self, *, begin: float) -> None:
        """Order by instant, counted from `begin` on; call it once, when all are added."""
        for index, at in enumerate(self._ats):
            self._ats[index] = at - begin
        if any(one > other for one, other in pairwise(self._ats)):
            order = sorted(range(len(self)), key=self._ats.__getitem__)
            for column in self._columns():
                for place, value in enumerate([column[index] for index in order]):
                    column[place] = value

    def _columns(self) -> Sequence[MutableSequence[Any]]:
        return (
            self._ats,
            self._runtimes,
            self._costs,
            self._priorities,
            self._customers,
            self._keys,
            self._types,
        )


def changes(weight_changes: Iterable[WeightChange], *, begin: float) -> list[WeightChange]:
    """Those that differ from the customer's weight before, in order, counted from `begin`."""
    known: dict[CustomerId, float] = {}
    found: list[WeightChange] = []
    for at, customer_id, weight in sorted(weight_changes, key=itemgetter(0)):
        if known.get(customer_id) != weight:
            known[customer_id] = weight
            found.append(WeightChange(at - begin, customer_id, weight))
    return found


DEFAULT_INSIGHT: Final = "work"
"""The insight of rows that name none."""
