"""The named scenarios: who submits what when, for the simulator and for the real stack.

A scenario is written for runners that end `rate` agendas of 5 ms in a second, and stretches
with it. All chance comes from the seed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from pop_stream.lab.simulator.workload import (
    Arrival,
    Change,
    DefinitionChange,
    GroupRebalance,
    SchedulerRestart,
)
from pop_stream.model.definitions import Customer
from pop_stream.model.ids import CustomerId

RUNTIME_S: Final = 0.005
"""What most agendas take."""

_FLOOD: Final = CustomerId("flood")
_FOUR: Final = tuple(map(CustomerId, ("anna", "bruno", "carla", "dora")))


@dataclass(frozen=True, slots=True)
class Scenario:
    """One workload.

    Attributes:
        description: What happens, and what should come of it.
        arrivals: By instant.
        quiet: Customers that are also run alone, to see what the others cost them.
        customers: Those whose definition is not the default.
        compares_waits: What counts is how long the quiet wait, not how soon all is done.
    """

    name: str
    description: str
    arrivals: Sequence[Arrival]
    quiet: Sequence[CustomerId]
    customers: Mapping[CustomerId, Customer] = field(default_factory=dict)
    changes: Sequence[Change] = ()
    compares_waits: bool = False


@dataclass(frozen=True, slots=True)
class ScenarioScale:
    """How large a scenario is made.

    Attributes:
        rate: Agendas of 5 ms that the runners end in a second.
        scale: Of all counts; 1 is as described.
        random: The only source of chance.
    """

    rate: float
    scale: float
    random: Random

    def count(self, agendas: float) -> int:
        """So many agendas at this scale, at least one."""
        return max(1, round(agendas * self.scale))

    def span(self, agendas: float) -> float:
        """How long all runners take for so many agendas of 5 ms, in seconds."""
        return agendas * self.scale / self.rate

    def at_once(
        self, customer: str, agendas: float, *, at: float = 0.0, runtime_s: float = RUNTIME_S
    ) -> Iterator[Arrival]:
        """A customer submits all of its agendas at one instant."""
        for _ in range(self.count(agendas)):
            yield Arrival(at, CustomerId(customer), runtime_s, runtime_s)

    def spread(
        self, customer: str, agendas: float, *, begin: float, end: float
    ) -> Iterator[Arrival]:
        """A customer submits its agendas one by one, evenly but for some chance."""
        count = self.count(agendas)
        step = (end - begin) / count
        for number in range(count):
            at = begin + step * (number + self.random.random())
            yield Arrival(at, CustomerId(customer), RUNTIME_S, RUNTIME_S)


def scenario(name: str, *, seed: int, rate: float, scale: float = 1.0) -> Scenario:
    """Make a named scenario; the same arguments always make the same.

    Raises:
        KeyError: If there is none of that name.
    """
    made = SCENARIOS[name](ScenarioScale(rate, scale, Random(seed)))  # noqa: S311  # no secret
    return Scenario(
        name=name,
        description=" ".join((SCENARIOS[name].__doc__ or "").split()),
        arrivals=sorted(made.arrivals, key=lambda one: one.at),
        quiet=made.quiet,
        customers={one.id: one for one in made.customers},  # type: ignore[misc]  # ids are names
        changes=made.changes,
        compares_waits=made.compares_waits,
    )


@dataclass(frozen=True, slots=True)
class _ScenarioParts:
    arrivals: Sequence[Arrival]
    quiet: Sequence[CustomerId]
    customers: Sequence[Customer] = ()
    changes: Sequence[Change] = ()
    compares_waits: bool = False


def _skew(size: ScenarioScale) -> _ScenarioParts:
    """5,000 agendas of one customer wait when four others submit 50 each.

    The four must not wait for the flood.
    """
    later = 0.5 * size.span(1600)
    four = [one for name in _FOUR for one in size.at_once(name, 50, at=later)]
    return _ScenarioParts([*size.at_once(_FLOOD, 5000), *four], quiet=_FOUR)


def _trickle(size: ScenarioScale) -> _ScenarioParts:
    """Two customers keep everything busy; six more send an agenda now and then.

    Each of the six is served as if it were nearly alone.
    """
    floods = [*size.at_once("north", 2000), *size.at_once("south", 2000)]
    six = [f"trickle-{number}" for number in range(1, 7)]
    end = size.span(3600)
    begin = size.span(400)
    drops = [one for name in six for one in size.spread(name, 30, begin=begin, end=end)]
    return _ScenarioParts([*floods, *drops], quiet=[CustomerId(name) for name in six])


def _sybil(size: ScenarioScale) -> _ScenarioParts:
    """Three customers with equal work; one of them splits its own over 300 fairness keys.

    It gains nothing: keys take turns within their customer's share.
    """
    split = [
        one._replace(fairness_key=f"key-{number % 300}")
        for number, one in enumerate(size.at_once("split", 1500))
    ]
    plain = [*size.at_once("plain", 1500), *size.at_once("other", 1500)]
    return _ScenarioParts([*plain, *split], quiet=[CustomerId("plain")])


def _sybil_customers(size: ScenarioScale) -> _ScenarioParts:
    """As `sybil`, but the split is over 30 customer ids.

    It gains 30 shares, and nothing in a queue can tell: who is a customer is decided where
    submissions are authenticated. Work of one tenant must carry one id, and keys below it.
    """
    split = [
        one._replace(customer_id=CustomerId(f"split-{number % 30}"))
        for number, one in enumerate(size.at_once("split", 1500))
    ]
    plain = [*size.at_once("plain", 1500), *size.at_once("other", 1500)]
    return _ScenarioParts([*plain, *split], quiet=[CustomerId("plain")])


def _heavy_idle(size: ScenarioScale) -> _ScenarioParts:
    """A customer of weight 8 is idle most of the time and then sends long agendas.

    Its idle share goes to the others, so all ends as early as first come, first served. Agendas
    are long, for runners, not processors, to be what is short: then it shows if one idles.
    """
    light_s, heavy_s = 8 * RUNTIME_S, 40 * RUNTIME_S
    light = [
        one
        for name in ("lea", "max", "nina")
        for one in size.at_once(name, 480, runtime_s=light_s)
    ]
    heavy = [
        one
        for number in range(4)
        for one in size.at_once(
            "heavy", 12, at=size.span(400 + 1200 * number), runtime_s=heavy_s
        )
    ]
    return _ScenarioParts(
        [*light, *heavy],
        quiet=[CustomerId("heavy")],
        customers=[Customer(id="heavy", weight=8)],
    )


def _asymmetric(size: ScenarioScale) -> _ScenarioParts:
    """Costs differ a hundredfold, and not all are declared: four customers with equal work.

    `cheap` and `dear` declare what their agendas cost, `liar` a hundredth of it, `silent`
    nothing. Shares are of true worker-seconds, so nobody gains by what it says.
    """
    cost_s = 100 * RUNTIME_S
    liar = [one._replace(cost_s=RUNTIME_S / 100) for one in size.at_once("liar", 4000)]
    silent = [one._replace(cost_s=None) for one in size.at_once("silent", 4000)]
    dear = size.at_once("dear", 40, runtime_s=cost_s)
    arrivals = [*size.at_once("cheap", 4000), *dear, *liar, *silent]
    return _ScenarioParts(arrivals, quiet=[CustomerId("cheap")])


def _burst(size: ScenarioScale) -> _ScenarioParts:
    """Three customers use half of the runners, a fourth bursts every other second.

    A burst is worked off in what is left over, and the three hardly feel it.
    """
    steady = [f"steady-{number}" for number in range(1, 4)]
    end = size.span(6400)
    calm = [one for name in steady for one in size.spread(name, 1066, begin=0.0, end=end)]
    bursts = [
        one
        for number in range(3)
        for one in size.at_once("burst", 700, at=size.span(400 + 2000 * number))
    ]
    return _ScenarioParts([*calm, *bursts], quiet=[CustomerId(name) for name in steady])


def _noisy_neighbour(size: ScenarioScale) -> _ScenarioParts:
    """Nine agendas of ten are the noisy customer's, and there are more than can be run.

    The quiet one, well below its share, should wait at most twice as long as alone, or, where
    being alone takes next to nothing, at most the insight's wanted wait (50 ms) longer.
    """
    noise = size.spread("noisy", 2700, begin=0.0, end=size.span(2000))
    quiet = size.spread("quiet", 400, begin=size.span(800), end=size.span(3600))
    arrivals = [*size.at_once("noisy", 900), *noise, *quiet]
    return _ScenarioParts(arrivals, quiet=[CustomerId("quiet")], compares_waits=True)


def _reweight(size: ScenarioScale) -> _ScenarioParts:
    """Three customers with equal weights, until one is given four times as much.

    The new ratio holds from the next pick on, for the whole backlog.
    """
    arrivals = [one for name in "abc" for one in size.at_once(name, 2000)]
    change = DefinitionChange(size.span(2000), Customer(id="b", weight=4))
    return _ScenarioParts(arrivals, quiet=[CustomerId("a")], changes=[change])


def _rebalance(size: ScenarioScale) -> _ScenarioParts:
    """Three customers; the scheduler moves to another worker, then the pullers rebalance.

    Fairness goes on where it stood.
    """
    arrivals = [one for name in "abc" for one in size.at_once(name, 1800)]
    changes: list[Change] = [
        SchedulerRestart(size.span(1500), 0.5),
        GroupRebalance(size.span(3500), 0.5),
    ]
    return _ScenarioParts(arrivals, quiet=[CustomerId("a")], changes=changes)


SCENARIOS: Final[Mapping[str, Callable[[ScenarioScale], _ScenarioParts]]] = {
    "skew": _skew,
    "trickle": _trickle,
    "sybil": _sybil,
    "sybil_customers": _sybil_customers,
    "heavy_idle": _heavy_idle,
    "asymmetric": _asymmetric,
    "burst": _burst,
    "noisy_neighbour": _noisy_neighbour,
    "reweight": _reweight,
    "rebalance": _rebalance,
}
