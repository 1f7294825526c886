"""What turns promise for every workload; bounds are those of `policy.fairness`.

Service is what a customer was given in worker-seconds over its weight. Sums of floats get a
millionth of slack.
"""

from collections import Counter
from dataclasses import replace
from itertools import accumulate

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from pop_stream.policy.delta import FairnessState
from pop_stream.policy.fairness.algorithms import ALGORITHMS
from pop_stream.policy.fairness.cost_model import Estimate
from pop_stream.policy.fairness.flow import Aging, Share
from pop_stream.policy.fairness.queue import FairQueue

WEIGHTS = st.sampled_from([0.01, 0.5, 1.0, 1.0, 2.0, 3.7, 100.0])
MILD = st.sampled_from([0.5, 1.0, 2.0, 3.7])
COSTS = st.floats(min_value=1e-4, max_value=50.0)
CUSTOMERS = ["a", "b", "c", "d"]
ROUNDING = 1 + 1e-6


class World:
    """A queue, the true cost of every agenda, and a record of who was given what."""

    def __init__(self, shares=None, *, algorithm="weighted_fair", step_s=None):
        self.shares = shares or {}
        self.costs = []
        self.keys = []
        self.arrivals = []
        self.out = []
        self.given = Counter()
        aging = Aging(step_s, self.arrivals.__getitem__) if step_s else None
        self.waiting = {}
        self.kept = {}
        self.queue = self.new_queue(ALGORITHMS[algorithm], aging)

    def new_queue(self, algorithm, aging, now=0.0):
        return FairQueue(algorithm, lambda one: self.shares.get(one, Share()), aging, now)

    def keep(self):
        """Note what moved, as it is noted with every round."""
        for one, moved in self.queue.drain_moved().items():
            known = self.kept.get(one, FairnessState(tag=0.0))
            self.kept[one] = moved.merged_onto(known)

    def reload(self):
        """Go on in a new queue, from what was kept of the one before."""
        self.keep()
        old = self.queue
        self.queue = self.new_queue(old.algorithm, old.aging, old.now)
        entries = {}
        for customer, entry, key in self.waiting.values():
            name = "" if old.algorithm.by_age else key
            entries.setdefault(customer, {}).setdefault(name, []).append(entry)
        out = {}
        for pick in self.out:
            name = "" if old.algorithm.by_age else self.keys[pick.ref]
            out.setdefault(pick.customer_id, {}).setdefault(name, []).append(pick.reservation)
        self.queue.restore(
            presents=old.presents, depth=old.depth, saved=self.kept, entries=entries, out=out
        )

    def push(self, customer, cost=1.0, priority=5, key="", now=0.0):
        ref = len(self.costs)
        self.costs.append(cost)
        self.arrivals.append(now)
        entry = self.queue.algorithm.entry(priority=priority, resumed=False, rank=0, ref=ref)
        self.waiting[ref] = customer, entry, key
        self.keys.append(key)
        self.queue.push(customer, entry, key)
        return ref

    def pick(self, now=0.0):
        pick = self.queue.pick(self.estimate, now)
        if pick:
            del self.waiting[pick.ref]
            self.out.append(pick)
            self.given[pick.customer_id] += self.costs[pick.ref]
        return pick

    def estimate(self, ref):
        return Estimate(self.costs[ref], self.costs[ref])

    def settle(self, index, spent=None):
        pick = self.out.pop(index)
        taken = self.costs[pick.ref] if spent is None else spent
        self.queue.settle(pick.customer_id, self.keys[pick.ref], pick.reservation, taken)
        return pick

    def run(self, index, elapsed):
        """A heartbeat of one that is out."""
        pick = self.out[index]
        after = self.queue.replace(
            pick.customer_id, self.keys[pick.ref], pick.reservation, elapsed
        )
        self.out[index] = pick._replace(reservation=after)

    def withdraw(self, index):
        ref = sorted(self.waiting)[index]
        customer, entry, key = self.waiting.pop(ref)
        self.queue.withdraw(customer, entry, key)

    def push_many(self, customer, costs, count):
        for number in range(count):
            self.push(customer, costs[number % len(costs)])

    def refresh_shares(self, customer, share):
        self.shares[customer] = share
        self.queue.refresh_shares()

    def gaps(self, picks):
        """How far a is ahead of b, pick by pick from now."""
        self.given.clear()
        gaps = [0.0]
        for _ in range(picks):
            self.pick()
            gaps.append(self.service("a") - self.service("b"))
        return gaps

    def weight(self, customer):
        return self.shares.get(customer, Share()).weight

    def service(self, customer):
        return self.given[customer] / self.weight(customer)


