"""How customers of one insight take turns: implementations of one small, pure interface."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from pop_stream.model.definitions import AlgorithmName
from pop_stream.policy.fairness.customer_queue import entry_of, ref_in


class FairnessAlgorithm(Protocol):
    """How customers of one insight take turns; pure functions.

    Attributes:
        by_age: Whether agendas go by age alone, over all customers and fairness keys; else
            whoever was served least is next, and likewise the keys of one customer.
        by_turns: Whether an agenda counts as one worker-second whatever it takes, and all
            customers weigh the same.
    """

    by_age: bool
    by_turns: bool

    def entry(self, *, priority: int, resumed: bool, rank: int, ref: int) -> int:
        """The entry of an agenda in its customer's queue; smallest is first."""
        ...

    def turn(self, *, position: float, head: int) -> float:
        """The key of a customer among those that may go; smallest is next."""
        ...


class WeightedFair:
    """Equal worker-seconds per weight; inside a customer the order of `customer_queue`."""

    by_age = False
    by_turns = False

    def entry(self, *, priority: int, resumed: bool, rank: int, ref: int) -> int:
        """Priority, then resumed agendas, then rank, then age."""
        return entry_of(priority=priority, resumed=resumed, rank=rank, ref=ref)

    def turn(self, *, position: float, head: int) -> float:
        """What was delivered and is reserved, per weight."""
        del head
        return position


class RoundRobin(WeightedFair):
    """One agenda each in turn, whatever its cost or the customer's weight."""

    by_turns = True


class Fifo(WeightedFair):
    """Oldest first, over all customers, priorities, ranks and keys."""

    by_age = True

    def entry(self, *, priority: int, resumed: bool, rank: int, ref: int) -> int:
        """Age alone."""
        del priority, resumed, rank
        return entry_of(priority=1, resumed=False, rank=0, ref=ref)

    def turn(self, *, position: float, head: int) -> float:
        """The age of the customer's oldest agenda; exact, as a place is below 2**53."""
        del position
        return float(ref_in(head))


ALGORITHMS: Final[Mapping[AlgorithmName, FairnessAlgorithm]] = MappingProxyType(
    {"weighted_fair": WeightedFair(), "round_robin": RoundRobin(), "fifo": Fifo()}
)
