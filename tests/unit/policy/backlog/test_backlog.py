"""Pages, notes and rounds of one insight, by the table; crashes are in `properties`."""

import msgspec
import pytest
from backlogs import (
    START,
    backlog,
    cancel,
    give_back,
    ids,
    incomparable_origins,
    placed,
    settled,
    several,
)

from pop_stream.model.definitions import Insight
from pop_stream.model.events.scheduling import Command, Origin
from pop_stream.policy.backlog.agenda_index import (
    CLAIMED,
    EMITTED,
    GONE,
    PAGE_SLOTS,
    READY,
    BacklogPage,
    page_and_slot,
    ref_of,
    slots_of_bitmap,
)
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.policy.delta import AgendaRecord, Delta, FairnessState
from pop_stream.policy.fairness.flow import Share

NOW = START.timestamp()


def origins(*offsets, partition=0):
    return [Origin(partition=partition, offset=offset) for offset in offsets]


def reloaded(pages, *deltas, shares=None, **insight):
    fresh = backlog(shares, **insight)
    fresh.restore(pages, deltas)
    return fresh


# ---- arrivals ----


def test_new_agendas_are_new_once():
    one = backlog()
    agendas = several("ann", 3)
    assert one.filter_new(agendas, origins(1, 2, 3)) == [0, 1, 2]
    assert one.filter_new(agendas, origins(1, 2, 3)) == []


def test_a_repeat_is_known_by_its_origin_even_after_the_agenda_is_gone():
    one = backlog()
    agendas = several("ann", 2)
    one.filter_new(agendas, origins(5, 6))
    one.place(agendas)
    one.choose(2)
    for agenda in agendas:
        one.settle(settled(agenda.agenda_id))
    assert one.filter_new(agendas, origins(5, 6)) == []


def test_places_within_a_record_are_distinguished():
    one = backlog()
    agendas = several("ann", 3)
    lists = [Origin(partition=0, offset=7, index=index) for index in range(3)]
    assert one.filter_new(agendas[:2], lists[:2]) == [0, 1]
    assert one.filter_new(agendas, lists) == [2]


def test_partitions_have_origins_of_their_own():
    one = backlog()
    assert one.filter_new(several("ann", 1), origins(9, partition=0)) == [0]
    assert one.filter_new(several("bob", 1), origins(3, partition=1)) == [0]
    assert one.filter_new(several("cid", 1), origins(8, partition=0)) == []


def test_an_id_that_waits_is_not_placed_twice_whatever_its_origin():
    one = backlog()
    agendas = several("ann", 1)
    one.place([agendas[index] for index in one.filter_new(agendas, incomparable_origins(1))])
    assert one.filter_new(agendas, incomparable_origins(1)) == []
    assert one.filter_new(agendas, origins(1)) == []


def test_of_two_with_one_id_in_a_page_the_first_counts():
    agendas = [placed("same", "ann"), placed("same", "bob")]
    assert backlog().filter_new(agendas, incomparable_origins(2)) == [0]


def test_pages_are_numbered_in_order_and_never_again():
    one = backlog()
    assert one.place(several("ann", 1)) == 0
    cancel(one, "ann-0")
    assert one.drain_emptied() == [0]
    assert one.drain_emptied() == []
    assert one.place(several("bob", 1)) == 1


# ---- rounds, claims, ends ----


def test_a_round_counts_what_is_out():
    one = backlog()
    one.place(several("ann", 5))
    chosen = one.choose(3)
    assert ids(chosen) == ["ann-0", "ann-1", "ann-2"]
    assert {one.attempt for one in chosen} == {1}
    assert (one.ready, one.in_flight, one.unclaimed) == (2, 3, 3)
    assert (one.emitted, one.rounds) == (3, 1)


@pytest.mark.parametrize("slots", [0, -5])
def test_no_slots_choose_none(slots):
    one = backlog()
    one.place(several("ann", 5))
    assert one.choose(slots) == []
    assert one.rounds == 0


def test_a_claim_counts_once():
    one = backlog()
    one.place(several("ann", 2))
    one.choose(2)
    assert one.claim("ann-0", 1)
    assert not one.claim("ann-0", 1)
    assert not one.claim("ann-0", 9)
    assert not one.claim("nobody", 1)
    assert (one.in_flight, one.unclaimed, one.claimed) == (2, 1, 1)


