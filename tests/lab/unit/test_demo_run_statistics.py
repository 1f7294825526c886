"""What a demo makes of lifecycle events."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from pop_stream.lab.demo.statistics import RunStatistics
from pop_stream.model.events.lifecycle import (
    AgendaAccepted,
    AgendaClaimed,
    AgendaFailed,
    AgendaSucceeded,
)

START = datetime(2030, 1, 1, tzinfo=UTC)


def accepted(agenda_id="a1", seconds=0.0):
    return AgendaAccepted(
        agenda_id=agenda_id,
        at=_at(seconds),
        insight_id="files",
        customer_id="small",
        agenda=msgspec.Raw(b"{}"),
    )


def claimed(seconds, *, attempt=1, puller_id="p1"):
    return AgendaClaimed(
        agenda_id="a1",
        at=_at(seconds),
        insight_id="files",
        attempt=attempt,
        puller_id=puller_id,
        lease_ms=60_000,
    )


def succeeded(seconds, *, attempt=1):
    return AgendaSucceeded(
        agenda_id="a1",
        at=_at(seconds),
        insight_id="files",
        attempt=attempt,
        spent_s={"hash": 0.5, "count": 1.5},
    )


def failed(seconds, *, retryable):
    return AgendaFailed(
        agenda_id="a1",
        at=_at(seconds),
        insight_id="files",
        attempt=1,
        message="broken",
        retryable=retryable,
    )


def _at(seconds):
    return START + timedelta(seconds=seconds)


@pytest.fixture
def run_statistics():
    return RunStatistics({"a1": "small"})


def test_wait_runs_from_acceptance_to_the_first_claim(run_statistics):
    run_statistics.note([claimed(9, attempt=2), accepted(seconds=1), claimed(4)])
    assert run_statistics.by_agenda["a1"].wait == timedelta(seconds=3)


def test_wait_is_unknown_until_both_ends_are(run_statistics):
    run_statistics.note([claimed(4)])
    assert run_statistics.by_agenda["a1"].wait is None


def test_events_of_other_runs_are_ignored(run_statistics):
    run_statistics.note([accepted("of-yesterday")])
    assert set(run_statistics.by_agenda) == {"a1"}


def test_an_event_published_twice_is_no_duplicate(run_statistics):
    run_statistics.note([claimed(4), claimed(4), succeeded(5), succeeded(5)])
    assert run_statistics.duplicates == 0
    assert run_statistics.done == 1


def test_one_attempt_started_by_two_pullers_is_a_duplicate(run_statistics):
    run_statistics.note([claimed(4), claimed(5, puller_id="p2")])
    assert run_statistics.duplicates == 1


def test_a_retry_is_no_duplicate(run_statistics):
    run_statistics.note([claimed(4), claimed(9, attempt=2), succeeded(10, attempt=2)])
    assert run_statistics.duplicates == 0


def test_a_second_success_is_a_duplicate(run_statistics):
    run_statistics.note(
        [claimed(4), succeeded(5), claimed(9, attempt=2), succeeded(10, attempt=2)]
    )
    assert run_statistics.duplicates == 1


def test_service_is_what_the_successful_attempt_spent(run_statistics):
    run_statistics.note([succeeded(5)])
    assert run_statistics.by_agenda["a1"].spent_s == 2.0


def test_a_failure_to_be_retried_leaves_the_agenda_open(run_statistics):
    run_statistics.note([failed(5, retryable=True)])
    assert run_statistics.done == 0
    run_statistics.note([failed(6, retryable=False)])
    assert run_statistics.done == 1
