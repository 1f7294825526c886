"""How many more agendas a puller may claim: one for each runner, and some ahead of them.

A claim takes milliseconds: it is published, acknowledged and committed. A runner that ends an
agenda in less would mostly wait for the next claim, so as many are claimed ahead as the
runners end meanwhile (Little's law: latency times rate). Where runs take long, none are:
an agenda that is claimed can no longer be overtaken, nor run elsewhere.

Where most runs are short and some are long, their mean describes neither. So runners with a
long run are set apart: the others end agendas as fast as short runs do. If those all began
long runs too, what is claimed ahead would wait for them. It is claimed nevertheless as long
as that is so rare that its expected cost for an agenda is below that of a claim.
"""

import asyncio
from collections import Counter, OrderedDict
from math import ceil, inf
from time import monotonic
from typing import Final


class RunDurations:
    """The runs that are active now, by the instants at which they began; no IO, no clock.

    Instants are seconds of the monotonic clock.
    """

    def __init__(self) -> None:
        # In the order in which they began: the first is the next to become a long one.
        self._short: OrderedDict[float, int] = OrderedDict()
        self._long: Counter[float] = Counter()
        self._long_started_sum_s = 0.0
        self._long_count = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def begin(self, now_s: float) -> None:
        """A run begins."""
        self._short[now_s] = self._short.get(now_s, 0) + 1
        self._count += 1

    def end(self, started_s: float) -> None:
        """A run that began at `started_s` has ended."""
        self._count -= 1
        if started_s in self._short:
            _take(self._short, started_s)
        else:
            _take(self._long, started_s)
            self._long_count -= 1
            self._long_started_sum_s -= started_s

    def long(self, after_s: float, now_s: float) -> tuple[int, float]:
        """How many have run for longer than `after_s`, and for how long on average.

        A run that was once counted stays counted, even if `after_s` grows. Costs as much as has
        changed since the last call.
        """
        while self._short:
            started_s = next(iter(self._short))
            if now_s - started_s <= after_s:
                break
            count = self._short.pop(started_s)
            self._long[started_s] += count
            self._long_count += count
            self._long_started_sum_s += count * started_s
        if not self._long_count:
            self._long_started_sum_s = 0.0
            return 0, 0.0
        return self._long_count, now_s - self._long_started_sum_s / self._long_count


def _take(counts: dict[float, int], key: float) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


MAX_PREFETCH_PER_RUNNER: Final = 4
"""Most agendas claimed ahead for each runner: so many wait if runs suddenly take long."""

_EWMA_GAIN: Final = 1 / 16
_LONG_RUN_GAIN: Final = 1 / 64
_HEADROOM: Final = 1.5
_LONG_FACTOR: Final = 4.0
_TOLERATED_IDLE: Final = 0.1


class Prefetch:
    """How many agendas to claim ahead, estimated from claims and runs of one puller.

    Args:
        runners: Agendas that run at a time, at least 1.
    """

    def __init__(self, runners: int) -> None:
        self._runners = runners
        self._claim_s: float | None = None
        self._run_s: float | None = None
        self._short_run_s: float | None = None
        self._long_run_s: float | None = None
        self._long_ratio = 0.0

    @property
    def long_after_s(self) -> float:
        """A run that has lasted for more seconds is a long one."""
        return self._latency_s * _LONG_FACTOR

    def note_claim(self, seconds: float) -> None:
        """A claim took so long, from the free runner to the commit."""
        self._claim_s = _ewma(self._claim_s, seconds)

    def note_run(self, seconds: float) -> None:
        """An agenda ran so long."""
        self._run_s = _ewma(self._run_s, seconds)
        is_long = seconds > self.long_after_s
        self._long_ratio += _LONG_RUN_GAIN * (is_long - self._long_ratio)
        if is_long:
            self._long_run_s = _ewma(self._long_run_s, seconds)
        else:
            self._short_run_s = _ewma(self._short_run_s, seconds)

    def target(self, long: int, long_for_s: float) -> int:
        """Agendas to claim beyond those that run.

        Args:
            long: How many of those that run now have done so for more than `long_after_s`.
            long_for_s: For how long those have run, on average; a sudden long run shows
                here before it ends.
        """
        if self._claim_s is None or self._run_s is None:
            return 0
        latency_s, others = self._latency_s, self._runners - long
        long_run_s = max(self._long_run_s or 0.0, long_for_s)
        each = _runs_ended(latency_s, max(self._run_s, long_for_s))
        turns_long = min(
            1.0, MAX_PREFETCH_PER_RUNNER * (self._long_ratio + _LONG_RUN_GAIN * long)
        )
        if self._short_run_s is not None and turns_long**others * long_run_s <= latency_s:
            each = max(each, _runs_ended(latency_s, self._short_run_s))
        ends = others * each + long * _runs_ended(latency_s, long_run_s)
        # A tenth of one runner may be idle before another agenda is taken away from others.
        return max(0, ceil(ends - _TOLERATED_IDLE))

    @property
    def _latency_s(self) -> float:
        # A claim that finds another one in progress waits for it, so it takes longer.
        return inf if self._claim_s is None else self._claim_s * _HEADROOM


