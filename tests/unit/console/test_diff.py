"""Differences by lines: what changed, around it a few lines, and bounded work."""

import time

from hypothesis import given
from hypothesis import strategies as st

from pop_stream.console.diff import CONTEXT, MAX_COMPARED, MAX_SHOWN, as_text, difference

VALUES = st.dictionaries(st.text(max_size=3), st.integers(0, 3) | st.lists(st.integers(0, 3)))


def test_what_is_the_same_differs_in_nothing():
    assert difference({"a": 1}, {"a": 1}) == ()


def test_a_change_stands_between_a_few_lines_that_are_the_same():
    old = {f"f{one}": one for one in range(20)}
    lines = difference(old, old | {"f10": 99})
    assert [one.text.strip() for one in lines if one.change == "removed"] == ['"f10": 10,']
    assert [one.text.strip() for one in lines if one.change == "added"] == ['"f10": 99,']
    assert [one.change for one in lines].count("same") == 2 * CONTEXT
    gaps = [int(one.text) for one in lines if one.change == "gap"]
    assert sum(gaps) + 2 * CONTEXT + 1 == len(as_text(old).split("\n"))


@given(VALUES, VALUES)
def test_a_difference_leads_from_one_to_the_other(old, new):
    lines = difference(old, new)
    for changes, content in ((("same", "removed"), old), (("same", "added"), new)):
        shown = [one.text for one in lines if one.change in changes]
        left_out = sum(int(one.text) for one in lines if one.change == "gap")
        whole = as_text(content).split("\n")
        assert not lines or len(shown) + left_out == len(whole)
        assert set(shown) <= set(whole)


def test_a_large_difference_is_neither_compared_line_by_line_nor_shown_whole():
    old = {"all": [*range(20 * MAX_COMPARED)]}
    new = {"all": [2 * one + 1 for one in range(20 * MAX_COMPARED)]}
    before = time.process_time()
    assert len(difference(old, new)) == MAX_SHOWN
    assert time.process_time() - before < 10
