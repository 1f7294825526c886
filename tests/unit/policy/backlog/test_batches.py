"""Batch keys: whom an agenda brings along, and that nobody gains by it."""

import pytest
from backlogs import START, backlog, ids, placed, settled
from hypothesis import given
from hypothesis import strategies as st

from pop_stream.policy.fairness.flow import Share

NOW = START.timestamp()


def batched(agenda_id, customer_id=None, batch_key="k", **fields):
    return placed(agenda_id, customer_id or agenda_id[0], batch_key=batch_key, **fields)


def test_one_that_is_chosen_brings_others_of_other_customers():
    one = backlog(companions=2)
    one.place([placed("a0", "a"), batched("a1"), batched("b1"), batched("c1"), batched("d1")])
    one.place([placed("b0", "b"), placed("c0", "c")])
    assert ids(one.choose(1)) == ["a0"]
    assert ids(one.choose(3)) == ["b1", "a1", "c1"]
    assert one.queue.flow("c").in_flight == 1  # each is charged to its own customer


def test_without_companions_a_key_means_nothing():
    one = backlog()
    one.place([batched("a1"), batched("a2"), placed("b0", "b")])
    assert ids(one.choose(2)) == ["a1", "b0"]


def test_a_round_has_no_more_than_its_slots():
    one = backlog(companions=10)
    one.place([batched(f"{name}1") for name in "abcdef"])
    assert len(one.choose(3)) == 3


@pytest.mark.parametrize(
    "share", [Share(paused=True), Share(rate_per_s=0.001, burst=1), Share(max_in_flight=1)]
)
def test_who_may_not_go_is_not_brought_along(share):
    one = backlog(shares={"b": share}, companions=5)
    one.place([batched("a1"), batched("b1"), batched("b2"), batched("b3")])
    brought = [name for name in ids(one.choose(10)) if name[0] == "b"]
    assert len(brought) == (0 if share.paused else 1)


def test_a_companion_goes_before_nothing_more_urgent_of_its_customer():
    one = backlog(companions=5)
    one.place([batched("a1"), batched("b1", priority=5), placed("b0", "b", priority=1)])
    assert ids(one.choose(1)) == ["a1"]
    assert ids(one.choose(2)) == ["b0", "b1"]


def test_with_strict_priorities_a_companion_is_as_urgent():
    one = backlog(companions=5, aging_s=1000.0)
    one.place([batched("a1", priority=1), batched("b1", priority=5), batched("c1", priority=1)])
    one.place([placed("d1", "d", priority=2)], 1.0)
    assert ids(one.choose(3, 1.0)) == ["a1", "c1", "d1"]


def test_what_ended_waits_or_is_held_is_not_brought_along():
    one = backlog(companions=5)
    one.place([batched("a1"), batched("b1"), batched("c1", held=True), batched("d1")])
    one.choose(10)
    assert one.in_flight == 3
    for name in ("a1", "b1", "d1"):
        one.settle(settled(name))
    assert one.held == 1
    one.place([batched("e1")])
    assert ids(one.choose(5)) == ["e1"]


def test_batches_are_found_again_after_a_restart():
    agendas = [batched("a1"), batched("b1"), batched("c1")]
    one = backlog(companions=1)
    one.place(agendas)
    one.choose(2)
    again = backlog(companions=1)
    again.restore([(0, agendas)], [one.state()])
    assert ids(again.choose(5)) == ["c1"]
    assert not again._backlog.batches


def test_nothing_is_kept_of_batches_that_are_over():
    one = backlog(companions=1)
    one.place([batched(f"a{n}", "a", f"k{n}") for n in range(10)])
    one.choose(10)
    for number in range(10):
        one.settle(settled(f"a{number}"))
    assert not one._backlog.batches


STEPS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["", "k", "l"]),
        st.sampled_from([1.0, 2.0, 5.0]),
        st.integers(0, 3),
        st.integers(0, 2),
    ),
    min_size=5,
    max_size=60,
)


@given(steps=STEPS, companions=st.integers(0, 8))
def test_the_gap_stays_within_its_bound_whatever_is_brought_along(steps, companions):
    one = backlog(shares={"a": Share(weight=3.0)}, companions=companions)
    out = []
    for number, (customer_id, batch_key, cost_s, slots, ends) in enumerate(steps):
        name = f"{customer_id}{number}"
        one.place([batched(name, customer_id, batch_key, cost_s=cost_s)], float(number))
        out += [(agenda, cost_s) for agenda in ids(one.choose(slots, float(number)))]
        for _ in range(min(ends, len(out))):
            agenda, spent_s = out.pop(0)
            one.settle(settled(agenda, noop=spent_s), float(number))
        assert one.queue.gap() <= one.queue.bound() + 1e-6


def shares_beside_a_spark(one, owners):
    """Parts of a flood and a victim of 8 slots that end at once, beside one spark a round.

    Args:
        one: A backlog.
        owners: Customer and fairness key of each; flood and spark have one batch key.
    """
    given = {"flood": 0, "victim": 0}
    for number in range(60):
        for name, few in (("flood", 10), ("spark", 1), ("victim", 10)):
            customer_id, key = owners[name]
            more = {"fairness_key": key, "batch_key": "" if name == "victim" else "k"}
            agendas = [f"{name}-{number}-{index}" for index in range(few)]
            one.place([placed(agenda, customer_id, **more) for agenda in agendas])
        for agenda in ids(one.choose(8)):
            name, _, _ = agenda.partition("-")
            one.settle(settled(agenda, noop=0.01 if name == "spark" else 1.0))
            if name in given:
                given[name] += 1
    return {name: count / sum(given.values()) for name, count in given.items()}


def test_one_large_agenda_lets_nobody_take_hours_of_small_ones_as_companions():
    one = backlog(companions=10)
    one.place([placed("hour", "a")])
    one.choose(1)
    one.settle(settled("hour", noop=3600.0))
    found = shares_beside_a_spark(
        one, {"flood": ("a", ""), "victim": ("b", ""), "spark": ("c", "")}
    )
    assert found["victim"] == pytest.approx(0.5, abs=0.02)


def test_a_fairness_key_gains_nothing_by_a_key_that_brings_its_agendas_along():
    owners = {"flood": ("a", "x"), "victim": ("a", "y"), "spark": ("a", "z")}
    found = shares_beside_a_spark(backlog(companions=10), owners)
    assert found["victim"] == pytest.approx(0.5, abs=0.02)


def test_the_agendas_of_a_lone_key_go_together_whatever_it_was_given():
    one = backlog(companions=5)
    one.place([placed("a0", "a", fairness_key="x")])
    one.choose(1)
    one.settle(settled("a0", noop=3600.0))
    one.place([batched(f"a{n}", fairness_key="x") for n in range(1, 6)])
    one.place([placed("b0", "b")])
    assert [name[0] for name in ids(one.choose(6))].count("a") == 5


def test_a_flood_of_companions_gains_no_share():
    """B has the key of every agenda of A's, C has none: each still gets a third."""
    one = backlog(companions=10)
    one.place([batched(f"a{n}") for n in range(300)])
    one.place([batched(f"b{n}") for n in range(300)])
    one.place([placed(f"c{n}", "c") for n in range(300)])
    counts = {"a": 0, "b": 0, "c": 0}
    for _ in range(300):
        for name in ids(one.choose(1)):
            counts[name[0]] += 1
            one.settle(settled(name, noop=1.0))
    assert all(abs(count - 100) <= 15 for count in counts.values())
