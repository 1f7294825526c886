"""Due heaps, leases, skipped offsets, and the clock of relayed reports."""

from pop_stream.policy.backlog.leases import EmittedOffsets, Leases
from pop_stream.policy.backlog.state import DueHeap
from pop_stream.scheduler.ticker import RelayWatermark

# ---- timetables ----


def test_dues_come_soonest_first_and_once():
    one = DueHeap()
    one.set(1, 5.0)
    one.set(2, 3.0)
    one.set(3, 9.0)
    assert one.next_at == 3.0
    assert one.pop_due(5.0, 10) == [2, 1]
    assert one.pop_due(5.0, 10) == []
    assert one.next_at == 9.0


def test_a_due_that_was_moved_or_cleared_does_not_come():
    one = DueHeap()
    one.set(1, 1.0)
    one.set(1, 7.0)
    one.set(2, 2.0)
    one.clear(2)
    one.clear(3)
    assert one.next_at == 7.0
    assert one.pop_due(6.0, 10) == []
    assert one.pop_due(7.0, 10) == [1]
    assert one.next_at is None


def test_no_more_dues_come_at_once_than_are_wanted():
    one = DueHeap()
    for ref in range(5):
        one.set(ref, float(ref))
    assert one.pop_due(9.0, 2) == [0, 1]
    assert one.pop_due(9.0, 9) == [2, 3, 4]


def test_what_ended_long_before_its_due_is_not_kept():
    one = DueHeap()
    for ref in range(10_000):
        one.set(ref, 1e9)
        one.clear(ref)
    one.set(7, 1e9)
    assert len(one._heap) < 100
    assert one.pop_due(1e9, 5) == [7]


def test_dues_come_in_order_after_outdated_ones_were_let_go():
    one = DueHeap()
    for turn in range(5):
        due_at = {ref: float((ref * 37 + turn * 11) % 1009) for ref in range(100)}
        for ref, at in due_at.items():
            one.set(ref, at)
    assert one.pop_due(1e9, 1_000) == sorted(due_at, key=due_at.get)


def test_what_came_does_not_come_again_when_outdated_ones_are_let_go():
    one = DueHeap()
    one.set(1, 1.0)
    assert one.pop_due(1.0, 9) == [1]
    for number in range(200):
        one.set(2, 5.0 + number)
    assert one.pop_due(1e9, 9) == [2]


# ---- leases ----


def test_the_longest_silent_are_taken_and_the_others_stay():
    one = Leases()
    one.begin(1, 10.0)
    one.begin(2, 11.0)
    one.begin(3, 12.0)
    one.begin(1, 13.0)
    assert one.oldest == 11.0
    assert one.pop_expired(12.5, 10) == [2, 3]
    one.end(1)
    one.end(9)
    assert one.oldest is None
    assert one.pop_expired(99.0, 10) == []


def test_no_more_leases_end_at_once_than_are_wanted():
    one = Leases()
    for ref in range(5):
        one.begin(ref, 0.0)
    assert one.pop_expired(1.0, 3) == [0, 1, 2]


def test_a_lease_may_be_set_to_end_soon():
    one = Leases()
    one.begin(1, 100.0)
    one.end_by(2, 102.0, 60.0)
    assert one.pop_expired(102.5 - 60.0, 10) == [2]
    assert one.is_running(1)
    assert not one.is_running(2)


def test_after_a_silence_that_was_ours_all_leases_begin_anew():
    one = Leases()
    one.begin(1, 10.0)
    one.begin(2, 20.0)
    one.restart_all(500.0)
    assert one.pop_expired(500.0, 10) == []
    assert one.pop_expired(500.1, 10) == [1, 2]


# ---- emitted and not claimed ----


def skipped(one, lags, since=0, before=100.0):
    return one.skipped(lags, since, before)


def test_a_record_is_skipped_once_the_commit_is_beyond_it():
    one = EmittedOffsets()
    for ref in (10, 11, 12):
        one.send(ref, 0, 1.0)
    assert skipped(one, [3]) == []
    assert skipped(one, [2]) == [10]
    assert skipped(one, [0]) == [10, 11, 12]
    one.remove(10)
    one.remove(99)
    assert skipped(one, [1]) == [11]


