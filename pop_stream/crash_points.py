"""Named places between two effects, where a test can have a process end as by kill -9.

`POP_CRASH_POINT=scheduler.emitted:3` ends the process the third time it comes by that place.
`POP_CRASH_POINT_FILE=FILE` makes that happen once: the file is written first, and while it is
there nothing ends, so that a supervisor may start the process again with the same variables.
Unset, a place costs a comparison. `require_local_brokers` keeps this away from real clusters.
"""

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal, get_args

CrashPointName = Literal[
    "api.acknowledged",
    "api.pulled",
    "api.defined",
    "outbox.published",
    "ingest.accepted",
    "ingest.routed",
    "relay.published",
    "scheduler.emitting",
    "scheduler.emitted",
    "scheduler.recorded",
    "scheduler.recorded_half",
    "scheduler.decided",
    "puller.claimed",
    "puller.committed",
    "puller.ran",
    "rollup.folding",
    "rollup.folded",
]
"""Where a process may end:

| place | done | not done |
|---|---|---|
| api.acknowledged | Kafka has the submission | the 202 |
| api.pulled | an agenda is claimed, and with the process of its caller | the answer |
| api.defined | a definition is committed | its record on `pop.definitions`, the answer |
| outbox.published | records of definitions are written | the outbox row's end |
| ingest.accepted | `agenda.accepted` is written | its page on `pop.ready` |
| ingest.routed | both are written | the commit |
| relay.published | notes are written | the commit |
| scheduler.emitting | half a round is written | the rest of it, its row in the table |
| scheduler.emitted | a round is written | its row |
| scheduler.recorded | the row is written | the round |
| scheduler.recorded_half | the row and half of the round are written | the rest of it |
| scheduler.decided | the round is written, its row is handed to Faust | the commit |
| puller.claimed | claims are written | the commit |
| puller.committed | the commit | the start |
| puller.ran | the operations | the report |
| rollup.folding | all statements of a batch | the end of the transaction |
| rollup.folded | the transaction | the commit to Kafka |
"""

CRASH_POINTS: Final[tuple[CrashPointName, ...]] = get_args(CrashPointName)

CRASH_POINT_VARIABLE: Final = "POP_CRASH_POINT"
FIRED_FILE_VARIABLE: Final = "POP_CRASH_POINT_FILE"

_LOCAL_HOSTS: Final = ("127.0.0.1", "localhost", "[::1]")


def _terminate() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class CrashPoint:
    """One place, and how often it is passed before the end.

    Args:
        place: Where.
        hits: Ends at this one, from 1.
        fired_file: File that is there once it has happened; None to happen every time.
        terminate: Ends the process.
    """

    def __init__(
        self,
        place: str,
        hits: int,
        fired_file: Path | None,
        terminate: Callable[[], None] = _terminate,
    ) -> None:
        self.place = place
        self._left = hits
        self._spent = fired_file
        self._terminate = terminate

    @property
    def has_fired(self) -> bool:
        """Whether it has happened, in this process or one before it."""
        return self._spent is not None and self._spent.exists()

    def hit(self) -> None:
        """Count a pass, and end at the one that was asked for."""
        self._left -= 1
        if self._left == 0 and not self.has_fired:
            if self._spent is not None:
                self._spent.write_text(f"{self.place} {os.getpid()}\n")
            self._terminate()


def crash_point_from(variables: Mapping[str, str]) -> CrashPoint | None:
    """The fault that the variables ask for.

    Raises:
        ValueError: If there is no such place, or the count is none.
    """
    asked = variables.get(CRASH_POINT_VARIABLE)
    if not asked:
        return None
    place, _, hits = asked.partition(":")
    if place not in CRASH_POINTS:
        msg = f"{CRASH_POINT_VARIABLE} = {asked!r}: name one of {', '.join(CRASH_POINTS)}, as in scheduler.recorded:3"
        raise ValueError(msg)
    if not (hits or "1").isdigit() or int(hits or "1") < 1:
        msg = f"{CRASH_POINT_VARIABLE} = {asked!r}: after the colon, say at which pass, from 1"
        raise ValueError(msg)
    fired_file = variables.get(FIRED_FILE_VARIABLE)
    return CrashPoint(place, int(hits or "1"), Path(fired_file) if fired_file else None)


_crash_point: Final = crash_point_from(os.environ)


def crash_point(place: CrashPointName) -> None:
    """Come by a place; does not return if the process is to end here."""
    if _crash_point is not None and _crash_point.place == place:
        _crash_point.hit()


def is_set(place: CrashPointName) -> bool:
    """Whether the process may end there: where two effects go on side by side, one comes first.

    Ask only to bring about an order of effects that could come about without it, too.
    """
    return (
        _crash_point is not None and _crash_point.place == place and not _crash_point.has_fired
    )


def require_local_brokers(bootstrap: str) -> None:
    """Let no fault be set against a cluster that is not on this machine.

    Args:
        bootstrap: Addresses of brokers, `host:port`, comma between.

    Raises:
        ValueError: If a fault is set and a broker is elsewhere.
    """
    if _crash_point is None:
        return
    remote = [one for one in bootstrap.split(",") if one.rpartition(":")[0] not in _LOCAL_HOSTS]
    if remote:
        msg = (
            f"{CRASH_POINT_VARIABLE} = {os.environ[CRASH_POINT_VARIABLE]!r} with brokers at {remote[0]}: faults are for tests "
            "on one machine; unset it"
        )
        raise ValueError(msg)
