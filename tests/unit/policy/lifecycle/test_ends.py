"""Ends: each has one position, in whatever batches the events are folded."""

import json
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifecycle_events import (
    accepted,
    claimed,
    failed,
    operation,
    restarted,
    succeeded,
)
from msgspec.structs import replace

from pop_stream.policy.lifecycle.ends import (
    EVENTS_OF_A_RECORD,
    MAX_RESULTS_BYTES,
    PlacedEvent,
    ended_agenda,
    ends_of,
    may_end,
    position_of_event,
    trace_headers,
)
from pop_stream.policy.lifecycle.fold import fold_all
from pop_stream.policy.lifecycle.states import State

STORY = (
    accepted(),
    claimed(2),
    succeeded(),
    succeeded(),
    restarted(80, attempt=2, reset="all"),
    claimed(90, 2),
    failed(95, attempt=2, retryable=False),
)


@dataclass
class Batches:
    """Folds events in batches, as the rollup does, and gathers their ends."""

    summary: object = None

    def fold(self, batch):
        ends = [(one.position, one.summary.attempt) for one in ends_of(self.summary, batch)]
        self.summary, _ = fold_all(self.summary, [one.event for one in batch])
        return ends


@given(st.permutations(STORY), st.lists(st.integers(0, len(STORY)), max_size=4))
def test_an_end_has_one_position_in_whatever_batches_it_is_folded(story, cuts):
    placed = [PlacedEvent(one, 0, number) for number, one in enumerate(story)]
    whole, parts = Batches(), Batches()
    found = []
    edges = [0, *sorted(cuts), len(placed)]
    for start, end in pairwise(edges):
        found += parts.fold(placed[start:end])
    assert found == whole.fold(placed)


def test_each_attempt_that_an_agenda_ends_with_is_an_end_and_no_other():
    placed = [PlacedEvent(one, 3, number) for number, one in enumerate(STORY)]
    found = [*ends_of(None, placed)]
    assert [(one.position, one.summary.state) for one in found] == [
        (2, State.SUCCEEDED),
        (6, State.FAILED),
    ]
    assert {one.partition for one in found} == {3}
    assert not may_end([placed[1]])
    assert may_end(placed[2:3])


def test_an_end_is_known_once_the_agenda_is():
    placed = [PlacedEvent(succeeded(), 0, 1), PlacedEvent(accepted(), 0, 2)]
    assert [one.position for one in ends_of(None, placed)] == [2]


@given(st.integers(0, 2**38), st.integers(0, EVENTS_OF_A_RECORD - 1))
def test_positions_grow_with_offset_and_index(offset, index):
    position = position_of_event(offset, index)
    assert position < position_of_event(offset + 1, 0) <= 2**53 - 1
    if index:
        assert position > position_of_event(offset, index - 1)


@pytest.mark.parametrize(("size", "is_there"), [(10, True), (MAX_RESULTS_BYTES, False)])
def test_an_end_has_results_unless_they_are_large_and_the_names_of_its_agenda(size, is_there):
    done = operation(
        "fetch", "succeeded", 100.0, result=msgspec.Raw(json.dumps("x" * size).encode())
    )
    summary, _ = fold_all(None, [accepted(), succeeded()])
    summary = replace(summary, operations={"fetch": done})
    body = json.dumps(
        {"template": {"id": "scan"}, "params": {"external_id": "e1"}, "trace": TRACE}
    ).encode()
    ended = ended_agenda(summary, body)
    assert (ended.template_id, ended.external_id) == ("scan", "e1")
    assert ({*ended.results} == {"fetch"}) is is_there
    assert trace_headers(body) == TRACE
    assert trace_headers(b"{") == trace_headers(b"") == {}


TRACE = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "pop=hops:3"}
