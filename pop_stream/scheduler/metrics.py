"""What the scheduler shows of its insights, read afresh at every scrape."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from pop_stream.core.events import CustomerShare
from pop_stream.core.gate import admission, forecast
from pop_stream.ports.clock import Clock
from pop_stream.scheduler.desk import Desk

CUSTOMERS: Final = 20
"""Customers shown by name per insight; the rest are summed as `(others)`."""

_OTHERS: Final = "(others)"

_INSIGHT_GAUGES: Final[Sequence[tuple[str, str, Callable[[Desk, datetime], float]]]] = (
    ("ready", "Agendas that wait", lambda desk, _: desk.backlog.ready),
    ("waiting", "Agendas that wait for an instant", lambda desk, _: desk.backlog.waiting),
    ("held", "Agendas that wait for their release", lambda desk, _: desk.backlog.held),
    ("in_flight", "Agendas emitted and not settled", lambda desk, _: desk.backlog.in_flight),
    ("bytes", "Bytes of agendas in memory", lambda desk, _: desk.shelf.size),
    ("lag", "Records that no puller has claimed", lambda desk, _: desk.depth.unclaimed),
    (
        "target",
        "Unclaimed agendas that a refill aims at",
        lambda desk, _: admission.target(desk.backlog.insight, desk.pace),
    ),
    ("rate", "Agendas claimed per second", lambda desk, _: desk.pace.rate_per_s),
    (
        "wait_seconds",
        "Recent mean wait up to emission",
        lambda desk, _: desk.backlog.waits.mean_s,
    ),
    (
        "gap_seconds",
        "Widest difference of customers' places on the virtual clock",
        lambda desk, now: desk.gap(now),
    ),
    (
        "bound_seconds",
        "What the gap cannot exceed",
        lambda desk, now: desk.bound(now),
    ),
)

_COUNTERS: Final[Sequence[tuple[str, str, Callable[[Desk], int]]]] = (
    ("pop_agendas_emitted", "Agendas ever emitted", lambda desk: desk.backlog.emitted),
    (
        "pop_attempts_lost",
        "Attempts whose lease ended, since this worker took the insight over",
        lambda desk: desk.backlog.attempts.lost,
    ),
    (
        "pop_commands_ignored",
        "Commands about agendas that are unknown or have ended, likewise",
        lambda desk: desk.backlog.steering.ignored,
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
        desks: The insights of this worker now.
        clock: For figures that fade.
    """

    def __init__(self, desks: Callable[[], Sequence[Desk]], clock: Clock) -> None:
        self._desks = desks
        self._clock = clock

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """All families; costs a look at every customer."""
        now, desks = self._clock.now(), self._desks()
        for name, help_text, value_of in _INSIGHT_GAUGES:
            family = GaugeMetricFamily(f"pop_insight_{name}", help_text, labels=["insight"])
            for desk in desks:
                family.add_metric([desk.insight_id], value_of(desk, now))
            yield family
        for name, help_text, count_of in _COUNTERS:
            counter = CounterMetricFamily(name, help_text, labels=["insight"])
            for desk in desks:
                counter.add_metric([desk.insight_id], count_of(desk))
            yield counter
        yield from _customers([(desk, customers_shown(desk, now)) for desk in desks])


def customers_shown(desk: Desk, now: datetime) -> Sequence[CustomerShare]:
    """The customers with most waiting, and one that stands for all others."""
    flows = [flow for flow in desk.backlog.queue.flows() if not flow.is_idle]
    flows.sort(key=lambda flow: (-flow.ready, -flow.in_flight, flow.customer_id))
    mean, seconds = desk.mean_service(now), now.timestamp()
    named = forecast.shares(flows[:CUSTOMERS], mean=mean, now=seconds)
    rest = forecast.shares(flows[CUSTOMERS:], mean=mean, now=seconds)
    return [*named, _sum(rest)] if rest else named


def _sum(rest: Sequence[CustomerShare]) -> CustomerShare:
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
    shown: Sequence[tuple[Desk, Sequence[CustomerShare]]],
) -> Iterable[GaugeMetricFamily]:
    for name, help_text, value_of in _CUSTOMER_GAUGES:
        family = GaugeMetricFamily(
            f"pop_customer_{name}", help_text, labels=["insight", "customer"]
        )
        for desk, customers in shown:
            for one in customers:
                family.add_metric([desk.insight_id, one.customer_id], value_of(one))
        yield family