def widest(gaps):
    """The most that a series changes over any interval."""
    return max(gaps) - min(gaps)


def bound(world, costs):
    """c_f / w_f + c_g / w_g for the customers a and b."""
    return sum(max(costs[one]) / world.weight(one) for one in ("a", "b"))


@given(
    shares=st.fixed_dictionaries({one: st.builds(Share, weight=WEIGHTS) for one in CUSTOMERS}),
    costs=st.fixed_dictionaries(
        {one: st.lists(COSTS, min_size=1, max_size=8) for one in CUSTOMERS}
    ),
    visits=st.lists(st.sampled_from("cd-"), max_size=20),
)
def test_the_gap_by_emission_is_at_most_one_charge_of_each(shares, costs, visits):
    world = World(shares)
    for number in range(200):
        for one in ("a", "b"):
            world.push(one, costs[one][number % len(costs[one])])
    gaps = [0.0]
    for number in range(150):
        visitor = visits[number % len(visits)] if visits else "-"
        if visitor != "-":
            world.push(visitor, costs[visitor][number % len(costs[visitor])])
        world.pick()
        if number % 3 == 0:
            world.settle(number % len(world.out))
        gaps.append(world.service("a") - world.service("b"))
    assert world.queue.flow("a").ready > 0
    assert world.queue.flow("b").ready > 0
    assert widest(gaps) <= bound(world, costs) * ROUNDING


@given(
    shares=st.fixed_dictionaries({one: st.builds(Share, weight=WEIGHTS) for one in "ab"}),
    costs=st.fixed_dictionaries({one: st.lists(COSTS, min_size=1, max_size=8) for one in "ab"}),
    depth=st.integers(1, 12),
    ends=st.lists(st.integers(0, 11), min_size=1, max_size=40),
)
def test_the_gap_by_completion_is_at_most_that_times_depth_and_one(shares, costs, depth, ends):
    world = World(shares)
    for number in range(250):
        for one in "ab":
            world.push(one, costs[one][number % len(costs[one])])
    done = Counter()
    gaps = [0.0]
    for number in range(200):
        while len(world.out) < depth:
            world.pick()
        ended = world.settle(ends[number % len(ends)] % depth)
        done[ended.customer_id] += world.costs[ended.ref] / world.weight(ended.customer_id)
        gaps.append(done["a"] - done["b"])
    assert widest(gaps) <= (depth + 1) * bound(world, costs) * ROUNDING


@given(
    shares=st.fixed_dictionaries({one: st.builds(Share, weight=WEIGHTS) for one in "ab"}),
    estimates=st.fixed_dictionaries(dict.fromkeys("ab", COSTS)),
    factors=st.fixed_dictionaries(
        {one: st.sampled_from([0.01, 0.1, 0.5, 1.0, 3.0, 100.0]) for one in "ab"}
    ),
    depth=st.integers(1, 8),
    ends=st.lists(st.integers(0, 7), min_size=1, max_size=40),
)
def test_shares_of_true_cost_are_fair_however_wrong_the_estimates(
    shares, estimates, factors, depth, ends
):
    world = World(shares)
    truth = {one: estimates[one] * factors[one] for one in "ab"}
    done = Counter()
    gaps = []
    for number in range(400):
        for one in "ab":
            while world.queue.flow(one).ready < depth:
                world.push(one, estimates[one])
        while len(world.out) < depth:
            world.pick()
        index = ends[number % len(ends)] % depth
        customer = world.out[index].customer_id
        world.settle(index, truth[customer])
        done[customer] += truth[customer] / world.weight(customer)
        gaps.append(abs(done["a"] - done["b"]))
    most = {one: [max(truth[one], estimates[one])] for one in "ab"}
    assert max(gaps) <= 2 * (depth + 1) * bound(world, most) * ROUNDING


