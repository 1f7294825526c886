"""Textbook SFQ by hand, and what small customers wait under the policy beside it."""

import random
from statistics import fmean

import pytest
from textbook_sfq import textbook_sfq
from trace_check import Plan, mean_by_size, policy_waits, textbook_waits

from pop_stream.lab.simulate.trace_file import read_trace
from pop_stream.lab.simulator.workload import Arrival


def started(*arrivals, runners=1, weights=None):
    """Customers in the order in which theirs began to run, each with its wait."""
    works = [Arrival(at, customer, runtime_s) for at, customer, runtime_s in arrivals]
    return [(one.customer_id, one.waited_s) for one in textbook_sfq(works, runners, weights)]


def test_the_least_start_tag_is_next():
    """Tags of a: 0, 4; of b: 0, 1, 2; c comes when 1 was the last to be dispatched."""
    waiting = [(0, "a", 4), (0, "a", 4), (0, "b", 1), (0, "b", 1), (0, "b", 1)]
    found = started(*waiting, (5.5, "c", 1))
    assert found == [("a", 0), ("b", 4), ("b", 5), ("c", 0.5), ("b", 7), ("a", 8)]


def test_weights_divide_what_a_tag_moves_by():
    flood = [(0, "a", 2)] * 3 + [(0, "b", 2)] * 3
    found = started(*flood, weights={"a": 2.0})
    assert "".join(name for name, _ in found) == "abaabb"


def test_as_many_run_as_there_are_runners():
    found = started(*[(0, "a", 10)] * 3, (3, "b", 1), runners=2)
    assert found == [("a", 0), ("a", 0), ("b", 7), ("a", 10)]


def test_an_idle_time_is_skipped():
    assert started((0, "a", 1), (100, "a", 1)) == [("a", 0), ("a", 0)]


LOAD = 0.95
"""Of the runners, over the whole of a trace."""


def swf_by_lot(seed):
    """Forty users in SWF: heavy-tailed are how much they submit and how long it runs."""
    lots, jobs = random.Random(seed), []
    for user in range(40):
        typical_s = lots.lognormvariate(6, 1.2)
        for _ in range(min(12, int(lots.paretovariate(1.0) * 2))):
            at, burst = lots.uniform(0, 60_000), lots.randint(1, 20)
            runs = [typical_s * lots.lognormvariate(0, 0.8) for _ in range(burst)]
            jobs += [(at + number, user, max(1.0, run)) for number, run in enumerate(runs)]
    lines = [
        f"{number} {at:.0f} -1 {run:.0f} 1 -1 -1 1 -1 -1 1 {user} 1 -1 1 -1 -1 -1\n"
        for number, (at, user, run) in enumerate(sorted(jobs))
    ]
    return "; by lot\n" + "".join(lines)


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Of several lots, so that no chance of one decides."""
    path = tmp_path_factory.mktemp("traces") / "by-lot.swf"
    found = []
    for seed in range(4):
        path.write_text(swf_by_lot(seed))
        [trace] = read_trace(path).traces.values()
        found.append([*trace])
    return found


def by_textbook(traces, **plan):
    """Mean waits of small customers under the policy by those of textbook SFQ, over traces."""
    ratios = []
    for trace in traces:
        offered = sum(one.runtime_s for one in trace) / trace[-1].at
        runners = round(offered / LOAD)
        textbook = mean_by_size(trace, textbook_waits(trace, runners))
        found = mean_by_size(trace, policy_waits(trace, Plan(runners, **plan)))
        ratios.append(found["small"] / textbook["small"])
    return fmean(ratios)


def test_by_age_small_customers_wait_many_times_as_long(traces):
    assert by_textbook(traces, algorithm="fifo") > 3


def test_with_known_costs_small_customers_wait_as_by_the_textbook(traces):
    """To a fiftieth: reports and emissions take 5 ms each, and ties go another way."""
    assert by_textbook(traces) <= 1.02


def test_an_agenda_beyond_the_runners_costs_small_customers(traces):
    """It is in an order that is settled, and whoever comes next waits for it too."""
    assert by_textbook(traces, depth="one more") > by_textbook(traces) + 0.03
