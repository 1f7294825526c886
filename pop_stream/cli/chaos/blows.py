"""What is done to a running system, and when: made from a seed alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

Kind = Literal["kill", "freeze", "outage"]
"""kill -9; SIGSTOP, later SIGCONT; a server that is killed and started again later."""

_FREEZE_S: Final = (2.0, 14.0)
_BROKER_DOWN_S: Final = (2.0, 8.0)
_DATABASE_DOWN_S: Final = (3.0, 20.0)


@dataclass(frozen=True, slots=True)
class Blow:
    """One thing to be done.

    Attributes:
        at: Seconds after the load began.
        part: As the stack calls it.
        lasts_s: Of a freeze or an outage.
    """

    at: float
    part: str
    kind: Kind
    lasts_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """How much is to be done, within how many seconds.

    Attributes:
        kills: Of parts.
        freezes: Of parts.
        broker_kills: Of one broker at a time.
        database_stops: Of Postgres.
    """

    seconds: float
    kills: int
    freezes: int = 0
    broker_kills: int = 0
    database_stops: int = 0


def plan_blows(
    wanted: Wanted, *, parts: Sequence[str], brokers: Sequence[str], seed: int
) -> list[Blow]:
    """The blows in order of time; the same for the same arguments.

    Every part is hit before one is hit twice. Brokers are down one after the other, never two
    at a time, or a majority of three would be missing.
    """
    chance = Random(seed)  # noqa: S311  # a schedule, no secret
    blows = [
        Blow(_instant(chance, wanted.seconds), part, "kill")
        for part in _dealt(chance, parts, wanted.kills)
    ]
    blows += [
        Blow(_instant(chance, wanted.seconds), part, "freeze", chance.uniform(*_FREEZE_S))
        for part in _dealt(chance, parts, wanted.freezes)
    ]
    blows += _outages(chance, wanted.seconds, brokers, wanted.broker_kills, _BROKER_DOWN_S)
    blows += _outages(
        chance, wanted.seconds, ("postgres",), wanted.database_stops, _DATABASE_DOWN_S
    )
    return sorted(blows, key=lambda blow: blow.at)


def _outages(
    chance: Random,
    seconds: float,
    servers: Sequence[str],
    count: int,
    lasts: tuple[float, float],
) -> Iterator[Blow]:
    """One in each of `count` slices of the time, and over before the next."""
    if not count:
        return
    piece = seconds / count
    for number, server in enumerate(_dealt(chance, servers, count)):
        least, most = (min(one, piece / 2) for one in lasts)
        begin = piece * number + chance.uniform(0.05, 0.45) * piece
        yield Blow(begin, server, "outage", chance.uniform(least, most))


def _instant(chance: Random, seconds: float) -> float:
    return chance.uniform(0.05, 0.95) * seconds


def _dealt(chance: Random, parts: Sequence[str], count: int) -> Iterator[str]:
    left: list[str] = []
    for _ in range(count):
        if not left:
            left = chance.sample(parts, len(parts))
        yield left.pop()
