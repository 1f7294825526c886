"""Steps of `bench scale`: which are taken, and what is made of their runs."""

import pytest

from pop_stream.lab.bench.figures import ProgressSample
from pop_stream.lab.bench.pipeline_run import PipelineResult, PipelineRun
from pop_stream.lab.bench.scale import parse_steps, report
from pop_stream.operations.errors import UsageError


def run(*, lost=0, **cpu_s):
    """Of a thousand agendas: a second of a part's is 1,000 µs an agenda."""
    names = {name.replace("_", "-"): one for name, one in cpu_s.items()}
    samples = [ProgressSample(0.0, 0, 0), ProgressSample(2.0, 1_000, 1_000)]
    return PipelineRun(samples, 500.0, 1_000, names, {}, {"others": 0.0}, lost=lost)


def step(*runs):
    return PipelineResult(runs, [], runs[0])


def test_the_cost_of_a_part_is_that_of_all_its_processes_and_is_compared_over_the_steps():
    found = report({
        1: step(run(scheduler=0.1, ingest=0.1, rollup=0.1, puller_1=0.2, kafka=0.1, bench=9.0)),
        2: step(
            run(scheduler=0.07, scheduler_2=0.05, ingest=0.05, ingest_2=0.05, rollup=0.06,
                rollup_2=0.06, puller_1=0.08, puller_2=0.12, kafka=0.2, bench=9.0)
        ),
    })  # fmt: skip
    first, second = found["steps"]
    assert first["cpu_us"] == {
        "scheduler": 100.0, "ingest": 100.0, "rollup": 100.0, "puller": 200.0, "kafka": 100.0,
    }  # fmt: skip
    assert (first["busiest"], first["carries_per_s"]) == ("puller-1", 5_000.0)
    assert (second["busiest"], second["busiest_cpu_us"]) == ("puller-2", 120.0)
    assert found["growth"] == {
        "scheduler": 1.2, "ingest": 1.0, "rollup": 1.2, "puller": 1.0, "kafka": 2.0,
    }  # fmt: skip


def test_of_several_runs_the_middle_counts_and_every_loss():
    runs = [
        run(scheduler=one, ingest=0.1, lost=lost)
        for one, lost in ((0.1, 1), (0.9, 0), (0.2, 2))
    ]
    found = report({1: step(*runs)})
    assert found["steps"][0]["cpu_us"]["scheduler"] == 200.0
    assert (found["lost"], found["duplicates"]) == (3, 0)


def test_steps_grow():
    assert parse_steps("1,2,4") == [1, 2, 4]
    assert parse_steps("3") == [3]


@pytest.mark.parametrize("text", ["", "0,1", "2,1", "1,1", "1,two", "1,,2", "17", "-1", "1.5"])
def test_other_steps_are_refused_with_what_to_give(text):
    with pytest.raises(UsageError, match=r"--processes .*: give numbers from 1 to 16"):
        parse_steps(text)
