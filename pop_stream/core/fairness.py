"""Which customer is next: start-time fair queueing over cost, decided at the last moment.

Every backlogged customer has a *start tag*, a point on a virtual clock that runs in
worker-seconds per unit of weight. The customer with the least tag is next; emitting an
agenda of cost c moves its tag by c / weight, at once, so running work counts. The virtual
time is the tag of the last pick. A customer that comes back from idleness, a pause or a cap
starts at the present virtual time: it has saved nothing up and owes nothing.

Source: Goyal, Vin and Cheng, "Start-time Fair Queuing", SIGCOMM 1996; with several agendas
outstanding at once, SFQ(D): Jin, Chase and Kaur, SIGMETRICS 2004. Unlike there, the tag is
the customer's and not the agenda's, so priorities and weights act on the whole backlog.

Bound: while customers f and g are both backlogged, what they were given by emission differs
by at most c_f / w_f + c_g / w_g (c the largest cost, w the weight), and what they were given
by completion, with at most D agendas out, by at most D + 1 times that.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, nsmallest
from math import ulp
from typing import Final

from pop_stream.core.algorithms import Algorithm
from pop_stream.core.delta import Tags
from pop_stream.core.flow import Aging, Flow, Share
from pop_stream.core.ids import CustomerId
from pop_stream.core.line import ref_in

_SLACK: Final = 64
"""Outdated turns that are borne before they are looked for."""


@dataclass(frozen=True, slots=True)
class Pick:
    """One agenda chosen.

    Attributes:
        ref: Its place in the backlog.
        cost: Worker-seconds it was taken to cost.
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
    go by customer id. Instants are seconds on any clock that does not go back.

    Args:
        algorithm: How customers take turns.
        share_of: The present share of a customer, asked when it is first heard of.
        aging: For strict priority across customers; None for none.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        share_of: Callable[[CustomerId], Share],
        aging: Aging | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.aging = aging
        self.virtual_time = 0.0
        self._share_of = share_of
        self._flows: dict[CustomerId, Flow] = {}
        self._turns: list[tuple[int, float, CustomerId, int]] = []
        self._due: list[tuple[float, CustomerId, int]] = []
        self._stamp = 0
        self._now = 0.0
        self._ready = 0
        self._in_flight = 0
        self._moved: set[CustomerId] = set()
        self._largest_charge = 0.0

    @property
    def ready(self) -> int:
        """Agendas that wait, of all customers."""
        return self._ready

    @property
    def in_flight(self) -> int:
        """Agendas emitted and not settled, of all customers."""
        return self._in_flight

    @property
    def due_at(self) -> float | None:
        """When a customer that must wait may go on, or one moves up; None for never."""
        return self._due[0][0] if self._due else None

    def may_pick(self, now: float) -> bool:
        """Whether a pick could choose one: False is certain, True is a hope."""
        return bool(self._turns) or (self.due_at is not None and self.due_at <= now)

    def flows(self) -> Iterator[Flow]:
        """All customers known, backlogged or not."""
        yield from self._flows.values()

    def flow(self, customer_id: CustomerId) -> Flow:
        """One customer's flow, made at the present virtual time if it is new."""
        flow = self._flows.get(customer_id)
        if flow is None:
            flow = Flow(customer_id, self._share_of(customer_id), self.virtual_time)
            self._flows[customer_id] = flow
            self._moved.add(customer_id)
        return flow

    def upcoming(self, most: int) -> list[Flow]:
        """About the next `most` customers, soonest first, without picking; O(most)."""
        soon = nsmallest(most, self._turns[: 4 * most])
        flows = ((self._flows.get(customer_id), stamp) for *_, customer_id, stamp in soon)
        return [flow for flow, stamp in flows if flow is not None and flow.stamp == stamp]

    def spread(self) -> float:
        """Widest difference of tags among customers that could be picked; O(customers)."""
        tags = [flow.tag for flow in self._flows.values() if flow.is_eligible]
        return max(tags) - min(tags) if tags else 0.0

    def bound(self) -> float:
        """What `spread` cannot exceed with as many out as now; see the module."""
        return 2 * (self._in_flight + 1) * self._largest_charge

    def push(self, customer_id: CustomerId, entry: int, key: str = "") -> None:
        """Add a waiting agenda; a customer that was idle joins at the present."""
        flow = self.flow(customer_id)
        was_eligible = flow.is_eligible
        old_head = flow.line.head() if was_eligible else None
        flow.line.push(entry, key if self.algorithm.by_key else "")
        self._moved.add(customer_id)
        self._ready += 1
        if not was_eligible:
            self._join(flow)
        elif self.aging is not None or old_head != flow.line.head():
            self._enqueue(flow)

    def pick(self, cost_of: Callable[[int], float], now: float = 0.0) -> Pick | None:
        """Choose the next agenda, or None if no customer has one that may go.

        Args:
            cost_of: Worker-seconds of the agenda with this ref, above 0.
            now: The present instant, in seconds.
        """
        self._now = max(self._now, now)
        self._release()
        flow = self._next()
        if flow is None:
            return None
        entry = self._head(flow)
        flow.line.pop(entry, cost_of)
        flow.take_token(self._now)
        ref = ref_in(entry)
        self.virtual_time = max(self.virtual_time, flow.tag)
        return self._emit(flow, ref, cost_of(ref))

    def take(self, customer_id: CustomerId, entry: int, key: str = "", *, cost: float) -> Pick:
        """Count a waiting agenda as picked, out of turn: others have seen that it was."""
        flow = self.flow(customer_id)
        flow.line.withdraw(entry, key if self.algorithm.by_key else "")
        return self._emit(flow, ref_in(entry), cost)

    def _emit(self, flow: Flow, ref: int, cost: float) -> Pick:
        charge = self.algorithm.charge(cost=cost, weight=flow.share.weight)
        # Far out on the clock a small charge would vanish in rounding, and starve the others.
        self._move(flow, max(charge, ulp(flow.tag)))
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
            is_present = was_eligible and flow.tag >= self.virtual_time
            self._move(flow, correction)
            if is_present:
                # Else newcomers join where the estimate led, and wait for others to get there.
                self.virtual_time = min(self.virtual_time, flow.tag)
        if not was_eligible:
            self._join(flow)
        elif correction:
            self._enqueue(flow)
        self._end_busy_period()

    def withdraw(self, customer_id: CustomerId, entry: int, key: str = "") -> None:
        """Take a waiting agenda out of the backlog."""
        flow = self.flow(customer_id)
        flow.line.withdraw(entry, key if self.algorithm.by_key else "")
        self._moved.add(customer_id)
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
                flow.is_parked = False
                if not was_eligible:
                    self._join(flow)
                elif flow.is_eligible:
                    self._enqueue(flow)

    def restore(
        self,
        *,
        virtual_time: float,
        tags: Mapping[CustomerId, Tags],
        entries: Mapping[CustomerId, Mapping[str, list[int]]],
        in_flight: Mapping[CustomerId, int],
    ) -> None:
        """Become what a queue with this state was; only for a new queue.

        Args:
            virtual_time: As it was.
            tags: Of every customer that was not idle, or ahead of the virtual time.
            entries: What waits, by customer and fairness key.
            in_flight: What is out, by customer.
        """
        self.virtual_time = virtual_time
        for customer_id in sorted({*tags, *entries, *in_flight}):
            flow = self.flow(customer_id)
            flow.in_flight = in_flight.get(customer_id, 0)
            self._restore_tags(flow, tags.get(customer_id, Tags(tag=virtual_time)))
            flow.line.fill(entries.get(customer_id, {}))
            self._ready += flow.ready
            self._in_flight += flow.in_flight
            if self.aging is None:
                # Only one that became eligible unheard of is behind the present.
                self._join(flow)
            elif flow.is_eligible:
                self._enqueue(flow)

    def take_moved(self) -> dict[str, Tags]:
        """Where customers and keys are that moved since the last call."""
        moved, self._moved = self._moved, set()
        flows = (self._flows.get(customer_id) for customer_id in moved)
        return {flow.customer_id: _tags(flow, flow.line.take_moved()) for flow in flows if flow}

    def all_tags(self) -> dict[str, Tags]:
        """Where all customers and keys are, for `restore`."""
        return {flow.customer_id: _tags(flow, flow.line.tags) for flow in self._flows.values()}

    def forget_idle(self) -> None:
        """Drop idle customers that the virtual clock has passed: they rejoin at the present."""
        self._flows = {
            customer_id: flow
            for customer_id, flow in self._flows.items()
            if flow.ready
            or flow.in_flight
            or flow.tag > self.virtual_time
            or not flow.is_rested(self._now)
        }
        for flow in self._flows.values():
            flow.line.forget_idle_keys()

    def _next(self) -> Flow | None:
        """The eligible customer whose turn it is; those without a token are parked."""
        while self._turns:
            *_, customer_id, stamp = heappop(self._turns)
            flow = self._flows.get(customer_id)
            if flow is None or flow.stamp != stamp or not flow.is_eligible:
                continue
            token_at = flow.token_at(self._now)
            if token_at <= self._now:
                return flow
            flow.is_parked = True
            heappush(self._due, (token_at, customer_id, stamp))
        return None

    def _release(self) -> None:
        """Let those go on whose token has come, and move up those that waited a step."""
        while self._due and self._due[0][0] <= self._now:
            _, customer_id, stamp = heappop(self._due)
            flow = self._flows.get(customer_id)
            if flow is None or flow.stamp != stamp:
                continue
            if flow.is_parked:
                flow.is_parked = False
                self._join(flow)
            elif flow.is_eligible:
                self._enqueue(flow)

    def _join(self, flow: Flow) -> None:
        """Back among the eligible, if it is one, at the present."""
        if flow.is_eligible:
            flow.tag = max(flow.tag, self.virtual_time)
            self._moved.add(flow.customer_id)
            self._enqueue(flow)

    def _enqueue(self, flow: Flow) -> None:
        self._stamp += 1
        flow.stamp = self._stamp
        urgency, head = self._urgency(flow)
        turn = self.algorithm.turn(tag=flow.tag, head=head)
        heappush(self._turns, (urgency, turn, flow.customer_id, flow.stamp))
        self._compact()

    def _compact(self) -> None:
        """Drop outdated turns before they outgrow the customers."""
        most = 4 * len(self._flows) + _SLACK
        if len(self._turns) > most:
            self._turns = [turn for turn in self._turns if self._is_current(*turn[-2:])]
            heapify(self._turns)
        if len(self._due) > most:
            self._due = [due for due in self._due if self._is_current(*due[-2:])]
            heapify(self._due)

    def _is_current(self, customer_id: CustomerId, stamp: int) -> bool:
        flow = self._flows.get(customer_id)
        return flow is not None and flow.stamp == stamp

    def _head(self, flow: Flow) -> int:
        return (
            flow.line.head() if self.aging is None else self._most_urgent(flow, self.aging)[1]
        )

    def _urgency(self, flow: Flow) -> tuple[int, int]:
        """How urgent the customer is now, and with which entry."""
        if self.aging is None:
            return 0, flow.line.head()
        changes = (
            self.aging.changes_at(priority, ref_in(head), self._now)
            for priority, head in flow.line.heads()
        )
        soonest = min((at for at in changes if at is not None), default=None)
        if soonest is not None:
            heappush(self._due, (soonest, flow.customer_id, flow.stamp))
        return self._most_urgent(flow, self.aging)

    def _most_urgent(self, flow: Flow, aging: Aging) -> tuple[int, int]:
        return min(
            (aging.urgency(priority, ref_in(head), self._now), head)
            for priority, head in flow.line.heads()
        )

    def _restore_tags(self, flow: Flow, tags: Tags) -> None:
        flow.tag = tags.tag
        flow.line.virtual_time = tags.keys_at
        flow.line.tags = dict(tags.keys)

    def _move(self, flow: Flow, by: float) -> None:
        flow.tag += by
        self._largest_charge = max(self._largest_charge, abs(by))
        self._moved.add(flow.customer_id)

    def _end_busy_period(self) -> None:
        """With nothing waiting and nothing running, all tags are the past (SFQ, rule 2)."""
        if not self._ready and not self._in_flight:
            tags = [flow.tag for flow in self._flows.values()]
            self.virtual_time = max(self.virtual_time, *tags)


def _tags(flow: Flow, keys: Mapping[str, float]) -> Tags:
    return Tags(tag=flow.tag, keys_at=flow.line.virtual_time, keys=dict(keys))
