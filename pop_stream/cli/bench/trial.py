"""One scenario on the real stack: as it is, first come first served, and the quiet alone."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pop_stream.cli.bench.conditions import commit
from pop_stream.cli.bench.folder import data_folder
from pop_stream.cli.bench.session import Bench, Phase, Session, Staged, open_session
from pop_stream.cli.simulate.scenarios import RUNTIME_S, Scenario, scenario
from pop_stream.cli.simulate.trial import LEAST_WAIT_S, Trial, shown_within
from pop_stream.cli.stack import Tell
from pop_stream.core.audits.audit import Audit, audit
from pop_stream.core.audits.reweight import reweights, since_told
from pop_stream.core.audits.times import times_of, waits_of
from pop_stream.core.simulation.workload import Arrival
from pop_stream.core.values.ids import CustomerId

_FAIR, _FIFO, _ALONE = "bench-fair", "bench-fifo", "bench-alone"
_LEAST_SCALE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be measured.

    Attributes:
        scale: Of the scenario's counts.
        seconds: If given, the scale is chosen so that it takes about so long.
        folder: Where data and logs are kept; None keeps nothing.
    """

    scenario: str
    seed: int
    scale: float
    seconds: float | None
    runners: int
    pullers: int
    target: int | str
    folder: Path | None


@dataclass(frozen=True, slots=True)
class Result:
    """What came of it: the figures, and the conditions they were measured under."""

    trial: Trial
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pair:
    """A run and, right after it, its quiet customer alone, on a machine as busy with others.

    Attributes:
        quiet: Whose waits are compared.
    """

    fair: Phase
    alone: Phase
    quiet: CustomerId

    @property
    def p99s(self) -> tuple[float, float]:
        """The 99th percentiles of the waits with the others and alone, in seconds."""
        both, alone = (times_of(one.log).waits.get(self.quiet, ()) for one in self.phases)
        return waits_of(both).p99, waits_of(alone).p99

    @property
    def over_alone(self) -> float:
        """The one by the other; a wait alone counts as a millisecond at least."""
        both, alone = self.p99s
        return both / max(alone, LEAST_WAIT_S)

    @property
    def phases(self) -> tuple[Phase, Phase]:
        """Both."""
        return self.fair, self.alone


