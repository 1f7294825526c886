"""A heap with outdated keys says what a plain table would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pop_stream.policy.fairness import turn_order
from pop_stream.policy.fairness.turn_order import KeyedHeap

_steps = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.none() | st.integers(0, 9)) | st.none(), max_size=60
)


@given(_steps)
def test_whatever_is_put_and_dropped_a_plain_table_says_the_same(steps):
    one, plain = KeyedHeap(), dict[str, int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turn_order, "_SLACK", -20)  # so that the heap is made anew at times
        for step in steps:
            match step:
                case None:
                    first = min(((key, name) for name, key in plain.items()), default=None)
                    assert one.first() == first
                    if first is not None:
                        one.drop(first[1])
                        del plain[first[1]]
                case (name, None):
                    one.drop(name)
                    plain.pop(name, None)
                case (name, key):
                    one.put(name, key)
                    plain[name] = key
            assert len(one) == len(plain)
            assert {*one.up_to(4, 9)} == {name for name, key in plain.items() if key <= 4}
