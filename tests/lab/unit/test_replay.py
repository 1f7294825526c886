"""Recorded rounds, chosen again."""

import pytest
from backlogs import failed, settled
from replay_recorder import Recorder, definitions

from pop_stream.lab.replay.replay import ReadyInput, final_decisions, replay
from pop_stream.lab.replay.what_if import CustomerOutcome, recorded_outcomes, what_if
from pop_stream.model.definitions import Customer, Definitions
from pop_stream.model.events.scheduling import (
    Claim,
    Command,
    InsightAttemptsReported,
    QueueQueried,
    RoundDecided,
)
from pop_stream.model.ids import CustomerId
from pop_stream.policy.fairness.flow import Share, share_of_definition


@pytest.fixture
def day() -> Recorder:
    recorder = Recorder()
    recorder.place("a", 30)
    recorder.settle(recorder.round(6), seconds=0.5)
    recorder.place("b", 30)
    recorder.settle(recorder.round(8), seconds=2.0)
    recorder.reweigh(b=4.0)
    recorder.settle(recorder.round(10), seconds=0.7)
    recorder.place("c", 5)
    recorder.round(20)
    return recorder


def test_the_same_choices_come_out(day):
    rounds = [*replay(day.inputs, day.decisions, day.definitions_at)]
    assert len(rounds) == 4
    assert all(one.is_same for one in rounds)


@pytest.mark.parametrize("weights", [(0.01, 50.0), (50.0, 0.01), (3.0, 1.0)])
def test_weights_that_changed_among_ends_come_out_the_same(weights):
    """A round knows its definitions, but not before which of the ends they came into force."""
    day = Recorder()
    for customer in "abc":
        day.place(customer, 40)
    for weight in weights:
        out = day.round(9)
        day.settle(out[:4], seconds=3.0)
        day.reweigh(b=weight, c=1 / weight)
        day.settle(out[4:], seconds=0.2)
    for slots in (1, 5, 30):
        day.settle(day.round(slots), seconds=0.9)
    rounds = [*replay(day.inputs, day.decisions, day.definitions_at)]
    assert len(rounds) == 5
    assert all(one.is_same for one in rounds)


def test_a_change_nobody_recorded_shows(day):
    rounds = [*replay(day.inputs, day.decisions, lambda _: definitions(9, a=9.0))]
    assert not all(one.is_same for one in rounds)


def test_a_round_that_was_not_kept_gives_way_to_its_repeat(day):
    lost = day.decisions[-1]
    repeated = RoundDecided(**{
        name: getattr(lost, name) for name in lost.__struct_fields__
    } | {"lag": 7})  # fmt: skip
    assert final_decisions([*day.decisions, repeated])[-1].lag == 7
    assert [one.round for one in final_decisions(day.decisions)] == [1, 2, 3, 4]


def test_other_weights_move_waits_from_one_to_the_other(day):
    before = recorded_outcomes(day.inputs, day.decisions)
    after = what_if(day.inputs, day.decisions, day.definitions_at, {"b": 0.1})
    assert len(after["b"].waits_s) < len(before["b"].waits_s)
    assert len(after["a"].waits_s) > len(before["a"].waits_s)
    emitted = [sum(len(one.waits_s) for one in some.values()) for some in (before, after)]
    assert emitted[0] == emitted[1]


def test_the_same_weights_change_nothing(day):
    before = recorded_outcomes(day.inputs, day.decisions)
    after = what_if(day.inputs, day.decisions, day.definitions_at, {})
    assert {name: one.mean_wait_s for name, one in after.items()} == pytest.approx(
        {name: one.mean_wait_s for name, one in before.items()}
    )


def test_what_was_placed_twice_or_settled_by_nobody_changes_nothing(day):
    before = recorded_outcomes(day.inputs, day.decisions)
    stray = InsightAttemptsReported(
        insight_id="media", settlements=(settled("stranger", noop=9.0),)
    )
    doubled = [ReadyInput(0, stray), day.inputs[0], *day.inputs]
    rounds = [*replay(doubled, day.decisions, day.definitions_at)]
    assert all(one.is_same for one in rounds)
    after = what_if(doubled, day.decisions, day.definitions_at, {})
    assert {*after} == {*before}


