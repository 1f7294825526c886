"""What fairness promises, at every step of whatever may happen to one insight.

Customers submit, are given turns, end, cancel, are weighed anew, paused, capped and limited;
the scheduler crashes, and the insight moves to another worker. Each customer's agendas cost
alike, so whose turn it is depends on no order among its own. Costs may be declared wrongly.

Beside the backlog stand three of its kind: two that begin with what was kept, for every round,
and a *reference* that receives the same, but knows neither fairness keys nor priorities.
"""

from collections import Counter
from dataclasses import dataclass, field

from backlogs import START, cancel, placed, settled
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from token_bucket_model import TokenBucketModel

from pop_stream.lab.fairness_metrics.gap import GapTracker
from pop_stream.model.definitions import Insight
from pop_stream.model.events.scheduling import Command
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.policy.fairness.cost_model import clamp_cost
from pop_stream.policy.fairness.flow import Share
from pop_stream.policy.fairness.turn_order import MICROSECONDS

CUSTOMERS = ("ann", "bob", "cid", "dan")
COSTS = st.sampled_from([1.0, 1.0, 2.0, 4.0])  # estimates stay within a factor of four
WEIGHTS = st.sampled_from([0.5, 1.0, 1.0, 3.0])
SHARES = st.builds(
    Share,
    weight=WEIGHTS,
    max_in_flight=st.none() | st.none() | st.integers(1, 4),
    rate_per_s=st.none() | st.none() | st.sampled_from([0.2, 0.5, 3.0]),
    burst=st.integers(1, 3),
    paused=st.sampled_from([False, False, False, True]),
)
ERRORS = st.sampled_from([1.0, 0.02, 0.5, 3.0, 40.0])
ROUNDING = 1 + 1e-6
HAIR = 1e-6
INSIGHT = Insight(id="media")


@dataclass
class Kept:
    """A backlog, and what would be written of it."""

    backlog: Backlog
    pages: dict = field(default_factory=dict)
    deltas: list = field(default_factory=list)

    def save(self):
        delta = self.backlog.drain_delta()
        if delta is not None:
            self.deltas.append(delta)
        for number in self.backlog.drain_emptied():
            self.pages.pop(number, None)

    def place(self, agendas):
        self.pages[self.backlog.place(agendas)] = agendas

    def again(self, share_of):
        """Another that goes on from what was written."""
        found = Kept(Backlog(INSIGHT, share_of), dict(self.pages), [*self.deltas])
        found.backlog.restore(found.pages.items(), found.deltas)
        return found


