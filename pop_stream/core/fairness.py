"""Which customer is next: start-time fair queueing over cost, decided at the last moment.

Every backlogged customer has a *start tag*, a point on a virtual clock that runs in
worker-seconds per unit of weight. The customer with the least tag is next; emitting an
agenda of cost c moves its tag by c / weight, at once, so running work counts. The virtual
time is the tag of the last pick. A customer that comes back from idleness starts at the
present virtual time: it has saved nothing up and owes nothing.

Source: Goyal, Vin and Cheng, "Start-time Fair Queuing", SIGCOMM 1996; with several agendas
outstanding at once, SFQ(D): Jin, Chase and Kaur, SIGMETRICS 2004. Unlike there, the tag is
the customer's and not the agenda's, so priorities and weights act on the whole backlog.

Entries are integers, smallest first; what they stand for is the caller's.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, nsmallest
from types import MappingProxyType
from typing import Final, Protocol

from pop_stream.core.definitions import AlgorithmName
from pop_stream.core.ids import CustomerId

REF_BITS: Final = 48
"""An entry's low bits are its place in the backlog, which is its age."""

_REF_MASK: Final = (1 << REF_BITS) - 1


class Algorithm(Protocol):
    """How customers of one insight take turns; pure, and small enough to plug in."""

    def entry(self, *, priority: int, resumed: bool, ref: int) -> int:
        """Where an agenda stands among its customer's own; smallest is first."""
        ...

    def turn(self, *, tag: float, head: int) -> float:
        """Where a customer stands among the backlogged; smallest is next."""
        ...

    def charge(self, *, cost: float, weight: float) -> float:
        """How far one agenda moves its customer's tag."""
        ...


class WeightedFair:
    """Equal worker-seconds per weight; inside a customer priority, started first, then age."""

    def entry(self, *, priority: int, resumed: bool, ref: int) -> int:
        """Priority, then resumed agendas, then age."""
        return (((priority << 1) | (not resumed)) << REF_BITS) | ref

    def turn(self, *, tag: float, head: int) -> float:  # the protocol's argument
        """The start tag."""
        return tag

    def charge(self, *, cost: float, weight: float) -> float:
        """Cost over weight."""
        return cost / weight


class RoundRobin(WeightedFair):
    """One agenda each in turn, whatever its cost or the customer's weight."""

    def charge(self, *, cost: float, weight: float) -> float:  # as above
        """Always one turn."""
        return 1.0


class Fifo:
    """Oldest first, over all customers and priorities."""

    def entry(self, *, priority: int, resumed: bool, ref: int) -> int:
        """Age alone."""
        return ref

    def turn(self, *, tag: float, head: int) -> float:  # as above
        """The age of the customer's oldest agenda."""
        return head

    def charge(self, *, cost: float, weight: float) -> float:
        """As weighted fair: not used for turns, but shown as what each has had."""
        return cost / weight


ALGORITHMS: Final[Mapping[AlgorithmName, Algorithm]] = MappingProxyType(
    {"weighted_fair": WeightedFair(), "round_robin": RoundRobin(), "fifo": Fifo()}
)


@dataclass(frozen=True, slots=True)
class Share:
    """What a customer may have of an insight.

    Attributes:
        weight: Relative to other backlogged customers, above 0.
        max_in_flight: Most agendas emitted and not settled; None for no cap.
        paused: Whether nothing of its backlog is emitted.
    """

    weight: float = 1.0
    max_in_flight: int | None = None
    paused: bool = False


