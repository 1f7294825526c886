"""What an audit says of small logs that can be checked by hand."""

import pytest

from pop_stream.lab.fairness_metrics import audit as audit_module
from pop_stream.lab.fairness_metrics.audit import (
    measure_fairness,
    service_times,
    wait_distribution,
)
from pop_stream.lab.fairness_metrics.gap import GapTracker
from pop_stream.lab.fairness_metrics.jain import MIN_LARGEST_AGENDAS, jain, jain_lower_bound
from pop_stream.lab.fairness_metrics.service_log import (
    EMITTED,
    REWEIGHTED,
    SETTLED,
    ObservedWeight,
    ServedAttempt,
    ServiceLog,
    service_log_of,
)


def logged(script):
    """A log of one event a second; `a+` arrives, `a!` is emitted, `a.` ends, at cost 1."""
    log = ServiceLog()
    for at, word in enumerate(script.split()):
        customer = log.index(word[0])
        deed = word[1:]
        if deed == "+":
            log.arrived(at, customer)
        elif deed == "!":
            log.emitted(at, customer, charged=1.0, spent=1.0)
        elif deed == ".":
            log.settled(at, customer, spent=1.0, weight=1.0)
        elif deed == "held":
            log.held(at, customer)
        elif deed == "free":
            log.released(at, customer)
        else:
            log.weighed(at, customer, float(deed.removeprefix("=")))
    return log


def taking_turns(order, *, each=60):
    """Two customers with `each` agendas, emitted and ended one by one in an endless order."""
    log = ServiceLog()
    a, b = log.index("a"), log.index("b")
    left = {a: each, b: each}
    for customer in left:
        for _ in range(each):
            log.arrived(0.0, customer)
    at = 0.0
    while any(left.values()):
        for name in order:
            customer = log.index(name)
            if left[customer]:
                at += 1
                left[customer] -= 1
                log.emitted(at, customer, charged=1.0, spent=1.0)
                log.settled(at, customer, spent=1.0, weight=1.0)
    return log


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([], 1.0),
        ([5.0], 1.0),
        ([0.0, 0.0], 1.0),
        ([2, 2, 2], 1.0),
        ([1, 0, 0, 0], 0.25),
        ([1, 3], 0.8),
    ],
)
def test_jains_index(shares, expected):
    assert jain(shares) == pytest.approx(expected)


def test_equal_turns_are_perfectly_even():
    judged = measure_fairness(taking_turns("ab"))
    assert judged.jain == pytest.approx(1.0, abs=1e-3)
    assert judged.competitors == 2


def test_turns_of_three_to_one_are_as_uneven_as_jain_says():
    judged = measure_fairness(taking_turns("aaab", each=300))
    # Until a has nothing left it is given 1.5 times its due, and b half of it.
    assert judged.jain == pytest.approx((1.5 + 0.5) ** 2 / (2 * (1.5**2 + 0.5**2)), abs=0.01)


def test_who_is_starved_counts_though_it_was_given_nothing():
    log = taking_turns("aaaaaaaaaab", each=2 * MIN_LARGEST_AGENDAS + 5)
    assert measure_fairness(log).competitors == 2
    assert measure_fairness(log).jain < 0.8


def test_short_encounters_say_nothing_about_fairness():
    log = logged(" ".join(["a+"] * 9 + ["b+", "b!", "b.", "a!", "a."] * 4))
    judged = measure_fairness(log)
    assert (judged.jain, judged.jain_floor, judged.competitors) == (None, None, 0)


def test_one_who_competes_with_those_that_do_not_count_is_no_index_either():
    """Nine agendas are too few for b, whose agendas are large, but enough for a."""
    log = ServiceLog()
    a, b = log.index("a"), log.index("b")
    for customer, count in ((a, 900), (b, 10)):
        for _ in range(count):
            log.arrived(0.0, customer)
    for number in range(900):
        if number % 100 == 99:
            log.emitted(0.0, b, charged=100.0, spent=100.0)
        log.emitted(0.0, a, charged=1.0, spent=1.0)
    assert (measure_fairness(log).jain, measure_fairness(log).competitors) == (None, 0)