def test_an_end_frees_the_slot_once():
    one = backlog()
    one.place(several("ann", 2))
    one.choose(2)
    one.claim("ann-0", 1)
    assert not one.settle(settled("ann-0", attempt=9))
    assert one.settle(settled("ann-0"))
    assert not one.settle(settled("ann-0"))
    assert (one.in_flight, one.unclaimed, one.claimed) == (1, 1, 1)
    assert one.settle(settled("ann-1"))
    assert (one.in_flight, one.unclaimed, one.claimed) == (0, 0, 2)


def test_what_is_given_back_goes_first_of_its_priority_with_the_next_attempt():
    one = backlog()
    one.place([placed("a"), placed("b"), placed("urgent", priority=1), placed("c", rank=0)])
    assert ids(one.choose(2)) == ["urgent", "a"]
    assert give_back(one, "a", 1)
    assert not give_back(one, "a", 1)
    assert (one.ready, one.in_flight, one.unclaimed) == (3, 1, 1)
    again = one.choose(2)
    assert [(each.agenda_id, each.attempt) for each in again] == [("a", 2), ("b", 1)]
    assert not one.settle(settled("a", attempt=1))
    assert one.settle(settled("a", attempt=2))


def test_by_age_what_is_given_back_goes_before_all_that_came_later():
    one = backlog(algorithm="fifo")
    one.place([placed("a", "ann"), placed("b", "bob"), placed("c", "ann")])
    one.choose(1)
    give_back(one, "a", 1)
    assert ids(one.choose(3)) == ["a", "b", "c"]


def test_only_what_waits_is_withdrawn():
    one = backlog()
    one.place(several("ann", 3))
    one.choose(1)
    assert not cancel(one, "nobody")
    assert cancel(one, "ann-1")
    assert not cancel(one, "ann-1")
    assert ids(one.choose(5)) == ["ann-2"]


def test_a_resumed_agenda_may_be_withdrawn():
    one = backlog()
    one.place(several("ann", 2))
    one.choose(1)
    give_back(one, "ann-0", 1)
    assert cancel(one, "ann-0")
    assert ids(one.choose(5)) == ["ann-1"]


def test_a_claim_of_what_a_crash_made_forgotten_takes_it_out():
    """Else the agenda would be emitted again, and its slot never be freed."""
    one = backlog()
    one.place(several("ann", 3))
    assert one.claim("ann-1", 1)
    assert (one.ready, one.in_flight, one.unclaimed) == (2, 1, 0)
    assert one.settle(settled("ann-2"))
    assert (one.ready, one.in_flight, one.unclaimed) == (1, 1, 0)
    assert ids(one.choose(5)) == ["ann-0"]
    assert one.position_of("ann-1").state == CLAIMED
    assert one.queue.flow("ann").position == 2.0, "two are out"


def test_an_outdated_claim_takes_nothing_out():
    one = backlog()
    one.place(several("ann", 1))
    one.choose(1)
    give_back(one, "ann-0", 1)
    assert not one.claim("ann-0", 1)
    assert not one.settle(settled("ann-0", attempt=1))
    assert (one.ready, one.in_flight) == (1, 0)


# ---- costs ----


def test_costs_are_learned_from_what_ended():
    one = backlog()
    one.place(
        [placed("a", cost_s=None), placed("b", cost_s=None, operation_types=("noop", "x"))]
    )
    one.choose(1)
    one.settle(settled("a", noop=0.25, other=3.0))
    assert one.costs.learned == {"noop": 0.25}
    assert one.drain_delta().learned == {"noop": 0.25}
    assert one.position_of("b").cost == 3.25, "what is usual, for a type never seen"


def test_what_an_agenda_took_is_delivered_when_it_ends():
    one = backlog({"ann": Share(weight=2.0)})
    one.place([*several("ann", 3), *several("bob", 1)])
    one.choose(1)
    assert (one.queue.flow("ann").account.tag, one.queue.flow("ann").position) == (0.0, 0.5)
    one.settle(settled("ann-0", noop=7.0))
    assert (one.queue.flow("ann").account.tag, one.queue.flow("ann").position) == (3.5, 3.5)


def test_an_end_without_costs_is_the_time_since_the_claim():
    one = backlog()
    one.place(several("ann", 3))
    one.choose(2)
    one.claim("ann-0", 1, NOW, NOW + 1.0)
    one.settle(settled("ann-0"), NOW + 9.0, NOW + 5.0)
    assert one.queue.flow("ann").account.tag == 4.0, "on the clock of the relay"
    one.settle(settled("ann-1"), NOW + 9.0)
    assert one.queue.flow("ann").account.tag == 4.0, "nobody had claimed it"
    assert one.costs.learned == {}


