"""How far two customers' service drifted apart, and how far it may.

While two customers stay backlogged and weigh the same, what each was given by completed
agendas, in worker-seconds per weight, should grow alike. The gap of an interval is the
difference of the two growths; the worst over all intervals is the largest less the smallest
value that their difference took, which is kept up to date with every completion.

Bound: (D + 1) (c_f + c_g) + D (e_f + e_g). D is the most agendas that were out at once, c the
largest reservation of an agenda over any weight its customer had since, e the most by which
one of that customer's took more than was reserved, and the most by which one took less. No
third customer is in it. With true costs e is 0, and this is the bound of SFQ(D): Jin, Chase
and Kaur, SIGMETRICS 2004.

Why: the position p of a customer is what was delivered to it and what is reserved for its
agendas that are out, over its weight. So what f was given by completions in an interval is how
far p moved, and what was reserved at the beginning, less what is reserved at the end. For f
less g:

- What is reserved, for f at the beginning and for g at the end, is at most D (c_f + c_g).
- f is picked only while its p is not above g's. Then it passes g's by c_f, and with each of
  the D out by what that takes more, or what one of g's takes less than was reserved.
- At the beginning, p of g may be as far ahead of f's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from pop_stream.model.ids import CustomerId


@dataclass(frozen=True, slots=True)
class Gap:
    """The worst gap of two customers, in worker-seconds per weight.

    Attributes:
        ahead: Who was given more.
        bound: What it may be at most.
    """

    ahead: CustomerId
    behind: CustomerId
    seconds: float
    bound: float

    @property
    def over_bound(self) -> float:
        """The gap over its bound; above 1 the bound was broken."""
        return self.seconds / self.bound if self.seconds else 0.0


class GapTracker:
    """The worst gap of all pairs of some customers; O(those backlogged) per event.

    Args:
        audited: Indices of the customers to look at; others are ignored.
    """

    def __init__(self, audited: Iterable[int]) -> None:
        self._slots = {customer: slot for slot, customer in enumerate(audited)}
        count = len(self._slots)
        self._served = [0.0] * count
        self._charges = [0.0] * count
        self._shortfalls = [0.0] * count
        self._largest = [(0.0, 0.0, 0.0)] * count
        self._excesses = [0.0] * count
        self._least = [[inf] * count for _ in range(count)]
        self._worst = [[0.0] * count for _ in range(count)]
        self._backlogged: set[int] = set()

    def join(self, customer: int) -> None:
        """The customer is backlogged from now on: intervals with the others begin."""
        slot = self._slots.get(customer)
        if slot is None:
            return
        served = self._served
        for other in self._backlogged:
            self._least[slot][other] = served[slot] - served[other]
            self._least[other][slot] = served[other] - served[slot]
        self._backlogged.add(slot)

    def leave(self, customer: int) -> None:
        """The customer is not backlogged any more: its intervals end."""
        self._backlogged.discard(self._slots.get(customer, -1))

    def charge(
        self, customer: int, *, charged: float, spent: float, weight: float = 1.0
    ) -> None:
        """An agenda was emitted by this weight; both costs are in worker-seconds."""
        slot = self._slots.get(customer)
        if slot is not None:
            cost, short, excess = self._largest[slot]
            self._largest[slot] = (
                max(cost, charged),
                max(short, spent - charged),
                max(excess, charged - spent),
            )
            self._scale(slot, weight)

    def reweigh(self, customer: int, weight: float) -> None:
        """The customer has another weight: its intervals begin again, its lead is scaled."""
        slot = self._slots.get(customer)
        if slot is None:
            return
        self._scale(slot, weight)
        if slot in self._backlogged:
            self.leave(customer)
            self.join(customer)

    def serve(self, customer: int, spent: float) -> None:
        """An agenda ended, having cost so much over its weight."""
        slot = self._slots.get(customer)
        if slot is None:
            return
        self._served[slot] += spent
        if slot not in self._backlogged:
            return
        served, mine = self._served, self._served[slot]
        least, worst = self._least[slot], self._worst[slot]
        for other in self._backlogged:
            ahead = mine - served[other]
            if ahead - least[other] > worst[other]:  # noqa: PLR1730  # a call costs twice as much
                worst[other] = ahead - least[other]
            if -ahead < self._least[other][slot]:  # noqa: PLR1730  # and this is the inner loop
                self._least[other][slot] = -ahead

    def worst(self, customers: list[CustomerId], depth: int) -> Gap | None:
        """The pair whose gap is largest over its bound; None if no two were backlogged.

        Args:
            customers: By index.
            depth: Most agendas that were out at once.
        """
        return max(
            (
                Gap(
                    ahead=customers[ahead],
                    behind=customers[behind],
                    seconds=self._worst[slot][other],
                    bound=self._bound(slot, other, depth),
                )
                for ahead, slot in self._slots.items()
                for behind, other in self._slots.items()
                if slot != other and self._least[slot][other] < inf
            ),
            key=lambda gap: gap.over_bound,
            default=None,
        )

    def _bound(self, ahead: int, behind: int, depth: int) -> float:
        charges = self._charges[ahead] + self._charges[behind]
        errors = self._error(ahead) + self._error(behind)
        return (depth + 1) * charges + depth * errors

    def _error(self, slot: int) -> float:
        return self._shortfalls[slot] + self._excesses[slot]

    def _scale(self, slot: int, weight: float) -> None:
        """The largest so far count over this weight, from now on and for what is out."""
        cost, short, excess = self._largest[slot]
        self._charges[slot] = max(self._charges[slot], cost / weight)
        self._shortfalls[slot] = max(self._shortfalls[slot], short / weight)
        self._excesses[slot] = max(self._excesses[slot], excess / weight)
