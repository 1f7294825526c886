"""Gauges and counters per insight and per customer, computed at each scrape."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from pop_stream.model.events.scheduling import CustomerShare
from pop_stream.policy.flow_control import forecast
from pop_stream.ports.clock import Clock
from pop_stream.scheduler.insight import OwnedInsight

MAX_CUSTOMER_LABELS: Final = 20
"""Customers shown by name per insight; the rest are summed as `(others)`."""

_OTHERS: Final = "(others)"

_INSIGHT_GAUGES: Final[Sequence[tuple[str, str, Callable[[OwnedInsight, datetime], float]]]] = (
    ("ready", "Agendas that wait", lambda owned, _: owned.backlog.ready),
    (
        "waiting",
        "Agendas that wait for an instant",
        lambda owned, _: owned.backlog.waiting,
    ),
    (
        "held",
        "Agendas that wait for their release",
        lambda owned, _: owned.backlog.held,
    ),
    (
        "in_flight",
        "Agendas emitted and not settled",
        lambda owned, _: owned.backlog.in_flight,
    ),
    ("bytes", "Bytes of agendas in memory", lambda owned, _: owned.store.size),
    (
        "lag",
        "Records that no puller has claimed",
        lambda owned, _: owned.scheduler.depth.unclaimed,
    ),
    (
        "target",
        "Unclaimed agendas that a refill aims at",
        lambda owned, _: owned.scheduler.target,
    ),
    (
        "rate",
        "Agendas claimed per second",
        lambda owned, _: owned.scheduler.target_depth.rate_per_s,
    ),
    (
        "wait_seconds",
        "Recent mean wait up to emission",
        lambda owned, _: owned.backlog.mean_wait.mean_s,
    ),
    (
        "health",
        "By what the cap on agendas in flight is multiplied",
        lambda owned, _: owned.scheduler.health.coefficient,
    ),
    (
        "gap_seconds",
        "Widest difference of what customers were given per weight, delivered and out",
        lambda owned, now: owned.scheduler.figures(now.timestamp()).gap,
    ),
    (
        "bound_seconds",
        "What the gap cannot exceed",
        lambda owned, now: owned.scheduler.figures(now.timestamp()).bound,
    ),
)

_COUNTERS: Final[Sequence[tuple[str, str, Callable[[OwnedInsight], int]]]] = (
    (
        "pop_agendas_emitted",
        "Agendas ever emitted",
        lambda owned: owned.backlog.emitted,
    ),
    (
        "pop_leases_expired",
        "Attempts whose lease ended, since this process took the insight over",
        lambda owned: owned.backlog.attempts.leases_expired,
    ),
    (
        "pop_commands_ignored",
        "Commands about agendas that are unknown or have ended, likewise",
        lambda owned: owned.backlog.commands.ignored,
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
        insights: The insights of this process now.
        clock: For figures that decay.
    """

    def __init__(self, insights: Callable[[], Sequence[OwnedInsight]], clock: Clock) -> None:
        self._insights = insights
        self._clock = clock

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """All families; each scrape looks at every customer of every insight."""
        now, insights = self._clock.now(), self._insights()
        for name, help_text, value_of in _INSIGHT_GAUGES:
            family = GaugeMetricFamily(f"pop_insight_{name}", help_text, labels=["insight"])
            for owned in insights:
                family.add_metric([owned.insight_id], value_of(owned, now))
            yield family
        for name, help_text, count_of in _COUNTERS:
            counter = CounterMetricFamily(name, help_text, labels=["insight"])
            for owned in insights:
                counter.add_metric([owned.insight_id], count_of(owned))
            yield counter
        yield from _customers([(owned, customer_shares(owned, now)) for owned in insights])


def customer_shares(owned: OwnedInsight, now: datetime) -> Sequence[CustomerShare]:
    """The customers with most waiting, and one that stands for all others."""
    flows = [flow for flow in owned.backlog.queue.flows() if not flow.is_idle]
    flows.sort(key=lambda flow: (-flow.ready, -flow.in_flight, flow.customer_id))
    seconds = now.timestamp()
    mean = owned.scheduler.figures(seconds).mean_service
    named = forecast.customer_shares(flows[:MAX_CUSTOMER_LABELS], mean=mean, now=seconds)
    rest = forecast.customer_shares(flows[MAX_CUSTOMER_LABELS:], mean=mean, now=seconds)
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
    shown: Sequence[tuple[OwnedInsight, Sequence[CustomerShare]]],
) -> Iterable[GaugeMetricFamily]:
    for name, help_text, value_of in _CUSTOMER_GAUGES:
        family = GaugeMetricFamily(
            f"pop_customer_{name}", help_text, labels=["insight", "customer"]
        )
        for owned, customers in shown:
            for one in customers:
                family.add_metric([owned.insight_id, one.customer_id], value_of(one))
        yield family
