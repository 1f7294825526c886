"""How many agendas to claim before a runner is free for them; no IO, no clock.

A claim takes milliseconds: it is published, acknowledged and committed. A runner that ends an
agenda in less would mostly wait for the next claim, so as many are claimed ahead as the
runners end meanwhile (Little's law: latency times rate). Where runs take long nothing is:
an agenda that is claimed can no longer be overtaken, nor run elsewhere.

Where most runs are short and some long, their mean tells of neither. So runners that are with
a long one are set apart: the others end agendas as fast as short runs do. If those all turned
to long runs, too, what is claimed ahead would wait for them. It is claimed nevertheless while
that is so seldom that it costs an agenda less than a claim does, as far as can be expected.
"""

from math import ceil, inf
from typing import Final

MAX_PREFETCH_PER_RUNNER: Final = 4
"""Agendas claimed ahead for each runner, at most: so many wait if runs suddenly last long."""

_EWMA_GAIN: Final = 1 / 16
_LONG_RUN_GAIN: Final = 1 / 64
_HEADROOM: Final = 1.5
_LONG_FACTOR: Final = 4.0
_TOLERATED_IDLE: Final = 0.1


class Prefetch:
    """Learned from the claims and the runs of one puller.

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

    def ahead(self, long: int, long_for_s: float) -> int:
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
        # A claim that finds another one under way waits for it, so it takes longer.
        return inf if self._claim_s is None else self._claim_s * _HEADROOM


def _runs_ended(latency_s: float, run_s: float) -> float:
    """How many runs of this length one runner ends meanwhile, `MAX_PREFETCH_PER_RUNNER` at most."""
    return (
        MAX_PREFETCH_PER_RUNNER
        if latency_s >= MAX_PREFETCH_PER_RUNNER * run_s
        else latency_s / run_s
    )


def _ewma(mean: float | None, seconds: float) -> float:
    return seconds if mean is None else mean + _EWMA_GAIN * (seconds - mean)