def test_a_stretch_that_one_large_agenda_of_another_decides_says_nothing():
    """c stays for sixty agendas of its own, while b is given one as long as a thousand."""
    log = ServiceLog()
    for customer, count in (("a", 40), ("b", 40)):
        for _ in range(count):
            log.arrived(0.0, log.index(customer))
    for number in range(30):
        if number == 10:
            for _ in range(60):
                log.arrived(10.0, log.index("c"))
        for customer in "ab":
            log.emitted(10.0, log.index(customer), charged=1e3, spent=1e3)
        for _ in range(60 if number == 10 else 0):
            log.emitted(10.0, log.index("c"), charged=1.0, spent=1.0)
    judged = measure_fairness(log)
    assert judged.competitors == 2
    assert judged.jain == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("largest", [5.0, 1_000.0])
def test_a_perfect_order_of_agendas_of_all_sizes_is_not_below_the_floor(largest):
    """Least emitted so far is next; c, d, … come and go with small agendas."""
    log, given, waiting = ServiceLog(), [0.0] * 26, [0] * 26
    for number in range(20_000):
        coming = number % 8 if number % 3 else number // 7 % 2
        if coming < 2 or number % 2_000 < 1_000:
            if not waiting[coming]:
                backlogged = [given[one] for one in range(26) if waiting[one]]
                given[coming] = max(given[coming], min(backlogged, default=0.0))
            waiting[coming] += 1
            log.arrived(float(number), log.index(chr(97 + coming)))
        if number % 2:
            chosen = min((one for one in range(26) if waiting[one]), key=given.__getitem__)
            spent = largest if chosen < 2 else 1.0
            given[chosen] += spent
            waiting[chosen] -= 1
            log.emitted(float(number), log.index(chr(97 + chosen)), charged=spent, spent=spent)
    judged = measure_fairness(log)
    assert judged.competitors >= 2
    assert judged.jain >= judged.jain_floor - 1e-9


def emissions(order, *, costs=None, **waiting):
    """So many agendas of each wait from the beginning, and are emitted in this order."""
    log, costs = ServiceLog(), costs or {}
    for customer, count in waiting.items():
        for _ in range(count):
            log.arrived(0.0, log.index(customer))
    for at, customer in enumerate(order, start=1):
        cost = costs.get(customer, 1.0)
        log.emitted(at, log.index(customer), charged=cost, spent=cost)
    return log


def test_a_stretch_counts_from_twenty_agendas_due_on():
    assert measure_fairness(emissions("ab" * 20, a=21, b=20)).competitors == 2
    assert measure_fairness(emissions("ab" * 20, a=20, b=20)).competitors == 0, (
        "39 halves were due"
    )


def test_who_goes_on_when_a_third_has_left_shares_with_fewer():
    judged = measure_fairness(emissions("abc" * 30 + "ab" * 70, a=100, b=100, c=30))
    assert judged.competitors == 3
    assert judged.jain == pytest.approx(1.0, abs=1e-4)


def test_in_every_stretch_an_agenda_may_be_off():
    once = emissions("ab" * 50, a=51, b=50)
    assert measure_fairness(once).jain_floor == pytest.approx(1 / (1 + (1 / 50) ** 2))
    again = emissions("ab" * 50, a=101, b=50)
    for _ in range(50):
        again.arrived(100.0, again.index("b"))
    for customer in "ab" * 50:
        again.emitted(101.0, again.index(customer), charged=1.0, spent=1.0)
    assert measure_fairness(again).jain_floor == pytest.approx(1 / (1 + (2 / 100) ** 2))


