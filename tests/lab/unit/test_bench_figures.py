"""The arithmetic of the benchmarks, on figures that can be checked by hand."""

from datetime import UTC, datetime

import pytest

from pop_stream.lab.bench.figures import ProgressSample, percentiles_ms, rate, spread, thinned
from pop_stream.lab.bench.latency_run import stages
from pop_stream.lab.bench.meter import (
    MachineUsage,
    ProcessUsage,
    cpu_seconds,
    other_usage,
    own_parts,
)
from pop_stream.lab.bench.pipeline_run import EndCounter
from pop_stream.lab.bench.results import LifecycleCounts
from pop_stream.model.events.lifecycle import AgendaClaimed, AgendaFailed, AgendaSucceeded

STEADY = [ProgressSample(at, 1_000 * at, 100 * max(0, at - 2)) for at in range(13)]


def test_spread_of_runs_is_their_least_median_and_most():
    assert spread([3.04, 1.0, 2.0, 10.0]) == {"min": 1.0, "median": 2.5, "max": 10.0}
    assert spread([]) == {}


def test_percentiles_are_values_that_occurred_in_milliseconds():
    found = percentiles_ms([number / 1000 for number in range(1, 101)])
    assert found == {"p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0}
    assert percentiles_ms([]) == {"p50": None, "p95": None, "p99": None, "max": None}


def test_rate_of_a_burst_counts_from_the_submission_to_the_last_end():
    assert rate(STEADY) == pytest.approx(1_000 / 12)


def test_rate_of_a_sustained_run_leaves_ramp_and_drain_out():
    assert rate(STEADY, begin=4.0, end=10.0) == pytest.approx(100)


def test_rate_of_no_time_is_zero():
    assert rate([ProgressSample(0.0, 0, 0)]) == 0
    assert rate(STEADY, begin=99.0) == 0


def test_thinned_samples_keep_both_ends():
    samples = [ProgressSample(float(at), at, at) for at in range(1_001)]
    kept = thinned(samples, 11)
    assert [one.submitted for one in kept] == list(range(0, 1_001, 100))
    assert thinned(samples[:5], 11) == samples[:5]


@pytest.fixture
def ends():
    ends = EndCounter()
    ended = b'{"type":"agenda.succeeded","agenda_id":"a"}'
    ends.note(0, 5, b"[" + ended + b"," + ended + b"]")
    ends.note(0, 6, b'{"type":"agenda.claimed","agenda_id":"b"}')
    ends.note(0, 7, ended)
    ends.note(1, 2, b'{"type":"agenda.failed","agenda_id":"c"}')
    return ends


def test_only_ends_before_the_stored_offset_count(ends):
    assert ends.up_to({}) == 0
    assert ends.up_to({0: 5}) == 0
    assert ends.up_to({0: 6}) == 2
    assert ends.up_to({0: 7, 1: 3}) == 3
    assert ends.up_to({0: 8, 1: 3}) == 4


def test_an_offset_counts_once_however_often_it_is_asked_for(ends):
    assert [ends.up_to({0: 6}) for _ in range(3)] == [2, 2, 2]


def test_processor_time_is_the_difference_of_two_readings():
    before = {"a": ProcessUsage(2.0, 1, 1), "b": ProcessUsage(9.0, 1, 1)}
    after = {
        "a": ProcessUsage(2.5, 1, 1),
        "b": ProcessUsage(1.0, 1, 1),
        "c": ProcessUsage(3.0, 1, 1),
    }
    # b was started again, and c is new: both count from their own start.
    assert cpu_seconds(before, after) == {"a": 0.5, "b": 1.0, "c": 3.0}


def test_what_else_the_machine_did_is_shown():
    before, after = MachineUsage(10.0, 100.0, 1.0), MachineUsage(14.0, 107.0, 1.4)
    assert other_usage(before, after, 6.0) == {"others": 0.25, "stolen": 0.1}
    # Ticks of the kernel are coarse: ours may seem to be more than all.
    assert other_usage(before, after, 7.1)["others"] == 0


def test_servers_are_not_ours():
    assert own_parts(["kafka", "scheduler", "postgres", "puller-1"]) == [
        "scheduler",
        "puller-1",
    ]


def test_stages_leave_out_agendas_that_miss_one():
    whole = {
        "due": 0.0, "accepted": 0.001, "emitted": 0.003, "claimed": 0.006,
        "started": 0.01, "succeeded": 0.015, "readable": 0.021,
    }  # fmt: skip
    found = stages([whole, {"due": 0.0, "emitted": 0.5}])
    assert [one["p50"] for one in found.values()] == [1, 2, 3, 4, 5, 6]
    assert [one["max"] for one in found.values()] == [1, 2, 3, 4, 5, 6]


def lifecycle(event, agenda_id, attempt=1, **more):
    at = datetime(2030, 1, 1, tzinfo=UTC)
    return event(agenda_id=agenda_id, at=at, insight_id="i", attempt=attempt, **more)


def test_repeats_are_distinguished_from_further_attempts():
    counts = LifecycleCounts()
    for agenda_id, attempt in (("a", 1), ("a", 2), ("b", 1), ("b", 1)):
        counts.note(lifecycle(AgendaClaimed, agenda_id, attempt, puller_id="p", lease_ms=1_000))
    counts.note(lifecycle(AgendaFailed, "a", message="no"))
    counts.note(lifecycle(AgendaSucceeded, "a", 2))
    assert (counts.duplicates, counts.repeated_starts, counts.failures) == (0, 1, 1)
    counts.note(lifecycle(AgendaSucceeded, "a", 2))
    counts.note(lifecycle(AgendaSucceeded, "b"))
    assert counts.duplicates == 1
