"""One scenario on the real stack compared: as it is, first come first served, quiet alone."""

import os
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, Final

from pop_stream.devserver.stack import OnProgress
from pop_stream.lab.bench.conditions import commit, data_folder
from pop_stream.lab.bench.session import (
    BenchPhase,
    BenchSession,
    DelayedChange,
    SessionPlan,
    open_session,
)
from pop_stream.lab.fairness_metrics.audit import (
    FairnessMetrics,
    measure_fairness,
    service_times,
    wait_distribution,
)
from pop_stream.lab.fairness_metrics.reweight import since_announced, weight_change_effects
from pop_stream.lab.simulate.scenarios import RUNTIME_S, Scenario, scenario
from pop_stream.lab.simulate.trial import MIN_WAIT_S, ScenarioComparison, change_shown_within
from pop_stream.lab.simulator.workload import Arrival
from pop_stream.model.ids import CustomerId

_FAIR, _FIFO, _ALONE = "bench-fair", "bench-fifo", "bench-alone"
_MIN_SCALE: Final = 0.01


@dataclass(frozen=True, slots=True)
class FairnessBenchOptions:
    """What is to be measured.

    Attributes:
        scale: Of the scenario's counts.
        seconds: If given, the scale is chosen so that it takes about so long.
        runs: How often everything is run; the one in the middle counts.
        folder: Where data and logs are kept; None keeps nothing.
    """

    scenario: str
    seed: int
    scale: float
    seconds: float | None
    runners: int
    pullers: int
    runs: int
    target: int | str
    folder: Path | None


@dataclass(frozen=True, slots=True)
class FairnessBenchResult:
    """What came of it: the figures, and the conditions they were measured under."""

    comparison: ScenarioComparison
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PhaseComparison:
    """The work first come first served, as it is, and its quiet customer alone, in turn.

    So the machine is as busy with others each time.

    Attributes:
        quiet: Whose waits are compared.
    """

    fifo: BenchPhase
    fair: BenchPhase
    alone: BenchPhase
    quiet: CustomerId

    @property
    def p99s(self) -> tuple[float, float]:
        """The 99th percentiles of the waits with the others and alone, in seconds."""
        phases = (self.fair, self.alone)
        both, alone = (service_times(one.log).waits.get(self.quiet, ()) for one in phases)
        return wait_distribution(both).p99, wait_distribution(alone).p99

    @property
    def over_alone(self) -> float:
        """Waits with the others by those alone; a wait alone is taken as 1 ms at least."""
        both, alone = self.p99s
        return both / max(alone, MIN_WAIT_S)

    @property
    def over_fifo(self) -> float:
        """The makespan by that of the same work first come first served."""
        fair, fifo = (service_times(one.log).seconds for one in (self.fair, self.fifo))
        return fair / fifo if fifo > 0 else 0.0

    @property
    def phases(self) -> tuple[BenchPhase, BenchPhase, BenchPhase]:
        """The three phases."""
        return self.fifo, self.fair, self.alone


