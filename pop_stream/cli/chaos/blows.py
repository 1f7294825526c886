"""What is done to a running system, and when: made from a seed alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

FaultKind = Literal["kill", "freeze", "outage"]
"""kill -9; SIGSTOP, later SIGCONT; a server that is killed and started again later."""

Downtime = tuple[FaultKind, tuple[float, float]]
"""What befalls a server, and for how many seconds at least and at most."""

_FREEZE_S: Final = (2.0, 14.0)
_BROKER_DOWN_S: Final = (2.0, 8.0)
_BROKER_FROZEN_S: Final = (4.0, 16.0)
_DATABASE_DOWN_S: Final = (3.0, 20.0)


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """One thing to be done.

    Attributes:
        at: Seconds after the load began.
        part: As the stack calls it.
        lasts_s: Of a freeze or an outage.
    """

    at: float
    part: str
    kind: FaultKind
    lasts_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FaultCounts:
    """How much is to be done, within how many seconds.

    Attributes:
        kills: Of parts.
        freezes: Of parts.
        broker_kills: Of one broker at a time.
        database_stops: Of Postgres.
        broker_freezes: Of one broker at a time, which is then not killed either.
    """

    seconds: float
    kills: int
    freezes: int = 0
    broker_kills: int = 0
    database_stops: int = 0
    broker_freezes: int = 0


def plan_faults(
    wanted: FaultCounts, *, parts: Sequence[str], brokers: Sequence[str], seed: int
) -> list[InjectedFault]:
    """The blows in order of time; the same for the same arguments.

    Every part is hit before one is hit twice. Brokers are down, or frozen, one after the other,
    never two at a time, or a majority of three would be missing.
    """
    chance = Random(seed)  # noqa: S311  # a schedule, no secret
    faults = [
        InjectedFault(_instant(chance, wanted.seconds), part, "kill")
        for part in _shuffled_parts(chance, parts, wanted.kills)
    ]
    faults += [
        InjectedFault(
            _instant(chance, wanted.seconds), part, "freeze", chance.uniform(*_FREEZE_S)
        )
        for part in _shuffled_parts(chance, parts, wanted.freezes)
    ]
    down: list[Downtime] = [("outage", _BROKER_DOWN_S)] * wanted.broker_kills
    if wanted.broker_freezes:  # else the same seed makes what it made before there were any
        down += [("freeze", _BROKER_FROZEN_S)] * wanted.broker_freezes
        chance.shuffle(down)
    faults += _one_per_slice(chance, wanted.seconds, brokers, down)
    stops: list[Downtime] = [("outage", _DATABASE_DOWN_S)] * wanted.database_stops
    faults += _one_per_slice(chance, wanted.seconds, ("postgres",), stops)
    return sorted(faults, key=lambda fault: fault.at)


def _one_per_slice(
    chance: Random, seconds: float, servers: Sequence[str], down: Sequence[Downtime]
) -> Iterator[InjectedFault]:
    """One in each of as many slices of the time, and over before the next."""
    if not down:
        return
    piece = seconds / len(down)
    dealt = _shuffled_parts(chance, servers, len(down))
    for number, (server, (kind, lasts)) in enumerate(zip(dealt, down, strict=True)):
        least, most = (min(one, piece / 2) for one in lasts)
        begin = piece * number + chance.uniform(0.05, 0.45) * piece
        yield InjectedFault(begin, server, kind, chance.uniform(least, most))


def _instant(chance: Random, seconds: float) -> float:
    return chance.uniform(0.05, 0.95) * seconds


def _shuffled_parts(chance: Random, parts: Sequence[str], count: int) -> Iterator[str]:
    left: list[str] = []
    for _ in range(count):
        if not left:
            left = chance.sample(parts, len(parts))
        yield left.pop()
