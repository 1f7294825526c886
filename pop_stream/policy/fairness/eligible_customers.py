"""The customers that may go, in the order of their turns, and those that must wait."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from typing import Final, Generic, TypeVar

from pop_stream.model.ids import CustomerId
from pop_stream.policy.fairness.algorithms import FairnessAlgorithm
from pop_stream.policy.fairness.customer_queue import ref_in
from pop_stream.policy.fairness.flow import LEVELS, Aging, Flow
from pop_stream.policy.fairness.virtual_clock import TOP_LEVEL, VirtualClock

K = TypeVar("K", float, tuple[int, float])

_PAIR: Final = 2
_SLACK: Final = 64
"""Outdated keys that are tolerated before the heap is rebuilt."""


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


MAX_IDLE_RETURNERS: Final = 64
"""Most returners that are counted: more than one round needs to serve at once."""


class EligibleCustomers:
    """Who is next, at what virtual time; every call costs O(log customers).

    A customer that may go has a turn: most urgent first, then by the algorithm. One whose rate
    limit has no token left is delayed at once until it has one. Were it delayed only when its
    turn comes, that would depend on rounds that choose nothing, which are not on record, and a
    replay would differ. One whose agendas become more urgent gets a new turn when they do.

    Args:
        algorithm: How customers take turns.
        aging: For strict priority across customers; None for none.
        flows: All customers; only looked up here.
        times: Of the virtual clock, to go on from.
    """

    def __init__(
        self,
        algorithm: FairnessAlgorithm,
        aging: Aging | None,
        flows: Mapping[CustomerId, Flow],
        times: Sequence[float] = (0.0,),
    ) -> None:
        self.clock = VirtualClock(1 if aging is None else LEVELS, times)
        self._algorithm = algorithm
        self._aging = aging
        self._flows = flows
        self._heap = KeyedHeap[tuple[int, float]]()
        self._dues = KeyedHeap[float]()
        self._held = OrderedDict[CustomerId, None]()

    @property
    def due_at(self) -> float | None:
        """When a rate limit lets one go on, or one becomes more urgent; None for never."""
        due = self._dues.first()
        return None if due is None else due[0]

    def may_pick(self, now: float) -> bool:
        """Whether `next` could find one after `due`; True may turn out wrong, False never."""
        due_at = self.due_at
        return bool(self._heap) or (due_at is not None and due_at <= now)

    def soonest(self, most: int) -> list[Flow]:
        """About the next `most` customers, soonest first; O(most)."""
        return [self._flows[customer_id] for customer_id in self._heap.soonest(most)]

    def held(self, most: int) -> list[Flow]:
        """Up to `most` with agendas that wait and may not go, longest held first; O(most)."""
        return [self._flows[customer_id] for customer_id in islice(self._held, most)]

    def idle_returners(self, in_flight: int) -> int:
        """How many owe nothing and have little out: back from idleness, and next.

        One that stays backlogged is ahead by its last charge, unless others tie with it or what
        it had out cost less than it was charged; but then it has its part out. Little is less
        than three quarters of an equal part of `in_flight`, all that is out. Up to
        `MAX_IDLE_RETURNERS`; none if agendas go by age alone.
        """
        if self._algorithm.by_age:
            return 0
        least = self._heap.up_to((TOP_LEVEL, self.clock.at(TOP_LEVEL)), MAX_IDLE_RETURNERS)
        parts = 4 * len(self._heap)
        return sum(self._flows[one].in_flight * parts < 3 * in_flight for one in least)

    def eligible_count(self, most: int, now: float) -> int:
        """How many agendas could be picked now, up to `most`; O(most).

        Customers that have just run out of tokens are looked at too, until a pick delays them.
        """
        rested = (
            one for one in self._dues.up_to(now, most) if self._flows[one].is_rate_limited
        )
        count = 0
        for customer_id in chain(self._heap, rested):
            if count >= most:
                break
            count += self._flows[customer_id].eligible_count(now)
        return min(count, most)

    def least(self, level: int) -> float | None:
        """The least tag of those who may go, if turns go by tag and none is more urgent."""
        first = None if self._algorithm.by_age else self._heap.first()
        if first is None or first[0][0] != level:
            return None
        return self._flows[first[1]].tag

    def incumbent(self, joining: Flow) -> Flow | None:
        """Who had all turns of a level to itself until this customer joined without debt."""
        other = self._heap.only_other(joining.customer_id)
        if other is None or joining.tag > self.clock.at(joining.level):
            return None
        flow = self._flows[other]
        return flow if flow.level == joining.level else None

    def advance_with_minimum(self, level: int, was_least: float | None) -> None:
        """Move the present of a level on with its least tag, which a correction moved on.

        Else a customer that joins would be ahead of all others by what their agendas turned out
        to cost more.

        Args:
            level: Of the customer whose tag was moved on.
            was_least: What `least` said before; None if the present is not to move.
        """
        if was_least is not None and (least := self.least(level)) is not None:
            # Not past it by a rounding: who goes on from here would raise it to the present.
            self.clock.advance(level, min(least, self.clock.at(level) + least - was_least))

    def update(self, flow: Flow, now: float) -> bool:
        """Give a customer its turn, or none if it may not go; called after every change of it.

        One that had none, or comes to another level, starts at the present at the earliest. So
        where turns go by tag, nobody who may go is behind the virtual time of its level.

        Returns:
            Whether its tag was raised to the present.
        """
        is_eligible = flow.is_eligible
        if is_eligible and (token_at := flow.token_at(now)) > now:
            flow.is_rate_limited, is_eligible = True, False
            self._dues.put(flow.customer_id, token_at)
        if not is_eligible:
            flow.level = 0
            self._heap.drop(flow.customer_id)
            self._hold(flow)
            return False
        self._held.pop(flow.customer_id, None)
        before = flow.level
        flow.level, head = self.urgency_and_head(flow, now)
        present = self.clock.at(flow.level)
        is_behind = flow.level != before and flow.tag < present
        if is_behind:
            flow.tag = present
        turn = self._algorithm.turn(tag=flow.tag, head=head)
        self._heap.put(flow.customer_id, (flow.level, turn))
        if self._aging is not None:
            self._watch(flow, self._aging, now)
        return is_behind

    def urgency_and_head(self, flow: Flow, now: float) -> tuple[int, int]:
        """How urgent a customer is now, and with which of its entries."""
        if self._aging is None:
            return TOP_LEVEL, flow.customer_queue.head()
        return self._aging.most_urgent(flow.customer_queue.heads(), now)

    def next(self) -> Flow | None:
        """Take the turn of the customer that is next."""
        turn = self._heap.pop()
        return None if turn is None else self._flows[turn[1]]

    def due(self, now: float) -> Iterator[Flow]:
        """Those whose instant has come; `update` each before the next is taken."""
        while (due := self._dues.first()) is not None and due[0] <= now:
            self._dues.drop(due[1])
            flow = self._flows[due[1]]
            flow.is_rate_limited = False
            yield flow

    def forget(self, customer_id: CustomerId) -> None:
        """Forget a customer that has nothing waiting."""
        self._dues.drop(customer_id)

    def _hold(self, flow: Flow) -> None:
        """Remember one that may not go, if anything of it waits."""
        if flow.ready:
            self._held[flow.customer_id] = None
        else:
            self._held.pop(flow.customer_id, None)

    def _watch(self, flow: Flow, aging: Aging, now: float) -> None:
        """Set the instant at which the first of its agendas becomes more urgent."""
        rises = (
            aging.changes_at(priority, ref_in(head), now)
            for priority, head in flow.customer_queue.heads()
        )
        soonest = min((at for at in rises if at is not None), default=None)
        if soonest is None:
            self._dues.drop(flow.customer_id)
        else:
            self._dues.put(flow.customer_id, soonest)
