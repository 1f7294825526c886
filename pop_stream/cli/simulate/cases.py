"""From what was asked for to what is run: scenarios and traces as cases, one an insight."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import Path
from typing import Final, Literal

from rich.markup import escape

from pop_stream.cli.errors import UsageError
from pop_stream.cli.simulate.pool_terms import PoolTerms
from pop_stream.cli.simulate.scenarios import RUNTIME_S, SCENARIOS, scenario
from pop_stream.cli.simulate.trace import Trace, Weighing
from pop_stream.cli.simulate.trace_file import DEFAULT_INSIGHT, read_trace
from pop_stream.cli.simulate.trial import Case, quietest
from pop_stream.core.definitions.definitions import AlgorithmName, Customer, Insight
from pop_stream.core.simulation.workload import Plant, Redefine, Setting
from pop_stream.core.values.ids import CustomerId

_MOST_TARGET: Final = 100_000
_TOLD: Final = 8


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for every insight of a run.

    Attributes:
        weights: Override those of a scenario or a trace.
        delay_s: Of each way: intake, emission, and news of claims and ends.
    """

    algorithm: AlgorithmName
    runners: int
    weights: Mapping[CustomerId, float]
    target: int | Literal["auto"]
    delay_s: float
    pool: PoolTerms | None = None

    @property
    def plant(self) -> Plant:
        """Runners and delays."""
        delay_s = self.delay_s
        return Plant(
            runners=self.runners, intake_s=delay_s, emission_s=delay_s, relay_s=delay_s
        )


def of_scenario(
    name: str, terms: Terms, *, seed: int, scale: float
) -> tuple[str, Mapping[str, Case]]:
    """A title and the cases of a named scenario.

    Raises:
        UsageError: If there is none of that name.
    """
    if name not in SCENARIOS:
        msg = f"--scenario {name!r} is unknown; use one of {', '.join(SCENARIOS)}"
        raise UsageError(msg)
    made = scenario(name, seed=seed, rate=terms.runners / RUNTIME_S, scale=scale)
    _check_names(terms.weights, {one.customer_id for one in made.arrivals})
    weighted = {one: _customer(one, weight) for one, weight in terms.weights.items()}
    setting = Setting(
        insight=_insight(DEFAULT_INSIGHT, terms),
        customers={**made.customers, **weighted},
        plant=terms.plant,
        changes=made.changes,
    )
    title = f"[bold]{name}[/]: {made.about}"
    return title, {DEFAULT_INSIGHT: Case(made.arrivals, setting, made.quiet)}


def of_trace(path: Path, terms: Terms) -> tuple[str, Mapping[str, Case]]:
    """A title and the cases of a trace, by insight.

    Raises:
        UsageError: If the file cannot be read.
    """
    file = read_trace(path)
    agendas = sum(map(len, file.traces.values()))
    if terms.pool is not None:
        _check_insights({*terms.pool.weights, *terms.pool.minimums}, {*file.traces})
    _check_names(
        terms.weights, {one.customer_id for run in file.traces.values() for one in run}
    )
    title = f"[bold]{escape(path.name)}[/]: {agendas:,} agendas"
    if file.ignored:
        title += escape(f"; ignored columns: {', '.join(file.ignored)}")
    return title, {
        name: _traced(name, trace, file.weighings, terms) for name, trace in file.traces.items()
    }


def parse_target(text: str) -> int | Literal["auto"]:
    """A number of agendas, or `auto`.

    Raises:
        UsageError: If it is neither.
    """
    if text == "auto":
        return "auto"
    if text.isdecimal() and 1 <= int(text) <= _MOST_TARGET:
        return int(text)
    msg = f"--target {text!r} is no target; write auto, or a number from 1 to {_MOST_TARGET}"
    raise UsageError(msg)


def _check_names(weights: Mapping[CustomerId, float], customers: Set[CustomerId]) -> None:
    for name in weights:
        if name not in customers:
            known = ", ".join(nsmallest(_TOLD, customers))
            more = ", …" if len(customers) > _TOLD else ""
            msg = f"--weights: no agenda is of {name!r}; customers are {known}{more}"
            raise UsageError(msg)


def _check_insights(named: Set[str], insights: Set[str]) -> None:
    for name in sorted(named - insights):
        known = ", ".join(nsmallest(_TOLD, insights))
        msg = f"--pool-weights, --pool-minimums: no agenda is of {name!r}; insights are {known}"
        raise UsageError(msg)


def _traced(name: str, trace: Trace, weighings: Iterable[Weighing], terms: Terms) -> Case:
    weights, known = dict(terms.weights), {one.customer_id for one in trace}
    changes: list[Redefine] = []
    for at, customer, weight in weighings:
        if customer not in known:
            continue
        if customer not in weights:
            weights[customer] = weight
        elif customer not in terms.weights:
            changes.append(Redefine(at, _customer(customer, weight)))
    customers = {
        customer: _customer(customer, weights.get(customer, 1.0)) for customer in known
    }
    setting = Setting(
        insight=_insight(name, terms), customers=customers, plant=terms.plant, changes=changes
    )
    return Case(trace, setting, quietest(trace))


def _customer(customer_id: CustomerId, weight: float) -> Customer:
    """A definition, also for names that only a trace may have: hashes with odd characters."""
    return Customer.model_construct(id=customer_id, weight=weight)


def _insight(name: str, terms: Terms) -> Insight:
    pool = terms.pool or PoolTerms()
    return Insight.model_construct(
        id=name,
        algorithm=terms.algorithm,
        target=terms.target,
        pool_weight=pool.weights.get(name, 1.0),
        pool_minimum=pool.minimums.get(name, 0),
    )