@given(
    shares=st.fixed_dictionaries(
        {
            one: st.builds(
                Share,
                weight=WEIGHTS,
                max_in_flight=st.none() | st.integers(1, 3),
                paused=st.booleans(),
            )
            for one in CUSTOMERS
        }
    ),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["push", "pick", "pick", "settle", "reshare"]),
            st.sampled_from(CUSTOMERS),
            st.integers(0, 9),
        ),
        max_size=120,
    ),
    algorithm=st.sampled_from(sorted(ALGORITHMS)),
    step_s=st.none() | st.just(5.0),
)
def test_a_pick_fails_only_if_nobody_may_go(shares, steps, algorithm, step_s):
    world = World(shares, algorithm=algorithm, step_s=step_s)
    ready, out = Counter(), Counter()

    def may_go(one):
        share = world.shares[one]
        below = share.max_in_flight is None or out[one] < share.max_in_flight
        return ready[one] > 0 and below and not share.paused

    for number, (step, one, choice) in enumerate(steps):
        now = float(number)
        if step == "push":
            world.push(one, cost=1.0 + choice, priority=1 + choice % 9, now=now)
            ready[one] += 1
        elif step == "settle" and world.out:
            out[world.settle(choice % len(world.out), spent=choice / 3).customer_id] -= 1
        elif step == "reshare":
            old = world.shares[one]
            world.refresh_shares(one, replace(old, paused=not old.paused))
        elif step == "pick":
            able = {other for other in CUSTOMERS if may_go(other)}
            pick = world.pick(now)
            assert bool(pick) == bool(able)
            if pick:
                assert pick.customer_id in able
                ready[pick.customer_id] -= 1
                out[pick.customer_id] += 1
        assert world.queue.ready == sum(ready.values())
        assert world.queue.in_flight == sum(out.values())
        assert world.queue.may_pick(now) or not any(map(may_go, CUSTOMERS))


@given(
    shares=st.fixed_dictionaries({one: st.builds(Share, weight=WEIGHTS) for one in CUSTOMERS}),
    costs=st.fixed_dictionaries(
        {one: st.floats(min_value=0.1, max_value=20.0) for one in CUSTOMERS}
    ),
    own=st.integers(0, 5),
    before=st.integers(0, 60),
)
def test_nobody_waits_longer_than_can_be_computed(shares, costs, own, before):
    world = World(shares)

    def pick():
        for one in "bcd":
            while world.queue.flow(one).ready < 2:
                world.push(one, costs[one])
        return world.pick()

    for _ in range(before):
        pick()
    refs = [world.push("a", costs["a"]) for _ in range(own + 1)]
    most = {one: waited_for(world, one, own, costs) for one in "bcd"}
    assume(sum(most[one] / costs[one] for one in "bcd") < 3_000)
    world.given.clear()
    while pick().ref != refs[-1]:
        for one in "bcd":
            assert world.given[one] <= most[one] * ROUNDING


def waited_for(world, other, own, costs):
    """What `policy.fairness` says another is given before a's agenda with `own` before it."""
    charge = costs["a"] / world.weight("a")
    return (own + 1) * charge * world.weight(other) + costs[other]