@pytest.mark.parametrize(("spent", "tag"), [(0.0, 1e-4), (-1e300, 1e-4), (1e300, 1e7)])
def test_impossible_costs_are_bounded(spent, tag):
    """A report of nothing would let a customer go for ever, one of ages would lock it out."""
    one = backlog()
    one.place([*several("ann", 2), *several("bob", 1)])
    one.choose(1)
    one.settle(settled("ann-0", noop=spent))
    assert one.queue.flow("ann").account.tag == pytest.approx(tag)


def test_free_work_does_not_keep_others_waiting():
    one = backlog()
    one.place([*several("ann", 300), *several("bob", 50)])
    first = []
    for _ in range(100):
        (chosen,) = one.choose(1)
        one.settle(settled(chosen.agenda_id, noop=0.0))
        first.append(chosen.customer_id)
    assert first.count("bob") == 50


def test_round_robin_takes_no_notice_of_costs():
    one = backlog(algorithm="round_robin")
    one.place([*several("ann", 3), *several("bob", 3)])
    one.choose(1)
    one.settle(settled("ann-0", noop=50.0))
    assert ids(one.choose(4)) == ["bob-0", "ann-1", "bob-1", "ann-2"]


# ---- definitions ----


def test_a_change_of_shares_acts_on_the_standing_backlog():
    shares = {}
    one = backlog(shares)
    one.place([*several("ann", 5), *several("bob", 5)])
    shares["ann"] = Share(paused=True)
    one.reconfigure(one.insight)
    assert ids(one.choose(3)) == ["bob-0", "bob-1", "bob-2"]


def test_a_change_of_anything_else_leaves_debts_as_they_are():
    one = backlog()
    one.place([placed("dear", "ann", cost_s=50.0), *several("ann", 30), *several("bob", 30)])
    one.choose(1)
    one.reconfigure(Insight(id="media", max_in_flight=99))
    assert one.insight.max_in_flight == 99
    assert {each.customer_id for each in one.choose(20)} == {"bob"}


@pytest.mark.parametrize("algorithm", ["round_robin", "weighted_fair"])
def test_each_of_hundreds_of_customers_has_its_turn(algorithm):
    one = backlog(algorithm=algorithm)
    names = [f"c{number}" for number in range(350)]
    for name in names:
        one.place(several(name, 2))
    for _ in range(2):  # in refills that stop in the middle of a lap
        chosen = [*ids(one.choose(130)), *ids(one.choose(220))]
        assert sorted(name.partition("-")[0] for name in chosen) == sorted(names)


def test_another_algorithm_takes_the_backlog_over():
    one = backlog(algorithm="fifo")
    one.place(several("bob", 3))
    one.place(several("ann", 3))
    one.choose(1)
    one.reconfigure(Insight(id="media", algorithm="round_robin"))
    assert (one.ready, one.in_flight, one.unclaimed) == (5, 1, 1)
    assert ids(one.choose(4)) == ["ann-0", "bob-1", "ann-1", "bob-2"]


def test_a_change_of_algorithm_leaves_no_debts():
    """Under fifo one customer was served a thousand times: under fair shares all start even."""
    one = backlog(algorithm="fifo")
    one.place(several("ann", 500))
    one.place(several("bob", 50))
    one.place(several("ann", 50, first=500))
    one.choose(510)
    one.reconfigure(Insight(id="media"))
    assert [each.customer_id for each in one.choose(20)].count("ann") == 10


def test_a_change_to_strict_priorities_leaves_no_debts_either():
    one = backlog()
    one.place([placed("dear", "ann", cost_s=50.0), *several("ann", 30), *several("bob", 30)])
    one.choose(1)
    one.settle(settled("dear", noop=50.0))
    one.reconfigure(Insight(id="media", aging_s=60.0))
    assert [each.customer_id for each in one.choose(20, NOW)].count("bob") == 10


def test_who_was_given_most_by_another_algorithm_is_where_idle_returners_begin():
    one = backlog()
    one.place([placed("dear", "ann", cost_s=50.0), *several("ann", 9), *several("bob", 9)])
    one.choose(3)
    one.drain_delta()
    one.reconfigure(Insight(id="media", algorithm="round_robin"))
    assert ids(one.choose(4, NOW)) == ["ann-0", "bob-2", "ann-1", "bob-3"]
    positions = {flow.position for flow in one.queue.flows()}
    assert len(positions) == 1
    assert {*one.drain_delta().fairness} == {"ann", "bob"}