def test_who_is_starved_of_small_agendas_counts_too():
    log = emissions("a" * 50, a=51, b=50, costs={"a": 0.01, "b": 0.01})
    assert measure_fairness(log).competitors == 2, "those of b are taken to be as large as any"
    assert measure_fairness(log).jain == pytest.approx(0.5)
    served = emissions("a" * 100 + "b", a=101, b=50, costs={"a": 0.01, "b": 0.01})
    assert measure_fairness(served).competitors == 2
    assert measure_fairness(served).jain == pytest.approx(0.51, abs=0.02)


@pytest.mark.parametrize(
    ("coarseness", "expected"),
    [([], 1.0), ([0.0, 0.0], 1.0), ([0.05, 0.05], 1 / 1.0025), ([0.1, 0.0], 1 / 1.005)],
)
def test_the_floor_is_the_index_of_shares_that_are_off_by_as_much(coarseness, expected):
    assert jain_lower_bound(coarseness) == pytest.approx(expected)


def test_shares_that_are_off_by_one_agenda_each_come_to_the_floor():
    judged = measure_fairness(taking_turns("a" + "ab" * 24 + "a", each=26))
    assert judged.jain == pytest.approx(judged.jain_floor, abs=2e-4)
    assert judged.jain_floor == pytest.approx(jain_lower_bound([1 / 25, 1 / 25]), abs=1e-4)


def test_longer_competition_has_a_higher_floor():
    floors = [measure_fairness(taking_turns("ab", each=each)).jain_floor for each in (30, 300)]
    assert floors[0] < 0.9995 < floors[1] < 1


def test_weights_decide_what_is_due():
    log = ServiceLog()
    a, b = log.index("a"), log.index("b")
    log.weighed(0.0, a, 3.0)
    for customer, count in ((a, 90), (b, 30)):
        for _ in range(count):
            log.arrived(0.0, customer)
    for number in range(120):
        customer = b if number % 4 == 3 else a
        log.emitted(number, customer, charged=1.0, spent=1.0)
    assert measure_fairness(log).jain == pytest.approx(1.0, abs=1e-3)
    assert measure_fairness(log).competitors == 2


def test_a_weight_changed_on_the_way_counts_from_then_on():
    log = ServiceLog()
    a, b = log.index("a"), log.index("b")
    for customer in (a, b):
        for _ in range(200):
            log.arrived(0.0, customer)
    for number in range(200):
        if number == 80:
            log.weighed(number, a, 3.0)
        customer = b if number % (2 if number < 80 else 4) == 1 else a
        log.emitted(number, customer, charged=1.0, spent=1.0)
    assert measure_fairness(log).jain == pytest.approx(1.0, abs=1e-3)
    assert measure_fairness(log).competitors == 2, (
        "they compete to the end of the log, where both wait"
    )


def compete(log, *, rounds, cost):
    """Two customers that come with as much, take turns until nothing is left, and go."""
    customers = log.index("a"), log.index("b")
    for customer in customers:
        for _ in range(rounds):
            log.arrived(0.0, customer)
    for _ in range(rounds):
        for customer in customers:
            log.emitted(0.0, customer, charged=cost, spent=cost)


@pytest.mark.parametrize(
    ("second", "cost", "competitors"),
    [(30, 1.0, 2), (30, 4.0, 0), (150, 4.0, 2)],
)
def test_all_stretches_together_must_be_long_for_the_largest_agenda(second, cost, competitors):
    log = ServiceLog()
    compete(log, rounds=30, cost=1.0)
    compete(log, rounds=second, cost=cost)
    assert measure_fairness(log).competitors == competitors


def test_who_was_given_nothing_is_measured_by_the_agendas_it_had_in_all():
    """Its largest of all, for in the stretch it had none; else any stretch would count."""
    log = ServiceLog()
    c, d = log.index("c"), log.index("d")
    for customer in (c, d):
        log.arrived(0.0, customer)
    for _ in range(24):
        log.arrived(0.0, d)
        log.emitted(0.0, d, charged=1.0, spent=1.0)
    log.emitted(0.0, c, charged=5.0, spent=5.0)
    assert measure_fairness(log).competitors == 0


