"""How many agendas to claim before a runner is free for them; no IO, no clock.

A claim takes milliseconds: it is published, acknowledged and committed. A runner that ends an
agenda in less would mostly wait for the next claim, so as many are claimed ahead as the
runners end meanwhile (Little's law: latency times rate). Where runs take long nothing is:
an agenda that is claimed can no longer be overtaken, nor run elsewhere.
"""

from math import ceil
from typing import Final

MOST_AHEAD: Final = 4
"""Agendas claimed ahead for each runner, at most: so many wait if runs suddenly last long."""

_GAIN: Final = 1 / 16
_HEADROOM: Final = 1.5
_IDLE: Final = 0.1


class Lookahead:
    """Learned from the claims and the runs of one puller.

    Args:
        runners: Agendas that run at a time, at least 1.
    """

    def __init__(self, runners: int) -> None:
        self._runners = runners
        self._claim_s: float | None = None
        self._run_s: float | None = None

    def note_claim(self, seconds: float) -> None:
        """A claim took so long, from the free runner to the commit."""
        self._claim_s = _moved(self._claim_s, seconds)

    def note_run(self, seconds: float) -> None:
        """An agenda ran so long."""
        self._run_s = _moved(self._run_s, seconds)

    def ahead(self, running_s: float) -> int:
        """Agendas to claim beyond those that run.

        Args:
            running_s: For how long those that run now have run, on average; a sudden long
                run shows here before it ends.
        """
        if self._claim_s is None or self._run_s is None:
            return 0
        # A claim that finds another one under way waits for it, so it takes longer.
        latency_s = self._claim_s * _HEADROOM
        run_s = max(self._run_s, running_s)
        most = MOST_AHEAD * self._runners
        if run_s * most <= latency_s * self._runners:
            return most
        # A tenth of one runner may be idle before another agenda is taken away from others.
        return min(most, max(0, ceil(self._runners * latency_s / run_s - _IDLE)))


def _moved(mean: float | None, seconds: float) -> float:
    return seconds if mean is None else mean + _GAIN * (seconds - mean)
