"""Who was served, counted by the driver from what runs; and who was due what.

A *party* is whoever shares: a customer, or a fairness key of one. The ledger knows of each how
many agendas wait for a runner, how many run, its weight and its cap. From one change to the
next nothing moves, so every figure is an exact sum of rectangles:

- *served*: worker-seconds, from when an agenda begins to run until its runner is free again.
- *entitled*: what a fluid system gives by weighted max-min, each limited by its own cap and by
  what it has to run at that moment. The past gives neither credit nor debt.
- *lag* of a victim behind another party: how many worker-seconds per weight that one was
  given more, since any moment from which on the victim wanted more without a break.
- *wait* of a victim: how long it wants to run something, and runs nothing.

Served and entitled are summed up only while a victim is present, so has something to run or
running, and from a moment on at which all that began before the victims came has ended: how an
attacker fares alone is of no interest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from pop_stream.lab.fairness_metrics.time_held import max_min


@dataclass(slots=True)
class Party:
    """One that shares; the driver writes what is not counted here.

    Attributes:
        waiting: Agendas that could run at once if there were a runner.
        running: Agendas with a runner.
        cap: Most that may run at once by its definition.
        paused: Whether none may begin.
        largest_s: The longest that one of its agendas keeps a runner.
        served: Worker-seconds while a victim was present.
        entitled: Likewise.
        given: Worker-seconds per weight, always.
        longest_wait_s: As the module says.
        runs: Agendas that began.
    """

    name: str
    is_victim: bool
    weight: float = 1.0
    cap: float = inf
    paused: bool = False
    waiting: int = 0
    running: int = 0
    largest_s: float = 0.0
    served: float = 0.0
    entitled: float = 0.0
    given: float = 0.0
    longest_wait_s: float = 0.0
    runs: int = 0
    _wait_s: float = 0.0
    _least: dict[str, float] = field(default_factory=dict)

    @property
    def demand(self) -> float:
        """Runners it could use; more than `cap` only if they are in use already."""
        more = 0 if self.paused else self.waiting
        return max(self.running, min(self.cap, more + self.running))

    @property
    def wants_more(self) -> bool:
        """Whether it would run one more at once."""
        return self.waiting > 0 and self.running < self.cap and not self.paused

    def note_wait(self, seconds: float) -> None:
        """So much time passed."""
        starves = self.wants_more and not self.running
        self._wait_s = self._wait_s + seconds if starves else 0.0
        self.longest_wait_s = max(self.longest_wait_s, self._wait_s)

    def note_lag(self, others: Iterable["Party"]) -> Mapping[str, float]:
        """How far it lags behind each of the others, in worker-seconds per weight."""
        found: dict[str, float] = {}
        for one in others:
            ahead = one.given - self.given
            least = self._least[one.name] = min(ahead, self._least[one.name])
            found[one.name] = ahead - least
        return found

    def restart_lag(self, others: Iterable["Party"]) -> None:
        """It was content, or weights changed: what was before now does not count."""
        self._least = {one.name: one.given - self.given for one in others}


class Ledger:
    """Counts service of the parties of one scene; see the module.

    Args:
        capacity: Runners that all of them share.
        parties: Whoever shares.
        judged_from: The first instant of which service counts, in seconds.

    Attributes:
        parties: By name.
        present_s: Seconds since then in which a victim was present.
        idle: Worker-seconds of these that no runner used though somebody wanted more.
        lags: Worst lag by victim, other party and the weights of both.
    """

    def __init__(
        self, capacity: int, parties: Iterable[Party], *, judged_from: float = 0.0
    ) -> None:
        self.capacity = capacity
        self.judged_from = judged_from
        self.parties = {one.name: one for one in parties}
        self._all = [*self.parties.values()]
        self._victims = [one for one in self._all if one.is_victim]
        self.present_s = 0.0
        self.idle = 0.0
        self.lags: dict[tuple[str, str, float, float], float] = {}
        self._now = 0.0
        for victim in self._victims:
            victim.restart_lag(self._others(victim))

    def advance(self, now: float) -> None:
        """Count up to now; call it before every change of a party."""
        seconds, self._now = now - self._now, now
        if seconds <= 0.0:
            return
        counted = min(seconds, now - self.judged_from)
        if counted > 0 and any(one.demand > 0 for one in self._victims):
            self._count_present(counted)
        for one in self._all:
            one.given += one.running * seconds / one.weight
        for victim in self._victims:
            victim.note_wait(seconds)
            self._count_lag(victim)

    def reweigh(self, name: str, weight: float) -> None:
        """A party's weight changes; lags begin anew, as they are by weight."""
        self.parties[name].weight = weight
        for victim in self._victims:
            victim.restart_lag(self._others(victim))

    def _count_present(self, seconds: float) -> None:
        claims = [(one.weight, one.demand) for one in self._all]
        for one, entitled in zip(self._all, max_min(self.capacity, claims), strict=True):
            one.served += one.running * seconds
            one.entitled += entitled * seconds
        self.present_s += seconds
        busy = sum(one.running for one in self._all)
        wanted = min(self.capacity, sum(one.demand for one in self._all))
        self.idle += max(0.0, wanted - busy) * seconds

    def _count_lag(self, victim: Party) -> None:
        if not victim.wants_more:
            victim.restart_lag(self._others(victim))
            return
        for name, lag in victim.note_lag(self._others(victim)).items():
            key = (victim.name, name, victim.weight, self.parties[name].weight)
            self.lags[key] = max(lag, self.lags.get(key, 0.0))

    def _others(self, victim: Party) -> Sequence[Party]:
        return [one for one in self._all if one is not victim]