class Flow:
    """One customer's backlog in one insight, and its place on the virtual clock."""

    __slots__ = ("_entries", "_withdrawn", "customer_id", "in_flight", "share", "stamp", "tag")

    def __init__(self, customer_id: CustomerId, share: Share, tag: float) -> None:
        self.customer_id = customer_id
        self.share = share
        self.tag = tag
        self.in_flight = 0
        self.stamp = 0
        self._entries: list[int] = []
        self._withdrawn: set[int] = set()

    @property
    def ready(self) -> int:
        """Agendas that wait."""
        return len(self._entries) - len(self._withdrawn)

    @property
    def held_by(self) -> str:
        """Why nothing of it can be picked: `paused`, `max_in_flight`, or empty."""
        if self.share.paused:
            return "paused"
        cap = self.share.max_in_flight
        return "max_in_flight" if cap is not None and self.in_flight >= cap else ""

    @property
    def is_eligible(self) -> bool:
        """Whether the next pick may be one of its agendas."""
        return self.ready > 0 and not self.held_by

    def head(self) -> int:
        """The entry that is next; only while `ready`."""
        while self._entries[0] in self._withdrawn:
            self._withdrawn.remove(heappop(self._entries))
        return self._entries[0]

    def push(self, entry: int) -> None:
        """Add a waiting agenda."""
        if entry in self._withdrawn:
            self._withdrawn.remove(entry)
        else:
            heappush(self._entries, entry)

    def fill(self, entries: list[int]) -> None:
        """Take over a whole backlog at once, in any order, instead of what was there."""
        heapify(entries)
        self._entries = entries
        self._withdrawn = set()

    def pop(self) -> int:
        """Take the entry that is next; only while `ready`."""
        self.head()
        return heappop(self._entries)

    def withdraw(self, entry: int) -> None:
        """Take out an agenda that was pushed and not popped, wherever it stands."""
        self._withdrawn.add(entry)


@dataclass(frozen=True, slots=True)
class Pick:
    """One agenda chosen.

    Attributes:
        ref: Its place in the backlog.
        charge: What it moved its customer's tag by, to be corrected when it settles.
    """

    customer_id: CustomerId
    ref: int
    cost: float
    charge: float


