"""The plays that are known to have won once, by name, with what they may come to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from pop_stream.lab.adversary.judgement import LIMITS, Court, Judgement
from pop_stream.lab.adversary.play import parse_play
from pop_stream.lab.adversary.scenes import SCENES


@dataclass(frozen=True, slots=True)
class Attack:
    """A play in a scene, and what it may come to beside the limits that hold for all.

    Attributes:
        trick: What the attacker does, in a line.
        most_gain: In place of the scene's limit.
        most_wait_s: Longest that a victim may want to run something and run nothing.
        most_loss: Most that a victim may lose of what it has beside an honest play.
    """

    trick: str
    scene: str
    play: str
    most_gain: float | None = None
    most_wait_s: float = inf
    most_loss: float = inf

    def judge(self, court: Court) -> Judgement:
        """Run it."""
        return court.judge(self.scene, SCENES[self.scene], parse_play(self.play))

    def faults(self, found: Judgement) -> Sequence[str]:
        """What is beyond a limit, in words; empty if nothing is."""
        most_gain = LIMITS[found.standard] if self.most_gain is None else self.most_gain
        figures = {
            "gain": (found.gain, most_gain),
            "lag over its bound": (found.lag_over_bound, 1.0),
            "wait in seconds": (found.wait_s, self.most_wait_s),
            "loss of a victim": (found.victim_loss, self.most_loss),
        }
        return [
            f"{name} {figure:,.3g} is above {limit:,.3g}"
            for name, (figure, limit) in figures.items()
            if figure > limit
        ]


ATTACKS: Final[Mapping[str, Attack]] = {
    "absurd_opening": Attack(
        "declares 116 days for two agendas while alone, floods once a victim has come",
        "always",
        "opening=2 opening_declared=absurd opening_runtime=14 begins=13",
    ),
    "milliseconds": Attack(
        "declares 12 agendas in milliseconds by mistake, and goes on honestly",
        "always",
        "opening=12 opening_declared=1000 opening_runtime=14 begins=13",
    ),
    "long_unknown": Attack(
        "sends undeclared agendas of new types that run 20 minutes",
        "hours",
        "runtime=1200 types=fresh declared=none begins=20",
        most_gain=0.5,  # too few agendas for a finer judgement
        most_wait_s=240.0,
    ),
    "lost": Attack(
        "declares a hundredth; its pullers fall silent until the lease ends",
        "always",
        "runtime=6 declared=0.01 ends=lost attempts=100",
    ),
    "declares_less": Attack(
        "declares a tenth, with the operation type of the victims, beside a closed loop",
        "loop",
        "declared=0.1 types=shared",
    ),
    "declares_less_capped": Attack(
        "declares a tenth, beside customers with a cap", "capped", "declared=0.1"
    ),
    "fresh_types": Attack(
        "sends ever new types, undeclared, beside customers in a closed loop",
        "loop",
        "runtime=8 types=fresh declared=none",
    ),
    "fresh_types_capped": Attack(
        "sends ever new types, undeclared, beside customers with a cap",
        "capped",
        "runtime=8 types=fresh declared=none",
    ),
    "failing": Attack(
        "declares a hundredth, and every agenda fails in the end",
        "loop",
        "declared=0.01 ends=failed",
    ),
    "failing_with_sparks": Attack(
        "the same, with an accomplice who sends something tiny now and then",
        "loop",
        "declared=0.01 ends=failed accomplices=1 accomplice=sparks",
    ),
    "failing_capped": Attack(
        "declares a hundredth, and every agenda fails, beside customers with a cap",
        "capped",
        "declared=0.01 ends=failed",
    ),
    "deferring": Attack(
        "declares a hundredth; every other attempt finds that it has to wait",
        "always",
        "runtime=8 declared=0.01 ends=deferred",
    ),
    "deferring_in_turns": Attack(
        "the same with ever new types, undeclared, beside customers in a closed loop",
        "loop",
        "runtime=8 types=fresh declared=none ends=deferred",
    ),
    "deferring_capped": Attack(
        "the same, declaring a tenth, beside customers with a cap",
        "capped",
        "declared=0.1 ends=deferred",
    ),
    "mixed_declarations": Attack(
        "declares a hundredth, the truth and a hundred times in turn",
        "always",
        "declared=mixed types=fresh",
    ),
    "reweighted": Attack(
        "waits until an operator raises the weight of a victim with 12 agendas out",
        "reweight",
        "begins=40",
    ),
    "key_declares_less": Attack(
        "one fairness key declares a hundredth", "keys", "declared=0.01"
    ),
    "key_with_priority": Attack("one fairness key is a priority higher", "keys", "priority=4"),
    "key_that_retries": Attack(
        "one fairness key fails and is tried again", "keys", "ends=retryable attempts=100"
    ),
    "many_insights": Attack(
        "sends to all eight insights of a pool", "pool", "insights=8", most_loss=0.05
    ),
    "pullers_away": Attack(
        "sends to an insight of the pool that nobody pulls",
        "away",
        "insights=2",
        most_loss=0.05,
    ),
}
"""By name."""
