"""How much work waits that more pullers would speed up, and how many pullers that asks for.

Lag cannot say it: the topic is kept short on purpose, however much waits behind it. What
counts is what is *eligible*: ready, and kept back by nothing that more pullers would leave as
it is, such as a pause, a cap or a rate.
"""

from dataclasses import dataclass
from math import ceil
from typing import Final

from pop_stream.model.definitions import Insight
from pop_stream.model.events.scheduling import EmissionLimit
from pop_stream.policy.backlog.backlog import Backlog
from pop_stream.policy.fairness.turn_order import MICROSECONDS

MAX_SAMPLES: Final = 2_000
"""Agendas whose costs are estimated for one figure; each customer has an equal part of them."""

MAX_REPLICAS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class WorkerDemand:
    """What waits for runners in one insight, and what runs.

    Attributes:
        eligible: Agendas that could be emitted now if the topic had room.
        eligible_s: Worker-seconds that these are estimated to take.
        unclaimed_s: The same of those that are emitted and not claimed.
        running: Agendas that are claimed and not settled.
    """

    eligible: int = 0
    eligible_s: float = 0.0
    unclaimed_s: float = 0.0
    running: int = 0

    def replicas(self, insight: Insight) -> int:
        """Pullers that the insight asks for.

        What waits is to be worked off within `wanted_drain_s` by runners that all are free for
        it. What runs keeps the pullers that it needs, so that a scaler never stops them for
        want of a backlog; it adds none, so that a backlog does not grow the fleet for ever.
        """
        waits_s = self.eligible_s + self.unclaimed_s
        for_waiting = waits_s / (insight.wanted_drain_s * insight.puller_runners)
        for_running = self.running / insight.puller_runners
        return min(MAX_REPLICAS, ceil(max(for_waiting, for_running)))


def worker_demand(
    backlog: Backlog, now: float, *, limited_by: EmissionLimit = ""
) -> WorkerDemand:
    """What an insight needs runners for; O(customers + MAX_SAMPLES).

    Args:
        backlog: Of the insight.
        now: The present instant, in seconds since the epoch.
        limited_by: What keeps the insight from emitting beside its depth and its customers'
            limits: while its pool does, nothing more can go.
    """
    flows = [flow for flow in backlog.queue.flows() if flow.ready]
    most = max(1, MAX_SAMPLES // max(1, len(flows)))
    eligible, eligible_s = 0, 0.0
    for flow in flows:
        count = flow.eligible_count(now)
        entries = flow.customer_queue.sample(most) if count else ()
        if entries:
            eligible += count
            eligible_s += count * sum(map(backlog.cost_of, entries)) / len(entries)
    room = _room(backlog, limited_by)
    if room is not None and room < eligible:
        eligible_s *= room / eligible
        eligible = room
    reserved_s = sum(flow.account.charged for flow in backlog.queue.flows()) / MICROSECONDS
    out = backlog.in_flight
    return WorkerDemand(
        eligible=eligible,
        eligible_s=eligible_s,
        unclaimed_s=reserved_s * backlog.unclaimed / out if out else 0.0,
        running=out - backlog.unclaimed,
    )


def _room(backlog: Backlog, limited_by: EmissionLimit) -> int | None:
    """Most agendas that the insight's pool and cap leave room for; None for no limit."""
    if limited_by == "pool":
        return 0
    cap = backlog.insight.max_in_flight
    return None if cap is None else max(0, cap - backlog.in_flight)