class FairQueue:
    """The backlogged customers of one insight, in the order of their turns.

    A pick costs O(log customers + log of that customer's backlog), with no further term in
    the size of the whole backlog. Deterministic: the same calls give the same picks; ties
    go by customer id.

    Args:
        algorithm: How customers take turns.
        share_of: The present share of a customer, asked when it is first heard of.
    """

    def __init__(self, algorithm: Algorithm, share_of: Callable[[CustomerId], Share]) -> None:
        self.algorithm = algorithm
        self.virtual_time = 0.0
        self._share_of = share_of
        self._flows: dict[CustomerId, Flow] = {}
        self._turns: list[tuple[float, CustomerId, int]] = []
        self._latest_tag = 0.0
        self._ready = 0
        self._in_flight = 0

    @property
    def ready(self) -> int:
        """Agendas that wait, of all customers."""
        return self._ready

    @property
    def in_flight(self) -> int:
        """Agendas emitted and not settled, of all customers."""
        return self._in_flight

    def flows(self) -> Iterator[Flow]:
        """All customers known, backlogged or not."""
        yield from self._flows.values()

    def flow(self, customer_id: CustomerId) -> Flow:
        """One customer's flow, made at the present virtual time if it is new."""
        flow = self._flows.get(customer_id)
        if flow is None:
            flow = Flow(customer_id, self._share_of(customer_id), self.virtual_time)
            self._flows[customer_id] = flow
        return flow

    def upcoming(self, most: int) -> list[Flow]:
        """About the next `most` customers, soonest first, without picking; O(most)."""
        soon = nsmallest(most, self._turns[: 4 * most])
        flows = ((self._flows.get(customer_id), stamp) for _, customer_id, stamp in soon)
        return [flow for flow, stamp in flows if flow is not None and flow.stamp == stamp]

    def push(self, customer_id: CustomerId, entry: int) -> None:
        """Add a waiting agenda; a customer that was idle joins at the present."""
        flow = self.flow(customer_id)
        was_eligible, old_head = flow.is_eligible, flow.head() if flow.ready else None
        flow.push(entry)
        self._ready += 1
        if not was_eligible:
            self._join(flow)
        elif old_head != flow.head():
            self._enqueue(flow)

    def pick(self, cost_of: Callable[[int], float]) -> Pick | None:
        """Choose the next agenda, or None if no customer has one that may go.

        Args:
            cost_of: Worker-seconds of the agenda with this ref, above 0.
        """
        flow = self._next()
        if flow is None:
            return None
        ref = flow.pop() & _REF_MASK
        cost = cost_of(ref)
        charge = self.algorithm.charge(cost=cost, weight=flow.share.weight)
        self.virtual_time = max(self.virtual_time, flow.tag)
        self._move(flow, charge)
        self._ready -= 1
        self._in_flight += 1
        flow.in_flight += 1
        if flow.is_eligible:
            self._enqueue(flow)
        return Pick(flow.customer_id, ref, cost, charge)

    def settle(self, customer_id: CustomerId, *, correction: float = 0.0) -> None:
        """An emitted agenda ended or came back; its slot is free.

        Args:
            customer_id: Whose agenda it was.
            correction: What to add to the tag: true charge less the one made at the pick.
        """
        flow = self.flow(customer_id)
        was_eligible = flow.is_eligible
        flow.in_flight -= 1
        self._in_flight -= 1
        if correction:
            self._move(flow, correction)
        if flow.is_eligible:
            if was_eligible:
                self._enqueue(flow)
            else:
                self._join(flow)
        self._end_busy_period()

    def withdraw(self, customer_id: CustomerId, entry: int) -> None:
        """Take a waiting agenda out of the backlog."""
        flow = self.flow(customer_id)
        flow.withdraw(entry)
        self._ready -= 1
        if flow.is_eligible:
            self._enqueue(flow)
        self._end_busy_period()

    def reshare(self) -> None:
        """Ask every customer's share anew; it acts on the standing backlog at the next pick."""
        for flow in self._flows.values():
            share = self._share_of(flow.customer_id)
            if share != flow.share:
                was_eligible = flow.is_eligible
                flow.share = share
                if flow.is_eligible and not was_eligible:
                    self._join(flow)

    def restore(
        self,
        *,
        virtual_time: float,
        tags: Mapping[CustomerId, float],
        entries: Mapping[CustomerId, list[int]],
        in_flight: Mapping[CustomerId, int],
    ) -> None:
        """Become what a queue with this state was, whatever it was before."""
        self.virtual_time = virtual_time
        self._flows = {}
        self._turns = []
        for customer_id in sorted({*tags, *entries, *in_flight}):
            flow = self.flow(customer_id)
            flow.tag = tags.get(customer_id, virtual_time)
            flow.in_flight = in_flight.get(customer_id, 0)
            flow.fill(entries.get(customer_id, []))
            if flow.is_eligible:
                self._enqueue(flow)
        self._latest_tag = max([virtual_time, *tags.values()])
        self._ready = sum(flow.ready for flow in self._flows.values())
        self._in_flight = sum(flow.in_flight for flow in self._flows.values())

    def forget_idle(self) -> None:
        """Drop idle customers that the virtual clock has passed: they rejoin at the present."""
        self._flows = {
            customer_id: flow
            for customer_id, flow in self._flows.items()
            if flow.ready or flow.in_flight or flow.tag > self.virtual_time
        }

    def _next(self) -> Flow | None:
        while self._turns:
            _, customer_id, stamp = heappop(self._turns)
            flow = self._flows.get(customer_id)
            if flow is not None and flow.stamp == stamp and flow.is_eligible:
                return flow
        return None

    def _join(self, flow: Flow) -> None:
        flow.tag = max(flow.tag, self.virtual_time)
        self._enqueue(flow)

    def _enqueue(self, flow: Flow) -> None:
        flow.stamp += 1
        turn = self.algorithm.turn(tag=flow.tag, head=flow.head())
        heappush(self._turns, (turn, flow.customer_id, flow.stamp))

    def _move(self, flow: Flow, by: float) -> None:
        flow.tag += by
        self._latest_tag = max(self._latest_tag, flow.tag)

    def _end_busy_period(self) -> None:
        """With nothing waiting and nothing running, all tags are the past (SFQ, rule 2)."""
        if not self._ready and not self._in_flight:
            self.virtual_time = max(self.virtual_time, self._latest_tag)