@given(
    shares=st.fixed_dictionaries({one: st.builds(Share, weight=MILD) for one in CUSTOMERS}),
    costs=st.fixed_dictionaries({one: st.sampled_from([0.5, 1.0, 4.0]) for one in CUSTOMERS}),
    flow=st.lists(
        st.tuples(st.sampled_from(CUSTOMERS), st.integers(1, 9)), min_size=1, max_size=30
    ),
    before=st.integers(0, 150),
    priority=st.integers(1, 9),
    step_s=st.sampled_from([3.0, 20.0]),
)
def test_with_aging_the_wait_is_bounded_by_steps_and_then_by_fair_turns(
    shares, costs, flow, before, priority, step_s
):
    """Whatever priorities the others, and the customer itself, send on and on."""
    world = World(shares, step_s=step_s)
    now, sent = 0.0, 0

    def pick():
        nonlocal now, sent
        now += 1.0
        while world.queue.ready < 12 or sent <= now:
            one, urgency = flow[sent % len(flow)]
            world.push(one, costs[one], priority=urgency, now=now)
            sent += 1
        return world.pick(now)

    for _ in range(before):
        pick()
    ref = world.push("a", costs["a"], priority=priority, now=now)
    aged_at = now + (priority - 1) * step_s
    while now + 1.0 < aged_at:
        if pick().ref == ref:
            return
    own = world.queue.flow("a").ready - 1
    most = {one: waited_for(world, one, own, costs) for one in "bcd"}
    world.given.clear()
    while pick().ref != ref:
        for one in "bcd":
            assert world.given[one] <= most[one] * ROUNDING


@given(
    incumbents=st.lists(st.tuples(MILD, COSTS), min_size=1, max_size=3),
    out=st.integers(1, 30),
    steps=st.lists(st.sampled_from((None, 0.1, 0.9, 1.0, 1.1, 5.0, 50.0)), max_size=60),
    cost=COSTS,
)
def test_an_arriving_customer_gets_one_agenda_of_another_in_advance_and_no_more(
    incumbents, out, steps, cost
):
    """Ends are reported in batches, and who comes with them begins where true costs led."""
    rivals = dict(zip("abc", incumbents, strict=False))
    world = World({one: Share(weight=weight) for one, (weight, _) in rivals.items()})
    for one, (_, charged) in rivals.items():
        world.push_many(one, [charged], 120)
    for _ in range(out):
        world.pick()
    for factor in steps:
        if factor is None or not world.out:
            world.pick()
        else:
            world.settle(0, spent=world.costs[world.out[0].ref] * factor)
    world.push_many("z", [cost], 100)
    in_a_row = next(number for number in range(101) if world.pick().customer_id != "z")
    factors = [factor for factor in steps if factor is not None]
    largest = max(charged / weight for weight, charged in incumbents) * max([1.0, *factors])
    assert (in_a_row - 1) * cost <= largest * ROUNDING


@given(
    history=st.lists(
        st.tuples(st.sampled_from(["x", "b", "z"]), COSTS), min_size=1, max_size=40
    ),
    later=st.lists(st.tuples(st.sampled_from(["x", "b", "z"]), COSTS), max_size=40),
    weight=WEIGHTS,
)
def test_who_returns_from_idleness_is_treated_like_a_new_customer(history, later, weight):
    """Neither credit nor debt: the same picks as if another had done what came before."""
    worlds = []
    for past_name in ("m", "m0"):  # no other name stands between, so ties go alike
        shares = {one: Share(weight=weight) for one in ("m", "m0")}
        world = World(shares)
        for one, cost in history:
            world.push(past_name if one == "x" else one, cost)
        for _ in history:
            world.pick()
        for _ in history:
            world.settle(0)
        world.push("b", 1.0)
        world.push("z", 1.0)
        for one, cost in later:
            world.push("m" if one == "x" else one, cost)
        worlds.append(world)
    picks = [[(p.customer_id, p.ref) for p in iter(one.pick, None)] for one in worlds]
    assert picks[0] == picks[1]


HOLDS = {"paused": {"paused": True}, "capped": {"max_in_flight": 1}, "idle": None}


