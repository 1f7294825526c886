"""Counts of rules: they go on from what was written, and a fault is said once."""

from datetime import UTC, datetime

from prometheus_client import CollectorRegistry

from pop_stream.model.events.rules import MAX_SHOWN, RuleState
from pop_stream.timekeeper.rule_counts import RuleCounts, RuleMetrics

AT = datetime(2026, 1, 1, tzinfo=UTC)


def counts(*rows, registry=None):
    written = {one.key: one for one in rows}
    metrics = RuleMetrics(registry or CollectorRegistry())
    return RuleCounts("big", "files", written.get, metrics), written


def test_whoever_takes_a_partition_over_counts_on_unless_the_topic_is_another():
    of_files = RuleState(rule_id="big", source="files", partition=0, fired=4)
    of_others = RuleState(rule_id="big", source="others", partition=1, fired=9)
    counted, _ = counts(of_files, of_others)
    counted.keep([0, 1])
    for partition in (0, 1):
        counted.count(partition, "fired", AT)
    first, second = counted.take_changed()
    assert (first.fired, second.fired) == (5, 1)
    assert not counted.take_changed()
    counted.count(0, "failed", AT, failure="x" * 2 * MAX_SHOWN)
    counted.keep([1])  # somebody else writes the row from now on
    assert not counted.take_changed()


def test_a_failure_is_shown_shortened_and_counted_by_rule():
    registry = CollectorRegistry()
    counted, _ = counts(registry=registry)
    for outcome in ("fired", "filtered", "unreadable", "failed", "failed"):
        counted.count(2, outcome, AT, failure="x" * 2 * MAX_SHOWN)
    [row] = counted.take_changed()
    assert (row.fired, row.filtered, row.unreadable, row.failures) == (1, 1, 1, 2)
    assert row.last_failure == "x" * MAX_SHOWN
    labels = {"rule": "big", "outcome": "failed"}
    assert registry.get_sample_value("pop_rule_records_total", labels) == 2


def test_a_fault_is_said_once_and_taken_back_once():
    counted, written = counts()
    assert counted.with_fault("") is None
    said = counted.with_fault("no such topic")
    written[said.key] = said
    assert counted.with_fault("no such topic") is None
    assert counted.with_fault("").fault == ""
