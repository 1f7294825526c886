"""The backlogged customers of one insight and their turns; the package has the rules."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pop_stream.model.ids import CustomerId
from pop_stream.policy.delta import FairnessState
from pop_stream.policy.fairness.algorithms import FairnessAlgorithm
from pop_stream.policy.fairness.cost_model import Estimate
from pop_stream.policy.fairness.customer_queue import priority_of, ref_in
from pop_stream.policy.fairness.eligible_customers import EligibleCustomers
from pop_stream.policy.fairness.flow import Aging, Flow, Pick, Share
from pop_stream.policy.fairness.turn_order import MICROSECONDS, Reservation

_ONE_TURN = Reservation(MICROSECONDS, MICROSECONDS)


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

    Attributes:
        depth: Most agendas that were out at once since nothing waited and nothing ran.
        companions: Most that an agenda brought along since then.
        is_divided: Whether a customer's weight is, or was, divided among insights of a pool.
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
        self._share_of = share_of
        self._flows: dict[CustomerId, Flow] = {}
        self._eligible = EligibleCustomers(algorithm, aging, self._flows)
        self.now = now
        self._ready = self._in_flight = 0
        self.depth = self.companions = 0
        self.is_divided = False
        self._moved: set[CustomerId] = set()
        self._reweighed: set[CustomerId] = set()
        self._ahead: set[CustomerId] = set()

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
    def presents(self) -> tuple[float, ...]:
        """The position from which an agenda was emitted last, for `restore`.

        By level, most urgent first, in worker-seconds per weight.
        """
        return self._eligible.presents

    def present(self, level: int) -> float:
        """Where a customer that comes back joins its level, in worker-seconds per weight."""
        return self._eligible.present(level)

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
        """One customer's flow; a new one is made, and joins when it may go."""
        flow = self._flows.get(customer_id)
        if flow is None:
            share, by_class = self._share_of(customer_id), self.aging is not None
            flow = self._flows[customer_id] = Flow(customer_id, share, by_class=by_class)
            if self.algorithm.by_turns:
                flow.weight = 1.0
        return flow

    def next_customers(self, most: int) -> list[Flow]:
        """About the next `most` customers, soonest first, without picking; O(most)."""
        return self._eligible.soonest(most)

    def held(self, most: int) -> list[Flow]:
        """Up to `most` with agendas that wait and may not go; O(most)."""
        return self._eligible.held(most)

    def gap(self) -> float:
        """Widest difference of sure positions among the most urgent; O(customers)."""
        positions = [flow.sure_position for flow in self._flows.values() if flow.level == 1]
        return max(positions) - min(positions) if positions else 0.0

    def bound(self) -> float:
        """What `gap` cannot exceed; O(customers).

        With D agendas out at most, and n companions of one: D + n + 1 times the largest agenda
        per weight, for each of two.
        """
        largest = [
            flow.largest_s / flow.weight for flow in self._flows.values() if flow.level == 1
        ]
        return (self.depth + self.companions + 1) * 2 * max(largest, default=0.0)

    def advance_to(self, now: float) -> None:
        """Advance the queue's clock; an earlier instant changes nothing."""
        self.now = max(self.now, now)

    def push(self, customer_id: CustomerId, entry: int, key: str = "") -> None:
        """Add a waiting agenda; a customer that was idle joins with the next pick."""
        flow = self.flow(customer_id)
        flow.customer_queue.push(entry, self._key(key))
        self._ready += 1
        if flow.customer_queue.has_moved:
            self._moved.add(customer_id)
        is_next_by_age = self.algorithm.by_age and flow.customer_queue.head() == entry
        if not flow.level or is_next_by_age or self.aging is not None:
            self._update(flow)

    def pick(self, estimate_of: Callable[[int], Estimate], now: float = 0.0) -> Pick | None:
        """Choose the next agenda, or None if no customer has one that may go.

        Args:
            estimate_of: What the agenda with this ref is taken to cost.
            now: The present instant, in seconds.
        """
        self.advance_to(now)
        for joined in self._eligible.admit(self.now):
            self._moved.add(joined.customer_id)
        if (flow := self._eligible.next()) is None:
            return None
        if self._reweighed:
            self._reweigh()
            flow = self._eligible.next() or flow
        _, entry = self._eligible.urgency_and_head(flow, self.now)
        reservation = self.reservation(estimate_of(ref_in(entry)))
        flow.customer_queue.pop(entry, reservation)
        if flow.share.rate_per_s is not None:
            flow.consume_token(self.now)
            self._eligible.limit(flow, self.now)
        self._eligible.advance(flow.level, flow.sure_position)
        return self._emit(flow, ref_in(entry), reservation)

    def pick_out_of_turn(
        self, customer_id: CustomerId, entry: int, key: str = "", *, estimate: Estimate
    ) -> Pick:
        """Count a waiting agenda as picked out of turn, as a puller reported on it."""
        flow = self.flow(customer_id)
        reservation = self.reservation(estimate)
        flow.customer_queue.pop_out_of_turn(entry, self._key(key), reservation)
        return self._emit(flow, ref_in(entry), reservation)

    def pick_companion(
        self,
        customer_id: CustomerId,
        entry: int,
        key: str,
        *,
        estimate: Estimate,
        level: int,
        most: int,
    ) -> Pick | None:
        """Choose a waiting agenda out of turn; None if its customer may not go, or gains by it.

        Args:
            customer_id: Whose agenda it is.
            entry: Of the agenda.
            key: Its fairness key.
            estimate: What it is taken to cost.
            level: Of urgency of what was picked in turn.
            most: How many agendas of this size its customer, and its key within the customer,
                may be ahead of the present. Of this size and not of its largest: one of an hour
                would let its customer take hours of short ones before the others.
        """
        flow, reservation = self.flow(customer_id), self.reservation(estimate)
        ahead_s = most * reservation.sure / MICROSECONDS
        if not self._may_accompany(flow, entry, level, ahead_s):
            return None
        if flow.customer_queue.ahead_of_present(entry, self._key(key)) > ahead_s:
            return None
        self.companions = max(self.companions, most)
        flow.customer_queue.pop_out_of_turn(entry, self._key(key), reservation)
        if flow.share.rate_per_s is not None:
            flow.consume_token(self.now)
            self._eligible.limit(flow, self.now)
        return self._emit(flow, ref_in(entry), reservation)

    def _may_accompany(self, flow: Flow, entry: int, level: int, ahead_s: float) -> bool:
        if not flow.is_eligible or flow.level != level:
            return False
        _, head = self._eligible.urgency_and_head(flow, self.now)
        if self.aging is not None:
            if self.aging.urgency(priority_of(entry), ref_in(entry), self.now) != level:
                return False
        elif priority_of(entry) > priority_of(head):
            return False
        if self.algorithm.by_age:
            return True
        return flow.sure_position - self.present(level) <= ahead_s / flow.weight

    def reservation(self, estimate: Estimate) -> Reservation:
        """What an agenda of these estimates counts as."""
        if self.algorithm.by_turns:
            return _ONE_TURN
        return Reservation(
            max(1, round(estimate.cost_s * MICROSECONDS)),
            max(1, round(estimate.sure_s * MICROSECONDS)),
        )

    def replace(
        self, customer_id: CustomerId, key: str, before: Reservation, elapsed_s: float
    ) -> Reservation:
        """An agenda that is out has taken so long by now; returns what it counts as."""
        after = before if self.algorithm.by_turns else before.raised_to(elapsed_s)
        if after != before:
            flow = self.flow(customer_id)
            flow.account.replace(before, after)
            flow.customer_queue.replace(self._key(key), before, after)
            flow.note_size(after)
            self._moved.add(customer_id)
            self._update(flow)
            self._follow(flow)
        return after

    def settle(
        self, customer_id: CustomerId, key: str, reservation: Reservation, delivered_s: float
    ) -> None:
        """An emitted agenda ended or came back; its slot is free.

        Args:
            customer_id: Whose agenda it was.
            key: Its fairness key.
            reservation: What it counted as.
            delivered_s: Worker-seconds that it took; 0 if it did not run.
        """
        flow = self.flow(customer_id)
        flow.delivered_s += delivered_s
        if self.algorithm.by_turns:
            delivered_s = 1.0
        flow.in_flight -= 1
        self._in_flight -= 1
        flow.account.settle(reservation, delivered_s, flow.weight)
        flow.largest_s = max(flow.largest_s, delivered_s)
        flow.customer_queue.settle(self._key(key), reservation, delivered_s)
        self._moved.add(customer_id)
        self._update(flow)
        self._follow(flow)
        if flow.account.tag > self._eligible.presents[-1]:
            self._ahead.add(customer_id)
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
        for flow in self._flows.values():
            share = self._share_of(flow.customer_id)
            if share != flow.share:
                flow.share = share
                self._note_weight(flow)
                self._eligible.follow_limit(flow, self.now)
                self._update(flow)

    def divide_weights(self, divisions: Mapping[CustomerId, int]) -> None:
        """Divide these customers' weights by so much from the next pick on.

        A customer that is not known is left out: it has nothing here.
        """
        for customer_id, division in divisions.items():
            flow = self._flows.get(customer_id)
            if flow is not None:
                flow.division = division
                self.is_divided |= division > 1
                self._moved.add(customer_id)
                self._note_weight(flow)

    def restore(
        self,
        *,
        presents: Sequence[float],
        depth: int,
        saved: Mapping[CustomerId, FairnessState],
        entries: Mapping[CustomerId, Mapping[str, list[int]]],
        out: Mapping[CustomerId, Mapping[str, list[Reservation]]],
    ) -> None:
        """Bring a new queue into this state.

        Args:
            presents: As they were; may have more or fewer levels than are needed now.
            depth: As it was.
            saved: Of every customer that was not idle, or ahead of the present.
            entries: What waits, by customer and fairness key.
            out: What is out, by customer and fairness key.
        """
        self._eligible = EligibleCustomers(self.algorithm, self.aging, self._flows, presents)
        for customer_id in sorted({*saved, *entries, *out}):
            flow = self.flow(customer_id)
            state = saved.get(customer_id)
            if state is not None:
                flow.level = state.level
                flow.restore(state, by_turns=self.algorithm.by_turns)
                self.is_divided |= flow.division > 1
                self._note_weight(flow)
            by_key = out.get(customer_id, {})
            for one in (one for some in by_key.values() for one in some):
                flow.in_flight += 1
                flow.account.charged += one.charged
                flow.account.sure += one.sure
            flow.customer_queue.fill(entries.get(customer_id, {}), by_key)
            self._ready += flow.ready
            self._in_flight += flow.in_flight
            self._eligible.rejoin(flow, self.now)
            if flow.account.tag > presents[-1]:
                self._ahead.add(customer_id)
        self.depth = max(depth, self._in_flight)

    def note_moved(self, customers: Iterable[CustomerId]) -> None:
        """Have `drain_moved` return the places of these, moved or not."""
        self._moved.update(customers)

    def drain_moved(self) -> dict[str, FairnessState]:
        """What customers and keys were given that changed since the last call."""
        moved, self._moved = self._moved & self._flows.keys(), set()
        flows = [self._flows[one] for one in moved]
        return {
            one.customer_id: one.fairness_state(one.customer_queue.drain_moved())
            for one in flows
        }

    def all_fairness_states(self) -> dict[str, FairnessState]:
        """What all customers and keys were given, for `restore`."""
        return {
            one.customer_id: one.fairness_state(one.customer_queue.keys())
            for one in self._flows.values()
        }

    def forget_idle(self) -> None:
        """Drop idle customers that the present has passed: they rejoin at the present."""
        least = self.presents[-1]
        for flow in [*self._flows.values()]:
            is_passed = flow.is_idle and flow.account.tag <= least
            if is_passed and flow.has_full_burst(self.now):
                del self._flows[flow.customer_id]
                self._eligible.forget(flow.customer_id)
                self._ahead.discard(flow.customer_id)
                self._reweighed.discard(flow.customer_id)

    def _key(self, key: str) -> str:
        return "" if self.algorithm.by_age else key

    def _emit(self, flow: Flow, ref: int, reservation: Reservation) -> Pick:
        level = flow.level or 1
        flow.account.reserve(reservation)
        flow.note_size(reservation)
        flow.in_flight += 1
        self._ready -= 1
        self._in_flight += 1
        self.depth = max(self.depth, self._in_flight)
        self._moved.add(flow.customer_id)
        self._update(flow)
        return Pick(flow.customer_id, ref, reservation, level)

    def _note_weight(self, flow: Flow) -> None:
        """A new weight acts with the next pick, so that a replay does the same."""
        if not self.algorithm.by_turns and flow.weight != flow.due_weight:
            self._reweighed.add(flow.customer_id)

    def _reweigh(self) -> None:
        for customer_id in sorted(self._reweighed & self._flows.keys()):
            flow = self._flows[customer_id]
            flow.reweigh(flow.due_weight, self.present(flow.level or 1))
            self._moved.add(customer_id)
            self._update(flow)
        self._reweighed = set()

    def _follow(self, flow: Flow) -> None:
        """While nobody could go, what is delivered to one is taken from nobody."""
        if self._eligible.are_none:
            self._eligible.advance_all(flow.account.present(self.presents[0], flow.weight))

    def _update(self, flow: Flow) -> None:
        if self._eligible.update(flow, self.now):
            self._moved.add(flow.customer_id)

    def _end_busy_period(self) -> None:
        """With nothing waiting and nothing running, all go on from what the first was given."""
        if not self._ready and not self._in_flight:
            tags = (self._flows[one].account.tag for one in self._ahead)
            self._eligible.advance_all(max(tags, default=0.0))
            self._ahead = set()
            self.depth = self.companions = 0