def test_by_age_keys_are_none_after_a_change_and_after_a_restart():
    one = backlog()
    agendas = [placed(f"a-{number}", fairness_key=key) for number, key in enumerate("kkkl")]
    one.place(agendas)
    one.reconfigure(Insight(id="media", algorithm="fifo"))
    again = reloaded([(0, agendas)], one.snapshot(), algorithm="fifo")
    for each in (one, again):
        assert ids(each.choose(9)) == ["a-0", "a-1", "a-2", "a-3"]


def test_strict_priorities_may_be_switched_on_and_off():
    one = backlog()
    one.place([*several("ann", 3, priority=5), *several("bob", 3, priority=2)])
    one.reconfigure(Insight(id="media", aging_s=60.0))
    assert ids(one.choose(2, NOW)) == ["bob-0", "bob-1"]
    one.reconfigure(Insight(id="media"))
    assert ids(one.choose(3, NOW)) == ["ann-0", "bob-2", "ann-1"]


# ---- questions ----


def test_position_of_an_agenda():
    one = backlog()
    one.place(several("ann", 4))
    one.choose(1)
    assert one.position_of("nobody") is None
    assert one.position_of("ann-0").state == EMITTED
    where = one.position_of("ann-3")
    assert (where.state, where.flow.customer_id, where.cost) == (READY, "ann", 1.0)
    assert where.flow is one.queue.flow("ann")
    assert one.cost_of(where.flow.customer_queue.head()) == 1.0


# ---- state ----


def test_nothing_changed_is_no_delta():
    one = backlog()
    assert one.drain_delta() is None
    one.place(several("ann", 1))
    assert one.drain_delta() is not None
    assert one.drain_delta() is None
    assert one.choose(0) == []
    assert one.drain_delta() is None


def test_a_delta_holds_what_an_event_changed():
    one = backlog()
    one.filter_new(several("ann", 2), origins(4, 5))
    one.place(several("ann", 2))
    one.choose(1)
    delta = one.drain_delta()
    note = AgendaRecord(ref=0, state=EMITTED, attempt=1, charged=1_000_000, sure=1_000_000)
    assert delta.records == (note,)
    assert (delta.fairness["ann"].tag, delta.fairness["ann"].last) == (0.0, 1_000_000)
    assert delta.origins == {"0": (5, 0)}
    assert (delta.emitted, delta.claimed, delta.rounds, delta.next_page) == (1, 0, 1, 1)


def test_a_reload_restores_pages_with_all_deltas_laid_over_them():
    shares = {"bob": Share(weight=3.0)}
    one = backlog(shares)
    agendas = [*several("ann", 4), *several("bob", 4)]
    one.place(agendas)
    deltas = [one.drain_delta()]
    one.choose(5)
    deltas.append(one.drain_delta())
    one.claim("ann-0", 1)
    one.settle(settled("bob-0", noop=0.5))
    give_back(one, "ann-1", 1)
    deltas.append(one.drain_delta())
    other = reloaded([(0, agendas)], *deltas, shares=shares)
    for name in ("ready", "in_flight", "unclaimed", "emitted", "claimed", "rounds"):
        assert getattr(other, name) == getattr(one, name), name
    assert other.queue.presents == one.queue.presents
    assert other.costs.learned == one.costs.learned
    assert other.costs.ratios == one.costs.ratios
    assert other.choose(9) == one.choose(9)


def test_a_snapshot_replaces_all_deltas():
    one = backlog()
    agendas = [*several("ann", 4), *several("bob", 4)]
    one.filter_new(agendas, origins(*range(8)))
    one.place(agendas)
    one.choose(4)
    give_back(one, "ann-0", 1)
    one.settle(settled("bob-0", noop=0.5))
    snapshot = one.snapshot()
    assert snapshot.gone == {"0": "10"}
    other = reloaded([(0, agendas)], snapshot)
    assert other.choose(9) == one.choose(9)
    assert other.filter_new(agendas, origins(*range(8))) == []


def test_a_snapshot_says_nothing_of_attempts_that_are_over():
    one = backlog()
    agendas = several("ann", 2)
    one.place(agendas)
    one.choose(1)
    give_back(one, "ann-0", 1)
    one.choose(1)
    one.settle(settled("ann-0", attempt=2))
    assert one.snapshot().records == ()
    assert ids(reloaded([(0, agendas)], one.snapshot()).choose(5)) == ["ann-1"]


def test_a_page_that_was_to_be_deleted_is_listed_again():
    one = backlog()
    agendas = several("ann", 2)
    one.place(agendas)
    cancel(one, "ann-0")
    cancel(one, "ann-1")
    other = reloaded([(0, agendas)], one.drain_delta())
    assert other.drain_emptied() == [0]
    assert other.ready == 0
    assert other.place(several("bob", 1)) == 1


