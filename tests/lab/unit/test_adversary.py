"""The adversary counts rightly, finds what is unfair, and lets pass what is fair."""

import json
from math import inf

import pytest
from adversary_policies import (
    BelievesDeclarations,
    LeastDelivered,
    LeavesLastOut,
    PrefersAttacker,
)
from typer.testing import CliRunner

from pop_stream.__main__ import app
from pop_stream.lab.adversary.judgement import Court
from pop_stream.lab.adversary.ledger import Ledger, Party
from pop_stream.lab.adversary.play import CHOICES, Play, parse_play
from pop_stream.lab.adversary.policy_port import ProductPolicy, stated_bound
from pop_stream.lab.adversary.scenes import SCENES, act
from pop_stream.lab.adversary.search import search

ALWAYS = SCENES["always"]
ALONE = ("always", "weights")
FAIR = Court(LeastDelivered)


def found(court, line, name="always"):
    return court.judge(name, SCENES[name], parse_play(line))


def test_service_counts_from_the_instant_on_that_is_wanted():
    victim = Party("v", is_victim=True, running=1)
    ledger = Ledger(1, [victim], judged_from=3.0)
    ledger.advance(2.0)
    ledger.advance(5.0)

    assert (victim.served, ledger.present_s, victim.given) == (2.0, 2.0, 5.0)


def test_a_scene_counted_by_hand():
    # Two runners. 0-2 s: m runs two, v waits with one. 2-5 s: both run one, m waits with one.
    # 5-6 s: m runs one, v is gone, so nobody judges.
    attacker, victim = Party("m", is_victim=False), Party("v", is_victim=True, weight=2.0)
    ledger = Ledger(2, [attacker, victim])
    attacker.running, attacker.waiting, victim.waiting = 2, 1, 1
    ledger.advance(2.0)
    attacker.running, victim.running, victim.waiting = 1, 1, 0
    ledger.advance(5.0)
    victim.running = 0
    ledger.advance(6.0)

    assert (attacker.served, victim.served) == (4.0 + 3.0, 3.0)
    # One runner each: v wants one, though two thirds of two are due to it.
    assert (attacker.entitled, victim.entitled) == (5.0, 5.0)
    assert (attacker.given, victim.given) == (8.0, 1.5)
    assert victim.longest_wait_s == 2.0
    assert ledger.lags == {("v", "m", 2.0, 1.0): 4.0}
    assert (ledger.present_s, ledger.idle) == (5.0, 0.0)


def test_idle_runners_count_while_somebody_wants_them():
    victim = Party("v", is_victim=True, waiting=5, cap=3)
    ledger = Ledger(4, [victim])
    ledger.advance(2.0)

    assert ledger.idle == 6.0


def test_a_customer_at_its_cap_or_paused_wants_nothing():
    party = Party("v", is_victim=True, waiting=3, running=1, cap=1)
    paused = Party("w", is_victim=True, waiting=3, running=1, paused=True)

    assert not party.wants_more
    assert not paused.wants_more
    assert (party.demand, paused.demand) == (1, 1)
    party.cap = inf
    assert party.demand == 4


def test_a_lag_begins_anew_when_the_victim_was_content_or_weights_changed():
    attacker, victim = Party("m", is_victim=False), Party("v", is_victim=True, waiting=1)
    ledger = Ledger(1, [attacker, victim])
    attacker.running = 1
    ledger.advance(3.0)
    victim.waiting = 0
    ledger.advance(10.0)
    victim.waiting = 1
    ledger.advance(12.0)
    ledger.reweigh("m", 0.5)
    ledger.advance(13.0)

    assert ledger.lags == {("v", "m", 1.0, 1.0): 3.0, ("v", "m", 1.0, 0.5): 2.0}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "declared=0.01 types=fresh",
        "declared=absurd opening=12 opening_declared=absurd",
        "runtime=4 declared=mixed ends=failed",
        "timing=visits period=10 declared=none",
        "timing=burst outstanding=8",
        "accomplices=2 accomplice=sparks declared=100",
        "weight=0.25 declared=0.1",
    ],
)
def test_a_policy_that_is_fair_by_construction_is_found_fair(line):
    judgement = found(FAIR, line)

    assert judgement.excess <= 1.0, str(judgement)


