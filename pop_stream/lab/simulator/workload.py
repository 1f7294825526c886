"""What a simulated run is made of: agendas that arrive, runners, and changes on the way."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from pop_stream.lab.fairness_metrics.service_log import ServiceLog
from pop_stream.model.agenda import DEFAULT_PRIORITY
from pop_stream.model.definitions import Customer, Insight
from pop_stream.model.ids import CustomerId


class Arrival(NamedTuple):
    """One agenda of one operation; instants and spans are in seconds.

    Attributes:
        runtime_s: How long it keeps a runner.
        cost_s: Declared worker-seconds, right or wrong; None to have them learned.
        operation_type: What costs are learned by.
    """

    at: float
    customer_id: CustomerId
    runtime_s: float
    cost_s: float | None = None
    operation_type: str = "work"
    priority: int = DEFAULT_PRIORITY
    fairness_key: str = ""


@dataclass(frozen=True, slots=True)
class SimulatedEnvironment:
    """Runners and delays; spans are in seconds.

    Attributes:
        runners: Agendas that run at a time.
        partitions: Of the insight's topic; each has runners of its own, as with one puller a
            partition.
        ingest_s: From submission to the backlog.
        emission_s: From a round to the runners.
        relay_s: From a claim or an end to the scheduler.
        tick_s: Between two checks for new definitions.
        overhead_s: A runner's own time for an agenda beside running it.
    """

    runners: int = 8
    partitions: int = 1
    ingest_s: float = 0.005
    emission_s: float = 0.005
    relay_s: float = 0.005
    tick_s: float = 0.25
    overhead_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """A customer or the insight gets another definition."""

    at: float
    definition: Customer | Insight


@dataclass(frozen=True, slots=True)
class SchedulerRestart:
    """The scheduler ends, and another goes on from what it has saved."""

    at: float
    away_s: float


@dataclass(frozen=True, slots=True)
class GroupRebalance:
    """The pullers' group rebalances: what runs goes on, nothing new is taken."""

    at: float
    away_s: float


Change = DefinitionChange | SchedulerRestart | GroupRebalance


@dataclass(frozen=True, slots=True)
class SimulationConfig:
    """The insight, customers and environment of a run.

    Attributes:
        customers: Definitions; all others have the defaults.
        changes: By instant.
    """

    insight: Insight
    customers: Mapping[CustomerId, Customer] = field(default_factory=dict)
    environment: SimulatedEnvironment = field(default_factory=SimulatedEnvironment)
    changes: Sequence[Change] = ()


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """The outcome of a simulated workload.

    Attributes:
        depth: Most agendas that the scheduler counted as in flight at once.
        rounds: Rounds that emitted something.
        left: Agendas that never ended, because their customer is held for ever.
    """

    log: ServiceLog
    depth: int
    rounds: int
    left: int


def checked_in_order(arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
    """The same; raises `ValueError` at one that is earlier than the one before."""
    latest = -inf
    for arrival in arrivals:
        if arrival.at < latest:
            msg = f"an arrival at {arrival.at:g} s follows one at {latest:g} s; sort them"
            raise ValueError(msg)
        latest = arrival.at
        yield arrival
