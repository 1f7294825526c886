"""Searches for plays that win: at random, and from the best ones on by changing genes.

Deterministic by its seed: the n-th play that is tried is always the same.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from pop_stream.lab.adversary.judgement import LIMITS, Court, Judgement
from pop_stream.lab.adversary.play import CHOICES, TRICKS, Play
from pop_stream.lab.adversary.scenes import SCENES

SEARCHED: Final = ("always", "weights", "capped", "loop", "small", "late", "keys", "pool")
"""Scenes that a search plays in."""

_KEPT: Final = 3
_RANDOM_PART: Final = 0.4
_ADDED_PART: Final = 0.3
_MOST_TRICKS: Final = 3
_SHOWN: Final = 10


@dataclass(slots=True)
class Findings:
    """What a search has found so far.

    Attributes:
        tried: Plays.
        worst: By scene, the plays that gained most, and those that left a victim furthest.
    """

    tried: int = 0
    worst: dict[str, list[Judgement]] = field(default_factory=dict)

    def note(self, found: Judgement) -> None:
        """Count a play, and keep it if it is among the best of its scene."""
        self.tried += 1
        known = self.worst.get(found.scene, [])
        if found not in known:
            by_gain = sorted([*known, found], key=lambda one: -one.gain)[:_KEPT]
            by_lag = sorted([*known, found], key=lambda one: -one.lag_over_bound)[:_KEPT]
            self.worst[found.scene] = [*dict.fromkeys(by_gain + by_lag)]

    def best_gain(self, standard: str) -> float:
        """The most that any play gained in a scene of this standard; 0 if none did."""
        found = (one.gain for one in self._all() if one.standard == standard)
        return max(found, default=0.0)

    @property
    def longest_wait_over_bound(self) -> float:
        """The furthest that a victim lagged, by the stated bound."""
        return max((one.lag_over_bound for one in self._all()), default=0.0)

    @property
    def shown(self) -> list[Judgement]:
        """The plays that came furthest of all, best first."""
        return sorted(self._all(), key=lambda one: -one.excess)[:_SHOWN]

    @property
    def is_beyond_a_limit(self) -> bool:
        """Whether any play is."""
        return any(one.excess > 1.0 for one in self._all())

    def as_json(self) -> Mapping[str, object]:
        """The figures, the limits, and the plays that came furthest."""
        return {
            "best_gain_backlogged": round(self.best_gain("backlogged"), 4),
            "best_gain_capped": round(self.best_gain("capped"), 4),
            "longest_wait_over_bound": round(self.longest_wait_over_bound, 3),
            "limits": {**LIMITS, "longest_wait_over_bound": 1.0},
            "tried": self.tried,
            "worst": [one.as_json() for one in self.shown],
        }

    def _all(self) -> list[Judgement]:
        return [one for best in self.worst.values() for one in best]


def search(
    seed: int,
    goes_on: Callable[[int], bool],
    court: Court,
    scenes: Sequence[str] = SEARCHED,
) -> Findings:
    """Try plays for as long as wanted.

    Args:
        seed: Of all chance.
        goes_on: Asked before each play, with how many were tried.
        court: Judges them.
        scenes: In which it plays, in turn.
    """
    chance, found = Random(seed), Findings()  # noqa: S311  # a search, no secret
    while goes_on(found.tried):
        scene = scenes[found.tried % len(scenes)]
        best = found.worst.get(scene, [])
        if best and chance.random() > _RANDOM_PART:
            play = _changed(chance, chance.choice(best).play)
        else:
            play = _any(chance)
        found.note(court.judge(scene, SCENES[scene], play))
    return found


def _any(chance: Random) -> Play:
    """A few tricks at once."""
    tricks = chance.sample(TRICKS, chance.randint(1, _MOST_TRICKS))
    return _with(chance, Play(), {gene for trick in tricks for gene in trick})


def _changed(chance: Random, play: Play) -> Play:
    """One or two genes changed, or a trick added."""
    if chance.random() < _ADDED_PART:
        return _with(chance, play, chance.choice(TRICKS))
    return _with(chance, play, chance.sample([*CHOICES], chance.randint(1, 2)))


def _with(chance: Random, play: Play, genes: Collection[str]) -> Play:
    return replace(play, **{one: chance.choice(CHOICES[one]) for one in sorted(genes)})
