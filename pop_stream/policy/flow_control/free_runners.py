"""Counts the free runners of an insight whose runs are long: so many agendas lie out, no more.

Where runs are short, a runner that waits for the round trip of an emission wastes much of its
time, so an agenda or more lies on the topic beyond what runners have (`target_depth`). Where
runs are long, that agenda lies there for long, in an order that is settled: whoever comes
meanwhile waits for it. On traces of jobs of minutes to hours small customers waited a fifth
longer by it. A run of `LONG_TRIPS` round trips loses a hundredth of its runner's time if the
next agenda is emitted once the runner is free. So then it is, and the target is the count.

It follows from what pullers report: an attempt that ends frees a runner, an emission is meant
for one, and a claim for which no runner stood idle took one that was counted when it was freed.
Mistakes end by themselves. A count too large is an agenda that lies out, as without all this;
its claim takes it back. A count too small leaves a runner idle until nothing was emitted for
`PROBE_INTERVALS` times as long as it usually takes from one end to the next: then one agenda is
emitted as a probe. With two such intervals half of the gain was lost to probes for which no
runner was free, with four hardly any.

Runners that are new to the insight report nothing before their first claim. So nothing is held
back for `DOUBT_S` seconds after the count begins, or another puller joins the group.
"""

from typing import Final

from pop_stream.policy.backlog.flow_counts import FlowCounts

LONG_TRIPS: Final = 100.0
"""A run is long if it takes so many round trips."""

PROBE_INTERVALS: Final = 4.0
DOUBT_S: Final = 60.0


class FreeRunners:
    """The runners that are free, of which each is to get an agenda; see the module.

    Attributes:
        count: Those that are surely free, but for mistakes that end by themselves.
    """

    def __init__(self) -> None:
        self.count = 0
        self._was: FlowCounts | None = None
        self._emitted_at = 0.0
        self._doubt_until = 0.0

    def doubt(self, now: float) -> None:
        """There may be runners that nothing is known of: hold nothing back for a while."""
        self._doubt_until = now + DOUBT_S

    def observe(self, counts: FlowCounts, now: float) -> None:
        """Count; called before every round. A clock that was set back begins anew."""
        was, self._was = self._was, counts
        if was is None or now < self._emitted_at:
            self._emitted_at = now
            self.doubt(now)
            return
        emitted = counts.emitted - was.emitted
        freed = was.running - counts.running + counts.sync_matched - was.sync_matched
        self.count = max(0, self.count + freed - emitted)
        if emitted or self.count:
            self._emitted_at = now
        elif now - self._emitted_at > PROBE_INTERVALS * (counts.run_s or 0.0) / max(
            1, counts.running
        ):
            self.count = 1

    def wanted(self, trip_s: float, now: float) -> int | None:
        """Agendas that should lie out; None where the target is to be learned as usual.

        Args:
            trip_s: The least time from an emission to the report of its claim.
            now: The present instant.
        """
        was = self._was
        if was is None or not was.are_reported or not was.running or now < self._doubt_until:
            return None
        if was.run_s is None or was.run_s < LONG_TRIPS * trip_s:
            return None
        return self.count