def test_a_page_whose_event_was_not_noted_joins_at_the_present():
    """Its row was written and then came a crash: its customer gets no credit for that."""
    one = backlog()
    one.place([*several("ann", 30), *several("bob", 1)])
    one.choose(2)
    one.settle(settled("bob-0"))
    one.choose(25)
    first = [*several("ann", 30), *several("bob", 1)]
    more = several("bob", 20, first=1)
    other = reloaded([(0, first), (1, more)], one.drain_delta())
    one.place(more)
    assert other.choose(8) == one.choose(8)
    assert other.filter_new(more, origins(*range(20))) == []


def test_a_customer_unpaused_while_nobody_looked_gets_no_credit():
    shares = {"bob": Share(paused=True)}
    agendas = [*several("ann", 60), *several("bob", 60)]
    one = backlog(shares)
    one.place(agendas)
    one.choose(50)
    shares.clear()
    other = reloaded([(0, agendas)], one.drain_delta())
    assert [each.customer_id for each in other.choose(10)].count("bob") == 5


def test_notes_of_pages_that_are_gone_are_skipped():
    delta = Delta(
        presents=(1.0,),
        emitted=1,
        claimed=0,
        rounds=1,
        next_page=5,
        records=(AgendaRecord(ref=ref_of(3, 1), state=EMITTED),),
        gone={"4": "3"},
        fairness={"ann": FairnessState(tag=2.0)},
    )
    one = reloaded([], delta)
    assert (one.ready, one.in_flight, one.next_page) == (0, 0, 5)


def test_a_restored_fifo_is_by_age_whatever_the_keys():
    agendas = [placed("a", fairness_key="x"), placed("b"), placed("c", fairness_key="x")]
    one = backlog(algorithm="fifo")
    one.place(agendas)
    other = reloaded([(0, agendas)], one.drain_delta(), algorithm="fifo")
    assert cancel(other, "b")
    assert ids(other.choose(3)) == ["a", "c"]


def test_keys_survive_a_reload():
    agendas = [placed(f"a{n}", fairness_key="xy"[n % 2], cost_s=1.0 + n % 2) for n in range(40)]
    one = backlog()
    one.place(agendas)
    one.choose(7)
    other = reloaded([(0, agendas)], one.drain_delta())
    assert ids(other.choose(20)) == ids(one.choose(20))


def test_a_key_that_came_back_is_noted_though_its_customer_did_not_move():
    one = backlog()
    agendas = [placed("x0", fairness_key="x")]
    agendas += [placed(f"{key}{n}", fairness_key=key) for n in range(9) for key in "yz"]
    one.place(agendas)
    one.choose(11)
    deltas = [one.drain_delta()]
    more = [placed(f"x{n}", fairness_key="x") for n in range(1, 9)]
    one.place(more)
    deltas.append(one.drain_delta())
    other = reloaded([(0, agendas), (1, more)], *deltas)
    assert ids(other.choose(12)) == ids(one.choose(12))


def test_a_new_key_joins_at_the_present_after_a_reload_too():
    one = backlog()
    agendas = [placed(f"{key}{n}", fairness_key=key) for n in range(30) for key in "xy"]
    one.place(agendas)
    one.choose(40)
    other = reloaded([(0, agendas)], one.drain_delta())
    more = [placed(f"z{n}", fairness_key="z") for n in range(9)]
    other.place(more)
    one.place(more)
    assert ids(other.choose(9)) == ids(one.choose(9))


def test_a_reload_notes_nothing_anew():
    one = backlog()
    agendas = several("ann", 3)
    one.place(agendas)
    one.choose(1)
    other = reloaded([(0, agendas)], one.drain_delta())
    assert other.drain_delta() is None


def test_a_key_that_waits_below_the_urgent_keeps_its_turn_over_a_reload():
    one = backlog()
    agendas = [
        placed(f"{key}{n}", priority=1, fairness_key=key) for n in range(5) for key in "xy"
    ]
    agendas += [placed(f"late {key}{n}", fairness_key=key) for n in range(9) for key in "xz"]
    one.place(agendas)
    one.choose(10)
    other = reloaded([(0, agendas)], one.drain_delta())
    expected = ids(one.choose(6))
    assert ids(other.choose(6)) == expected
    assert sum("z" in name for name in expected) > 1


