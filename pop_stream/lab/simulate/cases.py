"""Builds the cases of a simulation from a scenario or a trace and the command's options.

A case is one insight. With a pool all cases of a trace share one capacity, by the weights and
minimums of `--pool-weights a=2,b=1 --pool-minimums a=4`.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from heapq import nsmallest
from pathlib import Path
from typing import Final, Literal

from rich.markup import escape

from pop_stream.lab.simulate.scenarios import RUNTIME_S, SCENARIOS, scenario
from pop_stream.lab.simulate.trace import DEFAULT_INSIGHT, AgendaTrace, WeightChange
from pop_stream.lab.simulate.trace_columns import ProcessorsMode
from pop_stream.lab.simulate.trace_file import TraceFile, read_trace
from pop_stream.lab.simulate.trial import Case, quietest
from pop_stream.lab.simulator.workload import (
    DefinitionChange,
    SimulatedEnvironment,
    SimulationConfig,
)
from pop_stream.lab.weights import parse_weights
from pop_stream.model.definitions import AlgorithmName, Customer, Insight
from pop_stream.model.ids import CustomerId
from pop_stream.operations.errors import UsageError


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """A pool of all insights of a trace.

    Attributes:
        weights: By insight; else 1.
        minimums: By insight, what is guaranteed; else 0.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    minimums: Mapping[str, int] = field(default_factory=dict)


def parse_pool_options(
    pool: int | None, weights: str | None, minimums: str | None
) -> PoolOptions | None:
    """What the options say; None without a pool.

    Raises:
        UsageError: With the part that is wrong, and what to write.
    """
    if pool is None:
        if weights or minimums:
            msg = "--pool-weights and --pool-minimums are of a pool: give --trace and --pool"
            raise UsageError(msg)
        return None
    weighed = parse_weights(weights, "--pool-weights", "insight")
    return PoolOptions({str(name): one for name, one in weighed.items()}, _minimums(minimums))


def _minimums(text: str | None) -> Mapping[str, int]:
    minimums: dict[str, int] = {}
    for part in filter(str.strip, (text or "").split(",")):
        name, _, number = part.strip().rpartition("=")
        if not name or not number.isdecimal() or name in minimums:
            msg = (
                f"--pool-minimums: {part!r} is no minimum; write insight=agendas, each insight "
                "once, with a whole number and commas between"
            )
            raise UsageError(msg)
        minimums[name] = int(number)
    return minimums


