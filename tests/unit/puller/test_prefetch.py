"""How many agendas are claimed before a runner is free, and when none is."""

import asyncio

import pytest

from pop_stream.puller.claiming.capacity import (
    MAX_PREFETCH_PER_RUNNER,
    Capacity,
    Prefetch,
    RunDurations,
)


def learned(*, runners=8, claim_s=0.004, run_s=0.005):
    look = Prefetch(runners)
    look.note_claim(claim_s)
    look.note_run(run_s)
    return look


def test_nothing_is_claimed_ahead_before_anything_is_known():
    look = Prefetch(8)
    assert look.target(0, 0.0) == 0
    look.note_claim(1.0)
    assert look.target(0, 0.0) == 0


def test_runs_before_the_first_claim_are_learned_from_too():
    look = Prefetch(8)
    look.note_run(0.005)
    look.note_claim(0.004)
    assert look.target(0, 0.0) == 10


@pytest.mark.parametrize(
    ("run_s", "ahead"),
    [(0.0, 32), (0.0001, 32), (0.005, 10), (0.05, 1), (0.4, 1), (0.6, 0), (60.0, 0)],
)
def test_as_many_are_claimed_ahead_as_end_during_a_claim(run_s, ahead):
    assert learned(run_s=run_s).target(0, 0.0) == ahead
    assert ahead <= MAX_PREFETCH_PER_RUNNER * 8


def test_runs_that_have_not_ended_yet_count_with_their_age():
    assert learned().target(8, 0.05) == 1
    assert learned().target(8, 10.0) == 0


def test_what_was_learned_gives_way_to_what_is():
    look = learned(run_s=0.001)
    before = look.target(0, 0.0)
    for _ in range(200):
        look.note_run(1.0)
    assert (before > 0, look.target(0, 0.0)) == (True, 0)


def mixed(*, long_run_s, in_hundred=1):
    """Runs of 5 ms but for a few, and claims of 15 ms; for four runners."""
    look = Prefetch(4)
    look.note_claim(0.015)
    for number in range(1000):
        look.note_run(long_run_s if number % 100 < in_hundred else 0.005)
    return look


def test_runners_with_short_runs_are_claimed_for_beside_long_ones():
    look = mixed(long_run_s=0.5)
    assert [look.target(long, 0.25) for long in range(3)] == [16, 12, 8]


def test_a_long_run_that_has_just_ended_tells_nothing_of_the_others():
    look = mixed(long_run_s=0.5)
    look.note_run(0.5)
    assert look.target(1, 0.25) >= 12


def test_the_longer_a_wait_could_be_the_less_is_risked():
    look = mixed(long_run_s=0.5)
    for long_for_s, ahead in [(1.0, [12, 8]), (10.0, [12, 0]), (3600.0, [0, 0])]:
        assert [look.target(long, long_for_s) for long in (1, 2)] == ahead


def test_where_many_runs_are_long_their_mean_tells():
    look = mixed(long_run_s=0.5, in_hundred=50)
    assert look.target(2, 0.25) <= 1


def test_what_runs_is_long_once_it_has_run_for_four_claims():
    look = learned(claim_s=0.01)
    assert look.long_after_s == pytest.approx(0.06)


def test_ages_are_of_those_that_run():
    ages = RunDurations()
    for started_s in (1.0, 1.0, 2.0, 3.0):
        ages.begin(started_s)
    assert (len(ages), ages.long(2.5, 4.0)) == (4, (2, 3.0))
    ages.end(1.0)
    assert ages.long(1.5, 4.0) == (2, 2.5)
    for started_s in (1.0, 2.0, 3.0):
        ages.end(started_s)
    assert (len(ages), ages.long(0.0, 9.0)) == (0, (0, 0.0))


def test_a_long_run_stays_one_when_claims_take_longer():
    ages = RunDurations()
    ages.begin(0.0)
    assert ages.long(1.0, 2.0) == (1, 2.0)
    assert ages.long(5.0, 2.0) == (1, 2.0)


def test_slots_follow_the_runs():
    capacity = Capacity(2)
    assert capacity.acquire(9) == 2
    capacity.begin(0.0)
    capacity.end(0.0, 0.001)
    capacity.note_claim(0.001)
    ahead = capacity.free
    assert ahead == 3
    assert capacity.acquire(9) == 3
    assert capacity.free == 0


async def test_slots_ahead_are_dealt_out_in_portions_but_no_runner_waits():
    capacity = Capacity(2)
    capacity.begin(0.0)
    capacity.end(0.0, 0.001)
    capacity.note_claim(0.002)
    assert capacity.acquire(99) == 8
    waiting = asyncio.create_task(capacity.wait_free())
    capacity.release_slots(2)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    capacity.release_slots()
    await waiting
    assert capacity.acquire(2) == 2
    capacity.release_slots(6)
    await capacity.wait_free()


def test_runners_are_idle_until_as_many_run():
    capacity = Capacity(2)
    capacity.begin(0.0)
    assert capacity.has_idle_runner
    capacity.begin(0.0)
    assert not capacity.has_idle_runner
    capacity.end(0.0, 1.0)
    assert capacity.has_idle_runner
