"""What the scheduler shows of its insights, read afresh at every scrape."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from pop_stream.model.events.scheduling import CustomerShare
from pop_stream.policy.flow_control import emission_gate, forecast
from pop_stream.ports.clock import Clock
from pop_stream.scheduler.insight import InsightScheduler

MAX_CUSTOMER_LABELS: Final = 20
"""Customers shown by name per insight; the rest are summed as `(others)`."""

_OTHERS: Final = "(others)"

_INSIGHT_GAUGES: Final[
    Sequence[tuple[str, str, Callable[[InsightScheduler, datetime], float]]]
] = (
    ("ready", "Agendas that wait", lambda scheduler, _: scheduler.backlog.ready),
    (
        "waiting",
        "Agendas that wait for an instant",
        lambda scheduler, _: scheduler.backlog.waiting,
    ),
    (
        "held",
        "Agendas that wait for their release",
        lambda scheduler, _: scheduler.backlog.held,
    ),
    (
        "in_flight",
        "Agendas emitted and not settled",
        lambda scheduler, _: scheduler.backlog.in_flight,
    ),
    ("bytes", "Bytes of agendas in memory", lambda scheduler, _: scheduler.store.size),
    (
        "lag",
        "Records that no puller has claimed",
        lambda scheduler, _: scheduler.depth.unclaimed,
    ),
    (
        "target",
        "Unclaimed agendas that a refill aims at",
        lambda scheduler, _: emission_gate.target(scheduler.backlog.insight, scheduler.pace),
    ),
    ("rate", "Agendas claimed per second", lambda scheduler, _: scheduler.pace.rate_per_s),
    (
        "wait_seconds",
        "Recent mean wait up to emission",
        lambda scheduler, _: scheduler.backlog.waits.mean_s,
    ),
    (
        "gap_seconds",
        "Widest difference of customers' places on the virtual clock",
        lambda scheduler, now: scheduler.gap(now),
    ),
    (
        "bound_seconds",
        "What the gap cannot exceed",
        lambda scheduler, now: scheduler.bound(now),
    ),
)

_COUNTERS: Final[Sequence[tuple[str, str, Callable[[InsightScheduler], int]]]] = (
    (
        "pop_agendas_emitted",
        "Agendas ever emitted",
        lambda scheduler: scheduler.backlog.emitted,
    ),
    (
        "pop_leases_expired",
        "Attempts whose lease ended, since this worker took the insight over",
        lambda scheduler: scheduler.backlog.attempts.lost,
    ),
    (
        "pop_commands_ignored",
        "Commands about agendas that are unknown or have ended, likewise",
        lambda scheduler: scheduler.backlog.commands.ignored,
    ),
)

_CUSTOMER_GAUGES: Final[Sequence[tuple[str, str, Callable[[CustomerShare], float]]]] = (
    ("ready", "Agendas that wait", lambda one: one.ready),
    ("in_flight", "Agendas emitted and not settled", lambda one: one.in_flight),
    ("share", "Recent service per weight, 1 is a fair share", lambda one: one.share),
    ("wait_seconds", "Recent mean wait up to emission", lambda one: one.wait_s),
)


class SchedulerCollector(Collector):
    """Gauges per insight, and per customer for those with the largest backlogs.

    Args:
        schedulers: The insights of this worker now.
        clock: For figures that fade.
    """

    def __init__(
        self, schedulers: Callable[[], Sequence[InsightScheduler]], clock: Clock
    ) -> None:
        self._schedulers = schedulers
        self._clock = clock

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """All families; costs a look at every customer."""
        now, schedulers = self._clock.now(), self._schedulers()
        for name, help_text, checked_value in _INSIGHT_GAUGES:
            family = GaugeMetricFamily(f"pop_insight_{name}", help_text, labels=["insight"])
            for scheduler in schedulers:
                family.add_metric([scheduler.insight_id], checked_value(scheduler, now))
            yield family
        for name, help_text, count_of in _COUNTERS:
            counter = CounterMetricFamily(name, help_text, labels=["insight"])
            for scheduler in schedulers:
                counter.add_metric([scheduler.insight_id], count_of(scheduler))
            yield counter
        yield from _customers(
            [(scheduler, customer_shares(scheduler, now)) for scheduler in schedulers]
        )


def customer_shares(scheduler: InsightScheduler, now: datetime) -> Sequence[CustomerShare]:
    """The customers with most waiting, and one that stands for all others."""
    flows = [flow for flow in scheduler.backlog.queue.flows() if not flow.is_idle]
    flows.sort(key=lambda flow: (-flow.ready, -flow.in_flight, flow.customer_id))
    mean, seconds = scheduler.mean_service(now), now.timestamp()
    named = forecast.shares(flows[:MAX_CUSTOMER_LABELS], mean=mean, now=seconds)
    rest = forecast.shares(flows[MAX_CUSTOMER_LABELS:], mean=mean, now=seconds)
    return [*named, _sum_others(rest)] if rest else named


def _sum_others(rest: Sequence[CustomerShare]) -> CustomerShare:
    weight = sum(one.weight for one in rest)
    return CustomerShare(
        customer_id=_OTHERS,
        chosen=0,
        ready=sum(one.ready for one in rest),
        in_flight=sum(one.in_flight for one in rest),
        weight=weight,
        share=sum(one.share * one.weight for one in rest) / weight,
        wait_s=sum(one.wait_s for one in rest) / len(rest),
    )


def _customers(
    shown: Sequence[tuple[InsightScheduler, Sequence[CustomerShare]]],
) -> Iterable[GaugeMetricFamily]:
    for name, help_text, checked_value in _CUSTOMER_GAUGES:
        family = GaugeMetricFamily(
            f"pop_customer_{name}", help_text, labels=["insight", "customer"]
        )
        for scheduler, customers in shown:
            for one in customers:
                family.add_metric([scheduler.insight_id, one.customer_id], checked_value(one))
        yield family