def test_a_policy_that_favours_the_attacker_a_little_is_caught():
    judgement = found(Court(PrefersAttacker), "")

    assert judgement.gain == pytest.approx(0.125, abs=0.02)
    assert judgement.excess > 1.0


def test_a_policy_that_believes_what_is_declared_is_caught():
    court = Court(BelievesDeclarations)

    assert found(court, "").excess <= 1.0
    assert found(court, "declared=0.1").gain > 1.0
    assert found(court, "declared=10").gain < 0.0


def test_a_policy_that_starves_a_victim_is_caught():
    judgement = found(Court(LeavesLastOut), "")

    assert judgement.lag_over_bound > 10.0
    assert judgement.wait_s > 200.0
    assert judgement.worst_victim == 0.0
    assert judgement.gain == pytest.approx(0.5, abs=0.02)


def test_a_search_finds_what_is_wrong_with_a_policy():
    court = Court(BelievesDeclarations)
    findings = search(4, lambda tried: tried < 8, court, ALONE)

    assert findings.best_gain("backlogged") > 0.5
    assert findings.is_beyond_a_limit
    assert findings.shown[0].excess == max(one.excess for one in findings.shown)


def test_the_same_seed_tries_the_same_plays():
    first, second = (
        search(5, lambda tried: tried < 3, Court(LeastDelivered), ALONE) for _ in "ab"
    )

    assert first.as_json() == second.as_json()
    assert (
        first.as_json() != search(6, lambda tried: tried < 12, Court(LeastDelivered)).as_json()
    )


def test_everything_that_runs_is_counted_once():
    outcome = act(ALWAYS, parse_play("ends=mixed controls=hold keys=2"), ProductPolicy)
    ledger = outcome.ledger

    busy = sum(one.given * one.weight for one in ledger.parties.values())
    assert 0.9 < busy / (ledger.capacity * outcome.seconds) <= 1.0
    assert all(one.running >= 0 and one.waiting >= 0 for one in ledger.parties.values())
    assert sum(one.running for one in ledger.parties.values()) <= ledger.capacity


@pytest.mark.parametrize("gene", sorted(CHOICES))
def test_a_play_is_read_back_from_its_line(gene):
    for value in CHOICES[gene]:
        play = parse_play(f"{gene}={value}")
        assert getattr(play, gene) == value
        assert parse_play(str(play)) == play


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("luck=1", "no gene 'luck'"),
        ("runtime=long", "runtime=long is no float"),
        ("types=new", "types=new: use one of one, fresh, shared"),
        ("declared=much", "declared=much: use a number, or one of none, absurd, mixed"),
        ("runtime=0", "runtime=0.0: must be above 0"),
        ("keys=-1", "keys=-1: must not be below 0"),
    ],
)
def test_a_line_that_is_no_play_says_why(line, said):
    with pytest.raises(ValueError, match=r"use|write|must") as error:
        parse_play(line)

    assert said in str(error.value)


def test_the_bound_is_in_what_agendas_truly_take():
    assert stated_bound(4, 1.0, 2.0) == 15.0


def test_honest_play_passes_the_command():
    result = CliRunner().invoke(app, ["adversary", "--scene", "always", "--json"])

    figures = json.loads(result.stdout.splitlines()[-1])
    assert result.exit_code == 0
    assert figures["best_gain_backlogged"] <= 0.02
    assert figures["best_gain_capped"] == 0.0
    assert figures["longest_wait_over_bound"] <= 1.0
    assert figures["worst"][0]["play"] == str(Play())


@pytest.mark.parametrize(
    "options", [["--scene", "moon"], ["--scene", "always", "--play", "luck=1"]]
)
def test_wrong_usage_of_the_command_is_refused(options):
    assert CliRunner().invoke(app, ["adversary", *options]).exit_code != 0
