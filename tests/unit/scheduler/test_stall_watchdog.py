"""A scheduler that stands still differs from one that has nothing to do, or cannot."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from fakes import FixedLags, ManualClock
from scheduler_world import SchedulerWorld, scheduler_on

from pop_stream.kafka.topics import Topics
from pop_stream.policy.stall import StallDetector, stalled_lag
from pop_stream.ports.lag import GroupOffsets
from pop_stream.scheduler.stall_watchdog import StallWatchdog


def looks(*looks_taken):
    """What the last of these looks, one every ten seconds, says of partition 0."""
    one = StallDetector(stalled_after_s=30.0, max_gap_s=20.0)
    found = []
    for number, (end, committed) in enumerate(looks_taken):
        found = one.observe(
            10.0 * number, ends={0: end}, committed={} if committed is None else {0: committed}
        )
    return found


def test_input_that_waits_without_a_commit_is_a_stall():
    assert looks((5, 5), (9, 5), (9, 5), (9, 5)) == []
    assert looks((5, 5), (9, 5), (9, 5), (9, 5), (12, 5)) == [0]
    assert looks((9, 5), (9, 5), (9, 5), (9, 5)) == [0]


def test_any_commit_is_progress():
    assert looks((9, 5), (9, 5), (9, 6), (12, 6), (12, 6)) == []


def test_nothing_to_do_is_no_stall():
    assert looks(*[(5, 5)] * 9) == []
    assert looks(*[(5, None)] * 9) == []


def test_what_grows_without_a_first_commit_is_a_stall():
    assert looks((5, None), (6, None), (6, None), (6, None), (6, None)) == [0]


def test_a_pause_in_looking_excuses():
    one = StallDetector(stalled_after_s=30.0, max_gap_s=20.0)
    for now in (0.0, 10.0, 20.0, 300.0, 310.0, 320.0):
        assert one.observe(now, ends={0: 9}, committed={0: 5}) == []
    assert one.observe(330.0, ends={0: 9}, committed={0: 5}) == [0]


def test_partitions_are_distinguished_and_those_lost_forgotten():
    one = StallDetector(stalled_after_s=30.0, max_gap_s=20.0)
    for now in (0.0, 10.0, 20.0):
        one.observe(now, ends={0: 9, 1: 9}, committed={0: 5, 1: 5})
    assert one.observe(30.0, ends={1: 9}, committed={0: 5, 1: 6}) == []
    assert one.observe(40.0, ends={0: 9, 1: 9}, committed={0: 5, 1: 6}) == []


class Watch:
    def __init__(self):
        self.lags = FixedLags()
        self.clock = ManualClock()
        self.owned = {0, 1}
        self.is_suspended = False
        self.watchdog = StallWatchdog(
            self.lags,
            Topics("t."),
            self.clock,
            stall_timeout=timedelta(seconds=60),
            partitions=lambda: self.owned,
            is_suspended=lambda: self.is_suspended,
        )

    async def look(self, times, *, committed=5):
        self.lags.read = GroupOffsets(ends={0: 9, 1: 4, 2: 99}, committed={0: committed, 1: 4})
        found = False
        for _ in range(times):
            found = await self.watchdog.has_stalled()
            self.clock.move(timedelta(seconds=6))
        return found


@pytest.fixture
def watch():
    return Watch()


async def test_a_scheduler_that_hangs_ends(watch):
    assert not await watch.look(10)
    assert await watch.look(1)
    await watch.watchdog.run()


async def test_a_broker_that_is_away_excuses(watch):
    assert not await watch.look(10)
    watch.lags.read = None
    assert not await watch.watchdog.has_stalled()
    assert not await watch.look(10)


async def test_work_that_is_put_off_for_the_broker_excuses(watch):
    watch.is_suspended = True
    assert not await watch.look(30)


async def test_what_others_own_is_not_ones_own(watch):
    watch.owned = {1}
    assert not await watch.look(30)


async def test_a_table_that_is_being_read_excuses_for_as_long_as_it_gets_on():
    scheduler = scheduler_on(SchedulerWorld())
    table = scheduler._table = SimpleNamespace(is_recovered=False, rows_recovered=0)
    found = []
    for table.rows_recovered in (900, 1_500, 1_500, 2_000):
        found.append(scheduler._is_suspended())
    assert found == [True, True, False, True]
    table.is_recovered = True
    assert not scheduler._is_suspended()
    scheduler._processor.postponed.add(3)
    assert scheduler._is_suspended()


def test_unmoved_is_what_waits_and_was_not_committed_further():
    ends = {0: 5, 1: 5, 2: 5, 3: 0, 4: 7}
    before, after = {0: 5, 1: 3, 2: 3}, {0: 5, 1: 4, 2: 3}
    assert stalled_lag(ends, before, after) == {2: 2, 4: 7}
