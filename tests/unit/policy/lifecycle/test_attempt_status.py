"""What a summary says of attempts: which are over, and why."""

import pytest

from pop_stream.policy.lifecycle.states import (
    OUTCOMES,
    AttemptStatus,
    State,
    ended_in_earlier_attempt,
    lease_lost_error,
)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("newest", [1, 2, 3])
def test_an_attempt_is_over_once_it_has_ended_or_another_follows(newest, state):
    error = lease_lost_error("a1", 2, AttemptStatus(newest, state))
    if newest == 3:
        assert (error.reason, error.state) == ("followed", None)
        assert "attempt 3 follows it; stop working on it" in str(error)
    elif newest == 2 and state in OUTCOMES | {State.RETRYING}:
        assert (error.reason, error.state) == ("ended", state.value)
        assert state.value in str(error) or "another follows it" in str(error)
    else:
        assert error is None


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize(
    ("newest", "run_from", "is_of_this_run"),
    [(1, 1, True), (2, 1, True), (2, 3, False), (1, 2, False), (3, 1, False), (2, 0, False)],
)
def test_only_an_end_of_an_earlier_attempt_of_the_same_run_counts(
    newest, run_from, is_of_this_run, state
):
    found = ended_in_earlier_attempt(3, run_from, AttemptStatus(newest, state))
    assert found == (is_of_this_run and state in OUTCOMES)