def middle(pairs: Sequence[Pair]) -> Pair:
    """The one whose comparison is the median: a percentile of one run may be an accident's."""
    return sorted(pairs, key=lambda one: one.over_alone)[len(pairs) // 2]


async def run_bench(wanted: Wanted, tell: Tell) -> Result:
    """Start a stack, run the scenario on it as is, by age and its quiet one alone, and stop it.

    Raises:
        CommandError: If something does not start, fails, or does not end in time.
    """
    sketch = scenario(wanted.scenario, seed=wanted.seed, rate=1.0)
    with data_folder(wanted.folder) as folder:
        bench = Bench(
            folder=folder,
            insights={_FAIR: "weighted_fair", _FIFO: "fifo", _ALONE: "weighted_fair"},
            customers=sketch.customers,
            runners=wanted.runners,
            pullers=wanted.pullers,
            target=wanted.target,
        )
        async with open_session(bench, tell) as session:
            rate = await session.rate(_FAIR)
            made = scenario(
                wanted.scenario, seed=wanted.seed, rate=rate, scale=_scale(wanted, sketch, rate)
            )
            tell(
                f"{len(made.arrivals):,} agendas; the machine ends {rate:,.0f} of 5 ms a second"
            )
            return await _measure(session, made, wanted, rate)


async def _measure(session: Session, made: Scenario, wanted: Wanted, rate: float) -> Result:
    # An instant of the scenario is when runners of this speed have ended so many.
    changes = [Staged(round(one.at * rate), one) for one in made.changes]
    quiet = made.quiet[0]
    pairs: list[Pair] = []
    fifo = await session.phase(_FIFO, made.arrivals, changes)
    for _ in range(made.runs):
        fair = await session.phase(_FAIR, made.arrivals, changes)
        alone = await session.phase(_ALONE, _only(made.arrivals, quiet))
        pairs.append(Pair(fair, alone, quiet))
    trial = _judged(pairs, fifo, wanted)
    return Result(trial, _facts(made, wanted, trial, pairs, fifo, rate))


def _judged(pairs: Sequence[Pair], fifo: Phase, wanted: Wanted) -> Trial:
    pair = middle(pairs)
    fair, measured = pair.fair, _audited(pair.fair)
    gaps = [gap for one in pairs if (gap := _audited(one.fair).gap) is not None]
    told = audit(fair.asked, depth=fair.depth)
    seen = since_told([*reweights(fair.asked)], fair.asked, fair.changed_at)
    return Trial(
        # Even by what was asked for; apart by what it took, as charges are put right by that.
        audit=replace(
            measured,
            jain=told.jain,
            jain_floor=told.jain_floor,
            competitors=told.competitors,
            gap=max(gaps, key=lambda gap: gap.over_bound, default=None),
        ),
        fifo=times_of(fifo.log),
        alone={pair.quiet: times_of(pair.alone.log).waits.get(pair.quiet, ())},
        runners=wanted.runners,
        left=fair.lost,
        log=fair.log,
        reweight_within=shown_within(seen, measured.depth),
    )


def _audited(phase: Phase) -> Audit:
    return audit(phase.log, depth=phase.depth)


def _measured(judged: Audit) -> Mapping[str, Any]:
    """The index by what agendas took, all noise of the machine included."""
    return {
        "jain_measured": None if judged.jain is None else round(judged.jain, 6),
        "jain_measured_customers": judged.competitors,
    }


def _facts(  # what was wanted, made, run and found, each once
    made: Scenario,
    wanted: Wanted,
    trial: Trial,
    pairs: Sequence[Pair],
    fifo: Phase,
    rate: float,
) -> Mapping[str, Any]:
    waits = trial.audit.times.waits
    quiet = [wait for one in made.quiet for wait in waits.get(one, ())]
    chosen = middle(pairs)
    named = {"fair": chosen.fair, "fifo": fifo, "alone": chosen.alone}
    phases = [fifo, *(phase for pair in pairs for phase in pair.phases)]
    return {
        "scenario": wanted.scenario,
        "throughput_over_fifo": round(trial.throughput_over_fifo or 0.0, 4),
        "quiet_wait_mean_s": round(waits_of(quiet).mean, 6),
        "alone_wait_p99_s": round(chosen.p99s[1], 6),
        "quiet_runs": [_compared(one) for one in pairs],
        "stages": {name: _stages(phase, made.quiet) for name, phase in named.items()},
        "lost": sum(one.lost for one in phases),
        "unrecorded": chosen.fair.unrecorded,
        "failed": sum(one.failed for one in phases),
        "duplicates": sum(one.duplicates for one in phases),
        **_measured(_audited(chosen.fair)),
        "conditions": {
            "agendas": len(made.arrivals),
            "customers": len({one.customer_id for one in made.arrivals}),
            "runners": wanted.runners,
            "pullers": wanted.pullers,
            "target": wanted.target,
            "seed": wanted.seed,
            "rate_per_s": round(rate, 1),
            "cores": os.cpu_count(),
            "commit": commit(),
        },
    }


def _compared(pair: Pair) -> Mapping[str, float]:
    both, alone = pair.p99s
    return {
        "p99_s": round(both, 6),
        "alone_p99_s": round(alone, 6),
        "over_alone": round(pair.over_alone, 4),
    }


def _stages(phase: Phase, quiet: Sequence[CustomerId]) -> Mapping[str, Any]:
    """Where the waits of quiet customers went, in seconds; the parts of each add up."""
    own = [one for one in phase.attempts if one.served.customer_id in quiet]
    parts = {
        "submitted_to_accepted": [one.accepted_at - one.served.submitted_at for one in own],
        "accepted_to_emitted": [one.served.emitted_at - one.accepted_at for one in own],
        "emitted_to_started": [one.served.started_at - one.served.emitted_at for one in own],
    }
    waits = {name: waits_of(part) for name, part in parts.items()}
    return {
        name: {"mean_s": round(one.mean, 6), "p99_s": round(one.p99, 6)}
        for name, one in waits.items()
    }


def _scale(wanted: Wanted, sketch: Scenario, rate: float) -> float:
    if wanted.seconds is None:
        return wanted.scale
    work_s = sum(one.runtime_s for one in sketch.arrivals) / RUNTIME_S / rate
    return max(_LEAST_SCALE, wanted.seconds / work_s)


def _only(arrivals: Sequence[Arrival], customer_id: CustomerId) -> Sequence[Arrival]:
    """A customer's arrivals, the first at once."""
    own = [one for one in arrivals if one.customer_id == customer_id]
    return [one._replace(at=one.at - own[0].at) for one in own]
