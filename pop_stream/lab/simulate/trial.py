"""One insight's run compared with the same work first come, first served, and alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pop_stream.lab.fairness_metrics.audit import (
    FairnessMetrics,
    ServiceTimes,
    measure_fairness,
    service_times,
    wait_distribution,
)
from pop_stream.lab.fairness_metrics.reweight import WeightChangeEffect, weight_change_effects
from pop_stream.lab.fairness_metrics.service_log import ServiceLog
from pop_stream.lab.simulate.sizes import CustomerTimes, customer_times
from pop_stream.lab.simulator.simulation import simulate, simulate_pool
from pop_stream.lab.simulator.workload import Arrival, SimulationConfig, SimulationRun
from pop_stream.model.ids import CustomerId

_QUIET_PART: Final = 0.5
_MIN_FOR_PERCENTILE: Final = 20
MIN_WAIT_S: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Case:
    """Work of one insight, to be run.

    Attributes:
        arrivals: By instant; gone through several times.
        config: Under what.
        quiet: Customers that are also run alone.
    """

    arrivals: Iterable[Arrival]
    config: SimulationConfig
    quiet: Sequence[CustomerId]


@dataclass(frozen=True, slots=True)
class ScenarioComparison:
    """What came of a case.

    Attributes:
        fairness: Metrics of the run.
        fifo: Times of the same work, first come first served.
        alone: Waits of each quiet customer without the others.
        runners: Agendas at a time.
        left: Agendas that never ended.
        log: Of the run, for a picture.
        reweight_within: Emissions until a new weight was visible in the shares, as
            `fairness_metrics.reweight` has it, by the depth; the worst change, None if none
            can be judged.
        times: Of every agenda; None on the real stack.
        fifo_times: The same, first come first served.
    """

    fairness: FairnessMetrics
    fifo: ServiceTimes
    alone: Mapping[CustomerId, Sequence[float]] = field(default_factory=dict)
    runners: int = 1
    left: int = 0
    log: ServiceLog = field(default_factory=ServiceLog)
    reweight_within: float | None = None
    times: CustomerTimes | None = None
    fifo_times: CustomerTimes | None = None

    @property
    def makespan_over_fifo(self) -> float | None:
        """How much longer all of it took; None if nothing ended."""
        return (
            self.fairness.times.seconds / self.fifo.seconds if self.fifo.seconds > 0 else None
        )

    @property
    def throughput_over_fifo(self) -> float | None:
        """Agendas per second by those of first come, first served."""
        fifo = self.fifo.per_second
        return self.fairness.times.per_second / fifo if fifo else None

    @property
    def quiet_p99_over_alone(self) -> float | None:
        """The 99th percentile of a quiet customer's waits by what it is alone; the worst one.

        A wait alone counts as a mean run of that customer's at least, and as a millisecond: on
        idle runners an agenda of hours waits for milliseconds, of which any wait is a million.
        """
        ratios = (
            wait_distribution(waits).p99
            / max(wait_distribution(self.alone[one]).p99, self._mean_run_s(one), MIN_WAIT_S)
            for one, waits in self.quiet_waits.items()
        )
        return max(ratios, default=None)

    @property
    def quiet_waits(self) -> Mapping[CustomerId, Sequence[float]]:
        """Of each customer that was also run alone, its waits among the others."""
        waits = self.fairness.times.waits
        return {one: waits[one] for one in self.alone if self.alone[one] and waits.get(one)}

    def _mean_run_s(self, customer_id: CustomerId) -> float:
        count = len(self.fairness.times.waits.get(customer_id, ()))
        return self.fairness.served.get(customer_id, 0.0) / max(1, count)


def run_comparisons(
    cases: Mapping[str, Case], pool: int | None = None
) -> dict[str, ScenarioComparison]:
    """Simulate all three times: as they are, with `fifo`, and each quiet customer alone.

    Args:
        cases: By insight.
        pool: What all of them may have in flight together; None leaves them to themselves.
    """
    runs = _run(cases, pool)
    first_come = {
        name: case for name, case in cases.items() if case.config.insight.algorithm != "fifo"
    }
    fifo = {**runs, **_run({name: _fifo(case) for name, case in first_come.items()}, pool)}
    return {
        name: _compared(case, runs[name], fifo[name].log, pool) for name, case in cases.items()
    }


def _run(cases: Mapping[str, Case], pool: int | None) -> Mapping[str, SimulationRun]:
    if pool is None or not cases:
        return {name: simulate(one.arrivals, one.config) for name, one in cases.items()}
    return simulate_pool(
        {name: (one.arrivals, one.config) for name, one in cases.items()}, pool
    )


def _compared(
    case: Case, run: SimulationRun, fifo: ServiceLog, pool: int | None
) -> ScenarioComparison:
    judged = measure_fairness(run.log, depth=run.depth)
    return ScenarioComparison(
        fairness=judged,
        fifo=service_times(fifo),
        alone={one: _alone(case, one, pool) for one in case.quiet},
        runners=case.config.environment.runners,
        left=run.left,
        log=run.log,
        reweight_within=change_shown_within(weight_change_effects(run.log), judged.depth),
        times=customer_times(run.log),
        fifo_times=customer_times(fifo),
    )


def change_shown_within(changes: Iterable[WeightChangeEffect], depth: int) -> float | None:
    """By the depth, the emissions after which the slowest change was visible."""
    found = (one.within(depth) for one in changes)
    return max((one for one in found if one is not None), default=None)


def quietest(arrivals: Iterable[Arrival]) -> Sequence[CustomerId]:
    """The customer with the least work of those with agendas enough for a percentile.

    None if it has more than half of an equal part of all work: it competes then, and what it
    waits is its turn.
    """
    counts: dict[CustomerId, int] = {}
    work: dict[CustomerId, float] = {}
    for one in arrivals:
        counts[one.customer_id] = counts.get(one.customer_id, 0) + 1
        work[one.customer_id] = work.get(one.customer_id, 0.0) + one.runtime_s
    able = [one for one, count in counts.items() if count >= _MIN_FOR_PERCENTILE]
    found = min(able, key=lambda one: (work[one], one), default=None)
    most = _QUIET_PART * sum(work.values()) / max(1, len(work))
    return [] if found is None or work[found] > most else [found]


def _fifo(case: Case) -> Case:
    insight = case.config.insight.model_copy(update={"algorithm": "fifo"})
    return replace(case, config=replace(case.config, insight=insight))


def _alone(case: Case, customer_id: CustomerId, pool: int | None) -> Sequence[float]:
    own = [one for one in case.arrivals if one.customer_id == customer_id]
    [run] = _run({customer_id: replace(case, arrivals=own)}, pool).values()
    return service_times(run.log).waits.get(customer_id, ())
