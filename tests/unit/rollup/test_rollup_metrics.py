"""What the rollup counts of folded batches: each end and each attempt once."""

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry

from pop_stream.policy.lifecycle.states import State
from pop_stream.policy.lifecycle.summary import PastAttempt, Summary
from pop_stream.ports.summaries import FoldedBatch, SummaryChange
from pop_stream.rollup.metrics import RollupMetrics

AT = datetime(2026, 1, 1, tzinfo=UTC)
ACCEPTED = Summary(
    agenda_id="a", state=State.READY, insight_id="media", customer_id="acme", accepted_at=AT
)


class World:
    def __init__(self):
        self.registry = CollectorRegistry()
        self.metrics = RollupMetrics(self.registry)

    def fold(self, *changes, skipped=0):
        batch = FoldedBatch(applied=len(changes), skipped=skipped, changes=changes)
        self.metrics.record(batch, AT + timedelta(hours=1))

    def value(self, name, **labels):
        return self.registry.get_sample_value(name, labels) or 0


def changed(summary, **fields):
    known = {name: getattr(summary, name) for name in summary.__struct_fields__}
    return Summary(**(known | fields))


RUNNING = changed(ACCEPTED, state=State.RUNNING, started_at=AT + timedelta(seconds=2))


def test_an_end_is_counted_once_with_the_time_since_acceptance():
    world = World()
    ended = changed(RUNNING, state=State.SUCCEEDED, ended_at=AT + timedelta(seconds=20))
    world.fold(SummaryChange(None, ACCEPTED))
    world.fold(SummaryChange(ACCEPTED, RUNNING), SummaryChange(RUNNING, ended), skipped=3)
    world.fold(SummaryChange(ended, changed(ended, message="a late heartbeat")))
    labels = {"insight": "media", "state": "succeeded"}
    assert world.value("pop_submission_to_end_seconds_count", **labels) == 1
    assert world.value("pop_submission_to_end_seconds_sum", **labels) == 20.0
    outcome = {"insight": "media", "outcome": "succeeded"}
    assert world.value("pop_attempts_folded_total", **outcome) == 1
    assert world.value("pop_events_folded_total", result="applied") == 4
    assert world.value("pop_events_folded_total", result="skipped") == 3


def test_all_of_a_life_in_one_batch_counts_too():
    world = World()
    ended = changed(RUNNING, state=State.FAILED, ended_at=AT + timedelta(seconds=9))
    world.fold(SummaryChange(None, ended))
    assert (
        world.value("pop_submission_to_end_seconds_sum", insight="media", state="failed") == 9.0
    )


def test_attempts_that_another_followed_are_counted_by_how_they_ended():
    world = World()
    lost = (PastAttempt(attempt=1, outcome="lost"),)
    failed = (*lost, PastAttempt(attempt=2, outcome="failed"))
    second = changed(ACCEPTED, attempt=2, history=lost)
    third = changed(ACCEPTED, attempt=3, history=failed)
    world.fold(SummaryChange(RUNNING, second), SummaryChange(second, third))
    world.fold(SummaryChange(third, changed(third, state=State.EMITTED)))
    for outcome in ("lost", "failed"):
        labels = {"insight": "media", "outcome": outcome}
        assert world.value("pop_attempts_folded_total", **labels) == 1


def test_what_was_cancelled_while_it_waited_was_no_attempt():
    world = World()
    cancelled = changed(ACCEPTED, state=State.CANCELLED, ended_at=AT + timedelta(seconds=1))
    world.fold(SummaryChange(ACCEPTED, cancelled))
    labels = {"insight": "media", "outcome": "stopped"}
    assert world.value("pop_attempts_folded_total", **labels) == 0
    ends = {"insight": "media", "state": "cancelled"}
    assert world.value("pop_submission_to_end_seconds_count", **ends) == 1


def test_a_refusal_is_counted():
    world = World()
    refused = Summary(agenda_id="r", state=State.REFUSED, ended_at=AT)
    world.fold(SummaryChange(None, refused))
    assert world.value("pop_agendas_refused_total") == 1


def test_a_transaction_that_fails_is_measured_too():
    world = World()
    with pytest.raises(ZeroDivisionError), world.metrics.write_timed():
        raise ZeroDivisionError
    assert world.value("pop_postgres_write_seconds_count") == 1
