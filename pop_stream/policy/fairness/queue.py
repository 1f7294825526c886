"""The backlogged customers of one insight and their turns; the package has the rules."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ulp

from pop_stream.model.ids import CustomerId
from pop_stream.policy.delta import FairnessState
from pop_stream.policy.fairness.algorithms import FairnessAlgorithm
from pop_stream.policy.fairness.customer_queue import ref_in
from pop_stream.policy.fairness.eligible_customers import EligibleCustomers
from pop_stream.policy.fairness.flow import Aging, CustomerRegistry, Flow, Pick, Share
from pop_stream.policy.fairness.gap_bound import GapBound
from pop_stream.policy.fairness.virtual_clock import TOP_LEVEL


class FairQueue:
    """The backlogged customers of one insight, in the order of their turns.

    A pick costs O(log customers + log of that customer's backlog), with no further term in
    the size of the whole backlog. Deterministic: the same calls give the same picks; ties
    go by customer id. Instants are seconds on any clock; an earlier
    instant than before changes nothing.

    Args:
        algorithm: How customers take turns.
        share_of: The present share of a customer, asked when it is first seen.
        aging: For strict priority across customers; None for none.
        now: The latest instant known, which decides who has become how urgent.
    """

    def __init__(
        self,
        algorithm: FairnessAlgorithm,
        share_of: Callable[[CustomerId], Share],
        aging: Aging | None = None,
        now: float = 0.0,
    ) -> None:
        self.algorithm = algorithm
        self.aging = aging
        self._customers = CustomerRegistry(share_of)
        self._flows = self._customers.flows
        self._eligible = EligibleCustomers(algorithm, aging, self._flows)
        self.now = now
        self._ready = self._in_flight = 0
        self._moved: set[CustomerId] = set()
        self._gap_bound = GapBound()

    @property
    def ready(self) -> int:
        """Agendas that wait, of all customers."""
        return self._ready

    @property
    def in_flight(self) -> int:
        """Agendas emitted and not settled, of all customers."""
        return self._in_flight

    def idle_returners(self) -> int:
        """How many are back from idleness, and next; see `EligibleCustomers`."""
        return self._eligible.idle_returners(self._in_flight)

    def eligible_count(self, most: int, now: float) -> int:
        """How many picks in a row would choose one now, up to `most`; O(most)."""
        return self._eligible.eligible_count(most, max(self.now, now))

    @property
    def virtual_time(self) -> float:
        """The greatest start tag emitted: v."""
        return self._eligible.clock.at(TOP_LEVEL)

    @property
    def clock(self) -> tuple[float, ...]:
        """The virtual time by level, most urgent first, for `restore`."""
        return self._eligible.clock.times

    @property
    def due_at(self) -> float | None:
        """When a customer that must wait may go on, or becomes more urgent; None for never."""
        return self._eligible.due_at

    def may_pick(self, now: float) -> bool:
        """Whether a pick could choose one; True may turn out wrong, False never."""
        return self._eligible.may_pick(now)

    def flows(self) -> Iterator[Flow]:
        """All customers known, backlogged or not."""
        yield from self._flows.values()

    def flow(self, customer_id: CustomerId) -> Flow:
        """One customer's flow; a new one is made, and gets its start tag when it may go."""
        return self._flows.get(customer_id) or self._customers.join(customer_id, self.clock[-1])

    def next_customers(self, most: int) -> list[Flow]:
        """About the next `most` customers, soonest first, without picking; O(most)."""
        return self._eligible.soonest(most)

    def held(self, most: int) -> list[Flow]:
        """Up to `most` with agendas that wait and may not go; O(most)."""
        return self._eligible.held(most)

    def tag_gap(self) -> float:
        """Widest difference of tags among the most urgent that may go; O(customers)."""
        return self._customers.tag_gap(TOP_LEVEL)

    def bound(self) -> float:
        """What `tag_gap` cannot exceed."""
        return self._gap_bound.bound

    def advance_to(self, now: float) -> None:
        """Advance the queue's clock; an earlier instant changes nothing."""
        self.now = max(self.now, now)

    def push(self, customer_id: CustomerId, entry: int, key: str = "") -> None:
        """Add a waiting agenda; a customer that was idle joins at the present."""
        flow = self.flow(customer_id)
        was_idle, was_eligible = flow.is_idle, flow.is_eligible
        flow.customer_queue.push(entry, self._key(key))
        self._ready += 1
        if flow.customer_queue.has_moved:  # as that of one that was idle always has
            self._moved.add(customer_id)
        is_next_by_age = self.algorithm.by_age and flow.customer_queue.head() == entry
        if not was_eligible or is_next_by_age or self.aging is not None:
            self._update(flow)
        if was_idle:
            self._mark_uncontested(flow)

    def pick(self, cost_of: Callable[[int], float], now: float = 0.0) -> Pick | None:
        """Choose the next agenda, or None if no customer has one that may go.

        Args:
            cost_of: Worker-seconds of the agenda with this ref, above 0.
            now: The present instant, in seconds.
        """
        self.advance_to(now)
        for due in self._eligible.due(self.now):
            self._update(due)
        if self._customers.are_reweighed and self._eligible.may_pick(self.now):
            self._scale_debts()
        if (flow := self._eligible.next()) is None:
            return None
        _, entry = self._eligible.urgency_and_head(flow, self.now)
        flow.customer_queue.pop(entry, cost_of)
        flow.consume_token(self.now)
        self._eligible.clock.advance(flow.level, flow.tag)
        return self._emit(flow, ref_in(entry), cost_of(ref_in(entry)))

    def pick_out_of_turn(
        self, customer_id: CustomerId, entry: int, key: str = "", *, cost: float
    ) -> Pick:
        """Count a waiting agenda as picked out of turn, as a puller reported on it."""
        flow = self.flow(customer_id)
        flow.customer_queue.withdraw(entry, self._key(key))
        return self._emit(flow, ref_in(entry), cost)

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
        if flow.uncontested:
            flow.uncontested -= 1
            self._moved.add(customer_id)
            correction = 0.0
        level, least = flow.level, self._eligible.least(flow.level) if correction > 0 else None
        if correction:
            flow.tag += correction
            self._moved.add(customer_id)
            self._gap_bound.note_correction(customer_id, correction)
            if was_eligible:
                # Else customers that join would start ahead of it, and wait for it.
                self._eligible.clock.pull_back(level, flow.tag)
        if correction or not was_eligible:
            self._update(flow)
        self._eligible.advance_with_minimum(level, least)
        self._end_busy_period()

    def withdraw(self, customer_id: CustomerId, entry: int, key: str = "") -> None:
        """Take a waiting agenda out of the backlog."""
        flow = self.flow(customer_id)
        flow.customer_queue.withdraw(entry, self._key(key))
        self._moved.add(customer_id)
        self._ready -= 1
        self._update(flow)
        self._end_busy_period()

    def refresh_shares(self) -> None:
        """Ask every customer's share again; acts on what waits at the next pick."""
        for flow in self._customers.refresh_shares():
            self._update(flow)

    def restore(
        self,
        *,
        clock: Sequence[float],
        tags: Mapping[CustomerId, FairnessState],
        entries: Mapping[CustomerId, Mapping[str, list[int]]],
        in_flight: Mapping[CustomerId, int],
    ) -> None:
        """Bring a new queue into this state.

        Args:
            clock: As it was; may have more or fewer levels than are needed now.
            tags: Of every customer that was not idle, or ahead of the virtual time.
            entries: What waits, by customer and fairness key.
            in_flight: What is out, by customer.
        """
        self._eligible = EligibleCustomers(self.algorithm, self.aging, self._flows, clock)
        for customer_id in sorted({*tags, *entries, *in_flight}):
            flow = self.flow(customer_id)
            flow.in_flight = in_flight.get(customer_id, 0)
            self._customers.restore(flow, tags.get(customer_id))
            flow.customer_queue.fill(entries.get(customer_id, {}))
            self._ready += flow.ready
            self._in_flight += flow.in_flight
            # A customer without a saved tag starts behind the present; `update` raises it.
            self._update(flow)
        mark = self._customers.greatest(self._flows)
        lead = mark - self.virtual_time  # the charges and corrections so far are not known
        self._gap_bound = GapBound(self._flows, mark=mark, lead=lead, in_flight=self._in_flight)

    def note_moved(self, customers: Iterable[CustomerId]) -> None:
        """Have `drain_moved` return the places of these, moved or not."""
        self._moved.update(customers)

    def drain_moved(self) -> dict[str, FairnessState]:
        """The places of customers and keys that moved since the last call."""
        moved, self._moved = self._moved & self._flows.keys(), set()
        return self._customers.fairness_states(moved, lambda queue: queue.drain_moved())

    def all_fairness_states(self) -> dict[str, FairnessState]:
        """The places of all customers and keys, for `restore`."""
        return self._customers.fairness_states(self._flows, lambda queue: queue.tags)

    def forget_idle(self) -> None:
        """Drop idle customers that the virtual clock has passed: they rejoin at the present."""
        least = self.clock[-1]
        for flow in [*self._flows.values()]:
            if flow.is_idle and flow.tag <= least and flow.has_full_burst(self.now):
                del self._flows[flow.customer_id]
                self._eligible.forget(flow.customer_id)
                self._gap_bound.served.discard(flow.customer_id)
            else:
                flow.customer_queue.forget_idle_keys()

    def _key(self, key: str) -> str:
        return "" if self.algorithm.by_age else key

    def _emit(self, flow: Flow, ref: int, cost: float) -> Pick:
        charge = self.algorithm.charge(cost=cost, weight=flow.share.weight)
        # Far out on the clock a small charge would vanish in rounding, and starve the others.
        self._lead(flow, max(charge, ulp(flow.tag)))
        self._ready -= 1
        self._in_flight += 1
        flow.in_flight += 1
        self._update(flow)
        if self._gap_bound.note_emission(self._in_flight):
            greatest = self._customers.greatest(self._gap_bound.served)
            self._gap_bound.advance_window(greatest, self.virtual_time, self._in_flight)
        return Pick(flow.customer_id, ref, cost, charge)

    def _mark_uncontested(self, joining: Flow) -> None:
        """A customer joins one that had all turns: what that one has out is not corrected.

        The joining customer starts at the tag that charges led to; a correction of them would
        be given to it, or owed by it.
        """
        flow = self._eligible.incumbent(joining)
        if flow is not None and flow.uncontested < flow.in_flight:
            flow.uncontested = flow.in_flight
            self._moved.add(flow.customer_id)

    def _scale_debts(self) -> None:
        """Scale leads to weights that changed; with a pick, so that a replay does the same."""
        for flow, weight in self._customers.drain_reweighed():
            self._moved.add(flow.customer_id)
            by = flow.shift_from(weight, self._eligible.clock.at(flow.level or TOP_LEVEL))
            if by and self.algorithm.by_weight:
                self._lead(flow, by)
                self._update(flow)

    def _lead(self, flow: Flow, by: float) -> None:
        flow.tag += by
        self._moved.add(flow.customer_id)
        self._gap_bound.note_lead(flow.customer_id, flow.tag - self.virtual_time)

    def _update(self, flow: Flow) -> None:
        before = flow.level
        if self._eligible.update(flow, self.now):
            self._moved.add(flow.customer_id)
        if flow.level and flow.level != before:
            self._gap_bound.note_lead(flow.customer_id, flow.tag - self.virtual_time)

    def _end_busy_period(self) -> None:
        """With nothing waiting and nothing running, v becomes the greatest F so far."""
        if not self._ready and not self._in_flight:
            self._eligible.clock.jump_to(self._customers.greatest(self._gap_bound.served))
            self._gap_bound = GapBound(mark=self.virtual_time)
