"""How many unclaimed agendas keep an insight's pullers busy, learned from their claims.

An agenda on the topic is in an order that is settled: one that comes later waits for all of
them. So there should be as few as keep the runners busy, which is what is claimed in the time
from a claim to the emission that replaces it. That *round trip* is measured as the least time
from an emission to the report of its claim, which is what it takes when the topic is empty. The
rate of claims is measured too, as the best of the last spans, because a topic that was too
short shows a rate that is too low. Their product is the bandwidth-delay product of a network
path, and the same reasoning keeps queues in the internet short: Cardwell et al., "BBR:
Congestion-Based Congestion Control", ACM Queue 2016.

The target is two round trips' worth at least. Whether that is enough is what pullers report: a
claim says whether a runner stood idle for it (a *sync match*). If some did although agendas
waited, the target grows, up to what is claimed within the wanted wait (Little's law), or within
the *present trip* if that is longer: how long after their emission sync-matched claims are
reported, which waited for no runner. That is the least trip where every process has a
processor, and several times as much where they share one. Of the last spans the shortest
counts, and none until there were enough of them: what takes long for a second, as while a flood
is submitted, is soon over, and the agendas laid out for it would be in the way of later ones. A
few runners that stood idle get one agenda each whatever the rate: it is low only because they
lack work. Where runs are long only what free runners are to have lies out: `free_runners`.

`DrainRate` is another measure of the same claims: how fast the backlog is worked off, which
forecasts of waits are computed with.
"""

from collections import deque
from math import inf
from typing import Final

from pop_stream.policy.backlog.flow_counts import FlowCounts
from pop_stream.policy.flow_control.free_runners import FreeRunners

_MIN_TRIP_S: Final = 1e-3
_SMOOTHING_S: Final = 0.5
_MIN_SPAN_S: Final = 0.1
_MAX_SPAN_S: Final = 1.0
_ENOUGH_CLAIMS: Final = 8
_PEAK_SPANS: Final = 8
_MIN_TRIPS: Final = 2.0
_MAX_TRIPS: Final = 64.0
_FEW: Final = 0.05
_MAX_IDLE: Final = 8
_STARVED_GAIN: Final = 1.4
_FED_DECAY: Final = 0.95
_PRESENT_SPANS: Final = 8


class TargetDepth:
    """Learns the target of one insight from its claims; see the module.

    Attributes:
        rate_per_s: Claims per second, smoothed over half a second. A topic that lies empty for
            most of a span says nothing about speed, so that such a span never lowers it.
        idle: Runners that could start one more each, as of the last `observe`.
        free: Those that are counted where runs are long.
    """

    def __init__(self) -> None:
        self.rate_per_s = 0.0
        self.idle = 0
        self.free = FreeRunners()
        self._rates: deque[float] = deque(maxlen=_PEAK_SPANS)
        self._trips = _RoundTrips()
        self._wanted_trips = _MIN_TRIPS
        self._idle = 0
        self._presents: deque[float] = deque(maxlen=_PRESENT_SPANS)
        self._was: FlowCounts | None = None
        self._was_at = 0.0
        self._span_at = 0.0
        self._span_empty_s = 0.0
        self._span_claimed = 0
        self._span_sync_matched = 0
        self._span_sync_matched_s = 0.0

    def observe(self, counts: FlowCounts, now: float) -> None:
        """Measure; called before every round, with what is in flight before it."""
        at, was = now, self._was
        self.idle = counts.idle
        self.free.observe(counts, now)
        if was is None or at < self._was_at:
            # By a clock that was set back, trips that have begun would take less than nothing.
            self._trips.begin(counts)
            self._begin_span(counts, at)
        else:
            self._trips.note(counts, emitted_at=self._was_at, now=at)
            if counts.emitted == was.emitted == was.claimed:
                self._span_empty_s += at - self._was_at
            if was.ready > counts.emitted - was.emitted:  # else runners waited for submissions
                self._span_sync_matched += counts.sync_matched - was.sync_matched
                self._span_sync_matched_s += counts.sync_matched_s - was.sync_matched_s
            self._end_span(counts, at)
        self._was, self._was_at = counts, at

    def target(self, wanted_wait_s: float) -> int | None:
        """Unclaimed agendas that keep the runners busy; None while too little is known.

        Args:
            wanted_wait_s: Most that an emitted agenda should wait at the best recent rate,
                unless reports of claims take so long that runners would be idle.
        """
        trip_s = self._trips.least_s
        if (wanted := self._wanted_of_long_runs) is not None:
            return wanted
        if not self._rates or trip_s == inf:
            return None
        peak = max(self._rates)
        needed_s = self._wanted_trips * trip_s
        allowed_s = max(wanted_wait_s, 2 * trip_s, self._present_s())
        return 1 + int(max(peak * min(needed_s, allowed_s), self._idle))

    @property
    def holds_back(self) -> bool:
        """Whether runs are long and every known runner is busy, so that none is wanted."""
        return self._wanted_of_long_runs == 0 and not self.idle

    @property
    def _wanted_of_long_runs(self) -> int | None:
        if self._trips.least_s == inf:
            return None
        return self.free.wanted(self._trips.least_s, self._was_at)

    def _end_span(self, counts: FlowCounts, at: float) -> None:
        """End the span if it has claims enough or was long enough, and learn from it."""
        seconds, claims = at - self._span_at, counts.claimed - self._span_claimed
        if not claims and counts.emitted == counts.claimed:
            self._begin_span(counts, at)
        elif seconds >= (_MIN_SPAN_S if claims >= _ENOUGH_CLAIMS else _MAX_SPAN_S):
            rate = claims / seconds
            if rate > self.rate_per_s or 2 * self._span_empty_s <= seconds:
                self.rate_per_s += min(1.0, seconds / _SMOOTHING_S) * (rate - self.rate_per_s)
                self._rates.append(rate)
            self._idle = min(_MAX_IDLE, self._span_sync_matched)
            self._note_present()
            change = _STARVED_GAIN if self._span_sync_matched > _FEW * claims else _FED_DECAY
            self._wanted_trips = min(_MAX_TRIPS, max(_MIN_TRIPS, self._wanted_trips * change))
            self._begin_span(counts, at)

    def _note_present(self) -> None:
        if self._span_sync_matched:
            self._presents.append(self._span_sync_matched_s / self._span_sync_matched)
        elif self._presents:
            self._presents.append(min(self._presents) * _FED_DECAY)

    def _present_s(self) -> float:
        """How long reports of sync-matched claims take; 0.0 before enough spans had any."""
        return min(self._presents) if len(self._presents) == _PRESENT_SPANS else 0.0

    def _begin_span(self, counts: FlowCounts, at: float) -> None:
        self._span_at, self._span_claimed, self._span_empty_s = at, counts.claimed, 0.0
        self._span_sync_matched, self._span_sync_matched_s = 0, 0.0


