"""Heaps with outdated entries say what a plain table would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pop_stream.core.backlog import timetable
from pop_stream.core.backlog.timetable import Timetable
from pop_stream.core.fairness import turns
from pop_stream.core.fairness.turns import Turns

_puts = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.none() | st.integers(0, 9)) | st.none(), max_size=60
)


@given(_puts)
def test_whatever_is_put_dropped_and_popped_a_plain_table_says_the_same(steps):
    one, plain = Turns(), dict[str, int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns, "_SLACK", -20)  # so that the heap is made anew at times
        for step in steps:
            match step:
                case None:
                    first = min(((key, name) for name, key in plain.items()), default=None)
                    assert one.pop() == first
                    if first is not None:
                        del plain[first[1]]
                case (name, None):
                    one.drop(name)
                    plain.pop(name, None)
                case (name, key):
                    one.put(name, key)
                    plain[name] = key
            assert len(one) == len(plain)
            assert {*one.up_to(4, 9)} == {name for name, key in plain.items() if key <= 4}


_instants = st.lists(
    st.tuples(st.integers(0, 5), st.none() | st.integers(0, 9)) | st.integers(0, 9),
    max_size=60,
)


@given(_instants)
def test_whatever_is_set_cleared_and_taken_a_plain_table_says_the_same(steps):
    one, plain = Timetable(), dict[int, int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timetable, "_SLACK", -6)  # so that the heap is made anew at times
        for step in steps:
            match step:
                case (ref, None):
                    one.clear(ref)
                    plain.pop(ref, None)
                case (ref, at):
                    one.set(ref, at)
                    plain[ref] = at
                case now:
                    due = sorted((at, ref) for ref, at in plain.items() if at <= now)[:2]
                    assert one.take_due(now, 2) == [ref for _, ref in due]
                    for _, ref in due:
                        del plain[ref]
            assert one.next_at == min(plain.values(), default=None)