def test_failures_and_leases_come_to_the_same_again():
    """Retries come due, and the lost come back, in the rounds that they came in."""
    day = Recorder()
    day.place("a", 4)
    first = day.round(3)
    day.report(
        InsightAttemptsReported(
            insight_id="media",
            claims=tuple(Claim(agenda_id=one, attempt=1) for one in first),
            settlements=(failed(first[0]),),
            commands=(Command(agenda_id=first[1], action="cancel"),),
        )
    )
    day._record(QueueQueried(insight_id="media", query_id="q"))
    for _ in range(70):
        day.tick()
    assert sorted(day.round(9)) == sorted({*first[:1], *first[2:], day.last})
    rounds = [*replay(day.inputs, day.decisions, day.definitions_at)]
    assert [one.is_same for one in rounds] == [True, True]
    after = what_if(day.inputs, day.decisions, day.definitions_at, {})
    assert len(after["a"].waits_s) >= 4


def test_commands_act_with_other_weights_too():
    """What was cancelled while it waited is chosen by no round, whatever the weights."""
    day = Recorder()
    day.place("a", 6)
    day.place("b", 6)
    names = sorted(day.waiting)
    gone = [one for one in names if one.startswith("b")][:4]
    commands = tuple(Command(agenda_id=one, action="cancel") for one in gone)
    day.report(InsightAttemptsReported(insight_id="media", commands=commands))
    day.round(12)
    after = what_if(day.inputs, day.decisions, day.definitions_at, {"b": 9.0})
    assert {one: len(after[one].waits_s) for one in "ab"} == {"a": 6, "b": 2}


def test_a_weight_of_then_gives_way_to_the_one_that_is_tried():
    day = Recorder()
    for customer in "abc":
        day.place(customer, 30)
    day.round(3)
    day.reweigh(a=20.0, b=20.0)
    day.round(21)
    after = what_if(day.inputs, day.decisions, day.definitions_at, {"a": 1.0})
    emitted = {one: len(after[one].waits_s) for one in "abc"}
    assert emitted["b"] > 15
    assert max(emitted["a"], emitted["c"]) < 4


def test_failures_come_again_with_other_weights():
    """Else a failed attempt would be worth a whole agenda, and its retry none."""
    day = Recorder()
    day.place("a", 2)
    first = day.round(2)
    claims = tuple(Claim(agenda_id=one, attempt=1) for one in first)
    ends = tuple(failed(one) for one in first)
    day.report(InsightAttemptsReported(insight_id="media", claims=claims, settlements=ends))
    for _ in range(70):
        day.tick()
    assert len(day.round(9)) == 2
    after = what_if(day.inputs, day.decisions, day.definitions_at, {})
    assert len(after["a"].waits_s) == 4


def test_what_agendas_truly_cost_counts_with_other_weights_too():
    day = Recorder()
    for customer in "ab":
        day.place(customer, 40)
    for _ in range(3):
        out = day.round(8)
        day.settle([one for one in out if one.startswith("a")], seconds=9.0)
        day.settle([one for one in out if one.startswith("b")], seconds=0.1)
    day.round(20)
    before = recorded_outcomes(day.inputs, day.decisions)
    after = what_if(day.inputs, day.decisions, day.definitions_at, {"a": 1.0})
    assert len(before["b"].waits_s) > 2 * len(before["a"].waits_s)
    assert {one: len(after[one].waits_s) for one in "ab"} == pytest.approx(
        {one: len(before[one].waits_s) for one in "ab"}, abs=4
    )


def test_the_mean_wait_of_some_and_of_none():
    assert CustomerOutcome([1.0, 4.0, 4.0]).mean_wait_s == 3.0
    assert CustomerOutcome().mean_wait_s == 0.0


def test_rounds_are_chosen_again_in_their_order(day):
    assert final_decisions(day.decisions[::-1]) == day.decisions


def test_a_share_is_all_that_the_definition_says():
    acme = Customer(id="acme", weight=3, max_in_flight=4, rate_per_s=5, burst=6, paused=True)
    known = Definitions(customers={CustomerId("acme"): acme})
    assert share_of_definition(known, CustomerId("acme")) == Share(3, 4, 5, 6, paused=True)