@given(
    spell=st.integers(1, 60),
    costs=st.lists(COSTS, min_size=1, max_size=5),
    weights=st.tuples(WEIGHTS, WEIGHTS),
    hold=st.sampled_from([*HOLDS.values()]),
)
def test_an_absence_is_neither_made_up_for_nor_held_against_one(spell, costs, weights, hold):
    """The gap counts anew from the return, whatever the absence was."""
    world = World(dict(zip("ab", map(Share, weights), strict=True)))
    world.push_many("b", costs, 400)
    world.push("a", costs[0])
    while world.pick().customer_id == "b":
        pass
    if hold is not None:
        world.push_many("a", costs, 200)
        world.refresh_shares("a", Share(weight=weights[0], **hold))
    assert {world.pick().customer_id for _ in range(spell)} == {"b"}
    ahead = max(0.0, world.queue.flow("a").position - world.queue.present(1))
    if hold is None:
        world.push_many("a", costs, 200)
    world.refresh_shares("a", Share(weight=weights[0]))
    gaps = world.gaps(picks=100)
    most = sum(max(costs) / world.weight(one) for one in "ab")
    assert max(gaps) <= most * ROUNDING
    assert min(gaps) >= -(most + ahead) * ROUNDING


@given(
    before=st.tuples(WEIGHTS, WEIGHTS),
    after=st.tuples(WEIGHTS, WEIGHTS),
    costs=st.lists(COSTS, min_size=1, max_size=5),
    picks=st.integers(0, 50),
)
def test_new_weights_rule_from_the_next_pick(before, after, costs, picks):
    world = World(dict(zip("ab", map(Share, before), strict=True)))
    for one in "ab":
        world.push_many(one, costs, 400)
    for _ in range(picks):
        world.pick()
    for one, weight in zip("ab", after, strict=True):
        world.refresh_shares(one, Share(weight=weight))
    gaps = world.gaps(picks=150)
    most = 2 * sum(max(costs) / weight for weight in after)
    assert widest(gaps) <= most * ROUNDING, "whatever they weighed before"


@given(
    pushes=st.lists(
        st.tuples(st.sampled_from(CUSTOMERS), COSTS, st.integers(1, 9), st.sampled_from("xyz")),
        min_size=1,
        max_size=40,
    ),
    cuts=st.lists(st.integers(0, 12), min_size=1, max_size=10),
    algorithm=st.sampled_from(sorted(ALGORITHMS)),
    step_s=st.none() | st.just(3.0),
)
def test_split_rounds_equal_one_round(pushes, cuts, algorithm, step_s):
    worlds = [World(algorithm=algorithm, step_s=step_s) for _ in range(2)]
    for number, (one, cost, priority, key) in enumerate(pushes):
        for world in worlds:
            world.push(one, cost, priority, key, now=float(number))
    now = 100.0
    whole = [worlds[0].pick(now) for _ in range(sum(cuts))]
    parts = [worlds[1].pick(now) for count in cuts for _ in range(count)]
    assert whole == parts
    assert worlds[0].queue.all_fairness_states() == worlds[1].queue.all_fairness_states()


@given(
    keys=st.lists(st.sampled_from(["", "x", "y", "z"]), min_size=1, max_size=60),
    costs=st.lists(COSTS, min_size=1, max_size=5),
    weight=WEIGHTS,
)
def test_keys_never_change_what_their_customer_gets(keys, costs, weight):
    worlds = [World({"a": Share(weight=weight)}) for _ in range(2)]
    for number, key in enumerate(keys):
        for world, name in zip(worlds, (key, ""), strict=True):
            world.push("a", costs[0], key=name)
            world.push("b", costs[number % len(costs)])
    orders = [[pick.customer_id for pick in iter(one.pick, None)] for one in worlds]
    assert orders[0] == orders[1]


@given(
    costs=st.fixed_dictionaries({key: st.lists(COSTS, min_size=1, max_size=5) for key in "xy"})
)
def test_keys_of_one_customer_keep_the_bound_among_themselves(costs):
    world = World()
    owner = []
    for number in range(200):
        for key in "xy":
            owner.append(key)
            world.push("a", costs[key][number % len(costs[key])], key=key)
    given_to = Counter()
    gaps = [0.0]
    for _ in range(150):
        pick = world.pick()
        given_to[owner[pick.ref]] += world.costs[pick.ref]
        gaps.append(given_to["x"] - given_to["y"])
    assert widest(gaps) <= (max(costs["x"]) + max(costs["y"])) * ROUNDING


