"""Pauses between tries: they grow, are capped and spread, and are the same every time."""

import pytest
from pydantic import TypeAdapter, ValidationError

from pop_stream.model.retry import Backoff

STEADY = Backoff(first_s=1.0, factor=2.0, most_s=10.0, jitter=0.0)


@pytest.mark.parametrize(
    ("failures", "pause_s"), [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 10.0), (90, 10.0)]
)
def test_the_pause_doubles_up_to_its_cap(failures, pause_s):
    assert STEADY.pause_s(failures, seed="a") == pause_s


def test_no_number_of_failures_is_too_large():
    steep = Backoff(first_s=1.0, factor=100.0, most_s=60.0, jitter=0.0)
    assert steep.pause_s(10**9, seed="a") == 60.0


def test_a_first_pause_of_none_stays_none():
    assert Backoff(first_s=0.0, jitter=0.0).pause_s(7, seed="a") == 0.0


def test_the_spread_is_bounded_differs_by_agenda_and_repeats():
    spread = Backoff(first_s=8.0, jitter=0.5)
    pauses = [spread.pause_s(1, seed=f"a-{number}") for number in range(200)]
    assert 4.0 <= min(pauses) < 4.5
    assert 7.5 < max(pauses) <= 8.0
    assert len(set(pauses)) == 200
    assert pauses == [spread.pause_s(1, seed=f"a-{number}") for number in range(200)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"first_s": -1},
        {"first_s": 86_401},
        {"factor": 0.5},
        {"most_s": 0},
        {"jitter": 1.5},
        {"tries": 3},
    ],
)
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValidationError):
        TypeAdapter(Backoff).validate_python(wrong)


@pytest.mark.parametrize(("failures", "most_s"), [(1, 1.0), (2, 2.0), (4, 8.0), (30, 300.0)])
def test_where_nothing_is_said_pauses_double_to_five_minutes_less_a_fifth(failures, most_s):
    pauses = [Backoff().pause_s(failures, seed=str(number)) for number in range(500)]
    assert max(pauses) == pytest.approx(most_s, rel=0.01)
    assert min(pauses) == pytest.approx(0.8 * most_s, rel=0.01)
