"""One scenario on the real stack: as it is, first come first served, and the quiet alone."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pop_stream.cli.bench.conditions import commit
from pop_stream.cli.bench.folder import data_folder
from pop_stream.cli.bench.session import Bench, Phase, Session, open_session
from pop_stream.cli.simulate.scenarios import RUNTIME_S, Scenario, scenario
from pop_stream.cli.simulate.trial import Trial, shown_within
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


async def run_bench(wanted: Wanted, tell: Tell) -> Result:
    """Start a stack, run the scenario on it three times, and stop it.

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
    fair = await session.phase(_FAIR, made.arrivals, made.changes)
    fifo = await session.phase(_FIFO, made.arrivals, made.changes)
    quiet = made.quiet[0]
    alone = await session.phase(_ALONE, _only(made.arrivals, quiet))
    log, asked = fair.log, fair.asked
    alone_waits = times_of(alone.log).waits.get(quiet, ())
    measured = audit(log, depth=fair.depth)
    told = audit(asked, depth=fair.depth)
    changes = since_told([*reweights(asked)], asked, fair.changed_at)
    trial = Trial(
        # Even by what was asked for; apart by what it took, as charges are put right by that.
        audit=replace(
            measured, jain=told.jain, jain_floor=told.jain_floor, competitors=told.competitors
        ),
        fifo=times_of(fifo.log),
        alone={quiet: alone_waits},
        runners=wanted.runners,
        left=fair.lost,
        log=log,
        reweight_within=shown_within(changes, measured.depth),
    )
    facts = _facts(made, wanted, trial, (fair, fifo, alone), rate)
    return Result(trial, {**facts, **_measured(measured)})


def _measured(judged: Audit) -> Mapping[str, Any]:
    """The index by what agendas took, all noise of the machine included."""
    return {
        "jain_measured": None if judged.jain is None else round(judged.jain, 6),
        "jain_measured_customers": judged.competitors,
    }


def _facts(
    made: Scenario, wanted: Wanted, trial: Trial, phases: Sequence[Phase], rate: float
) -> Mapping[str, Any]:
    waits = trial.audit.times.waits
    quiet = [wait for one in made.quiet for wait in waits.get(one, ())]
    alone = waits_of(trial.alone[made.quiet[0]])
    return {
        "scenario": wanted.scenario,
        "throughput_over_fifo": round(trial.throughput_over_fifo or 0.0, 4),
        "quiet_wait_mean_s": round(waits_of(quiet).mean, 6),
        "alone_wait_p99_s": round(alone.p99, 6),
        "stages": {
            name: _stages(phase, made.quiet)
            for name, phase in zip(("fair", "fifo", "alone"), phases, strict=True)
        },
        "lost": sum(one.lost for one in phases),
        "unrecorded": phases[0].unrecorded,
        "failed": sum(one.failed for one in phases),
        "duplicates": sum(one.duplicates for one in phases),
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
