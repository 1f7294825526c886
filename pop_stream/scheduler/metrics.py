"""Gauges and counters per insight and per customer, computed at each scrape."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from time import perf_counter
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from pop_stream.model.definitions import Insight
from pop_stream.model.events.scheduling import CustomerShare, EmissionLimit
from pop_stream.policy.backlog.agenda_index import ChosenAgenda
from pop_stream.policy.backlog.outbox import FailedAgenda
from pop_stream.policy.flow_control import forecast
from pop_stream.policy.flow_control.worker_demand import WorkerDemand, worker_demand
from pop_stream.ports.clock import Clock
from pop_stream.scheduler.insight import OwnedInsight
from pop_stream.telemetry.histograms import BoundedLabels, LabelledHistogram

MAX_CUSTOMER_LABELS: Final = 20
"""Customers shown by name per insight; the rest are summed as `(others)`."""

MAX_TRACES: Final = 1_000
"""Sampled agendas that are emitted and not claimed, of which the trace is known."""

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
        "oldest_wait_seconds",
        "For how long the oldest ready agenda has been accepted",
        lambda owned, now: owned.backlog.oldest_wait_s(now.timestamp()),
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
    (
        "pop_costs_overdeclared",
        "Attempts that ended of agendas whose declared cost is far beyond the usual, likewise",
        lambda owned: owned.backlog.costs.overdeclared,
    ),
)

_CUSTOMER_GAUGES: Final[Sequence[tuple[str, str, Callable[[CustomerShare], float]]]] = (
    ("ready", "Agendas that wait", lambda one: one.ready),
    ("in_flight", "Agendas emitted and not settled", lambda one: one.in_flight),
    ("share", "Recent service per weight, 1 is a fair share", lambda one: one.share),
    ("wait_seconds", "Recent mean wait up to emission", lambda one: one.wait_s),
)


_DEMAND_GAUGES: Final[Sequence[tuple[str, str, Callable[[WorkerDemand, Insight], float]]]] = (
    (
        "eligible",
        "Agendas that wait for nothing but busy pullers: not paused, capped or limited",
        lambda demand, _: demand.eligible,
    ),
    (
        "eligible_seconds",
        "Worker-seconds that the eligible agendas are estimated to take",
        lambda demand, _: demand.eligible_s,
    ),
    (
        "replicas_wanted",
        "Pullers that work off what waits within the wanted drain time, and run what runs",
        lambda demand, insight: demand.replicas(insight),
    ),
)


class SchedulerCollector(Collector):
    """Gauges per insight, and per customer for those with the largest backlogs.

    Args:
        insights: The insights of this process now.
        clock: For figures that decay.
        limiting_cause: What keeps an insight from emitting beside its depth and its customers'
            limits.
    """

    def __init__(
        self,
        insights: Callable[[], Sequence[OwnedInsight]],
        clock: Clock,
        limiting_cause: Callable[[OwnedInsight], EmissionLimit] = lambda _: "",
    ) -> None:
        self._insights = insights
        self._clock = clock
        self._limiting_cause = limiting_cause

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """All families; each scrape looks at every customer of every insight."""
        now, insights = self._clock.now(), self._insights()
        yield from self._demands(insights, now)
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

    def _demands(
        self, insights: Sequence[OwnedInsight], now: datetime
    ) -> Iterable[GaugeMetricFamily]:
        demands = [
            (
                owned.backlog.insight,
                worker_demand(
                    owned.backlog, now.timestamp(), limited_by=self._limiting_cause(owned)
                ),
            )
            for owned in insights
        ]
        for name, help_text, value_of in _DEMAND_GAUGES:
            family = GaugeMetricFamily(f"pop_insight_{name}", help_text, labels=["insight"])
            for insight, demand in demands:
                family.add_metric([insight.id], value_of(demand, insight))
            yield family


class RoundMetrics:
    """What rounds and claims took; for one scheduler, in its event loop.

    Args:
        registry: Where it is shown.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._emissions = LabelledHistogram(
            "pop_submission_to_emission_seconds",
            "From an agenda's acceptance, or the instant it was due at, to its first emission.",
            ["insight"],
        )
        self._starts = LabelledHistogram(
            "pop_submission_to_start_seconds",
            "From an agenda's acceptance, or the instant it was due at, to its first claim.",
            ["insight"],
        )
        for one in (self._emissions, self._starts):
            registry.register(one)
        self._rounds = Histogram(
            "pop_round_seconds",
            "Of the rounds that one record leads to: until all their records are acknowledged.",
            buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
            registry=registry,
        )
        self._failed = Counter(
            "pop_agendas_failed",
            "Agendas that failed for good, by why: attempts_exhausted or final_failure.",
            ["insight", "code"],
            registry=registry,
        )
        self._insights = BoundedLabels()
        self._traces = OrderedDict[str, str]()

    def note_traces(self, traces: Iterable[tuple[str, str]]) -> None:
        """Take note of traces of agendas that are emitted, until they are claimed.

        Args:
            traces: Ids of agendas, each with that of its trace.
        """
        for agenda_id, trace_id in traces:
            self._traces[agenda_id] = trace_id
            if len(self._traces) > MAX_TRACES:
                self._traces.popitem(last=False)

    @contextmanager
    def round_timed(self) -> Iterator[None]:
        """Measure the writing of rounds, whether it succeeds or fails."""
        started = perf_counter()
        try:
            yield
        finally:
            self._rounds.observe(perf_counter() - started)

    def record_emissions(
        self, insight_id: str, chosen: Iterable[ChosenAgenda], at: float
    ) -> None:
        """Count the waits of a round that is published."""
        for one in chosen:
            if one.wait_s is not None:
                self._emissions.observe(
                    (insight_id,),
                    one.wait_s,
                    example=one.agenda_id,
                    trace_id=self._traces.get(one.agenda_id, ""),
                    at=at,
                )

    def record_starts(self, owned: OwnedInsight, at: float) -> None:
        """Count the waits of agendas that were claimed since the last call."""
        for agenda_id, wait_s in owned.backlog.drain_start_waits():
            self._starts.observe(
                (owned.insight_id,),
                wait_s,
                example=agenda_id,
                trace_id=self._traces.pop(agenda_id, ""),
                at=at,
            )

    def record_failed(self, insight_id: str, failed: Iterable[FailedAgenda]) -> None:
        """Count agendas that failed for good."""
        for one in failed:
            [shown] = self._insights.of((insight_id,))
            self._failed.labels(shown, one.code).inc()


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
