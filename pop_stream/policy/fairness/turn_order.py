"""Whose turn is next: whoever was served least, counting what is out; customers and keys alike.

Each member of a `TurnOrder` has an `Account`: what was delivered to it, and what is reserved
for its agendas that are out. A member that comes back is lifted to the present, so idleness
earns nothing. Nothing here reads a clock.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from math import ulp
from typing import Final, NamedTuple

MICROSECONDS: Final = 1_000_000
"""What is reserved is counted in whole microseconds: sums of them have no rounding."""

_SLACK: Final = 64
"""Outdated keys that are tolerated before the heap is rebuilt."""


class Reservation(NamedTuple):
    """What an agenda that is out counts as, until it ends; in microseconds of a worker.

    Attributes:
        charged: Of the position of its customer and key: the larger of its estimate and of
            what it took up to its last heartbeat.
        sure: Part of that, for the present at which others join: without what its customer
            declared beyond its usual cost. Never more than `charged`.
    """

    charged: int
    sure: int

    def raised_to(self, elapsed_s: float) -> "Reservation":
        """The same once the agenda has taken so many seconds, at least."""
        elapsed = round(elapsed_s * MICROSECONDS)
        return Reservation(max(self.charged, elapsed), max(self.sure, elapsed))

    @property
    def outgrown_after_s(self) -> float:
        """When it is to be raised: once it is a tenth too small, and not before a second.

        So a long attempt is written down some twenty times for each tenfold of its time, and a
        short one not at all.
        """
        return max(1.0, 1.1 * self.sure / MICROSECONDS)


class Account:
    """What a customer, or one of its fairness keys, was given.

    Attributes:
        tag: Worker-seconds per weight that were delivered, on the scale of its turn order.
        charged: Sum over its agendas that are out; see `Reservation`.
        sure: Likewise.
        last: The `sure` part of the agenda emitted last, or what one took that has ended or
            had a heartbeat since, if that is more; in microseconds.
    """

    __slots__ = ("charged", "last", "sure", "tag")

    def __init__(self, tag: float = 0.0, last: int = 0) -> None:
        self.tag = tag
        self.last = last
        self.charged = 0
        self.sure = 0

    def position(self, weight: float) -> float:
        """Delivered and reserved per weight: the least is next."""
        return self.tag + self.charged / (MICROSECONDS * weight)

    def sure_position(self, weight: float) -> float:
        """The same without declared costs beyond the usual."""
        return self.tag + self.sure / (MICROSECONDS * weight)

    def reserve(self, agenda: Reservation) -> None:
        """An agenda goes out."""
        self.charged += agenda.charged
        self.sure += agenda.sure
        self.last = agenda.sure

    def replace(self, before: Reservation, after: Reservation) -> None:
        """An agenda that is out counts as more than before."""
        self.charged += after.charged - before.charged
        self.sure += after.sure - before.sure
        self.last = max(self.last, after.sure)

    def settle(self, agenda: Reservation, delivered_s: float, weight: float) -> None:
        """An agenda that was out has ended after so many worker-seconds; 0 for none."""
        self.charged -= agenda.charged
        self.sure -= agenda.sure
        if delivered_s:
            # Far out on the scale a small cost would vanish in rounding, and starve the others.
            self.tag += max(delivered_s / weight, ulp(self.tag))
            self.last = max(self.last, round(delivered_s * MICROSECONDS))

    def present(self, stored: float, weight: float) -> float:
        """Where others join while this one is first: about the start of its last agenda.

        Args:
            stored: The present as of the last pick.
            weight: Of this member.
        """
        here = self.sure_position(weight)
        return max(min(stored, here), here - self.last / (MICROSECONDS * weight))

    def reweigh(self, before: float, after: float, present: float) -> None:
        """Go on with another weight, as many worker-seconds ahead of the present as before."""
        self.tag = present + (self.tag - present) * (before / after)

    def lift(self, present: float, weight: float) -> None:
        """Come back at the present: what was not asked for is not owed."""
        self.tag = max(self.tag, present - self.sure / (MICROSECONDS * weight))


class KeyedHeap:
    """Names by key, least first, ties by name; each has one key, the last it was given.

    A heap in which outdated keys stay until they come up or outnumber the others, so that
    every call costs O(log names), spread over the calls.
    """

    __slots__ = ("_heap", "_number", "_valid")

    def __init__(self) -> None:
        self._heap: list[tuple[float, str, int]] = []
        self._valid: dict[str, int] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._valid)

    def __contains__(self, name: str) -> bool:
        return name in self._valid

    def __iter__(self) -> Iterator[str]:
        """All of them, in no order; none may be put or dropped meanwhile."""
        return iter(self._valid)

    def put(self, name: str, key: float) -> None:
        """Give a name its key, in place of any it had."""
        self._number += 1
        self._valid[name] = self._number
        heappush(self._heap, (key, name, self._number))
        if len(self._heap) > 4 * len(self._valid) + _SLACK:
            self._heap = [turn for turn in self._heap if self._is_valid(turn)]
            heapify(self._heap)

    def drop(self, name: str) -> None:
        """Take a name out, if it is in."""
        self._valid.pop(name, None)

    def first(self) -> tuple[float, str] | None:
        """The least key and its name; None if there is none."""
        heap, valid = self._heap, self._valid
        while heap:
            key, name, number = heap[0]
            if valid.get(name) == number:
                return key, name
            heappop(heap)
        return None

    def soonest(self, most: int) -> list[str]:
        """About the first `most`, in order; O(most)."""
        some = filter(self._is_valid, sorted(self._heap[: 4 * most]))
        return [name for _, name, _ in islice(some, most)]

    def up_to(self, key: float, most: int) -> list[str]:
        """Those with this key or a lesser one, at most `most`, in no order; O(most)."""
        heap, found, open_ = self._heap, list[str](), [0]
        while open_ and len(found) < most:
            index = open_.pop()
            if index < len(heap) and heap[index][0] <= key:
                if self._is_valid(heap[index]):
                    found.append(heap[index][1])
                open_ += (2 * index + 1, 2 * index + 2)
        return found

    def _is_valid(self, turn: tuple[float, str, int]) -> bool:
        _, name, number = turn
        return self._valid.get(name) == number