class FairnessMachine(RuleBasedStateMachine):
    """A round follows every event, as in the scheduler; see the module."""

    @initialize(
        costs=st.fixed_dictionaries(dict.fromkeys(CUSTOMERS, COSTS)),
        weights=st.fixed_dictionaries(dict.fromkeys(CUSTOMERS, WEIGHTS)),
        error=ERRORS,
    )
    def begin(self, costs, weights, error):
        self.costs, self.error = costs, error
        self.shares = {one: Share(weight=weight) for one, weight in weights.items()}
        self.now = START.timestamp()
        self.kept, self.twin = (Kept(Backlog(INSIGHT, self.share_of)) for _ in range(2))
        self.made = 0
        self.waiting = {one: [] for one in CUSTOMERS}
        self.twins_waiting = {one: [] for one in CUSTOMERS}
        self.out = []
        self.twins_out = []
        self.buckets = {one: TokenBucketModel() for one in CUSTOMERS}
        self.fill_buckets()
        self.gaps = GapTracker(range(len(CUSTOMERS)))
        self.depth = 0
        self.backlogged = set()
        self.given = Counter()
        self.since = {}
        for one in CUSTOMERS:
            self.gaps.reweigh(CUSTOMERS.index(one), weights[one])
        self.let_usual_costs_be_known()

    def let_usual_costs_be_known(self):
        """One agenda of each customer runs and ends; then nothing is owed by anybody."""
        after = self.now - START.timestamp()
        for kept in (self.kept, self.twin):
            kept.place(
                [
                    placed(f"first-{one}", one, after=after, cost_s=self.costs[one])
                    for one in CUSTOMERS
                ]
            )
            while kept.backlog.ready:
                self.now += 10.0
                for one in kept.backlog.choose(9, self.now):
                    spent = self.costs[one.customer_id]
                    kept.backlog.settle(settled(one.agenda_id, noop=spent), self.now)
            kept.save()

    def share_of(self, customer):
        return self.shares[customer]

    @property
    def backlog(self):
        return self.kept.backlog

    @property
    def is_exact(self):
        """Whether everything takes what it was declared to."""
        return self.error == 1.0

    def fill_buckets(self):
        for one, bucket in self.buckets.items():
            bucket.fill(self.shares[one], self.now)

    # ---- events ----

    @rule(
        customer=st.sampled_from(CUSTOMERS),
        wanted=st.lists(
            st.tuples(st.integers(1, 9), st.sampled_from("xyz")), min_size=1, max_size=8
        ),
        slots=st.integers(0, 4),
    )
    def submit(self, customer, wanted, slots):
        names = [f"a{self.made + number}" for number in range(len(wanted))]
        self.made += len(names)
        after, cost_s = self.now - START.timestamp(), self.costs[customer]
        alike = [placed(one, customer, after=after, cost_s=cost_s) for one in names]
        reported = [
            placed(
                one, customer, after=after, cost_s=cost_s, priority=priority, fairness_key=key
            )
            for one, (priority, key) in zip(names, wanted, strict=True)
        ]
        self.kept.place(reported)
        self.twin.place(alike)
        self.waiting[customer] += names
        self.twins_waiting[customer] += names
        self.round(slots)

    @rule(seconds=st.sampled_from([0.0, 0.3, 1.0, 7.0]), slots=st.integers(1, 9))
    def pick(self, seconds, slots):
        self.now += seconds
        self.round(slots)

    @rule(data=st.data(), slots=st.integers(0, 2))
    def settle(self, data, slots):
        """One ends: for the twin, as many'th of its customer."""
        if self.out:
            self.end(data.draw(st.integers(0, len(self.out) - 1)))
            self.round(slots)

    def end(self, index):
        customer, agenda_id, attempt, weight = self.out.pop(index)
        spent = self.spent(customer)
        reported = settled(agenda_id, attempt, noop=spent)
        assert self.backlog.settle(reported, self.now)
        _, other, attempt = self.twins_out.pop(index)
        assert self.twin.backlog.settle(settled(other, attempt, noop=spent), self.now)
        self.gaps.serve(CUSTOMERS.index(customer), spent / weight)
        self.see_who_may_go()

    def spent(self, customer):
        return clamp_cost(self.costs[customer] * self.error)

    @rule(customer=st.sampled_from(CUSTOMERS), data=st.data(), slots=st.integers(0, 2))
    def cancel(self, customer, data, slots):
        """One that waits; for the twin, any of its customer."""
        if self.waiting[customer]:
            agenda_id = data.draw(st.sampled_from(self.waiting[customer]))
            self.waiting[customer].remove(agenda_id)
            assert cancel(self.backlog, agenda_id, self.now)
            assert cancel(self.twin.backlog, self.twins_waiting[customer].pop(), self.now)
            self.round(slots)

    @rule(
        customer=st.sampled_from(CUSTOMERS),
        priority=st.integers(1, 9),
        data=st.data(),
        slots=st.integers(0, 2),
    )
    def reprioritise(self, customer, priority, data, slots):
        """The reference does not receive it: it is among a customer's own alone."""
        if self.waiting[customer]:
            wanted = Command(
                agenda_id=data.draw(st.sampled_from(self.waiting[customer])),
                action="reprioritise",
                priority=priority,
            )
            self.backlog.apply_command(wanted, self.now)
            self.round(slots)

    @rule(customer=st.sampled_from(CUSTOMERS), share=SHARES, slots=st.integers(0, 4))
    def reweigh_pause_or_limit(self, customer, share, slots):
        was, self.shares[customer] = self.shares[customer], share
        if (was.rate_per_s, was.burst) != (share.rate_per_s, share.burst):
            self.buckets[customer].change(share, self.now)
        for one in (self.kept, self.twin):
            one.backlog.reconfigure(INSIGHT)
        if was.weight != share.weight:
            self.gaps.reweigh(CUSTOMERS.index(customer), share.weight)
            self.begin_intervals(customer)
        self.round(slots)

    @rule(is_move=st.booleans(), slots=st.integers(0, 4))
    def crash_or_rebalance(self, is_move, slots):
        """Whoever goes on has what was written; in a move, as one whole."""
        if is_move:
            for one in (self.kept, self.twin):
                one.deltas = [one.backlog.snapshot()]
        self.kept, self.twin = self.kept.again(self.share_of), self.twin.again(self.share_of)
        self.fill_buckets()
        self.see_who_may_go()
        self.round(slots)

    # ---- rounds ----

    def round(self, slots):
        self.see_who_may_go()
        self.save()
        whole, parts = (self.kept.again(self.share_of).backlog for _ in range(2))
        rounds = [whole.choose(slots, self.now)]
        rounds.append([one for _ in range(slots) for one in parts.choose(1, self.now)])
        assert rounds[0] == rounds[1], "split rounds are one round"
        foreseen = self.backlog.queue.eligible_count(slots, self.now)
        for number in range(slots):
            if not self.pick_one():
                assert foreseen == number
                self.see_who_may_go()
                self.slot_is_idle_only_if_nobody_may_go()
                break
            if not self.is_limited_by_tokens:
                assert self.out[-1][1:3] == rounds[0][number][1::2], "kept state decides"
        else:
            assert foreseen == slots
            assert len(rounds[0]) == slots, "tokens apart, which are not kept"
        self.save()

    @property
    def is_limited_by_tokens(self):
        """Whether what is not kept decides: who begins anew begins with a whole burst."""
        return any(self.waiting[one] and self.shares[one].rate_per_s for one in CUSTOMERS)

    def save(self):
        self.kept.save()
        self.twin.save()

    def pick_one(self):
        chosen = self.backlog.choose(1, self.now)
        others = self.twin.backlog.choose(1, self.now)
        assert [one.customer_id for one in chosen] == [one.customer_id for one in others]
        for one, other in zip(chosen, others, strict=True):
            self.emitted(one, other)
        return bool(chosen)

    def emitted(self, one, other):
        customer, share = one.customer_id, self.shares[one.customer_id]
        self.waiting[customer].remove(one.agenda_id)
        self.twins_waiting[customer].remove(other.agenda_id)
        assert not share.paused
        if share.rate_per_s is not None:
            self.buckets[customer].take(share, self.now)
            assert self.buckets[customer].most >= -HAIR
        self.out.append((customer, one.agenda_id, one.attempt, share.weight))
        self.twins_out.append((customer, other.agenda_id, other.attempt))
        running = sum(out[0] == customer for out in self.out)
        assert share.max_in_flight is None or running <= share.max_in_flight
        self.depth = max(self.depth, len(self.out))
        charged = self.backlog.index.in_flight_record(one.ref).charged / MICROSECONDS
        self.gaps.charge(
            CUSTOMERS.index(customer),
            charged=charged,
            spent=self.spent(customer),
            weight=share.weight,
        )
        self.given[customer] += charged / share.weight
        self.nobody_is_left_behind(customer)
        self.see_who_may_go()

    def see_who_may_go(self):
        """Intervals begin with who comes back, and end with who may not go."""
        flows = {flow.customer_id: flow for flow in self.backlog.queue.flows()}
        able = {one for one in CUSTOMERS if one in flows and flows[one].is_eligible}
        for one in self.backlogged - able:
            self.gaps.leave(CUSTOMERS.index(one))
        for one in sorted(able - self.backlogged):
            self.gaps.join(CUSTOMERS.index(one))
            self.begin_intervals(one)
        self.backlogged = able

    def begin_intervals(self, customer):
        """How far the customer is ahead of others counts from now."""
        for other in CUSTOMERS:
            for pair in ((customer, other), (other, customer)):
                self.since[pair] = self.given[pair[0]] - self.given[pair[1]]

    # ---- what holds ----

    def nobody_is_left_behind(self, picked):
        """By emission, one charge of each: no credit for idleness, and no starvation.

        That is over every interval in which both may go, so from a return on as well; and the
        one that waits for its turn sees no more than that go before it. Who had no token when
        its turn came is skipped from that pick on.
        """
        if not self.is_exact:
            return
        queue = self.backlog.queue
        for other in sorted(self.backlogged - {picked}):
            if not queue.flow(other).is_eligible:
                continue
            ahead = self.given[picked] - self.given[other]
            most = sum(self.costs[one] / self.shares[one].weight for one in (picked, other))
            assert ahead - self.since[picked, other] <= most * ROUNDING
            back = (other, picked)
            self.since[back] = min(self.since[back], -ahead)

    def slot_is_idle_only_if_nobody_may_go(self):
        for one in CUSTOMERS:
            share = self.shares[one]
            if not self.waiting[one] or share.paused:
                continue
            running = sum(out[0] == one for out in self.out)
            if share.max_in_flight is not None and running >= share.max_in_flight:
                continue
            assert share.rate_per_s is not None, f"{one} may go"
            self.buckets[one].look(share, self.now)
            assert self.buckets[one].least < 1.0, f"{one} has a token"

    @invariant()
    def gaps_are_within_their_bounds(self):
        worst = self.gaps.worst([*CUSTOMERS], self.depth)
        assert worst is None or worst.over_bound <= ROUNDING
        queue = self.backlog.queue
        assert queue.gap() <= queue.bound() * ROUNDING

    @invariant()
    def those_who_wait_and_may_not_go_are_known(self):
        queue = self.backlog.queue
        waiting = {flow.customer_id for flow in queue.flows() if flow.ready}
        assert {flow.customer_id for flow in queue.held(9)} == waiting - self.backlogged

    @invariant()
    def what_waits_and_what_is_out_add_up(self):
        for one in (self.backlog, self.twin.backlog):
            assert one.ready == sum(map(len, self.waiting.values()))
            assert one.in_flight == len(self.out)

    def teardown(self):
        """In the end, with no limits, everything has its turn."""
        if not hasattr(self, "kept"):
            return
        for one in CUSTOMERS:
            self.reweigh_pause_or_limit(one, Share(), 0)
        while self.backlog.ready:
            self.round(3)
            while self.out:
                self.end(0)
            self.gaps_are_within_their_bounds()


TestFairness = FairnessMachine.TestCase
