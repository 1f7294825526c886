"""What a play gains in a scene, and how far it pushes a victim back.

The *gain* is by how much more an attacker is served than it could be by honest play: more than
it is entitled to, and more than whoever always has the same true work, truly declared, is
entitled to in the same scene. Agendas are whole, so one of each attacker does not count.
Runners finish what they began, so beside customers with a cap or in a loop an honest play is
served more than a fluid system gives; there its own service is the measure.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from pop_stream.lab.adversary.ledger import Party
from pop_stream.lab.adversary.play import Play
from pop_stream.lab.adversary.policy_port import (
    Policy,
    PolicySetup,
    ProductPolicy,
    stated_bound,
)
from pop_stream.lab.adversary.scenes import Outcome, Scene, act

LIMITS: Final[Mapping[str, float]] = {"backlogged": 0.02, "capped": 0.05}
"""Most gain by the scene's standard; nobody may lag further than the bound."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Of a play in a scene.

    Attributes:
        scene: Its name.
        standard: That of the scene.
        gain: Served by what honest play could be served, less 1.
        lag_over_bound: How far a victim lagged behind anybody, by the stated bound.
        share: Part of all service that the attackers had, of the time with victims.
        entitled: Part of it that they were entitled to.
        honest_share: What the honest play had.
        wait_s: Longest time that a victim wanted to run something and ran nothing.
        honest_wait_s: The same beside the honest play.
        worst_victim: Least part of what it was entitled to that a victim was served.
        honest_worst_victim: The same beside the honest play.
        idle: Part of the runners' time that nobody used though somebody wanted it.
    """

    scene: str
    standard: str
    play: Play
    gain: float
    lag_over_bound: float
    share: float
    entitled: float
    honest_share: float
    wait_s: float
    honest_wait_s: float
    worst_victim: float
    honest_worst_victim: float
    idle: float

    @property
    def excess(self) -> float:
        """How far it is beyond the limit that it comes closest to; 1 is at the limit."""
        return max(self.gain / LIMITS[self.standard], self.lag_over_bound)

    @property
    def victim_loss(self) -> float:
        """What a victim lost of that which it has beside an honest play; 0 if nothing."""
        least = min(1.0, self.honest_worst_victim)
        return max(0.0, 1.0 - self.worst_victim / least) if least else 0.0

    def as_json(self) -> Mapping[str, object]:
        """Every figure, and how to play it again."""
        figures = {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name not in {"scene", "standard", "play"}
        }
        return {
            "scene": self.scene,
            "standard": self.standard,
            "play": str(self.play),
            **{name: round(figure, 4) for name, figure in figures.items()},
        }

    def __str__(self) -> str:
        return (
            f"--scene {self.scene} --play '{self.play}': gain {self.gain:+.1%} "
            f"(share {self.share:.1%}, entitled to {self.entitled:.1%}, honest "
            f"{self.honest_share:.1%}), "
            f"lag {self.lag_over_bound:.2f} of its bound, wait {self.wait_s:,.1f} s "
            f"(honest {self.honest_wait_s:,.1f} s), worst victim {self.worst_victim:.1%} of "
            f"its due (honest {self.honest_worst_victim:.1%}), idle {self.idle:.1%}"
        )


class Court:
    """Judges plays; remembers what honest plays came to.

    Args:
        new_policy: Makes the policy that is judged; the product's if not given.
    """

    def __init__(self, new_policy: Callable[[PolicySetup], Policy] = ProductPolicy) -> None:
        self._new_policy = new_policy
        self._honest: dict[tuple[str, Play], Outcome] = {}

    def judge(self, name: str, scene: Scene, play: Play) -> Judgement:
        """Run a play, and its honest counterpart, in a scene of this name."""
        found = act(scene, play, self._new_policy)
        plain = play.honest(scene.lease_s)
        key = (name, plain)
        honest = self._honest.get(key) or act(scene, plain, self._new_policy)
        self._honest[key] = honest
        _, entitled = _attackers(found)
        total = _total(found)
        return Judgement(
            scene=name,
            standard=scene.standard,
            play=play,
            gain=_gain(scene, found, honest),
            lag_over_bound=_lag_over_bound(found),
            share=_share(found),
            entitled=entitled / total if total else 0.0,
            honest_share=_share(honest),
            wait_s=_longest_wait(found),
            honest_wait_s=_longest_wait(honest),
            worst_victim=_worst_victim(found),
            honest_worst_victim=_worst_victim(honest),
            idle=found.ledger.idle / max(1e-9, found.ledger.capacity * found.ledger.present_s),
        )


def _attackers(outcome: Outcome) -> tuple[float, float]:
    parties = [one for one in outcome.ledger.parties.values() if not one.is_victim]
    return sum(one.served for one in parties), sum(one.entitled for one in parties)


def _total(outcome: Outcome) -> float:
    return sum(one.served for one in outcome.ledger.parties.values())


def _share(outcome: Outcome) -> float:
    total = _total(outcome)
    return _attackers(outcome)[0] / total if total else 0.0


def _gain(scene: Scene, found: Outcome, honest: Outcome) -> float:
    served, entitled = _attackers(found)
    whole = sum(one.largest_s for one in found.ledger.parties.values() if not one.is_victim)
    honestly = max(_attackers(honest)) if scene.standard == "capped" else _attackers(honest)[1]
    present_s, honest_s = found.ledger.present_s, honest.ledger.present_s
    due = max(entitled, honestly * present_s / honest_s if honest_s else 0.0)
    return max(0.0, served - whole) / due - 1.0 if due else 0.0


def _victims(outcome: Outcome) -> Iterable[Party]:
    return (one for one in outcome.ledger.parties.values() if one.is_victim)


def _longest_wait(outcome: Outcome) -> float:
    return max(one.longest_wait_s for one in _victims(outcome))


def _worst_victim(outcome: Outcome) -> float:
    return min(one.served / one.entitled if one.entitled else 1.0 for one in _victims(outcome))


def _lag_over_bound(outcome: Outcome) -> float:
    parties = outcome.ledger.parties
    return max(
        (
            lag
            / stated_bound(
                outcome.most_out,
                parties[victim].largest_s / victim_weight,
                parties[other].largest_s / other_weight,
            )
            for (victim, other, victim_weight, other_weight), lag in outcome.ledger.lags.items()
            if parties[victim].largest_s and parties[other].largest_s
        ),
        default=0.0,
    )