def test_a_gap_is_the_growth_of_a_difference_while_both_wait():
    judged = measure_fairness(logged("a+ a+ a+ a+ b+ b+ a! a! a! a. a. a."))
    assert (judged.gap.ahead, judged.gap.behind, judged.gap.seconds) == ("a", "b", 3.0)
    assert judged.depth == 3
    assert judged.gap.bound == (3 + 1) * (1 + 0), "b was never charged anything"


def test_what_ends_while_one_does_not_wait_makes_no_gap():
    assert measure_fairness(logged("a+ a+ a+ a! a. a! a. b+")).gap.seconds == 0.0


def test_where_no_two_ever_waited_together_there_is_no_gap():
    judged = measure_fairness(logged("a+ a+ a! a. a! a. b+ b! b."))
    assert (judged.gap, judged.gap_over_bound) == (None, None)


def test_two_who_were_never_charged_anything_are_not_apart():
    judged = measure_fairness(logged("a+ b+"))
    assert (judged.gap.seconds, judged.gap_over_bound) == (0.0, 0.0)


def test_an_interval_begins_anew_when_one_comes_back():
    log = logged("a+ a+ a+ a+ b+ b+ a! a. b! b! b. b. b+ a! a. b!")
    assert measure_fairness(log).gap.seconds == 1.0


def test_a_held_customer_has_no_claim():
    log = logged("a+ a+ a+ a+ b+ bheld a! a. a! a. bfree a! a.")
    assert measure_fairness(log).gap.seconds == 1.0


def served_in_turn(*services):
    """The worst gap of two customers that wait all the time, after services of `a` and `b`."""
    gaps = GapTracker([0, 1])
    for customer in (0, 1):
        gaps.join(customer)
        gaps.charge(customer, charged=1.0, spent=1.0)
    for customer, spent in services:
        gaps.serve(customer, spent)
    return gaps.worst(["a", "b"], 1)


def test_an_interval_may_begin_where_the_other_was_furthest_ahead():
    worst = served_in_turn((0, 10.0), (1, 30.0))
    assert (worst.ahead, worst.behind, worst.seconds) == ("b", "a", 30.0)
    worst = served_in_turn((0, 3.0), (1, 10.0), (0, 12.0))
    assert (worst.ahead, worst.behind, worst.seconds) == ("a", "b", 12.0)
    worst = served_in_turn((0, 5.0), (1, 1.0), (0, 5.0), (1, 2.0))
    assert (worst.ahead, worst.seconds) == ("a", 9.0)


def test_what_was_served_before_one_came_is_in_no_interval():
    gaps = GapTracker([0, 1, 2])
    gaps.join(0)
    gaps.join(1)
    gaps.serve(0, 1.0)
    gaps.join(2)
    gaps.serve(0, 2.0)
    gaps.leave(5)
    gaps.leave(0)
    gaps.serve(0, 50.0)
    gaps.charge(0, charged=1.0, spent=1.0)
    gaps.charge(2, charged=1.0, spent=1.0)
    assert [gaps.worst(["a", "b", "c"], 1).seconds] == [3.0]
    gaps.join(0)
    gaps.serve(2, 2.5)
    gaps.serve(2, 2.5)
    worst = gaps.worst(["a", "b", "c"], 1)
    assert (worst.ahead, worst.seconds) == ("c", 5.0)


def test_too_small_a_charge_widens_the_bound_by_what_it_hid():
    gaps = GapTracker([0, 1])
    gaps.join(0)
    gaps.join(1)
    gaps.charge(0, charged=1.0, spent=4.0)
    gaps.charge(1, charged=2.0, spent=0.5)
    gaps.serve(0, 4.0)
    worst = gaps.worst(["a", "b"], 2)
    assert (worst.ahead, worst.behind) == ("a", "b")
    assert worst.bound == (2 + 1) * (1.0 + 2.0) + 2 * (3.0 + 1.5)
    assert worst.over_bound == pytest.approx(4.0 / worst.bound)


