"""The demo's report, from events to JSON."""

import io
import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from rich.console import Console

from pop_stream.lab.demo.report import AgendaCounts, make_report, show_report
from pop_stream.lab.demo.statistics import ContestResult, RunStatistics, contest_of
from pop_stream.lab.reporting import duration
from pop_stream.model.events.lifecycle import AgendaAccepted, AgendaClaimed, AgendaSucceeded

START = datetime(2030, 1, 1, tzinfo=UTC)
CONTRACT = {
    "submitted", "succeeded", "failed", "lost", "duplicates", "seconds", "jain",
    "wait_p50_ms", "wait_p99_ms", "jain_customers", "contended_s",
}  # fmt: skip


def demo_agenda(agenda_id, customer_id, *, accepted, started):
    at = [START + timedelta(seconds=s) for s in (accepted, started, started + 1)]
    common = {"agenda_id": agenda_id, "insight_id": "files"}
    yield AgendaAccepted(at=at[0], customer_id=customer_id, agenda=msgspec.Raw(b"{}"), **common)
    yield AgendaClaimed(at=at[1], attempt=1, puller_id="p", lease_ms=1000, **common)
    yield AgendaSucceeded(at=at[2], attempt=1, spent_s={"file.read": 1.0}, **common)


def shown(report):
    console = Console(width=160, file=io.StringIO())
    show_report(console, report)
    return console.file.getvalue()


@pytest.fixture
def run_statistics():
    """A flood of 6 and a quiet customer of 2 and of weight 2, served as they should be."""
    owners = {f"f{n}": "flood" for n in range(6)} | {f"d{n}": "dora" for n in range(4)}
    run_statistics = RunStatistics(owners)
    for number, started in enumerate([3, 6, 9, 10, 11, 12]):
        run_statistics.note(demo_agenda(f"f{number}", "flood", accepted=0, started=started))
    for number, started in enumerate([2, 4, 5, 7]):
        run_statistics.note(demo_agenda(f"d{number}", "dora", accepted=1, started=started))
    return run_statistics


CONTEST = ContestResult(
    jain=0.99912, competitors=2, span_s=6.0, given={"flood": 1.0, "dora": 2.0}
)
LEDGERS = {"flood": AgendaCounts(6, 6, 6), "dora": AgendaCounts(4, 4, 4)}


def test_shares_are_of_what_was_given_while_all_waited(run_statistics):
    report = make_report(run_statistics, LEDGERS, CONTEST, seconds=13)
    shares = {one.customer_id: one.share for one in report.customers}
    assert shares == pytest.approx({"flood": 1 / 3, "dora": 2 / 3})
    assert report.is_clean


def test_waits_run_from_acceptance_to_start(run_statistics):
    dora = make_report(run_statistics, LEDGERS, CONTEST, seconds=13).customers[1]
    assert (dora.wait_p50_ms, dora.wait_p99_ms) == (3000, 6000)


def test_json_keeps_the_contract(run_statistics):
    found = make_report(run_statistics, LEDGERS, CONTEST, seconds=13).as_json()
    assert set(found) >= CONTRACT
    assert found["customers"]["dora"]["submitted"] == 4
    assert (found["jain"], found["jain_customers"], found["contended_s"]) == (0.9991, 2, 6.0)
    json.dumps(found)


@pytest.mark.parametrize(
    ("agenda_counts", "fault"),
    [
        (AgendaCounts(4, 4, 4), None),
        (AgendaCounts(4, 3, 3), "lost"),
        (AgendaCounts(4, 3, 4), "failed"),
    ],
)
def test_only_a_run_without_fault_is_clean(run_statistics, agenda_counts, fault):
    report = make_report(run_statistics, LEDGERS | {"dora": agenda_counts}, CONTEST, seconds=13)
    assert report.is_clean is (fault is None)
    if fault:
        assert report.as_json()[fault] == 1


def test_run_that_was_without_events_has_no_figures():
    run_statistics = RunStatistics({"a": "flood", "b": "dora"})
    counts_by_customer = {"flood": AgendaCounts(1, 0, 0), "dora": AgendaCounts(1, 0, 0)}
    report = make_report(
        run_statistics, counts_by_customer, contest_of([], [*counts_by_customer]), seconds=0
    )
    assert (report.wait_p50_ms, report.agenda_counts.lost) == (None, 2)
    found = report.as_json()
    assert (found["jain"], found["jain_customers"]) == (None, 0)
    json.dumps(found)
    assert "No Jain index" in shown(report)


def test_view_has_a_row_per_customer(run_statistics):
    text = shown(make_report(run_statistics, LEDGERS, CONTEST, seconds=13))
    assert "Jain index 0.999" in text
    assert "flood" in text
    assert "dora" in text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "-"),
        (85.4, "85 ms"),
        (999.7, "1.0 s"),
        (3249, "3.2 s"),
        (59_400, "59.4 s"),
        (59_990, "1 min 0 s"),
        (125_000, "2 min 5 s"),
        (599_700, "10 min"),
        (7_500_000, "2 h 5 min"),
        (3_599_900, "1 h 0 min"),
        (86_400_000, "1 d 0 h"),
        (864_000_000, "10 d"),
        (1e12, "11,574 d"),
    ],
)
def test_durations_are_readable(ms, text):
    assert duration(ms) == text
