"""Deadlines that follow the machine: they allow for work, not for time.

A probe, a process of its own, starts a Python that does nothing, again and again, and compares
how long that takes with what it takes on a quiet machine: that is the *slowdown*. By it
the clock of the deadlines, `quiet_s`, goes slower as others take the machine away, and at full
speed again when they are gone. So one deadline fits an idle machine and a busy one, and what
hangs is still found: after so many seconds of a quiet machine, `MAX_SLOWDOWN` times as many on
the busiest.

Every wait of a test that may fail goes by `within`; every lease, session or limit that a test
sets and that a busy machine could run into goes by `scaled`.
"""

import asyncio
import atexit
import mmap
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cache
from math import inf
from typing import NamedTuple, TypeVar

QUIET_TRIP_S = 0.010  # a start of Python on two idle cores: 7 to 9 ms
MAX_SLOWDOWN = 30.0
_PAUSE_S = 0.8  # so that a probe takes a hundredth of a core
_SMOOTHED_OVER = 4  # trips: a single one differs fourfold
_LEAST_LOOK_S = 0.05
_STATE = struct.Struct("ddd")

Duration = TypeVar("Duration", float, timedelta)


class _Reading(NamedTuple):
    """What the probe found last.

    Attributes:
        at_s: When, by the monotonic clock, which all processes share.
        quiet_s: Seconds of a quiet machine since the probe began.
        slowdown: At least 1.
    """

    at_s: float
    quiet_s: float
    slowdown: float


def quiet_s() -> float:
    """Seconds since some instant, as a quiet machine would count the work that was possible."""
    last = _read()
    return last.quiet_s + (time.monotonic() - last.at_s) / last.slowdown


def slowdown() -> float:
    """How much longer than on a quiet machine work takes in these seconds, at least 1."""
    return _read().slowdown


def scaled(duration: Duration) -> Duration:
    """What this duration has to be on a machine as busy as this one is now.

    For what is set once and then raced with: leases, session timeouts, limits of clients. A
    wait goes by `within`, which also follows what happens to the machine while it waits.
    """
    return duration * slowdown()


@asynccontextmanager
async def within(seconds: float, *, at_most_s: float = inf) -> AsyncIterator[None]:
    """Cancel the block when a quiet machine would have had so many seconds.

    Args:
        seconds: Of a quiet machine.
        at_most_s: Of this one, where what would be wrong happens by itself some time.

    Raises:
        TimeoutError: It took longer; the text has both times.
    """
    loop, began_s, ends_s = asyncio.get_running_loop(), time.monotonic(), quiet_s() + seconds
    looks: list[asyncio.TimerHandle] = []
    limit = asyncio.timeout(None)  # of the wall: `look` sets it

    def look() -> None:
        left_s = min(ends_s - quiet_s(), began_s + at_most_s - time.monotonic())
        if left_s <= 0:
            limit.reschedule(loop.time())
        else:
            looks[:] = [loop.call_later(max(left_s, _LEAST_LOOK_S), look)]

    try:
        async with limit:
            look()
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        took_s = time.monotonic() - began_s
        msg = f"not within {seconds:g} s of a quiet machine, {took_s:.1f} s on this one"
        raise TimeoutError(msg) from error
    finally:
        for one in looks:
            one.cancel()


# ---- the probe ----


def start_probe() -> None:
    """Start it now, once a process; otherwise the first deadline does."""
    _probe()


def _read() -> _Reading:
    """What the probe wrote last, and not half of it: the same bytes, twice."""
    shared = _probe()
    last, again = b"", shared[:]
    while again != last:
        last, again = again, shared[:]
    return _Reading(*_STATE.unpack(last))


@cache
def _probe() -> mmap.mmap:
    """What it writes its readings into; there is one at the return."""
    with tempfile.TemporaryFile() as file:
        file.truncate(_STATE.size)
        shared = mmap.mmap(file.fileno(), _STATE.size)
        _write(
            shared, _Reading(time.monotonic(), 0.0, _slowdown([_trip_s() for _ in range(3)]))
        )
        command = [sys.executable, "-I", "-S", __file__, str(file.fileno())]
        probe = subprocess.Popen(command, pass_fds=[file.fileno()])  # noqa: S603  # this file
    atexit.register(probe.wait)
    atexit.register(probe.kill)
    return shared


def _write(shared: mmap.mmap, reading: _Reading) -> None:
    shared[:] = _STATE.pack(*reading)  # `pack_into` would first write zeros, for all to read


def _trip_s() -> float:
    began_s = time.monotonic()
    command = [sys.executable, "-I", "-S", "-c", ""]
    os.waitpid(os.posix_spawn(sys.executable, command, {}), 0)
    return time.monotonic() - began_s


def _slowdown(trips_s: "deque[float] | list[float]") -> float:
    mean = sum(trips_s) / len(trips_s)
    return min(max(mean / QUIET_TRIP_S, 1.0), MAX_SLOWDOWN)


def _keep_measuring(shared: mmap.mmap, parent: int) -> None:
    last = _Reading(*_STATE.unpack_from(shared))
    trips_s: deque[float] = deque([last.slowdown * QUIET_TRIP_S], maxlen=_SMOOTHED_OVER)
    while os.getppid() == parent:
        time.sleep(_PAUSE_S)
        trips_s.append(_trip_s())
        now_s, busy = time.monotonic(), _slowdown(trips_s)
        last = _Reading(now_s, last.quiet_s + (now_s - last.at_s) / busy, busy)
        _write(shared, last)


if __name__ == "__main__":
    _keep_measuring(mmap.mmap(int(sys.argv[1]), _STATE.size), os.getppid())
