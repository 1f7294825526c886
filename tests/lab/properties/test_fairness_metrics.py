"""The audit, kept up to date event by event, says what a look at the whole log says."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pop_stream.lab.fairness_metrics import jain
from pop_stream.lab.fairness_metrics.audit import measure_fairness
from pop_stream.lab.fairness_metrics.service_log import ServiceLog
from pop_stream.model.ids import CustomerId

CUSTOMERS = 3
DEEDS = (*("arrive",) * 6, *("emit",) * 4, *("settle",) * 3, "hold", "release", "weigh")

deeds = st.lists(
    st.tuples(
        st.sampled_from(DEEDS),
        st.integers(0, CUSTOMERS - 1),
        st.sampled_from((0.25, 1.0, 2.0)),
        st.sampled_from((0.25, 1.0, 2.0)),
    ),
    min_size=30,
    max_size=120,
)


class AgendaEvidence:
    """A log, and beside it, after every event, who is backlogged and what was served."""

    def __init__(self, script):
        self.log = ServiceLog()
        for number in range(CUSTOMERS):
            self.log.index(CustomerId(f"c{number}"))
        self.waiting = [0] * CUSTOMERS
        self.held = [False] * CUSTOMERS
        self.weights = [1.0] * CUSTOMERS
        self.out = [[] for _ in range(CUSTOMERS)]
        self.served = [0.0] * CUSTOMERS
        self.charges = [0.0] * CUSTOMERS
        self.shortfalls = [0.0] * CUSTOMERS
        self.costs = [0.0] * CUSTOMERS
        self.shorts = [0.0] * CUSTOMERS
        self.excesses = [0.0] * CUSTOMERS
        self.overs = [0.0] * CUSTOMERS
        self.depth = 0
        self.states = [self.state()]
        self.emissions = []
        for at, (deed, customer, value, other) in enumerate(script):
            if getattr(self, deed)(float(at), customer, value, other) is not False:
                self.states.append(self.state())

    def state(self):
        backlogged = frozenset(
            one for one in range(CUSTOMERS) if self.waiting[one] and not self.held[one]
        )
        return backlogged, tuple(self.served), tuple(self.weights)

    def arrive(self, at, customer, *_):
        self.waiting[customer] += 1
        self.log.arrived(at, customer)

    def emit(self, at, customer, charged, spent):
        if not self.waiting[customer]:
            return False
        self.emissions.append((len(self.states), customer, spent))
        self.waiting[customer] -= 1
        weight = self.weights[customer]
        self.out[customer].append((spent, weight))
        self.depth = max(self.depth, sum(map(len, self.out)))
        self.charges[customer] = max(self.charges[customer], charged / weight)
        short = (spent - charged) / weight
        self.shortfalls[customer] = max(self.shortfalls[customer], short)
        self.excesses[customer] = max(self.excesses[customer], -short)
        self.overs[customer] = max(self.overs[customer], charged - spent)
        self.costs[customer] = max(self.costs[customer], charged)
        self.shorts[customer] = max(self.shorts[customer], spent - charged)
        self.log.emitted(at, customer, charged=charged, spent=spent)
        return True

    def settle(self, at, customer, *_):
        if not self.out[customer]:
            return False
        spent, weight = self.out[customer].pop(0)
        self.served[customer] += spent / weight
        self.log.settled(at, customer, spent=spent, weight=weight)
        return True

    def hold(self, at, customer, *_):
        self.held[customer] = True
        self.log.held(at, customer)

    def release(self, at, customer, *_):
        self.held[customer] = False
        self.log.released(at, customer)

    def weigh(self, at, customer, value, _):
        if self.weights[customer] != value:
            most, short = self.costs[customer] / value, self.shorts[customer] / value
            self.charges[customer] = max(self.charges[customer], most)
            self.shortfalls[customer] = max(self.shortfalls[customer], short)
            over = self.overs[customer] / value
            self.excesses[customer] = max(self.excesses[customer], over)
        self.weights[customer] = value
        self.log.weighed(at, customer, value)

    def gap(self, ahead, behind):
        """The widest of all intervals in which both stay backlogged and weigh the same."""
        # What ends with an event is served before it, in the backlog there was then.
        worst = 0.0
        for begin in range(len(self.states)):
            for end in range(begin, len(self.states)):
                if not {ahead, behind} <= self.states[end][0]:
                    break
                weighed = (self.states[at][2] for at in (begin, end))
                if len({(weights[ahead], weights[behind]) for weights in weighed}) > 1:
                    break
                (_, first, _), (_, last, _) = self.states[begin], self.states[end]
                grown = (last[ahead] - first[ahead]) - (last[behind] - first[behind])
                worst = max(worst, grown)
        return worst

    def bound(self, ahead, behind):
        charges = self.charges[ahead] + self.charges[behind]
        errors = [self.shortfalls[one] + self.excesses[one] for one in (ahead, behind)]
        return (self.depth + 1) * charges + self.depth * sum(errors)


@given(deeds)
def test_the_worst_gap_is_that_of_the_worst_interval(script):
    logged = AgendaEvidence(script)
    gaps = {
        pair: logged.gap(*pair)
        for pair in permutations(range(CUSTOMERS), 2)
        if any({*pair} <= backlogged for backlogged, _, _ in logged.states)
    }
    expected = [gap and gap / logged.bound(*pair) for pair, gap in gaps.items()]
    judged = measure_fairness(logged.log)
    assert judged.gap_over_bound == pytest.approx(max(expected, default=None))
    assert judged.depth == logged.depth


def spans(states):
    """First and last of each run of True."""
    begin = None
    for number, state in enumerate([*states, False]):
        if state and begin is None:
            begin = number
        elif not state and begin is not None:
            yield begin, number
            begin = None


def shared(logged, customer, rivals, begin, end):
    """What a customer was given and due of what rivals were emitted in a span of states.

    And the largest of that by weight, times its own weight in the end.
    """
    given, due, largest = [], [], 0.0
    for number, emitter, spent in logged.emissions:
        before = number - 1
        if begin <= before < end and emitter in rivals[before]:
            weights = logged.states[before][2]
            total = sum(weights[one] for one in rivals[before])
            due.append(spent * weights[customer] / total)
            given.append(spent if emitter == customer else 0.0)
            largest = max(largest, spent / weights[emitter])
    return given, due, largest * logged.states[end - 1][2][customer]


def enough(due, largest, stretches):
    return sum(due) >= jain.MIN_LARGEST_AGENDAS * largest * stretches


def largest_of(logged, customer):
    """What its largest agenda took; of one without any, that of anybody."""
    own = [spent for _, one, spent in logged.emissions if one == customer]
    return max(own or [spent for _, _, spent in logged.emissions], default=0.0)


def competitors(logged):
    backlogged = [state[0] for state in logged.states]
    rivals = [set() for _ in logged.states]
    for customer in range(CUSTOMERS):
        contested = [customer in some and len(some) > 1 for some in backlogged]
        for begin, end in spans(contested):
            given, due, largest = shared(logged, customer, backlogged, begin, end)
            own = 0.0 if sum(given) else largest_of(logged, customer)
            if enough(due, max(largest, own), 1):
                for state in range(begin, end):
                    rivals[state].add(customer)
    found = {}
    for customer in range(CUSTOMERS):
        times = [*spans([customer in some and len(some) > 1 for some in rivals])]
        all_three = [shared(logged, customer, rivals, begin, end) for begin, end in times]
        given = [one for some, _, _ in all_three for one in some]
        due = [one for _, some, _ in all_three for one in some]
        own = 0.0 if sum(given) else largest_of(logged, customer)
        largest = max([own, *(one for _, _, one in all_three)])
        if times and largest and enough(due, largest, len(times)):
            found[customer] = (sum(given), sum(due))
    return found


@given(deeds)
def test_competitors_are_given_and_due_what_a_slow_count_says(script):
    logged = AgendaEvidence(script)
    turns, jain.MIN_LARGEST_AGENDAS = jain.MIN_LARGEST_AGENDAS, 1.001  # no ties
    try:
        found = {
            customer: (one.given, one.due)
            for customer, one in jain.competitors(logged.log).items()
        }
        expected = competitors(logged)
    finally:
        jain.MIN_LARGEST_AGENDAS = turns
    assert found.keys() == expected.keys()
    for customer, pair in expected.items():
        assert found[customer] == pytest.approx(pair)


def test_an_agenda_that_took_long_by_accident_hides_no_contest():
    """How large agendas are says which stretches count; shares are of what they took."""

    def of(spent_by):
        log = ServiceLog()
        a, b = (log.index(CustomerId(name)) for name in "ab")
        for customer in (a, b) * 30:
            log.arrived(0.0, customer)
        for number, customer in enumerate((a, b) * 30):
            spent = spent_by(number)
            log.emitted(float(number), customer, charged=1.0, spent=spent)
            log.settled(number + 0.5, customer, spent=spent, weight=1.0)
        return log

    noisy, even = of(lambda number: 10.0 if number == 4 else 1.0), of(lambda _: 1.0)
    assert measure_fairness(noisy).jain is None, "20 of what took 10 by accident were never due"
    judged = measure_fairness(noisy, sizes=even)
    # The last of one is emitted when the other has left.
    assert judged.competitors == 2
    assert judged.jain == pytest.approx((39 + 29) ** 2 / (2 * (39**2 + 29**2)), abs=0.001)
    assert judged.jain_floor > 0.998, "an agenda of 1, not of 10, of some 34 due"


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=20), st.floats(0.1, 10))
def test_jains_index_has_the_properties_jain_gives_it(shares, factor):
    index = jain.jain(shares)
    assert 1 / len(shares) - 1e-9 <= index <= 1 + 1e-9
    assert jain.jain([share * factor for share in shares]) == pytest.approx(index)
    assert jain.jain([shares[0]] * len(shares)) == pytest.approx(1)
    alone = [shares[0], *([0.0] * (len(shares) - 1))]
    assert jain.jain(alone) == pytest.approx(1 / len(shares))
