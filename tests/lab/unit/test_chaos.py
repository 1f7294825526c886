"""The schedule of a chaos run, and how its evidence is judged."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from pop_stream.lab.chaos.faults import (
    UPGRADE_ORDER,
    FaultCounts,
    FaultRecord,
    InjectedFault,
    plan_faults,
)
from pop_stream.lab.chaos.handlers import Start, read_starts
from pop_stream.lab.chaos.judge import (
    RECOVERY_WINDOW_S,
    ChaosEvidence,
    RecordedEmission,
    evaluate,
    worst_pause_s,
)
from pop_stream.lab.chaos.load import CUSTOMERS, INSIGHTS, PARAM, ChaosLoad
from pop_stream.lab.chaos.schedules import ScheduleLoad, evaluate_schedules
from pop_stream.model.agenda import parse_agenda
from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import Summary
from pop_stream.postgres.ledger import SummaryState

PARTS = ("rollup", "scheduler", "ingest", "api", "puller-1")
BROKERS = ("kafka-1", "kafka-2", "kafka-3")
WANTED = FaultCounts(60.0, kills=12, freezes=3, broker_kills=4, database_stops=2)


def plan(seed=7, wanted=WANTED):
    return plan_faults(wanted, parts=PARTS, brokers=BROKERS, seed=seed)


def test_the_same_seed_makes_the_same_faults_and_another_others():
    assert plan() == plan()
    assert plan() != plan(seed=8)


def test_as_many_faults_as_wanted_in_order_and_in_time():
    faults = plan()
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    assert all(0 <= fault.at <= 60 for fault in faults)
    kinds = [fault.kind for fault in faults]
    assert (kinds.count("kill"), kinds.count("freeze"), kinds.count("outage")) == (12, 3, 6)


@pytest.mark.parametrize("seed", range(20))
def test_every_part_is_hit_before_one_is_hit_twice_more(seed):
    killed = [fault.part for fault in plan(seed) if fault.kind == "kill"]
    counts = [killed.count(part) for part in PARTS]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("seed", range(20))
def test_two_brokers_are_never_down_together(seed):
    outages = [fault for fault in plan(seed) if fault.part in BROKERS]
    for one, following in pairwise(outages):
        assert one.at + one.lasts_s < following.at


@pytest.mark.parametrize("seed", range(20))
def test_frozen_brokers_are_neither_killed_nor_joined_by_others(seed):
    faults = plan(seed, replace(WANTED, broker_freezes=3))
    hit = [fault for fault in faults if fault.part in BROKERS]
    assert sorted(fault.kind for fault in hit) == ["freeze"] * 3 + ["outage"] * 4
    for one, following in pairwise(hit):
        assert one.at + one.lasts_s < following.at


def test_a_seed_makes_the_same_faults_as_before_there_were_frozen_brokers():
    more = plan(wanted=replace(WANTED, broker_freezes=1))
    assert [one for one in plan() if one.kind == "kill"] == [
        one for one in more if one.kind == "kill"
    ]
    assert [(round(one.at, 3), one.part) for one in plan() if one.part in BROKERS] == [
        (4.464, "kafka-2"),
        (18.94, "kafka-3"),
        (33.544, "kafka-1"),
        (50.516, "kafka-1"),
    ]


def test_an_upgrade_replaces_every_part_in_order_and_goes_back_the_same_way():
    parts = ("rollup", "scheduler", "scheduler-2", "ingest", "api", "puller-1", "puller-2")
    wanted = FaultCounts(60.0, kills=0, rolling=True)
    turns = plan_faults(wanted, parts=parts, brokers=(), seed=7)
    assert {one.kind for one in turns} == {"replace"}
    forward, back = turns[: len(parts)], turns[len(parts) :]
    assert [one.part for one in forward] == [one.part for one in reversed(back)]
    kinds = [one.part.split("-")[0] for one in forward]
    assert [*dict.fromkeys(kinds)] == [*UPGRADE_ORDER]
    assert sorted(one.part for one in forward) == sorted(parts)
    assert all(0 < one.at < 60 for one in turns)


def test_an_upgrade_changes_nothing_of_the_faults_that_a_seed_makes():
    made = plan(wanted=replace(WANTED, rolling=True))
    assert [one for one in made if one.kind != "replace"] == plan()


def load(seed=1, rate=50.0, seconds=20.0):
    return ChaosLoad("c", seed, rate, seconds)


def test_the_load_is_sound_and_the_same_for_the_same_seed():
    batches = load().batches()
    assert batches == load().batches()
    agendas = [agenda for batch in batches for agenda in batch]
    assert len({agenda["id"] for agenda in agendas}) == len(agendas) == 1000
    parsed = [parse_agenda(agenda) for agenda in agendas]
    assert {one.customer_id for one in parsed} == CUSTOMERS.keys()
    assert {one.params[PARAM] for one in parsed} == set(INSIGHTS)


def test_starts_are_read_as_they_were_written(tmp_path):
    file = tmp_path / "starts"
    assert [*read_starts(file)] == []
    file.write_text("a 1 o0 1500000000 7\na 2 o0 2500000000 8\n")
    starts = [Start("a", 1, "o0", 1.5, 7), Start("a", 2, "o0", 2.5, 8)]
    assert [*read_starts(file)] == starts
    file.write_text(file.read_text() + "b 1 o")
    assert [*read_starts(file)] == starts


def taken(*agenda_ids, at=9.0):
    return dict.fromkeys(agenda_ids, at)


def start(agenda_id="a", at=10.0, attempt=1, operation="o"):
    return Start(agenda_id, attempt, operation, at, 1)


def evidence(*starts, state=State.SUCCEEDED, accepted_at=9.0):
    known = {one.agenda_id for one in starts} or {"a"}
    return ChaosEvidence(
        accepted_at=dict.fromkeys(known, accepted_at),
        claims={(one.agenda_id, one.attempt) for one in starts},
        folded={one: Summary(agenda_id=one, state=state) for one in known},
        entries={one: SummaryState(one, state, 1, "i") for one in known},
        starts=starts,
    )


def injected(at, part="scheduler", lasts=0.5):
    return FaultRecord(InjectedFault(at, part, "kill"), at, at + lasts)


def test_what_ended_once_breaks_nothing():
    judged = evaluate(evidence(start()), taken("a"), [])
    assert (judged.accepted, judged.terminal, judged.duplicate_starts) == (1, 1, 0)
    assert [*judged.broken()] == []


@pytest.mark.parametrize("state", [State.READY, State.EMITTED, State.RUNNING, State.RETRYING])
def test_what_has_not_ended_is_lost(state):
    judged = evaluate(evidence(start(), state=state), taken("a"), [])
    assert judged.lost == ["a"]
    assert "lost: 1 agendas, such as a" in "\n".join(judged.broken())


def test_acknowledged_and_never_accepted_is_lost():
    assert evaluate(evidence(start()), taken("a", "b"), []).lost == ["b"]


def test_accepted_counts_though_nobody_was_answered():
    known = evidence(start())
    known.accepted_at["late"] = 9.0
    assert evaluate(known, taken("a"), []).lost == ["late"]


def test_a_second_start_without_a_fault_is_a_breach():
    judged = evaluate(evidence(start(), start(at=11.0)), taken("a"), [])
    assert (judged.duplicate_starts, judged.excused_starts) == (1, 0)
    assert list(judged.broken())


@pytest.mark.parametrize(
    ("at", "excused"),
    [(10.5, 1), (11.5, 0), (11.0 - RECOVERY_WINDOW_S, 1), (10.0 - RECOVERY_WINDOW_S, 0)],
)
def test_a_second_start_is_excused_in_the_aftermath_of_a_fault_only(at, excused):
    judged = evaluate(evidence(start(), start(at=11.0)), taken("a"), [injected(at)])
    assert judged.excused_starts == excused
    assert judged.duplicate_starts == 1 - excused


def test_another_attempt_or_operation_is_no_second_start():
    known = evidence(start(), start(at=11.0, attempt=2), start(at=12.0, operation="p"))
    assert evaluate(known, taken("a"), []).duplicate_starts == 0


def test_a_start_needs_a_claim():
    known = evidence(start())
    known.claims.clear()
    assert evaluate(known, taken("a"), []).unclaimed_starts == ["a#1"]


def test_rows_that_differ_from_the_events_are_found():
    known = evidence(start())
    known.entries = {"a": replace(known.entries["a"], state=State.FAILED)}
    assert evaluate(known, taken("a"), []).disagreeing
    known.entries = {}
    assert evaluate(known, taken("a"), []).disagreeing


def emissions(*pairs):
    return [RecordedEmission(agenda_id, 1, "i", at) for agenda_id, at in pairs]


def test_a_round_repeated_in_two_parts_is_one_round():
    known = evidence(start())
    known.emissions = emissions(("a", 1.0), ("b", 1.0), ("a", 5.0), ("b", 6.0))
    assert evaluate(known, taken("a"), [injected(3.0)]).rounds_repeated == 1


def test_more_rounds_repeated_than_faults_is_a_breach():
    known = evidence(start())
    known.emissions = emissions(("a", 1.0), ("b", 2.0), ("a", 5.0), ("b", 5.0))
    judged = evaluate(known, taken("a"), [injected(3.0)])
    assert judged.rounds_repeated == 2
    assert list(judged.broken())


def test_the_pause_is_counted_only_while_something_waits():
    starts = [start("a", 1.0), start("b", 20.0), start("c", 21.0), start("d", 40.0)]
    accepted = {"a": 0.5, "b": 19.0, "c": 20.5, "d": 33.0}
    assert worst_pause_s(accepted, starts) == pytest.approx(7.0)


def test_the_pause_begins_with_the_last_start_if_something_waited_already():
    starts = [start("a", 1.0), start("b", 9.0)]
    assert worst_pause_s({"a": 0.0, "b": 0.0}, starts) == pytest.approx(8.0)
    assert worst_pause_s({"a": 0.0, "b": 0.0}, []) == 0.0


def test_a_pause_beyond_the_promise_is_a_breach():
    known = evidence(start("a", 1.0), start("b", 20.0), accepted_at=0.0)
    judged = evaluate(known, taken("a", "b"), [])
    assert judged.worst_pause_s == pytest.approx(19.0)
    assert any("19.0 s" in one for one in judged.broken())


def away(part, at, until, kind="freeze"):
    return FaultRecord(InjectedFault(at, part, kind, until - at), at, until)


@pytest.mark.parametrize(
    ("faults", "pause_s"),
    [
        ([away("scheduler", 2.0, 12.0)], 19.0),
        ([away("scheduler", 2.0, 12.0), away("scheduler-2", 4.0, 9.0)], 11.0),
        ([away("scheduler", 2.0, 12.0), away("scheduler-2", 4.0, 15.0)], 8.0),
        ([away("scheduler", 2.0, 12.0), away("scheduler-2", 12.5, 15.0)], 19.0),
        ([away("scheduler", 2.0, 12.0), away("scheduler-2", 4.0, 15.0, "kill")], 19.0),
        ([away("ingest", 2.0, 12.0)], 8.0),
        ([away("rollup", 2.0, 12.0)], 19.0),
        ([away("kafka-1", 2.0, 12.0, "outage")], 19.0),
        ([away("ingest", 2.0, 12.0, "kill")], 19.0),
        ([away("puller-1", 2.0, 12.0)], 8.0),
    ],
)
def test_nothing_is_promised_while_all_of_a_kind_are_away(faults, pause_s):
    known = evidence(start("a", 1.0), start("b", 20.0), accepted_at=0.0)
    parts = ["rollup", "scheduler", "scheduler-2", "ingest", "puller-1", "kafka-1", "kafka-2"]
    judged = evaluate(known, taken("a", "b"), faults, parts)
    assert judged.worst_pause_s == pytest.approx(pause_s)


def test_while_a_broker_without_others_is_down_nothing_is_promised():
    known = evidence(start("a", 1.0), start("b", 20.0), accepted_at=0.0)
    judged = evaluate(known, taken("a", "b"), [away("kafka", 2.0, 12.0, "outage")], ["kafka"])
    assert judged.worst_pause_s == pytest.approx(8.0)


def test_an_insight_that_stands_still_does_not_hide_behind_another():
    known = evidence(start("a", 1.0), *(start(f"b{at}", float(at)) for at in range(2, 30)))
    known.accepted_at = {one.agenda_id: one.at - 0.5 for one in known.starts}
    known.insights = {one.agenda_id: one.agenda_id[0] for one in known.starts}
    known.starts = (*known.starts, start("a-late", 30.0))
    known.accepted_at["a-late"], known.insights["a-late"] = 12.0, "a"
    judged = evaluate(known, taken(), [])
    assert judged.worst_pause_s == judged.longest_wait_s == pytest.approx(18.0)


def test_a_stalled_ingest_shows_as_a_pause():
    """Acknowledged at 1 s, taken by ingest at 19 s, started at once."""
    known = evidence(start("a", 1.5), start("b", 20.0), accepted_at=1.0)
    known.accepted_at["b"] = 19.0
    judged = evaluate(known, {"a": 1.0, "b": 2.0}, [])
    assert judged.worst_pause_s == judged.longest_wait_s == pytest.approx(18.0)


def test_what_is_never_started_waits_until_the_end():
    known = evidence(start("a", 10.0))
    known.gathered_at = 40.0
    judged = evaluate(known, taken("a", "never"), [])
    assert judged.lost == ["never"]
    assert judged.worst_pause_s == pytest.approx(30.0)


def test_what_ended_without_a_start_waits_for_none():
    known = evidence(start("a", 10.0))
    known.entries["gone"] = SummaryState("gone", State.CANCELLED, 1, "i")
    known.gathered_at = 40.0
    judged = evaluate(known, taken("a", "gone"), [])
    assert (judged.lost, judged.worst_pause_s) == ([], pytest.approx(1.0))


@pytest.mark.parametrize("state", [State.FAILED, State.REFUSED])
def test_an_end_that_no_submitter_wants_is_counted_and_a_breach(state):
    judged = evaluate(evidence(start(), state=state), taken("a"), [])
    assert (judged.terminal, judged.lost) == (1, [])
    assert (judged.failed, judged.refused) == (state is State.FAILED, state is State.REFUSED)
    assert list(judged.broken())


def replaced(at=10.5, part="puller-1", *, in_order=True):
    return FaultRecord(InjectedFault(at, part, "replace"), at, at + 2.0, in_order=in_order)


def test_a_replacement_excuses_no_second_start_and_no_repeated_round():
    known = evidence(start(), start(at=11.0))
    known.emissions = emissions(("a", 1.0), ("a", 5.0))
    judged = evaluate(known, taken("a"), [replaced()])
    assert (judged.duplicate_starts, judged.excused_starts) == (1, 0)
    assert "1 rounds were emitted again, by 0 faults" in [*judged.broken()]


def test_a_replacement_that_cut_work_off_is_a_breach_and_a_kill_may():
    known = evidence(start(), start(at=12.0, attempt=2))
    assert evaluate(known, taken("a"), [replaced()]).started_again == ["a"]
    assert evaluate(known, taken("a"), [replaced(), injected(10.0)]).started_again == []


def test_a_part_that_outlives_its_grace_is_a_breach():
    judged = evaluate(evidence(start()), taken("a"), [replaced(in_order=False)])
    assert [*judged.broken()] == ["not stopped within their grace: puller-1"]


def test_the_pause_of_a_replacement_counts_as_that_of_a_kill():
    known = evidence(start("a", 1.0), start("b", 20.0), accepted_at=0.0)
    replacement = [away("ingest", 2.0, 12.0, "replace")]
    judged = evaluate(known, taken("a", "b"), replacement, ["ingest"])
    assert judged.worst_pause_s == pytest.approx(19.0)


# ---- schedules ----

SCHEDULED = ScheduleLoad("c1", 2, datetime(2026, 1, 1, 12, tzinfo=UTC), 3.0)


def occurred(*ids, ended_at=None, starts=()):
    evidence = ChaosEvidence(starts=starts)
    for one in ids:
        evidence.accepted_at[one] = 0.0
        evidence.folded[one] = Summary(agenda_id=one, state=State.SUCCEEDED, ended_at=ended_at)
    evidence.entries = dict.fromkeys(ids)
    return evidence


def test_each_second_of_each_schedule_is_expected():
    expected = SCHEDULED.expected()
    assert len(expected) == 6
    assert expected[0] == "c1-s0.20260101T120000Z"
    assert expected[-1] == "c1-s1.20260101T120002Z"
    assert {one.submission["customer_id"] for one in SCHEDULED.schedules()} <= CUSTOMERS.keys()


def test_occurrences_that_are_all_there_once_break_no_promise():
    expected = SCHEDULED.expected()
    start = Start(expected[0], 1, "o0", 5.0, 7)
    ended_at = datetime.fromtimestamp(6, UTC)
    evidence = occurred(*expected, "c1-7", ended_at=ended_at, starts=[start])
    found = evaluate_schedules(expected, evidence, frozenset(expected))
    assert (found.expected, [*found.broken()]) == (6, [])


def test_what_is_missing_unlisted_undue_or_run_again_is_reported():
    expected = SCHEDULED.expected()
    odd = "c1-s0.20260101T120009Z"
    again = Start(expected[1], 1, "o0", 9.0, 7)
    ended_at = datetime.fromtimestamp(6, UTC)
    evidence = occurred(*expected[1:], odd, ended_at=ended_at, starts=[again])
    found = evaluate_schedules(expected, evidence, frozenset(expected[2:]))
    assert found.missing == [expected[0]]
    assert found.unlisted == [*expected[:2]]
    assert (found.unexpected, found.run_again) == ([odd], [expected[1]])
    assert len([*found.broken()]) == 4
