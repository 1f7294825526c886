"""Which ends are old enough to be removed, and that nothing else ever is."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pop_stream.kafka.topics import Topics, catalog
from pop_stream.operations.doctor import _retention_findings
from pop_stream.policy.lifecycle.retention import Retention
from pop_stream.policy.lifecycle.states import TERMINAL, State
from pop_stream.rollup.retention import retention_from
from pop_stream.settings import Settings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEPT = Retention(
    succeeded=timedelta(days=1),
    failed=timedelta(days=2),
    stopped=timedelta(days=3),
    refused=timedelta(hours=1),
)


def test_every_end_has_an_age_and_nothing_else_has():
    before = KEPT.before(NOW)
    assert set(before) == set(TERMINAL)
    assert before[State.SUCCEEDED] == NOW - timedelta(days=1)
    assert before[State.FAILED] == NOW - timedelta(days=2)
    assert before[State.CANCELLED] == before[State.EXPIRED] == NOW - timedelta(days=3)
    assert before[State.REFUSED] == NOW - timedelta(hours=1)


def test_the_shortest_span_is_of_agendas_that_were_accepted():
    assert KEPT.shortest == timedelta(days=1)
    assert replace(KEPT, stopped=timedelta(minutes=1)).shortest == timedelta(minutes=1)


def test_every_end_is_kept_for_at_least_as_long_as_its_events_are():
    topics = {one.name: one for one in catalog(Topics(""))}
    kept = retention_from(Settings())
    for end, before in kept.before(NOW).items():
        assert NOW - before >= topics["agenda-events"].retention, end
    assert kept.failed >= topics["dead-webhooks"].retention


@pytest.mark.parametrize("name", ["retain_succeeded", "retain_failed", "retain_stopped"])
def test_the_doctor_reports_ends_that_are_kept_shorter_than_their_events(name):
    assert _retention_findings(Settings()) == []
    shorter = Settings(**{name: timedelta(days=13)})
    [finding] = _retention_findings(shorter)
    assert "kept for 13 days" in finding
    assert "events in pop.agenda-events for 14 days" in finding
    assert _retention_findings(shorter, timedelta(days=13)) == []


@pytest.mark.parametrize(
    ("live", "expected"), [(timedelta(days=600), "600 days"), (timedelta.max, "ever:")]
)
def test_the_doctor_goes_by_how_long_the_live_topic_keeps_events(live, expected):
    [finding] = _retention_findings(Settings(), live)
    assert f"for {expected}" in finding


def test_what_tells_what_waits_or_is_in_force_is_never_aged():
    compacted = {one.name for one in catalog(Topics("")) if one.retention is None}
    assert compacted == {
        "scheduler-ready-changelog",
        "definitions",
        "rule-states",
        "timekeeper",
    }