_MAX_TARGET: Final = 100_000
_MAX_NAMED: Final = 8


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What holds for every insight of a run.

    Attributes:
        weights: Override those of a scenario or a trace.
        delay_s: Of each way: ingest, emission, and reports of claims and ends.
        columns: A trace's name of a column by ours.
        processors: What a trace's row of several counts as.
    """

    algorithm: AlgorithmName
    runners: int
    weights: Mapping[CustomerId, float]
    target: int | Literal["auto"]
    delay_s: float
    pool: PoolOptions | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    processors: ProcessorsMode = "seconds"

    @property
    def environment(self) -> SimulatedEnvironment:
        """Runners and delays."""
        delay_s = self.delay_s
        return SimulatedEnvironment(
            runners=self.runners, ingest_s=delay_s, emission_s=delay_s, relay_s=delay_s
        )


def of_scenario(
    name: str, options: RunOptions, *, seed: int, scale: float
) -> tuple[str, Mapping[str, Case]]:
    """A title and the cases of a named scenario.

    Raises:
        UsageError: If there is none of that name.
    """
    if name not in SCENARIOS:
        msg = f"--scenario {name!r} is unknown; use one of {', '.join(SCENARIOS)}"
        raise UsageError(msg)
    made = scenario(name, seed=seed, rate=options.runners / RUNTIME_S, scale=scale)
    _check_names(options.weights, {one.customer_id for one in made.arrivals})
    weighted = {one: _customer(one, weight) for one, weight in options.weights.items()}
    config = SimulationConfig(
        insight=_insight(DEFAULT_INSIGHT, options),
        customers={**made.customers, **weighted},
        environment=options.environment,
        changes=made.changes,
    )
    title = f"[bold]{name}[/]: {made.description}"
    return title, {DEFAULT_INSIGHT: Case(made.arrivals, config, made.quiet)}


def of_trace(path: Path, options: RunOptions) -> tuple[str, Mapping[str, Case]]:
    """A title and the cases of a trace, by insight.

    Raises:
        UsageError: If the file cannot be read.
    """
    file = read_trace(path, options.columns, options.processors)
    if options.pool is not None:
        _check_insights({*options.pool.weights, *options.pool.minimums}, {*file.traces})
    _check_names(
        options.weights, {one.customer_id for run in file.traces.values() for one in run}
    )
    title = f"[bold]{escape(path.name)}[/]: {escape(_described(file, options.processors))}"
    return title, {
        name: _traced(name, trace, file.weight_changes, options)
        for name, trace in file.traces.items()
    }


_WIDE: Final[Mapping[ProcessorsMode, str]] = {
    "seconds": "one agenda of p times its seconds",
    "agendas": "p agendas",
    "ignored": "one agenda of its seconds",
}


def _described(file: TraceFile, processors: ProcessorsMode) -> str:
    parts = [f"{sum(map(len, file.traces.values())):,} agendas"]
    if file.wide:
        parts.append(f"rows of p processors: {file.wide:,}, each {_WIDE[processors]}")
    if file.skipped:
        parts.append(f"left out, as they never ran: {file.skipped:,}")
    if file.ignored:
        parts.append(f"ignored columns: {', '.join(file.ignored)}")
    return "; ".join(parts)


def parse_target(text: str) -> int | Literal["auto"]:
    """A number of agendas, or `auto`.

    Raises:
        UsageError: If it is neither.
    """
    if text == "auto":
        return "auto"
    if text.isdecimal() and 1 <= int(text) <= _MAX_TARGET:
        return int(text)
    msg = f"--target {text!r} is no target; write auto, or a number from 1 to {_MAX_TARGET}"
    raise UsageError(msg)


def _check_names(weights: Mapping[CustomerId, float], customers: Set[CustomerId]) -> None:
    for name in weights:
        if name not in customers:
            known = ", ".join(nsmallest(_MAX_NAMED, customers))
            more = ", …" if len(customers) > _MAX_NAMED else ""
            msg = f"--weights: no agenda is of {name!r}; customers are {known}{more}"
            raise UsageError(msg)


def _check_insights(named: Set[str], insights: Set[str]) -> None:
    for name in sorted(named - insights):
        known = ", ".join(nsmallest(_MAX_NAMED, insights))
        msg = f"--pool-weights, --pool-minimums: no agenda is of {name!r}; insights are {known}"
        raise UsageError(msg)


def _traced(
    name: str, trace: AgendaTrace, weight_changes: Iterable[WeightChange], options: RunOptions
) -> Case:
    weights, known = dict(options.weights), {one.customer_id for one in trace}
    changes: list[DefinitionChange] = []
    for at, customer, weight in weight_changes:
        if customer not in known:
            continue
        if customer not in weights:
            weights[customer] = weight
        elif customer not in options.weights:
            changes.append(DefinitionChange(at, _customer(customer, weight)))
    customers = {
        customer: _customer(customer, weights.get(customer, 1.0)) for customer in known
    }
    config = SimulationConfig(
        insight=_insight(name, options),
        customers=customers,
        environment=options.environment,
        changes=changes,
    )
    return Case(trace, config, quietest(trace))


def _customer(customer_id: CustomerId, weight: float) -> Customer:
    """A definition, also for names that only a trace may have: hashes with odd characters."""
    return Customer.model_construct(id=customer_id, weight=weight)


def _insight(name: str, options: RunOptions) -> Insight:
    pool = options.pool or PoolOptions()
    return Insight.model_construct(
        id=name,
        algorithm=options.algorithm,
        target=options.target,
        pool_weight=pool.weights.get(name, 1.0),
        pool_minimum=pool.minimums.get(name, 0),
    )