class _RoundTrips:
    """The least time from an emission to the report of its claim.

    Agendas are counted, not identified: the n-th claim is taken to be that of the n-th
    emission. In whatever order records are claimed, that never makes a trip too short.
    """

    def __init__(self) -> None:
        self.least_s = inf
        self._emitted = 0
        self._batches: deque[tuple[int, float]] = deque()

    def begin(self, counts: FlowCounts) -> None:
        self._emitted = counts.emitted
        self._batches.clear()

    def note(self, counts: FlowCounts, *, emitted_at: float, now: float) -> None:
        if counts.emitted > self._emitted:
            self._batches.append((self._emitted, emitted_at))
            self._emitted = counts.emitted
        while self._batches and counts.claimed > self._batches[0][0]:
            _, begun_at = self._batches.popleft()
            self.least_s = min(self.least_s, max(_MIN_TRIP_S, now - begun_at))


_MIN_CLAIMS_FOR_RATE: Final = 64
_ENOUGH_S: Final = 5.0
_MAX_S: Final = 120.0
_MIN_S: Final = 0.1


class DrainRate:
    """Claims per second of the time in which something waited that might go.

    Runners that are all busy, a cap and a full pool are part of it: the topic may lie empty
    meanwhile, and still that is how fast agendas leave. Time in which nothing waited, or
    nothing that may go, says nothing. What is known counts half once there is enough: 64
    claims and 5 s, or two minutes.
    """

    def __init__(self) -> None:
        self._claims = self._seconds = 0.0
        self._was_at: float | None = None
        self._was_claimed = 0
        self._waited = False

    @property
    def per_s(self) -> float:
        """0 while nothing was claimed since something waits, or for less than 0.1 s."""
        return self._claims / self._seconds if self._seconds >= _MIN_S else 0.0

    def observe(self, claimed: int, *, waits: bool, now: float) -> None:
        """Measure; called before every round.

        Args:
            claimed: Agendas ever, as far as reported; never falls.
            waits: Whether an agenda waits for emission that might be chosen.
            now: The present instant; one earlier than before ends the time that is counted.
        """
        if self._was_at is not None and self._waited and now >= self._was_at:
            self._claims += claimed - self._was_claimed
            self._seconds += now - self._was_at
            is_enough = self._claims >= _MIN_CLAIMS_FOR_RATE and self._seconds >= _ENOUGH_S
            if is_enough or self._seconds >= _MAX_S:
                self._claims, self._seconds = self._claims / 2, self._seconds / 2
        self._was_at, self._was_claimed, self._waited = now, claimed, waits