def test_what_a_charge_hid_is_by_weight_in_the_bound():
    gaps = GapTracker([0, 1])
    gaps.join(0)
    gaps.join(1)
    gaps.charge(0, charged=4.0, spent=12.0, weight=4.0)
    gaps.charge(1, charged=1.0, spent=1.0)
    assert gaps.worst(["a", "b"], 1).bound == (1 + 1) * (1.0 + 1.0) + 1 * (2.0 + 0.0)


def test_intervals_end_where_a_weight_changes_and_the_bound_holds_for_both():
    gaps = GapTracker([0, 1])
    for customer in (0, 1):
        gaps.join(customer)
        gaps.charge(customer, charged=1.0, spent=1.0)
    gaps.serve(0, 5.0)
    gaps.reweigh(1, 0.5)
    gaps.reweigh(9, 0.5)  # is not compared
    gaps.serve(0, 5.0)
    worst = gaps.worst(["a", "b"], 1)
    assert (worst.seconds, worst.bound) == (5.0, 2 * (1.0 + 2.0))
    gaps.leave(1)
    gaps.reweigh(1, 1.0)
    gaps.serve(0, 50.0)
    assert gaps.worst(["a", "b"], 1).seconds == 5.0, "who is not backlogged stays so"


def test_customers_that_are_not_compared_make_no_gap():
    gaps = GapTracker([0])
    for customer in (0, 1):
        gaps.join(customer)
        gaps.charge(customer, charged=1.0, spent=1.0)
        gaps.serve(customer, 1.0)
        gaps.leave(customer)
    assert gaps.worst(["a", "b"], 1) is None


def test_only_the_largest_customers_are_compared():
    log = logged("a+ b+ c+ c+ a! b! c! c! a. b. c. c.")
    assert measure_fairness(log, max_paired=2).paired == 2
    assert measure_fairness(log, max_paired=0).gap is None


def uneven(name, *, ends, behind):
    """Moments of one that waits all the time beside `behind`, and ends so many agendas."""
    return [f"{name}+"] * (ends + 1) + [f"{behind}+"] + [f"{name}!", f"{name}."] * ends


def test_those_with_the_most_agendas_are_compared():
    log = logged(" ".join([*uneven("a", ends=2, behind="z"), *uneven("b", ends=7, behind="z")]))
    [both] = [measure_fairness(log, max_paired=2).gap]
    assert {both.ahead, both.behind} == {"a", "b"}, "z ended none"
    assert measure_fairness(log, max_paired=3).gap.seconds == 7.0


def test_of_a_very_long_log_fewer_are_compared_but_never_under_a_handful(monkeypatch):
    log = logged(" ".join(f"{name}+ {name}! {name}." for name in "abcdefghijkl"))
    assert measure_fairness(log).paired == 12
    monkeypatch.setattr(audit_module, "_COMPARISONS", 12 * 10 + 11)
    assert measure_fairness(log).paired == 10
    monkeypatch.setattr(audit_module, "_COMPARISONS", 12)
    assert measure_fairness(log).paired == 8


def test_utilisation_of_less_than_a_second():
    log = ServiceLog()
    a = log.index("a")
    log.arrived(0.0, a)
    log.emitted(0.0, a, charged=0.25, spent=0.25)
    log.settled(0.5, a, spent=0.25, weight=1.0)
    assert measure_fairness(log).utilisation(1) == 0.5


def test_a_depth_reported_by_the_scheduler_counts_if_it_is_larger():
    log = logged("a+ b+ b+ a! a.")
    assert measure_fairness(log).depth == 1
    assert measure_fairness(log, depth=7).depth == 7
    assert measure_fairness(logged("a+ b+ a! b! a. b."), depth=1).depth == 2


