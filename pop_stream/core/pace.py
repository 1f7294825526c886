"""How far ahead of its pullers an insight's topic must be filled, learned from their claims.

What lies on the topic is work whose order is settled: an agenda that comes later waits for
all of it. So it should be as little as keeps the runners busy, and that is what is claimed
while the scheduler hears of a claim and answers it with an emission. That *round trip* is
measured as the least time from an emission to the news of its claim, which is what it takes
when nothing stands on the topic; the rate of claims is measured too, and their product is
the bandwidth-delay product of a network path. The same reasoning keeps queues in the
internet short: Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 2016.

Whether it is enough shows in the runners: when fewer run than lately, although agendas wait,
the topic is filled further, until it makes no difference or the limit is reached.
"""

from collections import deque
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Final

_LEAST_TRIP_S: Final = 1e-3
_SMOOTHING_S: Final = 0.5
_LEAST_SPAN_S: Final = 0.1
_LONGEST_SPAN_S: Final = 1.0
_ENOUGH_CLAIMS: Final = 8
_PEAK_SPANS: Final = 8
_HEADROOM: Final = 1.3
_RUNNING_S: Final = 0.5
_FED: Final = 0.95
_GROWING: Final = 1.1
_PROBE: Final = 2.0
_STARVED_GAIN: Final = 1.4
_FED_DECAY: Final = 0.9
_MOST_STRETCH: Final = 64.0
_FADE_PER_S: Final = 0.99
_LOOK_AGAIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Counts:
    """Where an insight's agendas are at one moment.

    Attributes:
        emitted: Ever; never falls.
        claimed: Ever, as far as heard; never falls.
        in_flight: Emitted and not settled.
        ready: Waiting for emission.
    """

    emitted: int
    claimed: int
    in_flight: int
    ready: int

    @property
    def running(self) -> int:
        """Claimed and not settled."""
        return self.in_flight - (self.emitted - self.claimed)


class Pace:
    """What is learned from one insight's claims; see the module.

    Attributes:
        rate_per_s: Claims per second, smoothed over half a second. It holds while nothing
            waits to be claimed: an empty topic says nothing about speed.
    """

    def __init__(self) -> None:
        self.rate_per_s = 0.0
        self._rates: deque[float] = deque(maxlen=_PEAK_SPANS)
        self._trips = _Trips()
        self._runners = _Runners()
        self._was: Counts | None = None
        self._was_at = 0.0
        self._span_at = 0.0
        self._span_claimed = 0

    def observe(self, counts: Counts, now: datetime) -> None:
        """Take note of the present; call it before every round, with what is out before it."""
        # A clock set back would make trips that took less than nothing.
        at, was = max(now.timestamp(), self._was_at), self._was
        if was is None:
            self._trips.begin(counts)
            self._begin_span(counts, at)
        else:
            self._trips.note(counts, emitted_at=self._was_at, now=at)
            self._runners.note(was, seconds=at - self._was_at)
            self._end_span(counts, at)
        self._was, self._was_at = counts, at

    def target(self, wanted_wait_s: float) -> int | None:
        """Unclaimed agendas that keep the runners busy; None while too little is known.

        Args:
            wanted_wait_s: Most that an emitted agenda should wait, unless the round trip
                takes so long that runners would be idle.
        """
        peak = max(self._rates, default=0.0)
        if not peak or self._trips.least_s == inf:
            return None
        needed = peak * self._trips.least_s * _HEADROOM
        longest_s = max(wanted_wait_s, 2 * self._trips.least_s)
        allowed = max(self.rate_per_s * longest_s, self._runners.most)
        runners = self._runners
        return 1 + int(min(needed * runners.stretch * runners.probe, allowed * runners.excess))

    def _end_span(self, counts: Counts, at: float) -> None:
        """Take stock, if there were claims or time enough since the last time."""
        seconds, claims = at - self._span_at, counts.claimed - self._span_claimed
        if not claims and counts.emitted == counts.claimed:
            self._begin_span(counts, at)
        elif seconds >= (_LEAST_SPAN_S if claims >= _ENOUGH_CLAIMS else _LONGEST_SPAN_S):
            rate = claims / seconds
            self.rate_per_s += min(1.0, seconds / _SMOOTHING_S) * (rate - self.rate_per_s)
            self._rates.append(rate)
            self._runners.end_span(seconds)
            self._begin_span(counts, at)

    def _begin_span(self, counts: Counts, at: float) -> None:
        self._span_at, self._span_claimed = at, counts.claimed
        self._runners.begin_span()


class _Trips:
    """The least time from an emission to the news of a claim.

    Counted, not followed one by one: the n-th claim is taken for that of the n-th emission,
    which is never too early, in whatever order records are claimed.
    """

    def __init__(self) -> None:
        self.least_s = inf
        self._emitted = 0
        self._batches: deque[tuple[int, float]] = deque()

    def begin(self, counts: Counts) -> None:
        self._emitted = counts.emitted

    def note(self, counts: Counts, *, emitted_at: float, now: float) -> None:
        if counts.emitted > self._emitted:
            self._batches.append((self._emitted, emitted_at))
            self._emitted = counts.emitted
        while self._batches and counts.claimed > self._batches[0][0]:
            _, begun_at = self._batches.popleft()
            self.least_s = min(self.least_s, max(_LEAST_TRIP_S, now - begun_at))


class _Runners:
    """Whether runners are kept as busy as they were lately.

    Attributes:
        most: Most that ran lately, smoothed as what it is compared with: the best of many
            spans is mostly chance, and what is measured by it would never be enough.
        stretch: By how much more the topic is filled than should be needed.
        excess: The same beyond what is allowed, while runners find the topic empty.
        probe: The same while it is tried whether more can run.
    """

    def __init__(self) -> None:
        self.most = 0.0
        self._running: float | None = None
        self.stretch = 1.0
        self.excess = 1.0
        self.probe = 1.0
        self._ran_s = 0.0
        self._waited_s = 0.0
        self._empty_s = 0.0
        self._look_in_s = _LOOK_AGAIN_S

    def begin_span(self) -> None:
        self._ran_s = self._waited_s = self._empty_s = 0.0

    def note(self, counts: Counts, *, seconds: float) -> None:
        """So it was for so long; only times in which agendas waited say anything."""
        if counts.ready:
            self._ran_s += counts.running * seconds
            self._waited_s += seconds
            self._empty_s += seconds * (counts.emitted == counts.claimed)

    def end_span(self, seconds: float) -> None:
        if self._waited_s <= seconds / 2:
            return
        ran = self._ran_s / self._waited_s
        before = ran if self._running is None else self._running
        gain = min(1.0, seconds / _RUNNING_S)
        running = self._running = before + gain * (ran - before)
        is_growing = running > self.most * _GROWING
        self.most = max(self.most * _FADE_PER_S**seconds, running)
        self._look_in_s -= seconds
        # What is busy enough is only known by trying more: at first, and now and then.
        is_looking = is_growing or self._look_in_s <= 0
        self.probe = _PROBE if is_looking else 1.0
        if is_looking:
            self._look_in_s = _LOOK_AGAIN_S
        elif running >= _FED * self.most:
            self.stretch = max(1.0, self.stretch * _FED_DECAY)
            self.excess = max(1.0, self.excess * _FED_DECAY)
        else:
            self.stretch = min(_MOST_STRETCH, self.stretch * _STARVED_GAIN)
            if self._empty_s > 0:
                self.excess = min(_MOST_STRETCH, self.excess * _STARVED_GAIN)