@given(
    pushes=st.lists(
        st.tuples(st.sampled_from(CUSTOMERS), st.integers(1, 9), st.integers(0, 40)),
        min_size=1,
        max_size=60,
    ),
    step_s=st.sampled_from([0.1, 1.0, 7.3]),
)
def test_with_aging_nothing_is_skipped_for_ever(pushes, step_s):
    """After eight steps the oldest is among the most urgent; a pick never goes below them."""
    world = World(step_s=step_s)
    waiting = {}
    arrivals = sorted(pushes, key=lambda push: push[2])
    for one, priority, at in arrivals:
        waiting[world.push(one, priority=priority, now=float(at))] = (priority, float(at))
    now = 41.0
    while waiting:
        now += step_s / 3
        urgency = {
            ref: world.queue.aging.urgency(priority, ref, now)
            for ref, (priority, _) in waiting.items()
        }
        pick = world.pick(now)
        assert urgency[pick.ref] == min(urgency.values())
        del waiting[pick.ref]


@given(
    rate=st.floats(min_value=0.01, max_value=1e3),
    burst=st.integers(1, 20),
    waits=st.lists(st.floats(min_value=0.0, max_value=30.0), min_size=1, max_size=80),
)
def test_a_rate_limit_holds_over_every_interval(rate, burst, waits):
    """In any t seconds at most burst + rate x t, and no token is lost while work waits."""
    start = 1_700_000_000.0
    world = World({"a": Share(rate_per_s=rate, burst=burst)})
    for _ in range(burst + 40 * len(waits)):
        world.push("a")
    emitted_at = []
    for now in accumulate(waits, initial=start):
        for _ in range(40):
            if world.pick(now) is None:
                due_at = world.queue.due_at
                assert due_at > now
                assert due_at - now <= 1.0 / rate + 1e-6
                break
            emitted_at.append(now)
    for number, first in enumerate(emitted_at):
        for later, last in enumerate(emitted_at[number:], start=1):
            assert later <= burst + rate * (last - first) + 1e-3 + rate * 1e-6


def stir(world, step, dice, error):
    """One step of a world in which anything may happen to anybody."""
    one, number = dice.choice(CUSTOMERS), len(world.costs)
    if step == "push":
        priority = dice.choice((1, 5, 9))
        world.push(one, dice.choice((0.01, 0.1, 1.0, 5.0)), priority=priority, now=number / 2)
    elif step == "pick":
        world.pick(number / 2)
    elif step == "settle" and world.out:
        index = dice.randrange(len(world.out))
        world.settle(index, world.costs[world.out[index].ref] * error)
    elif step == "reload":
        world.reload()
    elif step == "reshare":
        cap = dice.choice((None, 1, 3))
        world.refresh_shares(one, Share(dice.choice((0.1, 1.0, 7.0)), max_in_flight=cap))


@settings(max_examples=60)
@given(dice=st.randoms(use_true_random=True), step_s=st.none() | st.just(5.0))
def test_the_gap_that_is_shown_never_exceeds_the_bound_beside_it(dice, step_s):
    """Whatever the estimates, and whatever a reload or all that came since made forgotten."""
    world, odds = World(step_s=step_s), [dice.random() for _ in range(3)]
    errors = dice.sample((0.01, 0.5, 1.0, 3.0, 100.0), k=2)
    for number in range(dice.choice((50, 200, 600))):
        steps = ["push", "pick", "settle", "reload", "reshare"]
        (step,) = dice.choices(steps, [*odds, 0.01, 0.02])
        stir(world, step, dice, errors[number > 60])
        assert world.queue.gap() <= world.queue.bound() * ROUNDING


