"""How customers of one insight take turns: implementations of one small, pure interface."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from pop_stream.model.definitions import AlgorithmName
from pop_stream.policy.fairness.customer_queue import entry_of, ref_in


class FairnessAlgorithm(Protocol):
    """How customers of one insight take turns; three pure functions.

    Attributes:
        by_age: Whether agendas go by age alone, over all customers and fairness keys; else
            customers take turns by tag, and the keys of one among themselves.
        by_weight: Whether a charge is over the weight.
    """

    by_age: bool
    by_weight: bool

    def entry(self, *, priority: int, resumed: bool, rank: int, ref: int) -> int:
        """The entry of an agenda in its customer's queue; smallest is first."""
        ...

    def turn(self, *, tag: float, head: int) -> float:
        """The key of a customer among those that may go; smallest is next."""
        ...

    def charge(self, *, cost: float, weight: float) -> float:
        """How far one agenda moves its customer's tag; above 0."""
        ...

    def correction(self, *, spent: float, cost: float, charge: float) -> float:
        """What to add to that once the true cost is known."""
        ...


class WeightedFair:
    """Equal worker-seconds per weight; inside a customer the order of `customer_queue`."""

    by_age = False
    by_weight = True

    def entry(self, *, priority: int, resumed: bool, rank: int, ref: int) -> int:
        """Priority, then resumed agendas, then rank, then age."""
        return entry_of(priority=priority, resumed=resumed, rank=rank, ref=ref)

    def turn(self, *, tag: float, head: int) -> float:
        """The start tag."""
        del head
        return tag

    def charge(self, *, cost: float, weight: float) -> float:
        """Cost over weight."""
        return cost / weight

    def correction(self, *, spent: float, cost: float, charge: float) -> float:
        """The difference, over the weight that the charge was made with."""
        return (spent - cost) * (charge / cost)


class RoundRobin(WeightedFair):
    """One agenda each in turn, whatever its cost or the customer's weight."""

    by_weight = False

    def charge(self, *, cost: float, weight: float) -> float:
        """Always one turn."""
        del cost, weight
        return 1.0

    def correction(self, *, spent: float, cost: float, charge: float) -> float:
        """None: a turn is a turn."""
        del spent, cost, charge
        return 0.0


class Fifo(WeightedFair):
    """Oldest first, over all customers, priorities, ranks and keys."""

    by_age = True

    def entry(self, *, priority: int, resumed: bool, rank: int, ref: int) -> int:
        """Age alone."""
        del priority, resumed, rank
        return entry_of(priority=1, resumed=False, rank=0, ref=ref)

    def turn(self, *, tag: float, head: int) -> float:
        """The age of the customer's oldest agenda; exact, as a place is below 2**53."""
        del tag
        return float(ref_in(head))


ALGORITHMS: Final[Mapping[AlgorithmName, FairnessAlgorithm]] = MappingProxyType(
    {"weighted_fair": WeightedFair(), "round_robin": RoundRobin(), "fifo": Fifo()}
)