def test_partitions_are_counted_apart():
    one = EmittedOffsets()
    one.send(10, 0, 1.0)
    one.send(11, 1, 1.0)
    one.send(12, 1, 1.0)
    assert skipped(one, [1, 1]) == [11]
    assert skipped(one, [0]) == [10], "a lag that is not reported says nothing"


def test_what_was_emitted_after_the_look_is_not_counted():
    one = EmittedOffsets()
    one.send(10, 0, 1.0)
    one.send(11, 0, 1.0)
    assert skipped(one, [1], since=1) == []
    assert skipped(one, [0], since=1) == [10]


def test_what_was_emitted_before_a_restart_counts_as_oldest():
    one = EmittedOffsets()
    one.recover(4)
    one.recover(5)
    assert one.oldest == 0.0
    assert skipped(one, []) == [], "a lag that is not reported says nothing"
    assert skipped(one, [1, 1]) == []
    assert skipped(one, [0, 1]) == [], "nobody knows where they lie"
    assert skipped(one, [0, 0]) == [4, 5]
    one.send(6, 0, 1.0)
    assert skipped(one, [1, 0]) == [4, 5]
    assert skipped(one, [1, 1]) == []
    assert (one.emitted_at(4), one.emitted_at(6), one.emitted_at(7)) == (None, 1.0, None)


def test_what_was_emitted_a_moment_ago_is_left_out():
    one = EmittedOffsets()
    assert one.oldest is None
    one.send(10, 0, 1.0)
    one.send(11, 0, 5.0)
    assert skipped(one, [0], before=4.0) == [10]


def test_a_recovered_one_is_skipped_once_all_sent_since_are_too():
    one = EmittedOffsets()
    one.recover(9)
    one.send(1, 0, 5.0)
    assert one.skipped([2], 0, 10.0) == []
    assert one.skipped([1], 0, 10.0) == [9]
    assert one.skipped([0], 0, 5.0) == [9], "not one that was sent just then"
    assert one.skipped([0], 0, 5.1) == [9, 1]


def test_what_is_emitted_again_is_the_youngest():
    one = EmittedOffsets()
    for ref, at in ((1, 0.0), (2, 5.0), (1, 10.0)):
        one.send(ref, 0, at)
    assert one.oldest == 5.0
    assert one.skipped([0], 0, 7.0) == [2]


def test_what_is_emitted_again_lies_where_it_lies_now():
    one = EmittedOffsets()
    one.send(10, 0, 1.0)
    one.send(11, 0, 1.0)
    one.send(10, 0, 2.0)
    assert skipped(one, [2]) == []
    assert skipped(one, [1]) == [11]


def test_how_many_wait_is_known_by_partition():
    one = EmittedOffsets()
    assert one.waiting(2) == [0, 0]
    for ref, partition in ((10, 0), (11, 1), (12, 1), (11, 0)):
        one.send(ref, partition, 1.0)
    one.recover(13)
    assert one.waiting(3) == [2, 1, 0], "one that was sent again waits where it is now"
    one.recover(10)
    one.remove(12)
    one.remove(12)
    assert one.waiting(2) == [1, 0]


# ---- what was reported ----


def test_the_clock_stands_until_all_that_was_reported_is_relayed():
    clock = RelayWatermark()
    clock.observe(10.0, {0: 5, 1: 0}, {0: 4})
    assert clock.until is None
    clock.observe(11.0, {0: 9, 1: 0}, {0: 5})
    assert clock.until == 10.0
    clock.observe(12.0, {0: 9, 1: 1}, {0: 9, 1: 0})
    assert clock.until == 11.0
    clock.observe(13.0, {0: 9, 1: 1}, {0: 9, 1: 1})
    assert clock.until == 13.0


def test_a_relay_that_is_away_for_ever_costs_no_memory():
    clock = RelayWatermark()
    for second in range(3_000):
        clock.observe(float(second), {0: second + 1}, {0: 0})
    assert len(clock._ends) == 1_000
    clock.observe(3_000.0, {0: 3_000}, {0: 3_000})
    assert clock.until == 999.0
    clock.observe(3_001.0, {0: 3_000}, {0: 3_000})
    assert clock.until == 3_001.0


def test_a_partition_of_which_nothing_was_relayed_counts_from_its_beginning():
    one = RelayWatermark()
    one.observe(5.0, {0: 1}, {})
    assert one.until != 5.0
    one.observe(6.0, {0: 1}, {0: 1})
    assert one.until == 6.0