def take(world, number, step, one, choice):
    if step == "push":
        key = "xyz"[choice % 3]
        return world.push(one, 0.1 * choice, priority=choice, key=key, now=float(number))
    if step == "settle" and world.out:
        return world.settle(choice % len(world.out), spent=choice / 7)
    if step == "run" and world.out:
        return world.run(choice % len(world.out), choice * 2.0)
    if step == "withdraw" and world.waiting:
        return world.withdraw(choice % len(world.waiting))
    if step == "reshare":
        cap = None if choice > 5 else choice
        world.refresh_shares(one, Share(choice / 3, max_in_flight=cap, paused=choice == 9))
    return world.pick(float(number)) if step == "pick" else None


STEPS = ["push", "push", "pick", "pick", "run", "settle", "withdraw", "reshare", "reload"]


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(STEPS),
            st.sampled_from(CUSTOMERS),
            st.integers(1, 9),
        ),
        max_size=120,
    ),
    algorithm=st.sampled_from(sorted(ALGORITHMS)),
    step_s=st.none() | st.just(5.0),
)
@example(  # what rose before stays so
    steps=[*[("push", "a", 3)] * 4, ("push", "a", 1), ("pick", "a", 1), ("reload", "a", 1)],
    algorithm="round_robin",
    step_s=5.0,
)
@example(  # what a lone key's agenda took is not counted
    steps=[("push", "a", 1), ("pick", "a", 1), ("run", "a", 1), ("reload", "a", 1)],
    algorithm="weighted_fair",
    step_s=None,
)
@example(  # what a heartbeat tells of one of two keys is kept
    steps=[
        *[("push", "a", 1), ("push", "a", 2), ("pick", "a", 1), ("pick", "a", 1)],
        *[("run", "a", 9), ("reload", "a", 1), ("push", "a", 3), ("pick", "a", 1)],
    ],
    algorithm="weighted_fair",
    step_s=None,
)
def test_what_goes_on_from_kept_state_chooses_the_same(steps, algorithm, step_s):
    worlds = [World(algorithm=algorithm, step_s=step_s) for _ in range(2)]
    for number, step in enumerate(steps):
        assert take(worlds[0], number, *step) == take(worlds[1], number, *step)
        if step[0] == "reload":
            worlds[1].reload()
    if algorithm != "fifo":  # there tags are only shown
        assert due_places(worlds[0]) == due_places(worlds[1])
        assert worlds[0].queue.presents == worlds[1].queue.presents
    for world in worlds:
        for choice in range(6):
            take(world, len(steps), "push", "a", choice)
    while pick := worlds[0].pick(len(steps)):
        assert pick == worlds[1].pick(len(steps))


def due_places(world):
    """What all were given, by the weights that act with the next pick.

    Until then who may not go, and was given nothing, is behind the present by another weight or
    by none; it joins at the present.
    """
    flow, least = world.queue.flow, min(world.queue.presents)
    return {
        one: structs.replace(
            state,
            weight=flow(one).due_weight,
            tag=state.tag if state.level else max(state.tag, least),
        )
        for one, state in places(world).items()
    }


def places(world):
    """What all were given."""
    return world.queue.all_fairness_states()


def test_a_key_that_is_forgotten_does_not_come_back_after_a_restart():
    worlds = [World(algorithm="round_robin") for _ in range(2)]
    for world in worlds:
        for key in "yz":
            world.push("a", key=key)
        world.pick()
        world.withdraw(0)
    worlds[1].reload()
    for world in worlds:
        world.settle(0)
        world.push("a", key="y")
    worlds[1].reload()
    assert places(worlds[0]) == places(worlds[1])


def test_what_is_withdrawn_last_is_kept_too_while_its_customer_may_not_go():
    worlds = [World({"a": Share(max_in_flight=1)}) for _ in range(2)]
    for world in worlds:
        for key in "xyx":
            world.push("a", key=key)
        world.pick()
        world.keep()
        world.withdraw(0)
        world.withdraw(0)
    worlds[1].reload()
    for world in worlds:
        world.settle(0)
        world.push("a", key="y")
        world.push("a", key="x")
    assert worlds[0].pick() == worlds[1].pick()
    assert places(worlds[0]) == places(worlds[1])