def test_what_is_learned_stays_known_whatever_comes_after():
    one = backlog()
    agendas = [
        placed(f"a{n}", cost_s=None, operation_types=("mix" if n % 2 else "cut",))
        for n in range(4)
    ]
    one.place(agendas)
    one.choose(2)
    deltas = [one.drain_delta()]
    for name, kind in (("a0", "cut"), ("a1", "mix")):
        one.settle(settled(name, **{kind: 0.5}))
        deltas.append(one.drain_delta())
    one.choose(1)
    deltas.append(one.drain_delta())
    other = reloaded([(0, agendas)], *deltas)
    assert other.costs.learned == {"cut": 0.5, "mix": 0.5}


def test_origins_of_repeats_known_by_id_are_noted_too():
    """Else the same repeat would be placed once its agendas are gone."""
    one = backlog()
    agendas = several("ann", 2)
    one.place(agendas)
    one.drain_delta()
    assert one.filter_new(agendas, origins(4, 5)) == []
    assert one.drain_delta().origins == {"0": (5, 0)}


def test_operation_types_that_are_used_no_more_are_let_go():
    one = backlog()
    one.place([placed("a", operation_types=("one", "off"))])
    one.snapshot()
    assert one.index._types == {}


# ---- parts ----


def delta_of(**fields):
    return Delta(presents=(1.0,), emitted=2, claimed=3, rounds=4, next_page=5, **fields)


def test_an_empty_delta_is_one_part():
    assert delta_of().split(10) == [delta_of()]


def test_parts_come_to_the_whole():
    whole = delta_of(
        records=tuple(AgendaRecord(ref=number, state=EMITTED) for number in range(25)),
        gone={str(number): "f" for number in range(3)},
        fairness={f"c{number}": FairnessState(tag=float(number)) for number in range(40)},
        learned={f"t{number}": 1.0 for number in range(11)},
        ratios={f"c{number}": 2.0 for number in range(31)},
        usual={f"c{number}": 3.0 for number in range(35)},
        origins={"0": (1, 2)},
    )
    parts = whole.split(10)
    assert len(parts) == 4
    assert tuple(note for part in parts for note in part.records) == whole.records
    for kind in ("gone", "fairness", "learned", "ratios", "usual"):
        merged = {}
        for part in parts:
            assert len(getattr(part, kind)) <= 10
            merged |= getattr(part, kind)
        assert merged == getattr(whole, kind)
    assert {part.next_page for part in parts} == {5}
    assert all(part.origins == whole.origins for part in parts)


def test_a_customer_with_many_keys_is_cut_too():
    keys = {f"k{number}": (float(number), number) for number in range(95)}
    tags = {
        "few": FairnessState(tag=1.0, keys={"a": (1.0, 5)}),
        "many": FairnessState(tag=3.0, keys_present=2.0, keys=keys),
    }
    parts = delta_of(fairness=tags).split(30)
    found = {}
    for part in parts:
        assert sum(1 + len(one.keys) for one in part.fairness.values()) <= 31
        for name, one in part.fairness.items():
            assert (one.tag, one.keys_present) == (
                tags[name].tag,
                tags[name].keys_present,
            )
            found.setdefault(name, {}).update(one.keys)
    assert found == {"few": {"a": (1.0, 5)}, "many": keys}


# ---- pages ----


@pytest.mark.parametrize(
    ("page", "slot", "ref"),
    [(0, 0, 0), (0, 511, 511), (1, 0, 512), (2**39 - 1, 511, 2**48 - 1)],
)
def test_a_place_is_one_number(page, slot, ref):
    assert ref_of(page, slot) == ref
    assert page_and_slot(ref) == (page, slot)


def test_a_page_knows_which_slots_are_gone():
    page = BacklogPage(3, several("ann", PAGE_SLOTS))
    assert page.gone() == "0"
    for slot in (0, 5, 511):
        page.forget(slot)
    assert [*slots_of_bitmap(page.gone())] == [0, 5, 511]
    assert page.remaining == PAGE_SLOTS - 3
    assert page.states.count(GONE) == 3


@pytest.mark.parametrize("cost", [1e-4, 1.0, 2.0, None])
def test_any_cost_may_be_declared_or_none(cost):
    assert BacklogPage(0, [placed("a", cost_s=cost)]).declared_cost(0) == cost


