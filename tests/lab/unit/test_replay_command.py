"""`pop-stream replay`: what it says of a record, and which weights can be tried on it."""

import json
import sys
from types import SimpleNamespace

import pytest
from checkpoint_days import Day
from replay_recorder import Recorder

import pop_stream.__main__ as command_line
from pop_stream.lab.replay import decisions_log
from pop_stream.lab.replay.replay import UnreadableRecord


@pytest.fixture
def replay(monkeypatch, capsys):
    """Run it on the record of two customers; its exit code, its report, and what it said."""
    day = Recorder()
    day.place("a", 30)
    day.place("b", 30)
    day.settle(day.round(10), seconds=0.5)
    day.round(20)

    monkeypatch.setattr(decisions_log, "read_history", lambda *_, **__: day)

    def replay(*arguments, unreadable=()):
        day.unreadable = unreadable
        monkeypatch.setattr(
            sys, "argv", ["pop-stream", "replay", "--insight", "x", "--json", *arguments]
        )
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out and json.loads(said.out), said.err

    return replay


def test_a_record_is_chosen_again(replay):
    code, report, said = replay()
    assert code == 0
    chosen = {"rounds": 2, "agendas": 30, "different": [], "from_round": 1}
    assert report == {**chosen, "unreadable": [], "exact_before": None}
    assert "all the same" in said


def test_what_cannot_be_read_is_named_with_the_round_from_which_it_matters(replay):
    lost = UnreadableRecord("pop.ready", 5, 4, "no event", is_decision=False)
    code, report, said = replay(unreadable=(lost,))
    assert code == 0
    assert report["unreadable"] == [
        {"topic": "pop.ready", "partition": 5, "offset": 4, "reason": "no event"}
    ]
    assert report["exact_before"] == {"round": 2, "at": "2026-01-01T00:00:05+00:00"}
    words = " ".join(said.split())
    assert "skipped: pop.ready, partition 5, offset 4: no event" in words
    assert "from round 2, 2026-01-01T00:00:05+00:00, on it is not sure to be exact" in words


def test_what_no_round_needs_leaves_the_record_exact(replay):
    late = UnreadableRecord("pop.ready", 5, 99, "no event", is_decision=False)
    letter = UnreadableRecord("pop.decisions", 1, 7, "no round", is_decision=True)
    code, report, said = replay(unreadable=(late, letter))
    assert code == 0
    assert len(report["unreadable"]) == 2
    assert report["exact_before"] is None
    assert "none of the rounds needs what was skipped" in said


def test_other_weights_move_the_waits(replay):
    code, report, _ = replay("--weights", "b=4")
    assert code == 0
    a, b = report["customers"]["a"], report["customers"]["b"]
    assert a["emitted"] == b["emitted"] == 15
    assert b["other_mean_wait_s"] != b["mean_wait_s"]
    assert report["weights"] == {"b": 4.0}


def test_who_is_not_in_the_record_has_no_weight_to_try(replay):
    code, report, said = replay("--weights", "a=2,bee=9")
    assert code != 0
    assert not report
    assert "no round chose anything of 'bee'; customers are a, b" in " ".join(said.split())


@pytest.mark.parametrize(
    "weights", ["b=nan", "b=inf", "b=1e400", "b=0", "b=-1", "b", "=2", "b=x"]
)
def test_what_is_no_weight_is_refused_by_name(replay, weights):
    code, report, said = replay("--weights", weights)
    assert code != 0
    assert not report
    assert f"{weights!r} is no weight" in " ".join(said.replace("│", " ").split())


def test_a_customer_has_one_weight(replay):
    code, report, said = replay("--weights", "a=1,b=2,a=3")
    assert code != 0
    assert not report
    assert "names 'a' a second time" in " ".join(said.replace("│", " ").split())


@pytest.fixture
def later(monkeypatch, capsys):
    """Run it on a record whose first rounds are gone, with so many checkpoints left."""

    async def replay(count, *arguments):
        day = Day(1)
        await day.pass_hours(120)
        known = day.replay_starts()[:count]
        decisions = [one for one in day.decisions() if one.round > 2]
        record = SimpleNamespace(
            inputs=day.inputs,
            decisions=decisions,
            beginnings=known,
            definitions_at=day.definitions_at,
            unreadable=(),
        )
        monkeypatch.setattr(decisions_log, "read_history", lambda *_, **__: record)
        monkeypatch.setattr(
            sys, "argv", ["pop-stream", "replay", "--insight", "x", "--json", *arguments]
        )
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out and json.loads(said.out), said.err, record

    return replay


async def test_a_record_whose_first_rounds_are_gone_is_chosen_again_from_a_checkpoint(later):
    code, report, said, record = await later(9)
    first = record.beginnings[0].round
    assert code == 0
    assert report["from_round"] == first > 3
    assert report["rounds"] == len([one for one in record.decisions if one.round >= first])
    assert report["different"] == []
    assert f"from round {first} on" in said


async def test_other_weights_are_tried_from_a_checkpoint_on(later):
    code, report, _, record = await later(9, "--weights", "ann=9")
    kept = [one for one in record.decisions if one.round >= record.beginnings[0].round]
    assert code == 0
    emitted = sum(one["emitted"] for one in report["customers"].values())
    assert emitted == sum(len(one.chosen) for one in kept)


async def test_a_record_that_nothing_begins_says_what_it_lacks(later):
    code, report, said, _ = await later(0)
    assert code != 0
    assert not report
    assert "the record of x starts at round 3" in " ".join(said.split())
    assert "checkpoint" in said
