"""One instant per place, however often it changes."""

from pop_stream.core.backlog.timetable import Timetable


def test_due_is_what_was_set_last_once_and_soonest_first():
    one = Timetable()
    for ref, at in ((1, 5.0), (2, 3.0), (3, 4.0), (1, 2.0), (2, 9.0)):
        one.set(ref, at)
    one.clear(3)
    assert one.next_at == 2.0
    assert one.take_due(5.0, 9) == [1]
    assert (one.next_at, one.take_due(9.0, 9), one.next_at) == (9.0, [2], None)


def test_a_place_set_twice_to_one_instant_is_due_once():
    one = Timetable()
    one.set(1, 5.0)
    one.set(1, 5.0)
    assert one.take_due(5.0, 9) == [1]


def test_only_so_many_are_taken_at_once():
    one = Timetable()
    for ref in range(5):
        one.set(ref, float(ref))
    assert [one.take_due(9.0, 2) for _ in range(3)] == [[0, 1], [2, 3], [4]]


def test_instants_that_change_leave_no_litter():
    one = Timetable()
    for number in range(1_000):
        one.set(number % 3, float(number))
    assert len(one._heap) <= 2 * 3 + 64 + 1
