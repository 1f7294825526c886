"""Scenes: victims who play honestly, what they run on, and a place for an attacker."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Literal

from pop_stream.lab.adversary.driver import Cast, Driver, Reweight
from pop_stream.lab.adversary.ledger import Ledger, Party
from pop_stream.lab.adversary.play import Play, Player, parse_play
from pop_stream.lab.adversary.policy_port import Policy, PolicySetup
from pop_stream.model.definitions import Customer, Insight

ATTACKER: Final = "m"
"""The attacker's name; those of accomplices begin with it too."""

Standard = Literal["backlogged", "capped"]
"""Which limit counts: against victims that always wait, or that a cap or a loop limits."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Victims and runners.

    Attributes:
        victims: Plays by name.
        standard: Which limit counts.
        runners: By insight, in order; 0 where the pullers are away.
        pool: Agendas that all insights have in flight together, divided among customers; None
            for no pool.
        lease_s: Of every insight.
        is_of_keys: Whether attacker and victims are fairness keys of one customer.
        min_s: Least seconds of a run.
        max_s: Most.
        aging_s: Of every insight: with it, priorities are strict across customers.
        reweight_at: When operators change the weights that plays have changed.
    """

    victims: Mapping[str, Play]
    standard: Standard = "backlogged"
    runners: Sequence[int] = (4,)
    pool: int | None = None
    lease_s: float = 6.0
    is_of_keys: bool = False
    min_s: float = 300.0
    max_s: float = 1e6
    aging_s: float | None = None
    reweight_at: float = 40.0

    @property
    def capacity(self) -> int:
        """Agendas that can run at a time."""
        return sum(self.runners) if self.pool is None else min(sum(self.runners), self.pool)


def _victims(**plays: str) -> Mapping[str, Play]:
    return {name: parse_play(f"begins=12 {line}") for name, line in plays.items()}


SCENES: Final[Mapping[str, Scene]] = {
    "always": Scene(_victims(v="", w="")),
    "weights": Scene(_victims(v="weight=3", w="weight=0.5 runtime=2")),
    "capped": Scene(_victims(v="cap=1", w="cap=1 runtime=2"), standard="capped"),
    "loop": Scene(_victims(v="outstanding=2", w="outstanding=1"), standard="capped"),
    "small": Scene(_victims(v="timing=burst outstanding=1", w=""), standard="capped"),
    "late": Scene(_victims(v="begins=60")),
    "keys": Scene(_victims(v="", w=""), is_of_keys=True),
    "hours": Scene(_victims(v="", w=""), runners=(8,), lease_s=60.0, max_s=1500.0),
    "reweight": Scene(
        {
            "v": parse_play(
                "begins=30 runtime=20 weight=0.001 reweight=1 declared=0.5 outstanding=12"
            )
        },
        runners=(12,),
    ),
    "fair_cap": Scene(_victims(v="cap=1 runtime=5", w="runtime=5", x="runtime=5")),
    "aging": Scene(_victims(v="", w=""), aging_s=10.0),
    "pool": Scene(_victims(v=""), runners=(4,) * 8, pool=4),
    "away": Scene(_victims(v=""), runners=(4, 0), pool=4),
}
"""By name. An attacker may open before the victims come, after 12 seconds."""

_LARGEST_AGENDAS: Final = 120
"""A run is so many of the largest agendas long, or chance of one would count as a gain."""

_LARGEST_PART: Final = 0.1
"""Of a run that is too short for that, so much at most passes before service counts."""

_KEYS_CUSTOMER: Final = "c"
_MS: Final = 1000
_BEATS: Final = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was counted in one run.

    Attributes:
        most_out: Agendas emitted and not ended, at most at once.
        seconds: Of virtual time.
    """

    ledger: Ledger
    most_out: int
    seconds: float


def act(scene: Scene, play: Play, new_policy: Callable[[PolicySetup], Policy]) -> Outcome:
    """Have an attacker play in a scene against a policy, which is made for it."""
    players = [*_players(scene, play)]
    customers = {one.customer_id: _customer(scene, one) for one in players}
    begins = max(one.play.begins for one in players)
    largest_s = max(one.play.longest_s(scene.lease_s) for one in players)
    seconds = min(scene.max_s, max(scene.min_s, _LARGEST_AGENDAS * largest_s))
    judged_from = begins + min(largest_s, _LARGEST_PART * seconds)
    parties = (_party(one) for one in players)
    ledger = Ledger(scene.capacity, parties, judged_from=judged_from)
    insights = [_insight(scene, number) for number in range(len(scene.runners))]
    policy = new_policy(
        PolicySetup(insights, customers, scene.pool, by_customers=scene.pool is not None)
    )
    cast = Cast(
        players=players,
        runners={one.id: runners for one, runners in zip(insights, scene.runners, strict=True)},
        customers=customers,
        heartbeat_s=scene.lease_s / _BEATS,
        reweights=[
            Reweight(scene.reweight_at, one.name, one.play.reweight)
            for one in players
            if one.play.reweight and not scene.is_of_keys
        ],
    )
    driver = Driver(policy, ledger, cast)
    driver.run(judged_from + seconds)
    return Outcome(ledger, driver.most_out, judged_from + seconds)


def _players(scene: Scene, play: Play) -> Iterator[Player]:
    customer_id = _KEYS_CUSTOMER if scene.is_of_keys else None
    yield Player(ATTACKER, play, customer_id=customer_id)
    for number in range(1, play.accomplices + 1):
        name = f"{ATTACKER}{number}"
        yield Player(name, play, customer_id=customer_id, accomplice=number)
    for name, honest in scene.victims.items():
        yield Player(name, honest, customer_id=customer_id)


def _party(player: Player) -> Party:
    weight = 1.0 if player.customer_id != player.name else player.play.weight
    is_victim = not player.name.startswith(ATTACKER)
    # A cap is of each insight.
    cap = (_cap(player) or inf) * player.play.insights
    return Party(player.name, is_victim, weight, cap=cap)


def _customer(scene: Scene, player: Player) -> Customer:
    if scene.is_of_keys:
        return Customer(id=player.customer_id)
    return Customer(
        id=player.customer_id, weight=player.play.weight, max_in_flight=_cap(player)
    )


def _cap(player: Player) -> int | None:
    return (player.play.cap or None) if player.customer_id == player.name else None


def _insight(scene: Scene, number: int) -> Insight:
    pool = None if scene.pool is None else "pool"
    return Insight(
        id=f"i{number}",
        lease_ms=round(scene.lease_s * _MS),
        pool=pool,
        aging_s=scene.aging_s,
    )