def test_utilisation_is_work_over_what_runners_had_to_give():
    judged = measure_fairness(logged("a+ a+ a! a. a! a."))
    assert judged.times.seconds == 5.0
    assert judged.utilisation(1) == pytest.approx(2.0 / 5.0)
    assert judged.served == {"a": 2.0}


def test_an_empty_log_is_judged_too():
    judged = measure_fairness(ServiceLog())
    assert (judged.jain, judged.gap_over_bound, judged.utilisation(8)) == (None, None, 0.0)
    assert (judged.times.started, judged.times.per_second) == (0, 0.0)


def test_waits_are_ranked_without_making_values_up():
    waits = wait_distribution([float(number) for number in range(1, 101)])
    assert (waits.p50, waits.p95, waits.p99, waits.longest) == (50.0, 95.0, 99.0, 100.0)
    assert (waits.count, waits.mean) == (100, 50.5)
    assert wait_distribution([]).count == 0
    assert wait_distribution([3.0]).p99 == 3.0


def served(customer_id, *, emitted_at, weight=1.0, **fields):
    return ServedAttempt(
        customer_id=customer_id,
        submitted_at=fields.get("submitted_at", emitted_at - 2.0),
        arrived_at=fields.get("arrived_at", emitted_at - 1.0),
        emitted_at=emitted_at,
        started_at=emitted_at + 1.0,
        ended_at=emitted_at + 2.0,
        charged=1.0,
        spent=3.0,
        weight=weight,
    )


def test_a_log_can_be_made_of_what_an_observer_gathered():
    attempts = [served("b", emitted_at=20.0, weight=2.0), served("a", emitted_at=10.0)]
    log = service_log_of(attempts)
    assert log.customers == ["a", "b"]
    assert service_times(log).waits == {"a": pytest.approx([3.0]), "b": pytest.approx([3.0])}
    assert log.span == (9.0, 22.0)
    ends = [(customer, *values) for kind, _, customer, *values in log if kind == SETTLED]
    assert ends == [(0, 3.0, 3.0), (1, 1.5, 3.0)]
    assert [values[0] for kind, _, _, *values in log if kind == REWEIGHTED] == [2.0]


def test_a_weight_that_was_seen_before_an_emission_counts_from_there():
    weight_changes = [ObservedWeight(15.0, "b", 2.0)]
    log = service_log_of([served("b", emitted_at=20.0, weight=2.0)], weight_changes)
    assert [(at, values[0]) for kind, at, _, *values in log if kind == REWEIGHTED] == [
        (15.0, 2.0)
    ]


def test_nobody_is_emitted_before_it_arrives():
    log = service_log_of([served("a", emitted_at=10.0, arrived_at=10.5)])
    assert [kind for kind, *_ in log][:2] == [0, EMITTED]


# ---- what is counted: worker-seconds as they were, over the weight of then ----


def test_charges_count_by_weight_in_the_bound():
    result = measure_fairness(logged("a=2 a+ a+ b+ b+ a! b! a. b."))
    assert result.gap.bound == (2 + 1) * (1 / 2 + 1)


@pytest.mark.parametrize(("weight", "gap"), [(1, 2.0), (2, 1.0)])
def test_only_another_weight_begins_an_interval(weight, gap):
    result = measure_fairness(logged(f"a+ a+ a+ b+ a! a. a={weight} a! a."))
    assert result.gap.seconds == gap


def test_depth_is_of_those_that_are_out_at_once():
    assert measure_fairness(logged("a+ b+ a! a. b! b.")).depth == 1
    assert measure_fairness(logged("a+ b+ a! b! a. b.")).depth == 2


