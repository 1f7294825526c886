"""How long customers of each size wait under the policy, beside textbook SFQ with known costs.

Run it on a trace that is not of this project: its figures are what counts, the trace stays
where it is.

    PYTHONPATH=.:tests/support .venv/bin/python -m trace_check TRACE.swf.gz --loads 0.8,0.95

`depth` is what may be in flight: `runners`, one more, or what `target auto` makes of it.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from textbook_sfq import textbook_sfq

from pop_stream.lab.fairness_metrics.service_log import STARTED
from pop_stream.lab.simulate.sizes import sizes_of
from pop_stream.lab.simulate.trace_file import read_trace
from pop_stream.lab.simulator.simulation import simulate, simulate_pool
from pop_stream.lab.simulator.workload import Arrival, SimulatedEnvironment, SimulationConfig
from pop_stream.model.definitions import Insight
from pop_stream.model.ids import CustomerId

Waits = Sequence[tuple[CustomerId, float]]
DEPTHS = ("runners", "one more", "auto")


class Plan(NamedTuple):
    """One run of the policy: on how many runners, how deep, and whether costs are declared."""

    runners: int
    depth: str = "runners"
    is_known: bool = True
    algorithm: str = "weighted_fair"


def policy_waits(arrivals: Sequence[Arrival], plan: Plan) -> Waits:
    """Each agenda's wait under the policy."""
    insight = Insight(id="work", algorithm=plan.algorithm, target=1)
    if plan.depth != "one more":
        insight = insight.model_copy(update={"target": "auto"})
    config = SimulationConfig(
        insight=insight, environment=SimulatedEnvironment(runners=plan.runners)
    )
    declared = [
        one._replace(cost_s=one.runtime_s if plan.is_known else None) for one in arrivals
    ]
    if plan.depth == "auto":
        log = simulate(declared, config).log
    else:
        most = plan.runners + (plan.depth == "one more")
        log = simulate_pool({insight.id: (declared, config)}, most)[insight.id].log
    found = [(log.customers[one], wait) for kind, _, one, wait, _ in log if kind == STARTED]
    assert len(found) == len(arrivals)
    return found


def textbook_waits(arrivals: Sequence[Arrival], runners: int) -> Waits:
    """Each agenda's wait under textbook SFQ with as many runners."""
    return [(one.customer_id, one.waited_s) for one in textbook_sfq(arrivals, runners)]


def mean_by_size(arrivals: Sequence[Arrival], waits: Waits) -> Mapping[str, float]:
    """The mean wait of the agendas of small, middle and big customers."""
    work: dict[CustomerId, float] = {}
    for one in arrivals:
        work[one.customer_id] = work.get(one.customer_id, 0.0) + one.runtime_s
    sizes = sizes_of(work)
    by_size: dict[str, list[float]] = {}
    for customer, wait in waits:
        by_size.setdefault(sizes[customer], []).append(wait)
    return {size: fmean(found) for size, found in sorted(by_size.items(), reverse=True)}


def report(arrivals: Sequence[Arrival], loads: Sequence[float]) -> Iterator[str]:
    """Lines: per load what textbook comes to, and the policy by that."""
    offered = sum(one.runtime_s for one in arrivals) / arrivals[-1].at
    yield f"{len(arrivals):,} agendas, {offered:.1f} runners' worth"
    for load in loads:
        runners = max(1, round(offered / load))
        textbook = mean_by_size(arrivals, textbook_waits(arrivals, runners))
        waits = ", ".join(f"{size} {wait:,.0f} s" for size, wait in textbook.items())
        yield f"{runners} runners, load {offered / runners:.2f}; textbook: {waits}"
        plans = [Plan(runners, depth, known) for known in (True, False) for depth in DEPTHS]
        for plan in (Plan(runners, algorithm="fifo"), *plans):
            found = mean_by_size(arrivals, policy_waits(arrivals, plan))
            ratios = ", ".join(f"{size} {found[size] / textbook[size]:.3f}" for size in found)
            name = "known" if plan.is_known else "learned"
            yield f"  {plan.algorithm} {name:7} depth {plan.depth:8} {ratios}"


def main() -> None:
    """Print the report of one trace."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--loads", default="0.8,0.95,1.1")
    parser.add_argument("--processors", default="ignored")
    options = parser.parse_args()
    [trace] = read_trace(options.trace, processors=options.processors).traces.values()
    for line in report([*trace], [float(one) for one in options.loads.split(",")]):
        print(line, flush=True)  # noqa: T201  # a report to standard output


if __name__ == "__main__":
    main()
