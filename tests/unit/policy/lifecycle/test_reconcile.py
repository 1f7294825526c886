"""What a look at the ledger finds, and what is made of two looks."""

import json
from datetime import UTC, datetime

import pytest

from pop_stream.model.errors import SubmissionError
from pop_stream.model.events.scheduling import TrackedAgenda
from pop_stream.policy.lifecycle.reconcile import (
    LedgerRow,
    checked_against_events,
    confirmed,
    find_discrepancies,
    missing_summary,
    placed_for_repair,
)
from pop_stream.policy.lifecycle.states import BEFORE_EMISSION, OUTCOMES, TERMINAL, State
from pop_stream.policy.lifecycle.summary import Summary

NOW = datetime(2026, 3, 1, tzinfo=UTC)
OPEN = sorted(set(State) - TERMINAL, key=str)
BODY = json.dumps(
    {"id": "a", "customer_id": "anna", "priority": 2, "max_attempts": 7,
     "operations": [{"name": "o", "type": "t"}]}
).encode()  # fmt: skip


def row(state, attempt=1, version=3, **changes):
    return LedgerRow("a", "media", state, attempt, version, **changes)


def held(state="ready", attempt=1):
    return {"a": TrackedAgenda("a", state, attempt)}


def kinds(found):
    return [one.kind for one in found.values()]


@pytest.mark.parametrize("state", OPEN)
def test_open_and_unknown_to_the_scheduler_is_missing(state):
    assert kinds(find_discrepancies([row(state)], {})) == ["missing"]


@pytest.mark.parametrize("state", sorted(OUTCOMES, key=str))
def test_ended_and_forgotten_is_as_it_should_be(state):
    assert not find_discrepancies([row(state)], {})
    assert kinds(find_discrepancies([row(state)], held("claimed"))) == ["ended"]


@pytest.mark.parametrize("state", OPEN)
def test_held_with_the_same_attempt_is_as_it_should_be(state):
    assert not find_discrepancies([row(state)], held("claimed"))


def test_emitted_and_quiet_is_not_claimed():
    assert kinds(find_discrepancies([row(State.EMITTED)], held("emitted"))) == ["not_claimed"]
    assert not find_discrepancies([row(State.EMITTED, is_stale=False)], held("emitted"))


def test_another_attempt_is_reported_with_both():
    [one] = find_discrepancies([row(State.RUNNING)], held("ready", attempt=2)).values()
    assert one.kind == "other_attempt"
    assert "attempt 1" in one.detail
    assert "attempt 2" in one.detail


def test_only_what_both_looks_found_of_an_unchanged_agenda_counts():
    first = find_discrepancies([row(State.RUNNING)], {})
    assert confirmed(first, first)
    assert not confirmed({}, first)
    assert not confirmed(first, {})
    assert not confirmed(first, find_discrepancies([row(State.RUNNING, version=4)], {}))
    assert not confirmed(first, find_discrepancies([row(State.RUNNING)], held(attempt=2)))


def test_only_what_is_missing_can_be_placed_again():
    [missing] = find_discrepancies([row(State.RUNNING)], {}).values()
    [other] = find_discrepancies([row(State.RUNNING)], held(attempt=2)).values()
    assert (missing.is_repairable, other.is_repairable) == (True, False)


def test_what_kafka_tells_decides_whether_a_summary_can_be_believed():
    [missing] = find_discrepancies([row(State.RUNNING)], {}).values()
    ended = checked_against_events(missing, Summary(agenda_id="a", state=State.SUCCEEDED))
    assert (ended.kind, ended.is_repairable) == ("summary", False)
    assert "running, attempt 1" in ended.detail
    assert "succeeded, attempt 1" in ended.detail
    assert (
        checked_against_events(missing, Summary(agenda_id="a", state=State.RUNNING)) == missing
    )
    ahead = checked_against_events(
        missing, Summary(agenda_id="a", state=State.RUNNING, attempt=2)
    )
    assert ahead.kind == "summary"


def test_what_the_scheduler_holds_and_postgres_does_not_know_has_no_summary():
    [one] = held("waiting", attempt=2).values()
    one = missing_summary("media", one)
    assert (one.kind, one.row.version, one.is_repairable) == ("no_summary", 0, False)
    assert "waiting, attempt 2" in one.detail
    assert (
        checked_against_events(one, Summary(agenda_id="a", state=State.WAITING, attempt=2))
        == one
    )


@pytest.mark.parametrize("state", OPEN)
def test_what_may_run_somewhere_is_placed_as_the_next_attempt(state):
    placed = placed_for_repair(row(state, attempt=4), BODY, NOW)
    assert placed.attempt == (4 if state in BEFORE_EMISSION else 5)
    assert placed.held is (state is State.HELD)
    assert (placed.priority, placed.max_attempts, placed.accepted_at) == (2, 7, NOW)
    assert bytes(placed.agenda) == BODY


def test_pullers_of_a_repair_do_not_learn_where_the_customer_is_called_back():
    body = json.dumps(json.loads(BODY) | {"callback_url": "https://a.example/5ecret"}).encode()
    placed = placed_for_repair(row(State.READY), body, NOW)
    assert json.loads(bytes(placed.agenda)) == json.loads(BODY)


def test_a_body_that_is_no_agenda_is_refused():
    with pytest.raises(SubmissionError):
        placed_for_repair(row(State.READY), b'{"id": "a"}', NOW)
