"""How many runners are free where runs are long, and when that is not to be relied on."""

from dataclasses import replace

import pytest

from pop_stream.policy.backlog.flow_counts import FlowCounts
from pop_stream.policy.flow_control.free_runners import (
    DOUBT_S,
    LONG_TRIPS,
    PROBE_INTERVALS,
    FreeRunners,
)

TRIP_S = 0.05
RUN_S = 7_200.0
START = 1_700_000_000.0
BUSY = FlowCounts(
    emitted=100,
    claimed=100,
    ready=100,
    sync_matched=40,
    running=8,
    run_s=RUN_S,
    are_reported=True,
)


class Counted:
    """A count that has begun long ago, with all runners busy."""

    def __init__(self, running=8, **known):
        self.counts = replace(BUSY, running=running, **known)
        self.runners = FreeRunners()
        self.now = START
        self.runners.observe(self.counts, START)
        self.observe(after_s=DOUBT_S)

    def observe(self, *, emitted=0, ended=0, claimed=0, sync_matched=0, after_s=0.1):
        self.now += after_s
        before = self.counts
        self.counts = replace(
            before,
            emitted=before.emitted + emitted,
            running=before.running + claimed - ended,
            sync_matched=before.sync_matched + sync_matched,
        )
        self.runners.observe(self.counts, self.now)
        return self.wanted

    @property
    def wanted(self):
        return self.runners.wanted(TRIP_S, self.now)


def test_nothing_lies_out_while_all_are_busy():
    assert Counted().wanted == 0


def test_an_end_frees_a_runner_and_an_emission_is_meant_for_it():
    one = Counted()
    assert one.observe(ended=2) == 2
    assert one.observe(emitted=2) == 0
    assert one.observe(claimed=2, sync_matched=2) == 0


def test_a_claim_that_waited_for_a_runner_takes_the_one_that_its_end_freed():
    one = Counted()
    assert one.observe(emitted=1) == 0  # one too many lies out
    assert one.observe(ended=1) == 1
    assert one.observe(claimed=1) == 0
    assert one.observe(ended=1) == 1


def test_one_that_ends_as_another_is_claimed_leaves_nothing_free():
    assert Counted().observe(ended=1, claimed=1) == 0


def test_a_runner_that_was_missed_is_found_by_a_probe():
    one = Counted()
    quiet_s = PROBE_INTERVALS * RUN_S / 8
    assert one.observe(after_s=quiet_s - DOUBT_S - 10) == 0
    assert one.observe(after_s=20) == 1
    assert one.observe(emitted=1, after_s=1) == 0
    assert one.observe(after_s=quiet_s - 10) == 0


@pytest.mark.parametrize(
    "known",
    [
        {"are_reported": False},
        {"run_s": None},
        {"run_s": LONG_TRIPS * TRIP_S - 0.01},
        {"running": 0},
    ],
)
def test_else_the_target_is_learned(known):
    assert Counted(**known).wanted is None


def test_in_the_first_seconds_and_once_another_puller_joins_the_target_is_learned():
    runners = FreeRunners()
    runners.observe(BUSY, START)
    assert runners.wanted(TRIP_S, START + DOUBT_S - 1) is None
    assert runners.wanted(TRIP_S, START + DOUBT_S) == 0
    runners.doubt(START + 100)
    assert runners.wanted(TRIP_S, START + 101) is None
    assert runners.wanted(TRIP_S, START + 100 + DOUBT_S) == 0


def test_a_clock_that_was_set_back_begins_anew():
    one = Counted()
    assert one.observe(ended=1, after_s=-3_600) is None
    assert one.observe(after_s=DOUBT_S) == 0