def median_comparison(
    compared: Sequence[PhaseComparison], *, compares_waits: bool
) -> PhaseComparison:
    """The median run, by waits of the quiet customer, or by makespan if there is none."""
    by = attrgetter("over_alone" if compares_waits else "over_fifo")
    return sorted(compared, key=by)[len(compared) // 2]


def runtime_cv(phase: BenchPhase) -> float:
    """Deviation by mean of what agendas took by what they were to take: the machine's noise.

    All of it is charged, and who had the longer ones by chance gets fewer: by count, shares of
    a short contest are no more even than it lets them be.
    """
    taken = [
        one.served.spent / one.requested_s for one in phase.attempts if one.requested_s > 0
    ]
    return pstdev(taken) / fmean(taken) if taken else 0.0


async def run_fairness_bench(
    bench_options: FairnessBenchOptions, on_progress: OnProgress
) -> FairnessBenchResult:
    """Start a stack, run all phases of the scenario on it, and stop it.

    Raises:
        CommandError: If something does not start, fails, or does not end in time.
    """
    sketch = scenario(bench_options.scenario, seed=bench_options.seed, rate=1.0)
    with data_folder(bench_options.folder) as folder:
        bench = SessionPlan(
            folder=folder,
            insights={_FAIR: "weighted_fair", _FIFO: "fifo", _ALONE: "weighted_fair"},
            customers=sketch.customers,
            runners=bench_options.runners,
            pullers=bench_options.pullers,
            target=bench_options.target,
        )
        async with open_session(bench, on_progress) as session:
            rate = await session.rate(_FAIR)
            made = scenario(
                bench_options.scenario,
                seed=bench_options.seed,
                rate=rate,
                scale=_scale(bench_options, sketch, rate),
            )
            on_progress(
                f"{len(made.arrivals):,} agendas; the machine ends {rate:,.0f} of 5 ms a second"
            )
            return await _measure(session, made, bench_options, rate)


async def _measure(
    session: BenchSession, made: Scenario, bench_options: FairnessBenchOptions, rate: float
) -> FairnessBenchResult:
    # An instant of the scenario is when runners of this speed have ended so many.
    changes = [DelayedChange(round(one.at * rate), one) for one in made.changes]
    quiet = made.quiet[0]
    compared: list[PhaseComparison] = []
    for number in range(bench_options.runs):
        # In turns, as a stack that has just started and a machine that tires favour one.
        order = (_FIFO, _FAIR) if number % 2 == 0 else (_FAIR, _FIFO)
        both = {one: await session.phase(one, made.arrivals, changes) for one in order}
        alone = await session.phase(_ALONE, _only(made.arrivals, quiet))
        compared.append(PhaseComparison(both[_FIFO], both[_FAIR], alone, quiet))
    chosen = median_comparison(compared, compares_waits=made.compares_waits)
    comparison = _as_comparison(chosen, compared, bench_options)
    return FairnessBenchResult(
        comparison, _facts(made, bench_options, comparison, chosen, compared, rate)
    )


def _as_comparison(
    chosen: PhaseComparison,
    compared: Sequence[PhaseComparison],
    bench_options: FairnessBenchOptions,
) -> ScenarioComparison:
    fair, judged = chosen.fair, _measured(chosen.fair)
    gaps = [gap for one in compared if (gap := _measured(one.fair).gap) is not None]
    log_without_noise = fair.log_without_noise
    seen = since_announced(
        [*weight_change_effects(log_without_noise)], log_without_noise, fair.changed_at
    )
    return ScenarioComparison(
        fairness=replace(judged, gap=max(gaps, key=lambda gap: gap.over_bound, default=None)),
        fifo=service_times(chosen.fifo.log),
        alone={chosen.quiet: service_times(chosen.alone.log).waits.get(chosen.quiet, ())},
        runners=bench_options.runners,
        left=fair.lost,
        log=fair.log,
        reweight_within=change_shown_within(seen, judged.depth),
    )


def _measured(phase: BenchPhase) -> FairnessMetrics:
    return measure_fairness(phase.log, depth=phase.depth, sizes=phase.log_without_noise)


def _jain_even(phase: BenchPhase) -> float | None:
    """The index if each took what it was to take, and what the machine adds on average."""
    return measure_fairness(phase.log_without_noise, depth=phase.depth).jain


def _rounded(index: float | None) -> float | None:
    return None if index is None else round(index, 6)


def _facts(  # what was wanted, made, run and found, each once
    made: Scenario,
    bench_options: FairnessBenchOptions,
    comparison: ScenarioComparison,
    chosen: PhaseComparison,
    compared: Sequence[PhaseComparison],
    rate: float,
) -> Mapping[str, Any]:
    waits = comparison.fairness.times.waits
    quiet = [wait for one in made.quiet for wait in waits.get(one, ())]
    named = {"fair": chosen.fair, "fifo": chosen.fifo, "alone": chosen.alone}
    phases = [phase for one in compared for phase in one.phases]
    return {
        "scenario": bench_options.scenario,
        "throughput_over_fifo": round(comparison.throughput_over_fifo or 0.0, 4),
        "quiet_wait_mean_s": round(wait_distribution(quiet).mean, 6),
        "alone_wait_p99_s": round(chosen.p99s[1], 6),
        "runs": [_compared(one) for one in compared],
        "stages": {name: _stages(phase, made.quiet) for name, phase in named.items()},
        "lost": sum(one.lost for one in phases),
        "unrecorded": chosen.fair.unrecorded,
        "failed": sum(one.failed for one in phases),
        "duplicates": sum(one.duplicates for one in phases),
        "weighed": _weighed(chosen.fair),
        "jain_even": _rounded(_jain_even(chosen.fair)),
        "conditions": {
            "agendas": len(made.arrivals),
            "customers": len({one.customer_id for one in made.arrivals}),
            "runners": bench_options.runners,
            "pullers": bench_options.pullers,
            "runs": bench_options.runs,
            "target": bench_options.target,
            "seed": bench_options.seed,
            "rate_per_s": round(rate, 1),
            "cores": os.cpu_count(),
            "commit": commit(),
        },
    }


def _weighed(phase: BenchPhase) -> Sequence[tuple[CustomerId, float, int]]:
    """Changes of weights, each with how many agendas of the run were emitted before it."""
    emitted = sorted(one.served.emitted_at for one in phase.attempts)
    found = ((one, bisect_left(emitted, one.at)) for one in phase.weight_changes)
    return [(one.customer_id, one.weight, before) for one, before in found if before]


def _compared(one: PhaseComparison) -> Mapping[str, float | None]:
    both, alone = one.p99s
    return {
        "p99_s": round(both, 6),
        "alone_p99_s": round(alone, 6),
        "over_alone": round(one.over_alone, 4),
        "makespan_over_fifo": round(one.over_fifo, 4),
        "jain": _rounded(_measured(one.fair).jain),
        "jain_even": _rounded(_jain_even(one.fair)),
        "runtime_cv": round(runtime_cv(one.fair), 4),
    }


def _stages(phase: BenchPhase, quiet: Sequence[CustomerId]) -> Mapping[str, Any]:
    """Where the waits of quiet customers went, in seconds; the parts of each add up."""
    own = [one for one in phase.attempts if one.served.customer_id in quiet]
    parts = {
        "submitted_to_accepted": [one.accepted_at - one.served.submitted_at for one in own],
        "accepted_to_emitted": [one.served.emitted_at - one.accepted_at for one in own],
        "emitted_to_started": [one.served.started_at - one.served.emitted_at for one in own],
    }
    waits = {name: wait_distribution(part) for name, part in parts.items()}
    return {
        name: {"mean_s": round(one.mean, 6), "p99_s": round(one.p99, 6)}
        for name, one in waits.items()
    }


def _scale(bench_options: FairnessBenchOptions, sketch: Scenario, rate: float) -> float:
    if bench_options.seconds is None:
        return bench_options.scale
    work_s = sum(one.runtime_s for one in sketch.arrivals) / RUNTIME_S / rate
    return max(_MIN_SCALE, bench_options.seconds / work_s)


def _only(arrivals: Sequence[Arrival], customer_id: CustomerId) -> Sequence[Arrival]:
    """The arrivals of one customer, shifted so that the first comes at once."""
    own = [one for one in arrivals if one.customer_id == customer_id]
    return [one._replace(at=one.at - own[0].at) for one in own]
