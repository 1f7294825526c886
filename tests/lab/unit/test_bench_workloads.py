"""What the benchmarks submit, how they drive it, and what they draw and compare."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from pop_stream.lab.bench.backlog import report as backlog_report
from pop_stream.lab.bench.backlog import steps
from pop_stream.lab.bench.backlog_run import BacklogBenchOptions
from pop_stream.lab.bench.chart import LineChart, draw_lines
from pop_stream.lab.bench.compare import compared, read_result
from pop_stream.lab.bench.comparison import PhaseComparison, median_comparison, runtime_cv
from pop_stream.lab.bench.figures import ProgressSample
from pop_stream.lab.bench.handlers import handlers, read_starts
from pop_stream.lab.bench.idle import report as idle_report
from pop_stream.lab.bench.latency_run import run_open_loop
from pop_stream.lab.bench.load import LoadProfile, NoopWorkload, drive
from pop_stream.lab.bench.observer import MeasuredAttempt, depth_of, weight_changes
from pop_stream.lab.bench.pipeline_run import IdleUsage
from pop_stream.lab.bench.session import BenchPhase
from pop_stream.lab.fairness_metrics.recorded import decisions_since
from pop_stream.lab.fairness_metrics.service_log import EMITTED, ServedAttempt
from pop_stream.lab.replay.decisions_log import DecisionHistory
from pop_stream.model.agenda import parse_agenda
from pop_stream.operations.errors import UsageError

INSIGHTS = ("one", "two")


@pytest.mark.parametrize("operations", [1, 3])
@pytest.mark.parametrize("size", [1, 300, 5_000])
def test_work_is_valid_and_of_the_wanted_size(operations, size):
    work = NoopWorkload("run", INSIGHTS, customers=3, operations=operations, size=size)
    bodies = [work.body(number) for number in range(12)]
    agendas = [parse_agenda(body) for body in bodies]
    assert {len(one.operations) for one in agendas} == {operations}
    assert {one.operations[0].type for one in agendas} <= set(handlers.types)
    if size == 5_000:
        assert all(abs(len(body) - size) < 30 for body in bodies)


def test_work_takes_insights_and_customers_in_turn():
    work = NoopWorkload("run", INSIGHTS, customers=3)
    agendas = [parse_agenda(work.body(number)) for number in range(12)]
    pairs = [(work.insight_id(number), one.customer_id) for number, one in enumerate(agendas)]
    assert {pairs.count(pair) for pair in set(pairs)} == {2}
    assert len(set(pairs)) == 6
    assert [one.id for one in agendas] == [work.agenda_id(number) for number in range(12)]
    assert [one.params["bench"] for one in agendas] == [pair[0] for pair in pairs]


class Path:
    """Takes agendas in; each look lets some more come out."""

    def __init__(self, *, a_look=1 << 30, base=0):
        self.submitted = 0
        self.out = base
        self.most_open = 0
        self.base = base
        self.a_look = a_look

    async def submit(self, first, count):
        assert first == self.submitted
        self.submitted += count
        self.most_open = max(self.most_open, self.submitted - (self.out - self.base))

    async def ended(self):
        self.out = min(self.base + self.submitted, self.out + self.a_look)
        return self.out


async def test_a_burst_submits_exactly_what_it_should_and_waits_for_all_of_it():
    path = Path(a_look=500, base=7)
    samples = await drive(path.submit, path.ended, LoadProfile(agendas=1_234))
    assert path.submitted == 1_234
    assert samples[0] == ProgressSample(0.0, 0, 0)
    assert samples[-1].submitted == samples[-1].ended == 1_234


async def test_a_closed_loop_never_has_more_outstanding_than_its_window():
    path = Path(a_look=30)
    samples = await drive(path.submit, path.ended, LoadProfile(seconds=0.5, window=100))
    assert 100 < samples[-1].ended == path.submitted
    assert path.most_open <= 100


async def test_a_path_that_stands_still_is_given_up(monkeypatch):
    monkeypatch.setattr("pop_stream.lab.bench.load._STALL_TIMEOUT_S", 0.2)
    path = Path(a_look=0)
    with pytest.raises(BaseExceptionGroup) as failed:
        await drive(path.submit, path.ended, LoadProfile(agendas=10))
    assert "only 0 of 10 agendas have ended" in str(failed.value.exceptions[0])


async def test_an_open_loop_keeps_its_rate_and_counts_from_when_each_was_due():
    sent = []

    async def submit(number):
        sent.append(number)

    async def ended(numbers):
        return numbers

    course = await run_open_loop(submit, ended, rate=400, total=100)
    assert sent == list(range(100))
    assert course.due(99) - course.due(0) == pytest.approx(99 / 400)
    assert all(at >= course.due(number) for number, at in enumerate(course.sent))
    assert sorted(course.summaries) == sent
    assert all(course.summaries[number] >= course.sent[number] for number in sent)


async def test_an_open_loop_tells_which_submission_failed():
    async def submit(number):
        if number == 3:
            raise ConnectionResetError

    async def ended(numbers):
        return numbers

    with pytest.raises(BaseExceptionGroup) as failed:
        await run_open_loop(submit, ended, rate=1_000, total=10)
    assert "agenda 3 failed: ConnectionResetError()" in str(failed.value.exceptions[0])


def test_the_first_of_several_starts_counts(tmp_path):
    (tmp_path / "starts-1").write_text("a-1 2000000000\nb-2 1000000000\n")
    (tmp_path / "starts-2").write_text("a-1 1500000000\nc-1 15")
    assert read_starts(tmp_path) == {"a-1": 1.5, "b-2": 1.0}


def test_growth_changes_one_size_and_is_compared_with_the_least():
    base = BacklogBenchOptions(ready=100_000, customers=7, insights=3, picks=10, size=300)
    assert steps(base, None) == [base]
    grown = steps(base, "customers")
    assert [one.customers for one in grown] == [10, 100, 1_000, 10_000]
    assert {(one.ready, one.insights) for one in grown} == {(100_000, 3)}
    costs = [
        {"place_us": 10.0, "pick_us": 100.0, "round_us": 50.0},
        {"place_us": 9.0, "pick_us": 130.0, "round_us": 50.0},
    ]
    found = backlog_report(costs, grown="customers")
    assert found["largest_over_first"] == {"place_us": 1.0, "pick_us": 1.3, "round_us": 1.0}
    assert found["pick_us"] == 130.0
    assert backlog_report(costs[:1], grown=None) == costs[0]


def test_idle_parts_are_summed_with_and_without_the_servers():
    parts = {"kafka": IdleUsage(0.03, 40, 380.0), "api": IdleUsage(0.004, 3, 70.0)}
    found = idle_report(parts)
    assert (found["core_share"], found["own_core_share"]) == (0.034, 0.004)
    assert found["parts"]["api"] == {"core_share": 0.004, "connections": 3, "rss_mb": 70.0}


@pytest.mark.parametrize(
    ("ready", "insights", "target"), [(1_000_000, 1, 200), (1_000, 1, 200), (1_000, 200, 1)]
)
def test_what_is_out_is_a_part_of_what_waits(ready, insights, target):
    assert BacklogBenchOptions(ready, 10, insights, 10, 300).target == target


def test_two_results_are_compared_by_name():
    a = {"per_s": 100, "parts": {"x": 2.0}, "conditions": {"cores": 2, "commit": "a"}}
    b = {"per_s": 150, "parts": {"y": 1.0}, "conditions": {"cores": 2, "commit": "b"}}
    a["runs"] = b["runs"] = [{"per_s": 1}]
    assert compared(a, b) == {
        "per_s": (100, 150, 1.5),
        "parts.x": (2.0, None, None),
        "conditions.commit": ("a", "b", None),
        "parts.y": (None, 1.0, None),
    }
    everything = compared(a, b, everything=True)
    assert everything["conditions.cores"] == (2, 2, 1.0)
    assert everything["runs[0].per_s"] == (1, 1, 1.0)


def test_a_ratio_to_nothing_is_unknown():
    assert compared({"lost": 0, "ok": True}, {"lost": 3, "ok": True}) == {
        "lost": (0, 3, None),
        "ok": (True, True, None),
    }


def test_a_result_is_the_last_line_of_its_file(tmp_path):
    file = tmp_path / "a.json"
    file.write_text('starting\n{"agendas_per_s": 1}\n')
    assert read_result(file) == {"agendas_per_s": 1}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no JSON object"),
        ("[1]", "no JSON object"),
        ("{", "--json"),
        (None, "No such file"),
    ],
)
def test_a_file_that_is_no_result_is_refused_with_a_remedy(tmp_path, content, said):
    file = tmp_path / "a.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError, match=re.escape(said)) as refused:
        read_result(file)
    assert str(file) in str(refused.value)
    assert "--json" in str(refused.value)


def test_a_picture_has_a_line_for_every_run():
    lines = LineChart(
        title="Runs & floors",
        description="Agendas",
        across="seconds",
        named={
            "ours": [[(0.0, 0.0), (2.0, 10.0)], [(0.0, 0.0), (1.5, 10.0)]],
            "floor": [[(0.0, 0.0), (1.0, 10.0)]],
        },
    )
    svg = draw_lines(lines)
    assert svg.count('<path class="line"') == 3
    assert "Runs &amp; floors" in svg
    assert json.dumps("floor").strip('"') in svg
    assert draw_lines(LineChart("Nothing", "", "", {})).endswith("</svg>\n")


def test_weights_and_depths_of_an_earlier_run_are_none_of_a_later_one():
    """They would have it begin when the earlier one did."""

    def decided(at, weight, in_flight):
        return SimpleNamespace(
            at=datetime.fromtimestamp(at, UTC),
            customers=[SimpleNamespace(customer_id="b", weight=weight)],
            in_flight=in_flight,
            chosen=["x"],
        )

    history = DecisionHistory(
        (), [decided(10, 4.0, 90), decided(50, 2.0, 5), decided(60, 3.0, 7)], ()
    )
    own = decisions_since(history, 50.0)
    assert [(one.at, one.weight) for one in weight_changes(own)] == [(50.0, 2.0), (60.0, 3.0)]
    assert (depth_of(history), depth_of(own)) == (91, 8)


def phase_of(waits):
    """A run in which customer q waited so long for each of its agendas."""
    served = (
        ServedAttempt(
            customer_id="q",
            submitted_at=0.0,
            arrived_at=0.0,
            emitted_at=0.0,
            started_at=wait,
            ended_at=wait + 1.0,
            charged=1.0,
            spent=1.0,
        )
        for wait in waits
    )
    attempts = [MeasuredAttempt(str(n), one, 0.0, 1.0) for n, one in enumerate(served)]
    return BenchPhase(attempts=attempts, depth=1)


def test_a_quiet_customers_wait_is_compared_within_each_pair_and_the_median_counts():
    alone, longer = [0.01] * 98 + [0.1, 9.0], [0.02] * 98 + [0.25, 9.0]
    by_age = phase_of([0.01] * 100)
    runs = [
        PhaseComparison(by_age, phase_of(longer), phase_of(alone), "q"),
        PhaseComparison(by_age, phase_of([9.0] * 100), phase_of(alone), "q"),
        PhaseComparison(by_age, phase_of(alone), phase_of(longer), "q"),
    ]
    assert runs[0].p99s == (0.25, 0.1)
    assert [one.over_alone for one in runs] == pytest.approx([2.5, 90.0, 0.4])
    assert median_comparison(runs, compares_waits=True) is runs[0]
    assert median_comparison(runs[1:2], compares_waits=True) is runs[1]
    in_turn = sorted(runs, key=lambda one: one.over_fifo)
    assert median_comparison(runs, compares_waits=False) is in_turn[1]
    assert PhaseComparison(by_age, phase_of([0.5]), phase_of([0.0]), "q").over_alone == 500.0


def test_the_noise_of_the_machine_is_what_agendas_took_by_what_they_were_to_take():
    phase = phase_of([0.0, 0.0])
    assert runtime_cv(phase) == 0.0
    one, other = phase.attempts
    slower = replace(other, served=replace(other.served, spent=3.0), requested_s=1.0)
    assert runtime_cv(replace(phase, attempts=[one, slower])) == 0.5  # 1 and 3: 2, off by 1
    assert runtime_cv(replace(phase, attempts=[])) == 0.0


def test_what_the_machine_adds_is_shared_out_evenly_before_shares_are_judged():
    """So a long sleep by accident is nobody's share, and short agendas cost what they cost."""

    def attempt(number, *, requested_s, spent):
        (one,) = phase_of([float(number)]).attempts
        return replace(one, served=replace(one.served, spent=spent), requested_s=requested_s)

    runs = [(1.0, 1.2), (1.0, 1.8), (9.0, 9.5)]
    attempts = [
        attempt(n, requested_s=asked, spent=spent) for n, (asked, spent) in enumerate(runs)
    ]
    phase = replace(phase_of([]), attempts=attempts)
    spent = [second for kind, _, _, _, second in phase.log_without_noise if kind == EMITTED]
    assert sorted(spent) == pytest.approx([1.5, 1.5, 9.5])
    quick = replace(phase, attempts=[attempt(0, requested_s=1.0, spent=0.9)])
    assert [second for kind, *_, second in quick.log_without_noise if kind == EMITTED] == [1.0]
    assert [*replace(phase, attempts=[]).log_without_noise] == []