def test_deltas_are_kept_in_a_form_that_the_next_version_reads():
    """They outlive the process that wrote them: short, as lists by position."""
    tags = {
        "acme": FairnessState(tag=2.0, last=7, level=1, keys_present=1.0, keys={"k": (1.5, 3)})
    }
    note = AgendaRecord(ref=ref_of(1, 2), state=CLAIMED, attempt=2, charged=5, sure=4)
    kept = Delta(
        presents=(1.0,), emitted=3, claimed=2, rounds=1, next_page=2,
        records=(note,), gone={"1": "f"}, fairness=tags,
    )  # fmt: skip
    written = msgspec.json.decode(msgspec.json.encode(kept))
    assert written["records"] == [[ref_of(1, 2), CLAIMED, 2, 5, 4, None, 0.0]]
    assert written["fairness"] == {"acme": [2.0, 7, 1, 0.0, 0.0, 1.0, {"k": [1.5, 3]}, 1]}
    assert (written["gone"], written["next_page"]) == ({"1": "f"}, 2)
    assert msgspec.json.decode(msgspec.json.encode(kept), type=Delta) == kept
    short = msgspec.convert([3, READY], AgendaRecord)
    assert (short.attempt, short.charged, short.sure, short.overrides) == (1, 0, 0, None)


def test_a_page_holds_costs_as_declared():
    page = BacklogPage(0, [placed("a", cost_s=None), placed("b", cost_s=2.5)])
    assert page.declared_cost(0) is None
    assert page.declared_cost(1) == 2.5


def test_an_insight_may_be_asked_anew_for_every_share():
    asked = []
    one = Backlog(Insight(id="media"), lambda name: asked.append(name) or Share())
    one.place(several("ann", 2))
    assert asked == ["ann"]
    one.reconfigure(one.insight)
    assert asked == ["ann", "ann"]


def test_claims_that_a_runner_waited_for_are_timed_from_their_emission():
    one = backlog()
    one.place(several("ann", 5))
    chosen = one.choose(4, 10.0)
    for number, emitted in enumerate(chosen[:3]):
        one.emitted_offsets.send(emitted.ref, 0, 10.0 + number)
    one.claim("ann-0", 1, 10.5, sync_matched=True)
    one.claim("ann-0", 1, 99.0, sync_matched=True)
    one.claim("ann-1", 1, 12.0)
    one.claim("ann-2", 1, 12.25, sync_matched=True)
    assert (one.sync_matched, one.sync_matched_s) == (2, 0.75)
    one.claim("ann-3", 1, 50.0, sync_matched=True)
    one.claim("ann-4", 1, 50.0, sync_matched=True)
    assert (one.sync_matched, one.sync_matched_s) == (4, 0.75), (
        "when these two were sent is not known"
    )


def test_on_a_clock_set_back_a_claim_took_no_time():
    one = backlog()
    one.place(several("ann", 1))
    [chosen] = one.choose(1, 10.0)
    one.emitted_offsets.send(chosen.ref, 0, 10.0)
    one.claim("ann-0", 1, 5.0, sync_matched=True)
    assert (one.sync_matched, one.sync_matched_s) == (1, 0.0)


def test_only_what_came_from_submissions_counts_as_placed_up_to():
    one = backlog()
    one.filter_new(several("ann", 1), [Origin(partition=3, offset=7)])
    one.filter_new(several("bob", 1), [Origin(partition=0, offset=4)])
    one.apply_command(
        Command(agenda_id="x", action="cancel", origin=Origin(partition=-1, offset=1))
    )
    assert one.placed_offsets == {"3": (7, 0), "0": (4, 0)}


def test_what_is_declared_is_compared_with_what_it_took_not_with_what_was_charged():
    one = backlog()
    for number in range(150):
        one.place([placed(f"a-{number}", cost_s=2.0)])
        one.choose(1)
        one.settle(settled(f"a-{number}", noop=6.0))
    one.place([placed("next", cost_s=2.0)])
    assert one.position_of("next").cost == pytest.approx(6.0, rel=0.01)


def test_a_page_of_which_nothing_is_ready_is_a_change_too():
    one = backlog()
    one.place([placed("a", held=True)])
    assert one.drain_delta().next_page == 1
    assert one.drain_delta() is None


def test_on_a_clock_set_back_nothing_waited_less_than_no_time():
    one = backlog()
    one.place(several("ann", 1), NOW + 50)
    one.choose(1, NOW - 50)
    assert one.queue.flow("ann").wait_s == 0.0


def settled_all(one, count, spent_s=3.0):
    for chosen in one.choose(count):
        one.settle(settled(chosen.agenda_id, noop=spent_s))


