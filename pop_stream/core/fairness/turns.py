"""Whose turn comes next: customers in the order of a key that may change at any time."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, Generic, TypeVar

from pop_stream.core.values.ids import CustomerId

K = TypeVar("K", float, tuple[int, float])

_PAIR: Final = 2
_SLACK: Final = 64
"""Outdated keys that are borne before they are looked for."""


class KeyedHeap(Generic[K]):
    """Customers by key, least first, ties by id; each has one key, the last it was given.

    A heap in which outdated keys stay until they come up or outnumber the others, so that
    every call costs O(log customers), spread over the calls.
    """

    __slots__ = ("_heap", "_number", "_valid")

    def __init__(self) -> None:
        self._heap: list[tuple[K, CustomerId, int]] = []
        self._valid: dict[CustomerId, int] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._valid)

    def __iter__(self) -> Iterator[CustomerId]:
        """All of them, in no order; none may be put or dropped meanwhile."""
        return iter(self._valid)

    def put(self, customer_id: CustomerId, key: K) -> None:
        """Give a customer its key, in place of any it had."""
        self._number += 1
        self._valid[customer_id] = self._number
        heappush(self._heap, (key, customer_id, self._number))
        if len(self._heap) > 4 * len(self._valid) + _SLACK:
            self._heap = [turn for turn in self._heap if self._is_valid(turn)]
            heapify(self._heap)

    def drop(self, customer_id: CustomerId) -> None:
        """Take a customer out, if it is in."""
        self._valid.pop(customer_id, None)

    def first(self) -> tuple[K, CustomerId] | None:
        """The least key and its customer; None if there is none."""
        heap = self._heap
        while heap and not self._is_valid(heap[0]):
            heappop(heap)
        return heap[0][:2] if heap else None

    def pop(self) -> tuple[K, CustomerId] | None:
        """The same, taken out."""
        heap, valid = self._heap, self._valid
        while heap:
            key, customer_id, number = heappop(heap)
            if valid.get(customer_id) == number:
                del valid[customer_id]
                return key, customer_id
        return None

    def only_other(self, than: CustomerId) -> CustomerId | None:
        """The other one, if this customer and just one more have a key."""
        if len(self._valid) != _PAIR or than not in self._valid:
            return None
        return next(one for one in self._valid if one != than)

    def soonest(self, most: int) -> list[CustomerId]:
        """About the first `most`, in order; O(most)."""
        some = filter(self._is_valid, sorted(self._heap[: 4 * most]))
        return [customer_id for _, customer_id, _ in islice(some, most)]

    def up_to(self, key: K, most: int) -> list[CustomerId]:
        """Those with this key or a lesser one, at most `most`, in no order; O(most)."""
        heap, found, open_ = self._heap, list[CustomerId](), [0]
        while open_ and len(found) < most:
            index = open_.pop()
            if index < len(heap) and heap[index][0] <= key:
                if self._is_valid(heap[index]):
                    found.append(heap[index][1])
                open_ += (2 * index + 1, 2 * index + 2)
        return found

    def _is_valid(self, turn: tuple[K, CustomerId, int]) -> bool:
        _, customer_id, number = turn
        return self._valid.get(customer_id) == number