def test_gaps_are_by_weight_and_what_was_served_is_not():
    log = logged("a+ a+ b+ a!")
    log.settled(9.0, log.index("a"), spent=4.0, weight=8.0)
    result = measure_fairness(log)
    assert result.gap.seconds == 0.5
    assert result.served == {"a": 4.0, "b": 0.0}
    assert result.utilisation(2) == 4.0 / (2 * 9.0)


def given(rounds, names="ab", *, joins=None):
    """Costs charged and spent by name, emitted round by round; all but one wait from the start.

    Args:
        rounds: Of `(name, charged, spent)` each.
        names: Who waits from the start, with work enough.
        joins: Another, and the round it comes with.
    """
    log = ServiceLog()

    def arrive(name, at):
        for _ in range(1_000):
            log.arrived(at, log.index(name))

    for name in names:
        arrive(name, 0.0)
    for at, some in enumerate(rounds, start=1):
        if joins is not None and at == joins[1]:
            arrive(joins[0], at)
        for name, charged, spent in some:
            log.emitted(at, log.index(name), charged=charged, spent=spent)
    return log


def test_what_agendas_took_counts_and_not_what_they_were_charged():
    result = measure_fairness(given([[("a", 1.0, 1.0), ("b", 1.0, 3.0)]] * 60))
    assert result.jain == pytest.approx(0.8)
    once = [[("a", 500.0, 1.0), ("b", 1.0, 1.0)]]
    assert measure_fairness(given(once + [[("a", 1.0, 1.0), ("b", 1.0, 1.0)]] * 60)).jain == 1.0


def test_what_was_given_before_a_third_came_counts_too():
    a, b, c = (("a", 1.0, 1.0), ("b", 1.0, 1.0), ("c", 1.0, 1.0))
    result = measure_fairness(given([[a, a, a, b]] * 40 + [[a, b, c]] * 40, joins=("c", 41)))
    assert result.competitors == 3
    assert result.jain == pytest.approx(9 / (3 * (16 / 9 + 4 / 9 + 1)))


@pytest.mark.parametrize("after", [[], [[("b", 1.0, 1.0)]] * 900])
def test_who_is_given_nothing_while_the_others_are_is_no_exception(after):
    """Served only once all others are done, or never: it competed all the time."""
    a, c = ("a", 1.0, 1.0), ("c", 1.0, 1.0)
    result = measure_fairness(given([[a, c]] * 1_000 + after, "abc"))
    assert result.competitors == 3
    assert result.jain == pytest.approx(2 / 3, abs=0.001)


@pytest.mark.parametrize("max_paired", [2, 3])
def test_too_large_a_charge_of_a_third_does_not_widen_the_bound(max_paired):
    log = logged("c=2 a+ a+ b+ b+ c+")
    for name, charged in (("a", 1.0), ("b", 1.0), ("c", 3.0)):
        log.emitted(9.0, log.index(name), charged=charged, spent=1.0)
    for name, weight in (("a", 1.0), ("a", 1.0), ("b", 1.0), ("b", 1.0), ("c", 2.0)):
        log.settled(10.0, log.index(name), spent=1.0, weight=weight)
    result = measure_fairness(log, max_paired=max_paired)
    assert {result.gap.ahead, result.gap.behind} == {"a", "b"}
    assert result.gap.bound == (3 + 1) * (1 + 1)


def test_half_of_three_is_the_second():
    waits = wait_distribution([3.0, 1.0, 2.0])
    assert (waits.p50, waits.p95, waits.longest) == (2.0, 3.0, 3.0)


def test_it_lasts_from_the_first_arrival_to_the_last_end():
    log = ServiceLog()
    a = log.index("a")
    log.arrived(5.0, a)
    log.emitted(6.0, a, charged=1.0, spent=1.0)
    log.settled(8.0, a, spent=1.0, weight=1.0)
    log.started(9.0, a, waited=4.0)
    times = service_times(log)
    assert (times.begins_at, times.ends_at, times.seconds) == (5.0, 8.0, 3.0)
