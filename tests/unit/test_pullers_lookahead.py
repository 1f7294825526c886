"""How many agendas are claimed before a runner is free, and when none is."""

import asyncio

import pytest

from pop_stream.pullers.capacity import Capacity
from pop_stream.pullers.lookahead import MOST_AHEAD, Lookahead


def learned(*, runners=8, claim_s=0.004, run_s=0.005):
    look = Lookahead(runners)
    look.note_claim(claim_s)
    look.note_run(run_s)
    return look


def test_nothing_is_claimed_ahead_before_anything_is_known():
    look = Lookahead(8)
    assert look.ahead(0.0) == 0
    look.note_claim(1.0)
    assert look.ahead(0.0) == 0


@pytest.mark.parametrize(
    ("run_s", "ahead"),
    [(0.0, 32), (0.0001, 32), (0.005, 10), (0.05, 1), (0.4, 1), (0.6, 0), (60.0, 0)],
)
def test_as_many_are_claimed_ahead_as_end_during_a_claim(run_s, ahead):
    assert learned(run_s=run_s).ahead(0.0) == ahead
    assert ahead <= MOST_AHEAD * 8


def test_runs_that_have_not_ended_yet_count_with_their_age():
    assert learned().ahead(0.001) == 10
    assert learned().ahead(0.05) == 1
    assert learned().ahead(10.0) == 0


def test_what_was_learned_gives_way_to_what_is():
    look = learned(run_s=0.001)
    before = look.ahead(0.0)
    for _ in range(200):
        look.note_run(1.0)
    assert (before > 0, look.ahead(0.0)) == (True, 0)


def test_slots_follow_the_runs():
    capacity = Capacity(2)
    assert capacity.take(9) == 2
    capacity.begin(0.0)
    capacity.end(0.0, 0.001)
    capacity.note_claim(0.001)
    ahead = capacity.free
    assert ahead == 3
    assert capacity.take(9) == 3
    assert capacity.free == 0


async def test_slots_ahead_are_dealt_out_in_portions_but_no_runner_waits():
    capacity = Capacity(2)
    capacity.begin(0.0)
    capacity.end(0.0, 0.001)
    capacity.note_claim(0.002)
    assert capacity.take(99) == 8
    waiting = asyncio.create_task(capacity.some())
    capacity.give_back(2)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    capacity.give_back()
    await waiting
    assert capacity.take(2) == 2
    capacity.give_back(6)
    await capacity.some()


def test_runners_are_idle_until_as_many_run():
    capacity = Capacity(2)
    capacity.begin(0.0)
    assert capacity.has_idle_runner
    capacity.begin(0.0)
    assert not capacity.has_idle_runner
    capacity.end(0.0, 1.0)
    assert capacity.has_idle_runner