def test_what_was_learned_of_declarations_is_kept_whether_written_at_once_or_bit_by_bit():
    one = backlog()
    pages = [(0, several("ann", 2)), (1, several("bob", 3))]
    deltas = []
    for _, agendas in pages:
        one.place(agendas)
        settled_all(one, 2)
        deltas.append(one.drain_delta())
    ratios = dict(one.costs.ratios)
    assert ratios.keys() == {"ann", "bob"}
    assert reloaded(pages, *deltas).costs.ratios == ratios
    assert reloaded(pages, one.snapshot()).costs.ratios == ratios
    usual = dict(one.costs.usual)
    assert usual.keys() == {"ann", "bob", ""}
    assert reloaded(pages, *deltas).costs.usual == usual
    assert reloaded(pages, one.snapshot()).costs.usual == usual


def test_who_is_idle_and_owes_nothing_is_not_in_a_snapshot():
    one = backlog()
    one.place([*several("ann", 1), *several("bob", 5)])
    settled_all(one, 4, spent_s=1.0)
    assert one.snapshot().fairness.keys() == {"bob"}


def test_with_strict_priorities_every_level_goes_on_at_its_own_time():
    one = backlog(aging_s=3_600.0)
    agendas = [*several("ann", 3, priority=2), *several("bob", 9, priority=7)]
    one.place(agendas, NOW)
    one.choose(7, NOW)
    assert len({*one.queue.presents}) > 1
    for delta in (one.drain_delta(), one.snapshot()):
        fresh = backlog(aging_s=3_600.0)
        fresh.restore([(0, agendas)], [delta], NOW)
        assert fresh.queue.presents == one.queue.presents


def test_all_that_has_not_ended_counts_before_a_restart_and_after_it():
    one = backlog()
    agendas = [*several("ann", 4), placed("held", held=True)]
    one.place(agendas)
    for chosen in one.choose(3):
        one.claim(chosen.agenda_id, 1)
    one.settle(settled("ann-0"))
    assert one.index.total == 4
    assert reloaded([(0, agendas)], one.drain_delta()).index.total == 4


def test_the_number_of_a_page_that_no_delta_knows_is_not_used_again():
    one = backlog()
    one.place(several("ann", 1))
    fresh = reloaded([(0, several("ann", 1)), (1, several("bob", 1))], one.drain_delta())
    assert fresh.next_page == 2


def test_what_is_gone_is_neither_found_nor_published_after_a_restart():
    one = backlog()
    agendas = several("ann", 2)
    one.place(agendas)
    one.choose(1)
    before = one.drain_delta()
    one.settle(settled("ann-0"))
    fresh = reloaded([(0, agendas)], before, one.drain_delta())
    assert fresh.index.find("ann-0") is None
    assert fresh.snapshot().records == ()
    assert ids(reloaded([(0, agendas)], fresh.snapshot()).choose(9)) == ["ann-1"]


def test_after_a_restart_too_nothing_came_later_than_now():
    fresh = backlog()
    fresh.restore([(0, [placed("a", after=18_000)])], [], NOW)
    page, slot = fresh.index.at(0)
    assert page.arrivals[slot] == NOW


def test_what_has_become_urgent_is_so_after_a_restart_and_in_another_order():
    agendas = [placed("late", "ann", priority=9), placed("soon", "bob", priority=1)]
    one, fresh = backlog(aging_s=60.0), backlog(aging_s=60.0)
    one.place(agendas, NOW)
    fresh.restore([(0, agendas)], [one.snapshot()], NOW + 3_600)
    assert len(fresh.choose(1, NOW + 3_600)) == 1
    assert {flow.level for flow in fresh.queue.flows()} == {0, 1}, "one waits still"
    fresh.reconfigure(Insight(id="media", aging_s=30.0))
    assert len(fresh.choose(1, NOW + 3_600)) == 1


def test_who_has_work_with_the_scheduler_is_known_until_it_is_out_or_ended():
    one = backlog()
    agendas = [*several("ann", 3), placed("held", "bob", held=True)]
    one.place(agendas)
    cancel(one, "ann-2")
    one.choose(1)
    for each in (one, reloaded([(0, agendas)], one.snapshot())):
        assert dict(each.index.pending_by_customer) == {"ann": 1, "bob": 1}


def test_how_urgent_one_is_follows_from_when_agendas_come_and_end():
    one = backlog({"ann": Share(max_in_flight=1)}, aging_s=10.0)
    one.place(several("ann", 1), NOW)
    one.choose(1, NOW)
    one.place(several("ann", 1, first=1, priority=6), NOW)
    one.settle(settled("ann-0"), NOW + 25)
    one.place([placed("bob-0", "bob", priority=9)], NOW + 26)
    assert ids(one.choose(1, NOW + 26)) == ["ann-1"], "6 has become 4"
    assert one.queue.flow("bob").level == 9 - 2