def _runs_ended(latency_s: float, run_s: float) -> float:
    """Runs of this length that a runner ends meanwhile; at most `MAX_PREFETCH_PER_RUNNER`."""
    return (
        MAX_PREFETCH_PER_RUNNER
        if latency_s >= MAX_PREFETCH_PER_RUNNER * run_s
        else latency_s / run_s
    )


def _ewma(mean: float | None, seconds: float) -> float:
    return seconds if mean is None else mean + _EWMA_GAIN * (seconds - mean)


class Capacity:
    """Slots shared by all consumers of a puller; a slot is held from the claim to the end.

    There is one for each runner, and some more for what is claimed ahead of them. Belongs to
    one event loop.

    Args:
        runners: Agendas that run at a time, at least 1.
    """

    def __init__(self, runners: int) -> None:
        self._runners = runners
        self._held = 0
        self._durations = RunDurations()
        self._prefetch = Prefetch(runners)
        self._is_free = asyncio.Event()
        self._is_free.set()

    @property
    def free(self) -> int:
        """Slots that could be acquired now; how many there are changes with every run."""
        return max(0, self._runners + self._prefetch_target() - self._held)

    @property
    def idle_runners(self) -> int:
        """Runners that no slot is held for: they wait for an agenda to come."""
        return max(0, self._runners - self._held)

    @property
    def has_idle_runner(self) -> bool:
        """Whether one more agenda may begin to run."""
        return len(self._durations) < self._runners

    async def wait_free(self) -> None:
        """Wait until slots are free; by the time the caller runs, another may have them.

        Slots for claims ahead count as free only when half of them are, since a claim costs
        the brokers much the same however many agendas it is of. No runner waits for that.
        """
        while not self._is_worth_taking():
            self._is_free.clear()
            await self._is_free.wait()

    def _is_worth_taking(self) -> bool:
        ahead = self._prefetch_target()
        free = self._runners + ahead - self._held
        return self._held < self._runners or free >= max(1, ahead // 2)

    def acquire(self, most: int) -> int:
        """Hold up to `most` slots; returns how many."""
        taken = min(most, self.free)
        self._held += taken
        return taken

    def release_slots(self, count: int = 1) -> None:
        """Free slots that were taken."""
        self._held -= count
        self._is_free.set()

    def note_claim(self, seconds: float) -> None:
        """Take note of how long a claim took, from the slots taken to the commit."""
        self._prefetch.note_claim(seconds)
        self._is_free.set()

    def begin(self, now_s: float) -> None:
        """An agenda begins to run, `now_s` on the monotonic clock."""
        self._durations.begin(now_s)

    def end(self, started_s: float, now_s: float) -> None:
        """The agenda that began at `started_s` has ended; its slot is given back by itself."""
        self._durations.end(started_s)
        self._prefetch.note_run(now_s - started_s)

    def release_runner(self, started_s: float) -> None:
        """The agenda that began at `started_s` waits and holds no runner meanwhile."""
        self._durations.end(started_s)
        self.release_slots()

    def reacquire_slot(self) -> None:
        """It has its slot again, though all may be held; a runner it waits for."""
        self._held += 1

    def _prefetch_target(self) -> int:
        long, long_for_s = self._durations.long(self._prefetch.long_after_s, monotonic())
        return self._prefetch.target(long, long_for_s)
